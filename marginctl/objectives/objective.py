"""The functional core: one definition of every objective, for one network or a stack of them."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from marginctl.errors import RequestError
from marginctl.objectives.loss import LOSSES, Loss
from marginctl.objectives.margin import MARGINS, Margin
from marginctl.objectives.regularizer import REGULARIZERS, Regularizer
from marginctl.objectives.scale import SCALES, AdaCos, Fixed, State
from marginctl.objectives.similarity import SIMILARITIES, Similarity
from marginctl.objectives.spec import Part, Spec, check_fits
from marginctl.text import did_you_mean

T = TypeVar("T")


def _lookup(parts: Mapping[str, T], part: Part, role: str) -> T:
    if part.kind not in parts:
        raise RequestError(
            f"unknown {role} '{part.kind}': expected one of {', '.join(parts)}."
            + did_you_mean(part.kind, parts)
        )
    return parts[part.kind]


def _make(parts: Mapping[str, Any], part: Part, role: str, *args: object) -> Any:
    kind = _lookup(parts, part, role)
    try:
        return kind(*args, **dict(part.options))
    except TypeError as error:  # an option too many or too few
        reason = str(error).replace(f"{kind.__name__}.__init__() ", "")
        raise RequestError(f"{role} '{part.kind}': {reason}") from None


class Gradient(NamedTuple):
    """The loss of each sample (..., N), the state after, and gradients."""

    loss: Tensor
    state: State
    features: Tensor  # (..., N, d)
    weights: Tensor  # (..., C, d)
    bias: Tensor | None  # (..., C)


class ObjectiveFunction:
    """Loss, logits and similarities as functions of features, class weights and state.

    Every tensor may have any number of leading dimensions, which stack independent networks:
    features (..., N, d), weights (..., C, d), bias (..., C), targets and valid (..., N). Losses
    compute in float32 or wider, whatever the features' dtype.

    Raises:
        RequestError: fewer than two classes, an unknown part, or parts that do not fit.
    """

    def __init__(self, spec: Spec, num_classes: int) -> None:
        if num_classes < 2:
            raise RequestError(
                f"num_classes = {num_classes}: a classification loss needs at least 2 classes"
            )
        check_fits(spec)
        self._similarity: Similarity = _make(SIMILARITIES, spec.similarity, "similarity")
        self._scale: Fixed | AdaCos = _make(SCALES, spec.scale, "scale", num_classes)
        self._margin: Margin = _make(MARGINS, spec.margin, "margin")
        self._loss: Loss = _make(LOSSES, spec.loss, "loss")
        self._regularizers: list[Regularizer] = [
            _make(REGULARIZERS, r, "regularizer") for r in spec.regularizers
        ]
        self.has_bias = self._similarity.has_bias

    def init_state(self, weights: Tensor) -> State:
        """The state before the first batch, for class weights of this shape (..., C, d)."""
        state = self._scale.init_state(weights)
        for regularizer in self._regularizers:
            state |= regularizer.init_state(weights)
        return state

    def similarities(self, features: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
        """(..., N, C): unscaled, without margin; its argmax is the prediction."""
        if features.dtype != weights.dtype:  # half features under autocast
            features = features.to(weights.dtype)
        return self._similarity.forward(features, weights, bias)[0]

    def logits(
        self, features: Tensor, weights: Tensor, state: State, bias: Tensor | None = None
    ) -> Tensor:
        """(..., N, C): scale x similarity, without margin."""
        return self._scale.apply(self.similarities(features, weights, bias), state)

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
        similarity = self.similarities(features, weights, bias)
        features = features.to(similarity.dtype)
        after = self._scale.observe(similarity, targets, valid, state) if training else {}
        index = targets.unsqueeze(-1)
        if self._margin.stage == "similarity":
            target = self._margin.apply(similarity.gather(-1, index))
            similarity = similarity.scatter(-1, index, target)
        logits = self._scale.apply(similarity, {**state, **after})
        if self._margin.stage == "logit":
            logits = logits.scatter(-1, index, self._margin.apply(logits.gather(-1, index)))
        loss = self._loss.forward(logits, targets)
        if self._margin.offset:
            loss = loss + self._margin.offset
        for regularizer in self._regularizers:
            looked_at = features if regularizer.on == "features" else logits
            loss = loss + regularizer.penalty(looked_at, targets, state)
            if training:
                after |= regularizer.observe(features, targets, valid, state)
        return loss, {**state, **after}

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
    ) -> Gradient:
        """What `__call__` in training gives, and the gradient of sum(row_weight x loss).

        The derivatives of the parts, multiplied out: the same numbers as autograd's, in fewer
        passes. For stacks: every tensor has at least one leading dimension.
        """
        similarity, saved = self._similarity.forward(features, weights, bias)
        after = self._scale.observe(similarity, targets, valid, state)
        index = targets.unsqueeze(-1)
        slope = None
        if self._margin.stage == "similarity":
            target = similarity.gather(-1, index)
            slope = self._margin.slope(target)
            similarity = similarity.scatter(-1, index, self._margin.apply(target))
        scaled = {**state, **after}
        logits = self._scale.apply(similarity, scaled)
        if self._margin.stage == "logit":
            logits = logits.scatter(-1, index, self._margin.apply(logits.gather(-1, index)))
        loss, upstream = self._loss.gradient(logits, targets)
        if self._margin.offset:
            loss = loss + self._margin.offset
        pulls = []
        for regularizer in self._regularizers:
            looked_at = features if regularizer.on == "features" else logits
            penalty, pull = regularizer.penalty_gradient(looked_at, targets, state)
            loss = loss + penalty
            if regularizer.on == "features":
                pulls.append(pull)
            else:
                upstream = upstream + pull
            after |= regularizer.observe(features, targets, valid, state)
        upstream = self._scale.apply(upstream.mul_(row_weight.unsqueeze(-1)), scaled)
        if slope is not None:
            upstream = upstream.scatter(-1, index, upstream.gather(-1, index).mul_(slope))
        of_features, of_weights = self._similarity.backward(upstream, saved)
        for pull in pulls:
            of_features = of_features.addcmul_(pull, row_weight.unsqueeze(-1))
        of_bias = upstream.sum(-2) if bias is not None else None
        return Gradient(loss, {**state, **after}, of_features, of_weights, of_bias)


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
    if rows:
        low, high = targets.min().item(), targets.max().item()
        if low < 0 or high >= num_classes:
            raise ValueError(
                f"target: labels from {low} to {high}, expected 0 to {num_classes - 1} "
                f"({num_classes} classes)"
            )
