"""The functional core: one definition of every objective, for one network or a stack of them."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from marginctl.errors import RequestError
from marginctl.objectives.least_squares import least_squares_scale
from marginctl.objectives.loss import LOSSES, Loss
from marginctl.objectives.margin import MARGINS, Margin
from marginctl.objectives.regularizer import REGULARIZERS, Regularizer, add_to_rows, rows_of
from marginctl.objectives.scale import SCALES, Batch, FeatureNormWeightNorm, Scale, State
from marginctl.objectives.schedule import Schedule
from marginctl.objectives.similarity import SIMILARITIES, Cosine, Saved, Similarity
from marginctl.objectives.spec import Part, Spec, accept_spec

T = TypeVar("T")


class Pull(NamedTuple):
    """The derivatives of each sample's loss, before it is known what the samples count."""

    product: Tensor  # (..., N, C), of the similarity's product
    targets: Tensor  # (..., N)
    saved: Saved
    scale: Tensor | None = None  # (..., N), of the scale
    features: Tensor | None = None  # (..., N, d), of the features, beside the similarity's
    weights: Tensor | None = None  # (..., C, d), of the class weights, the same for all samples
    own_length: Tensor | None = None  # (..., N, 1), of |w_y|


class Gradient(NamedTuple):
    """The gradient of sum(row_weight x loss)."""

    features: Tensor  # (..., N, d)
    weights: Tensor  # (..., C, d)
    bias: Tensor | None  # (..., C)
    log_scale: Tensor | None  # (...), of a learned scale


class _Parts(NamedTuple):
    similarity: Similarity
    scale: Scale
    margin: Margin
    loss: Loss
    regularizers: list[Regularizer]


class ObjectiveFunction:
    """Loss, logits and similarities as functions of features, class weights and state.

    Every tensor may have any number of leading dimensions, which stack independent networks:
    features (..., N, d), weights (..., C, d), bias (..., C), targets and valid (..., N). Losses
    compute in float32 or wider, whatever the features' dtype.

    Attributes:
        has_bias: whether the classifier has one.
        trained: names of the state's entries that are parameters.
        schedules: what the state's other entries follow, by name.

    Raises:
        RequestError: fewer than two classes, an unknown part, or parts that do not fit.
    """

    def __init__(self, spec: Spec, num_classes: int) -> None:
        if num_classes < 2:
            raise RequestError(
                f"num_classes = {num_classes}: a classification loss needs at least 2 classes"
            )
        spec = accept_spec(spec)
        self.spec, self.num_classes = spec, num_classes
        self.schedules: dict[str, Schedule] = {}
        for role, made in spec.parts:
            for option, value in made.options:
                if isinstance(value, Schedule):
                    self.schedules[_entry(role, made, option)] = value
        start = {name: torch.tensor(s.value(0, 1)) for name, s in self.schedules.items()}
        self._constant = self._build(start)
        self.has_bias = self._constant.similarity.has_bias
        self.trained = ("log_scale",) if self._constant.scale.pulls == "log_scale" else ()

    def _build(self, state: State) -> _Parts:
        """The parts, scheduled options at their values in `state`."""

        def make(kinds: Mapping[str, type[T]], made: Part, role: str, *args: object) -> T:
            several = role == "regularizers"
            options = dict(made.options)
            for option, value in options.items():
                if isinstance(value, Schedule):
                    now = state[_entry(role, made, option)].unsqueeze(-1)  # for (..., N)
                    options[option] = now if several else now.unsqueeze(-1)  # for (..., N, C)
            return kinds[made.kind](*args, **options)

        spec = self.spec
        scale = make(SCALES, spec.scale, "scale", self.num_classes)
        if isinstance(scale, FeatureNormWeightNorm):
            similarity: Similarity = Cosine(keep_weight_norm=True)
        else:
            similarity = make(SIMILARITIES, spec.similarity, "similarity")
        return _Parts(
            similarity,
            scale,
            make(MARGINS, spec.margin, "margin"),
            make(LOSSES, spec.loss, "loss"),
            [make(REGULARIZERS, r, "regularizers") for r in spec.regularizers],
        )

    def _parts(self, state: State) -> _Parts:
        return self._build(state) if self.schedules else self._constant

    def init_state(self, weights: Tensor) -> State:
        """The state before the first batch, for class weights of this shape (..., C, d)."""
        parts = self._constant
        state = parts.scale.init_state(weights)
        for regularizer in parts.regularizers:
            state |= regularizer.init_state(weights)
        for name, schedule in self.schedules.items():
            state[name] = weights.new_full(weights.shape[:-2], schedule.value(0, 1))
        return state

    @torch.no_grad()
    def set_progress(self, state: State, step: int, total_steps: int) -> None:
        """Sets what follows a schedule to its value at `step` of `total_steps`, in place."""
        for name, schedule in self.schedules.items():
            state[name].fill_(schedule.value(step, total_steps))

    def similarities(self, features: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
        """(..., N, C): unscaled, without margin; its argmax is the prediction. Differentiable."""
        similarity = self._constant.similarity
        features, weights, bias = _wide(features, weights, bias)
        if not _needs_gradient(features, weights, bias):
            return similarity.forward(features, weights, bias)[0]
        found: Tensor = _Similarities.apply(similarity, features, weights, bias)
        return found

    def logits(
        self, features: Tensor, weights: Tensor, state: State, bias: Tensor | None = None
    ) -> Tensor:
        """(..., N, C): scale x similarity, without margin. Differentiable."""
        features, weights, bias = _wide(features, weights, bias)
        similarity = self.similarities(features, weights, bias)
        batch = Batch(features, weights, similarity)
        return similarity * self._parts(state).scale.factor(batch, _wide_state(state))

    @torch.no_grad()
    def optimal_scale(self, features: Tensor, weights: Tensor) -> Tensor:
        """(..., N): the least-squares kappa* of each sample, for a cosine similarity."""
        features, weights, _ = _wide(features, weights, None)
        cosines, _ = Cosine().forward(features, weights, None)
        found: Tensor = least_squares_scale(cosines, features, weights)
        return found

    def __call__(
        self,
        features: Tensor,
        weights: Tensor,
        targets: Tensor,
        valid: Tensor | None,
        state: State,
        *,
        bias: Tensor | None = None,
        training: bool = True,
    ) -> tuple[Tensor, State]:
        """The loss of each sample (..., N) and the state after this batch.

        Args:
            valid: rows that count; statistics over the batch use these alone. None means all. The
                loss of the other rows is meaningless, and finite where their features are.
            training: whether the batch moves the state (AdaCos's scale, the centers). With False
                the state comes back as it was.
        """
        features, weights, bias = _wide(features, weights, bias)
        state = _wide_state(state)
        trained = tuple(state[name] for name in self.trained)
        if not _needs_gradient(features, weights, bias, *trained):
            loss, after, _ = self._evaluate(
                features, weights, targets, valid, state, bias, training=training, pull=False
            )
            return loss, after
        fixed = {name: value for name, value in state.items() if name not in self.trained}
        names = (*self.trained, *fixed)
        loss, *moved = _Loss.apply(
            *(self, names, training, features, weights, bias, targets, valid),
            *(state[name] for name in names),
        )
        return loss, {**state, **dict(zip(fixed, moved, strict=True))}

    @torch.no_grad()
    def gradient(
        self,
        features: Tensor,
        weights: Tensor,
        targets: Tensor,
        valid: Tensor | None,
        state: State,
        *,
        row_weight: Tensor,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, State, Gradient]:
        """What `__call__` in training gives, and the gradient of sum(row_weight x loss).

        Without autograd, whose bookkeeping is most of the time in a stack of small networks.
        """
        loss, after, pull = self._evaluate(
            features, weights, targets, valid, state, bias, training=True, pull=True
        )
        assert pull is not None
        return loss, after, self._backward(pull, row_weight)

    def _evaluate(
        self,
        features: Tensor,
        weights: Tensor,
        targets: Tensor,
        valid: Tensor | None,
        state: State,
        bias: Tensor | None,
        *,
        training: bool,
        pull: bool,
    ) -> tuple[Tensor, State, Pull | None]:
        """The loss of each sample, the state after, and the derivatives if they are asked for."""
        parts = self._parts(state)
        margin, regularizers = parts.margin, parts.regularizers
        similarity, saved = parts.similarity.forward(features, weights, bias)
        batch = Batch(features, weights, similarity, targets, valid)
        after = parts.scale.observe(batch, state) if training else {}
        factor = parts.scale.factor(batch, {**state, **after})

        index = targets.unsqueeze(-1)
        own = similarity.gather(-1, index)
        moved, slope, of_length = own, None, None
        if margin.stage == "similarity":
            length = None
            if isinstance(parts.scale, FeatureNormWeightNorm):  # a cosine for the margin
                assert saved.weight_norm is not None
                length = rows_of(saved.weight_norm.mT, targets)
            cosine = own if length is None else own / length
            moved, slope = margin.apply(cosine), margin.slope(cosine)
            if length is not None:
                of_length = moved - cosine * (1.0 if slope is None else slope)
                moved = moved * length

        logits = similarity
        if not (isinstance(factor, float) and factor == 1):
            logits = similarity.mul_(factor)
        if moved is not own:
            logits.scatter_(-1, index, moved * factor)
        own_logit = moved * factor
        if margin.stage == "logit":
            slope = margin.slope(own_logit)
            logits.scatter_(-1, index, margin.apply(own_logit))

        looked_at = {"features": features, "logits": logits, "target": own, "weights": weights}
        if not pull:
            loss = parts.loss.forward(logits, targets) + margin.offset
            for regularizer in regularizers:
                loss = loss + regularizer.penalty(looked_at[regularizer.on], targets, state)
            return loss, self._observed(regularizers, batch, state, after, training), None

        loss, upstream = parts.loss.gradient(logits, targets)
        loss = loss + margin.offset
        pulls = {"logits": upstream}
        for regularizer in regularizers:
            on = looked_at[regularizer.on]
            if regularizer.on not in pulls:
                pulls[regularizer.on] = torch.zeros_like(on)
            loss = loss + regularizer.add_gradient(on, targets, state, pulls[regularizer.on])
        of_own = upstream.gather(-1, index)
        of_scale = None
        if parts.scale.pulls != "nothing":
            # of its logarithm: the logits are the factor times what it multiplies
            of_scale = torch.einsum("...c,...c->...", upstream, logits)
            if margin.stage == "logit":
                changed = own_logit - logits.gather(-1, index)
                of_scale += (of_own * changed).squeeze(-1)
        if not (isinstance(factor, float) and factor == 1):
            upstream.mul_(factor)
            of_own = of_own * factor
        if of_length is not None:
            of_length = of_own * of_length
        if slope is not None or "target" in pulls:
            of_own = of_own if slope is None else of_own * slope
            upstream.scatter_(-1, index, of_own + pulls.get("target", 0.0))
        upstream = parts.similarity.to_product(upstream, saved)
        found = Pull(
            upstream,
            targets,
            saved._replace(cosine=None),
            of_scale,
            pulls.get("features"),
            pulls.get("weights"),
            of_length,
        )
        return loss, self._observed(regularizers, batch, state, after, training), found

    @staticmethod
    def _observed(
        regularizers: list[Regularizer], batch: Batch, state: State, after: State, training: bool
    ) -> State:
        assert batch.targets is not None
        for regularizer in regularizers if training else []:
            after |= regularizer.observe(batch.features, batch.targets, batch.valid, state)
        return {**state, **after}

    def _backward(self, pull: Pull, row_weight: Tensor) -> Gradient:
        """The gradient of sum(row_weight x loss); leaves `pull` as it is."""
        saved, in_rows = pull.saved, row_weight.unsqueeze(-1)
        similarity, scale = self._constant.similarity, self._constant.scale
        of_features, of_weights = similarity.backward(pull.product, saved, row_weight)
        if pull.features is not None:
            of_features = of_features.addcmul_(pull.features, in_rows)
        if pull.weights is not None:
            of_weights += pull.weights * row_weight.sum(-1)[..., None, None]
        of_log_scale = None
        if scale.pulls == "log_scale":
            assert pull.scale is not None
            of_log_scale = (pull.scale * row_weight).sum(-1)
        if scale.pulls == "feature-norm":
            assert pull.scale is not None
            assert saved.feature_norm is not None
            radial = (pull.scale.unsqueeze(-1) / saved.feature_norm).mul_(in_rows)
            of_features = of_features.addcmul_(radial, saved.features)
        if pull.own_length is not None:
            assert saved.weight_norm is not None
            own = rows_of(saved.weights, pull.targets) / rows_of(saved.weight_norm.mT, pull.targets)
            add_to_rows(of_weights, pull.targets, own.mul_(pull.own_length * in_rows))
        of_bias = (row_weight.unsqueeze(-2) @ pull.product).squeeze(-2) if self.has_bias else None
        return Gradient(of_features, of_weights, of_bias, of_log_scale)


def _entry(role: str, made: Part, option: str) -> str:
    """The name in the state of an option that follows a schedule."""
    owner = made.kind if role == "regularizers" else role
    return f"{owner}_{option}".replace("-", "_")


def _wide(
    features: Tensor, weights: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """All in one dtype, float32 or wider: the weights' where they are not half themselves."""
    dtype = torch.promote_types(weights.dtype, torch.float32)
    return features.to(dtype), weights.to(dtype), None if bias is None else bias.to(dtype)


def _wide_state(state: State) -> State:
    return {k: v.to(torch.promote_types(v.dtype, torch.float32)) for k, v in state.items()}


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


class _Loss(torch.autograd.Function):
    """Joins `_evaluate` and `_backward` to autograd.

    The derivative is taken in the forward pass, while the logits are at hand, so that one (N, C)
    matrix is kept for the backward pass, which is two matrix products.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        function: ObjectiveFunction,
        names: tuple[str, ...],
        training: bool,
        features: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        valid: Tensor | None,
        *values: Tensor,
    ) -> tuple[Tensor, ...]:
        state = dict(zip(names, values, strict=True))
        loss, after, pull = function._evaluate(
            features, weights, targets, valid, state, bias, training=training, pull=True
        )
        assert pull is not None
        product, targets, saved, *others = pull
        ctx.save_for_backward(product, targets, *saved, *others)  # type: ignore[arg-type]
        ctx.function, ctx.states = function, len(names)  # type: ignore[attr-defined]
        # an output must not be an input
        moved = tuple(
            after[n] if after[n] is not state[n] else after[n].clone()
            for n in names
            if n not in function.trained
        )
        ctx.mark_non_differentiable(*moved)
        return (loss, *moved)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        product, targets, *others = ctx.saved_tensors
        saved = Saved(*others[: len(Saved._fields)])
        pull = Pull(product, targets, saved, *others[len(Saved._fields) :])
        found = ctx.function._backward(pull, of_loss)
        of_state: list[Tensor | None] = [None] * ctx.states
        if found.log_scale is not None:
            of_state[0] = found.log_scale
        return (
            *(None, None, None, found.features, found.weights, found.bias, None, None),
            *of_state,
        )


class _Similarities(torch.autograd.Function):
    """Joins a similarity to autograd."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        similarity: Similarity,
        features: Tensor,
        weights: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        found, saved = similarity.forward(features, weights, bias)
        ctx.save_for_backward(*saved)  # type: ignore[arg-type]
        ctx.similarity = similarity  # type: ignore[attr-defined]
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, similarity = Saved(*ctx.saved_tensors), ctx.similarity
        of_bias = grad.sum(-2) if similarity.has_bias else None
        grad = similarity.to_product(grad.clone(), saved)
        of_features, of_weights = similarity.backward(grad, saved, torch.ones_like(grad[..., 0]))
        return None, of_features, of_weights, of_bias


def check_targets(targets: Tensor, rows: int, num_classes: int) -> None:
    """Refuses targets that no classification loss can use, before they reach a kernel.

    Raises:
        ValueError: wrong dtype, shape, or a label outside 0 .. num_classes - 1.
    """
    if targets.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise ValueError(f"target: dtype {targets.dtype}, expected an integer dtype such as int64")
    if targets.shape != (rows,):
        raise ValueError(
            f"target: shape {tuple(targets.shape)}, expected ({rows},): one label a feature"
        )
    if rows and not torch.compiler.is_compiling():
        low, high = targets.min().item(), targets.max().item()
        if low < 0 or high >= num_classes:
            raise ValueError(
                f"target: labels from {low} to {high}, expected 0 to {num_classes - 1} "
                f"({num_classes} classes)"
            )
