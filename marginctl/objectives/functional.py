"""The functional core: one definition of every objective, for one network or a stack of them."""

from typing import Any

import torch
from torch import Tensor

from marginctl.errors import RequestError
from marginctl.objectives.autograd import (
    Gradient,
    Inputs,
    LossFunction,
    Parts,
    SimilarityFunction,
    backward_pass,
    forward_pass,
    training_logits,
)
from marginctl.objectives.least_squares import least_squares_scale
from marginctl.objectives.losses import Loss
from marginctl.objectives.margins import Margin
from marginctl.objectives.parts import PARTS, ObjectiveSpec, Part, check_scale_value, validate_spec
from marginctl.objectives.regularizers import Regularizer
from marginctl.objectives.scales import Batch, FeatureNormWeightNorm, Scale, State
from marginctl.objectives.schedules import Schedule
from marginctl.objectives.similarities import Cosine, Similarity
from marginctl.utils.plugins import reason
from marginctl.utils.registry import import_object

_BASES = {
    "similarity": Similarity,
    "scale": Scale,
    "margin": Margin,
    "loss": Loss,
    "regularizers": Regularizer,
}


class ObjectiveFunction:
    """Loss, logits and similarities as functions of features, class weights and state.

    Every tensor may have any number of leading dimensions, which stack independent networks:
    features (..., N, d), weights (..., C, d), bias (..., C), targets and valid (..., N). Losses
    compute in float32 or wider, whatever the features' dtype.

    Attributes:
        trained: names of the state's entries that are parameters.

    Raises:
        RequestError: fewer than two classes, an unknown part, parts that do not fit, or a scale
            that is taken from a run.
    """

    def __init__(self, spec: ObjectiveSpec, num_classes: int) -> None:
        if num_classes < 2:
            raise RequestError(
                f"num_classes = {num_classes}: a classification loss needs at least 2 classes"
            )
        spec = validate_spec(spec)
        check_scale_value("objective", spec)
        self.spec, self.num_classes = spec, num_classes
        self.schedules: dict[str, Schedule] = {
            _state_name(role, part, option): value
            for role, part in spec.parts
            for option, value in part.options
            if isinstance(value, Schedule)
        }
        self._classes = {(role, part.kind): _part_class(role, part) for role, part in spec.parts}
        start = {name: torch.tensor(s.value(0, 1)) for name, s in self.schedules.items()}
        for role, part in spec.parts:
            try:
                self._create(role, part, start)
            except Exception as error:  # a plug-in's code can raise anything
                raise RequestError(f"{_owner(role, part)} fails: {reason(error)}") from None
        self._constant = self._build(start)
        self.has_bias = self._constant.similarity.has_bias
        self.trained = ("log_scale",) if self._constant.scale.gradient_to == "log_scale" else ()

    def _build(self, state: State) -> Parts:
        """Return the parts with scheduled options at their values in `state`."""
        spec = self.spec
        scale = self._create("scale", spec.scale, state)
        if isinstance(scale, FeatureNormWeightNorm):
            similarity: Similarity = Cosine(keep_weight_norm=True)
        else:
            similarity = self._create("similarity", spec.similarity, state)
        return Parts(
            similarity,
            scale,
            self._create("margin", spec.margin, state),
            self._create("loss", spec.loss, state),
            [self._create("regularizers", r, state) for r in spec.regularizers],
        )

    def _create(self, role: str, part: Part, state: State) -> Any:
        options = dict(part.options)
        for option, value in options.items():
            if isinstance(value, Schedule):
                now = state[_state_name(role, part, option)].unsqueeze(-1)  # for (..., N)
                # for (..., N, C)
                options[option] = now if role == "regularizers" else now.unsqueeze(-1)
        arguments = (self.num_classes,) if role == "scale" else ()
        return self._classes[role, part.kind](*arguments, **options)

    def _parts(self, state: State) -> Parts:
        return self._build(state) if self.schedules else self._constant

    def init_state(self, weights: Tensor) -> State:
        """Return the state before the first batch, for class weights of this shape (..., C, d)."""
        parts = self._constant
        state = parts.scale.init_state(weights)
        for regularizer in parts.regularizers:
            state |= regularizer.init_state(weights)
        for name, schedule in self.schedules.items():
            state[name] = weights.new_full(weights.shape[:-2], schedule.value(0, 1))
        return state

    @torch.no_grad()
    def set_progress(self, state: State, step: int, total_steps: int) -> None:
        """Set scheduled options to their values at `step` of `total_steps`, in place."""
        for name, schedule in self.schedules.items():
            state[name].fill_(schedule.value(step, total_steps))

    def similarities(self, features: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return (..., N, C) similarities, unscaled, without margin. Differentiable."""
        similarity = self._constant.similarity
        features, weights, bias = _promote(features, weights, bias)
        if not _needs_gradient(features, weights, bias):
            return similarity.forward(features, weights, bias)[0]
        _check_no_transform()
        values: Tensor = SimilarityFunction.apply(similarity, features, weights, bias)
        return values

    def logits(
        self, features: Tensor, weights: Tensor, state: State, bias: Tensor | None = None
    ) -> Tensor:
        """Return (..., N, C) scale x similarity, without margin. Differentiable."""
        similarity = self.similarities(features, weights, bias)
        return self.scale_similarities(similarity, features, weights, state)

    def scale_similarities(
        self, similarity: Tensor, features: Tensor, weights: Tensor, state: State
    ) -> Tensor:
        """Return the `logits` from the similarities (..., N, C) of these features and weights."""
        features, weights, _ = _promote(features, weights, None)
        batch = Batch(features, weights, similarity)
        return similarity * self._parts(state).scale.factor(batch, _promote_state(state))

    @torch.no_grad()
    def training_logits(
        self,
        features: Tensor,
        weights: Tensor,
        targets: Tensor,
        state: State,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Return (..., N, C) logits of the training loss, with the margin on the target's."""
        features, weights, bias = _promote(features, weights, bias)
        parts, state = self._parts(state), _promote_state(state)
        similarity, saved = parts.similarity.forward(features, weights, bias)
        batch = Batch(features, weights, similarity, targets)
        return training_logits(parts, batch, similarity, saved, state).values

    @torch.no_grad()
    def optimal_scale(self, features: Tensor, weights: Tensor) -> Tensor:
        """Return (..., N) least-squares kappa* of each sample, for a cosine similarity."""
        features, weights, _ = _promote(features, weights, None)
        cosines, _ = Cosine().forward(features, weights, None)
        kappa: Tensor = least_squares_scale(cosines, features, weights)
        return kappa

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
        """Return the loss of each sample (..., N) and the state after this batch.

        Args:
            valid: rows that count; batch statistics use these alone. None means all. The loss of
                the other rows is meaningless, and finite if their features are.
            training: whether the batch updates the state (AdaCos's scale, the centers).
        """
        features, weights, bias = _promote(features, weights, bias)
        state = _promote_state(state)
        inputs = Inputs(features, weights, bias, targets, valid)
        trained = tuple(state[name] for name in self.trained)
        if not _needs_gradient(features, weights, bias, *trained):
            loss, after, _ = forward_pass(
                self._parts(state), inputs, state, training=training, with_gradients=False
            )
            return loss, after
        fixed = {name: value for name, value in state.items() if name not in self.trained}
        names = (*self.trained, *fixed)
        values = (state[name] for name in names)
        _check_no_transform()
        loss, *updated = LossFunction.apply(
            self._parts, len(self.trained), names, training, *inputs, *values
        )
        return loss, {**state, **dict(zip(fixed, updated, strict=True))}

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
        """Return loss and state as `__call__`, and the gradient of sum(row_weight loss).

        It avoids autograd, whose bookkeeping takes most of the time in a stack of small networks.
        """
        parts = self._parts(state)
        inputs = Inputs(features, weights, bias, targets, valid)
        loss, after, gradients = forward_pass(
            parts, inputs, state, training=True, with_gradients=True
        )
        assert gradients is not None
        return loss, after, backward_pass(parts, gradients, row_weight)


def _part_class(role: str, part: Part) -> Any:
    registry = PARTS[role]
    path = registry[part.kind].path
    return import_object(path, f"{registry.kind} '{part.kind}'", _BASES[role])


def _owner(role: str, part: Part) -> str:
    return f"{PARTS[role].kind} '{part.kind}' ({PARTS[role][part.kind].path})"


def _state_name(role: str, part: Part, option: str) -> str:
    """Return the name in the state of an option that follows a schedule."""
    owner = part.kind if role == "regularizers" else role
    return f"{owner}_{option}".replace("-", "_")


def _promote(
    features: Tensor, weights: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return all in the weights' dtype, or in float32 where that is half precision."""
    dtype = torch.promote_types(weights.dtype, torch.float32)
    return features.to(dtype), weights.to(dtype), None if bias is None else bias.to(dtype)


def _promote_state(state: State) -> State:
    return {k: v.to(torch.promote_types(v.dtype, torch.float32)) for k, v in state.items()}


def _check_no_transform() -> None:
    """Raise RequestError under `torch.func.grad` and the like.

    They do not see derivatives that are written out without `setup_context`, as these are.
    """
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        raise RequestError(
            "torch.func's transforms cannot differentiate an objective, whose derivative is "
            "written out: use torch.autograd.grad, with create_graph=True for a second derivative"
        )


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def check_targets(targets: Tensor, rows: int, num_classes: int) -> None:
    """Raise ValueError for targets of a wrong dtype or shape, or with a label out of range.

    Labels on an accelerator are not read: that would wait for all its work.
    """
    if targets.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise ValueError(f"target: dtype {targets.dtype}, expected an integer dtype such as int64")
    if targets.shape != (rows,):
        raise ValueError(
            f"target: shape {tuple(targets.shape)}, expected ({rows},): one label per feature"
        )
    if rows and targets.device.type == "cpu" and not torch.compiler.is_compiling():
        low, high = targets.min().item(), targets.max().item()
        if low < 0 or high >= num_classes:
            raise ValueError(
                f"target: labels from {low} to {high}, expected 0 to {num_classes - 1} "
                f"({num_classes} classes)"
            )


def check_plugin_parts(spec: ObjectiveSpec, num_classes: int) -> None:
    """Run a training step on a few random rows, if a composition has parts of plug-ins."""
    from_plugins = [(role, p) for role, p in spec.parts if PARTS[role].origin(p.kind)]
    if not from_plugins:
        return
    role, part = from_plugins[0]
    owner = _owner(role, part)
    function = ObjectiveFunction(spec, num_classes)
    stream = torch.Generator().manual_seed(0)
    features = torch.randn(1, 5, 3, generator=stream)
    weights = torch.randn(1, num_classes, 3, generator=stream)
    targets = torch.tensor([[0, 1, 0, 1, 1]])
    state = function.init_state(weights)
    try:
        loss, _, gradient = function.gradient(
            features, weights, targets, None, state, row_weight=torch.full((1, 5), 0.2)
        )
        plain, _ = function(features, weights, targets, None, state, training=False)
    except Exception as error:  # a plug-in's code can raise anything
        raise RequestError(f"{owner} fails: {reason(error)}") from None
    if loss.shape != (1, 5) or plain.shape != (1, 5) or not loss.is_floating_point():
        raise RequestError(
            f"{owner}: the loss has shape {tuple(loss.shape)} for 5 samples in 1 network: expected "
            "one value a sample, (..., N)"
        )
    if not (gradient.features.isfinite().all() and gradient.weights.isfinite().all()):
        raise RequestError(f"{owner}: its gradient is not finite")
