"""The objective of one network as an `nn.Module`, with its class weights and state."""

import math
import operator
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from marginctl.errors import RequestError
from marginctl.objectives.functional import ObjectiveFunction, check_targets
from marginctl.objectives.parts import ObjectiveSpec
from marginctl.objectives.scales import State
from marginctl.utils.text import shorten

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = get_args(Reduction)


class Objective(nn.Module):
    """Class weights and a loss on features.

    `objective(features, target)` is the training loss. Eval mode keeps the margin; it stops updates
    of the state (AdaCos's `scale`, center loss's `centers`).

    Args:
        spec: the parts.
        num_classes: C, at least 2.
        feature_dim: d, at least 1.
        dtype: of weights and state; torch's default if None.
        class_weights: (C,), the weight of a sample of each class, with its regularizers. As in
            torch's cross-entropy, the mean is divided by the sum of the samples' weights.

    Attributes:
        weight: (C, d) `nn.Parameter`.
        bias: (C,) `nn.Parameter`, or None.
    """

    def __init__(
        self,
        spec: ObjectiveSpec,
        num_classes: int,
        feature_dim: int,
        dtype: torch.dtype | None = None,
        class_weights: Tensor | None = None,
    ) -> None:
        super().__init__()
        num_classes = _integer("num_classes", num_classes, 2)
        feature_dim = _integer("feature_dim", feature_dim, 1)
        self.spec, self.num_classes, self.feature_dim = spec, num_classes, feature_dim
        self.function = ObjectiveFunction(spec, num_classes)
        bound = 1 / math.sqrt(feature_dim)
        weight = torch.empty(num_classes, feature_dim, dtype=dtype)
        self.weight = nn.Parameter(weight.uniform_(-bound, bound))
        self.bias: nn.Parameter | None = None
        if self.function.has_bias:
            bias = torch.empty(num_classes, dtype=dtype)
            self.bias = nn.Parameter(bias.uniform_(-bound, bound))
        state_dtype = torch.promote_types(self.weight.dtype, torch.float32)
        state = self.function.init_state(self.weight.detach().to(state_dtype))
        self._state_names = tuple(state)
        for name, value in state.items():
            if name in self.function.trained:
                self.register_parameter(name, nn.Parameter(value.to(self.weight.dtype)))
            else:
                self.register_buffer(name, value)
        if class_weights is not None:
            class_weights = _validate_class_weights(class_weights, num_classes)
        self.register_buffer("class_weights", class_weights)
        fixed = {*self.function.trained, *self.function.schedules}
        self._updated = [name for name in state if name not in fixed]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Objective":
        """As torch's, but buffers stay in float32 or wider in a half-precision module.

        A scale, a center or a scheduled value would not change by small steps in half precision.
        """
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in before.items():
            now = self.get_buffer(name)
            if now.dtype in (torch.float16, torch.bfloat16) and value.dtype != now.dtype:
                setattr(self, name, value.to(now.device))
        return self

    def set_progress(self, step: int, total_steps: int) -> None:
        """Set scheduled options to their values at `step` of `total_steps`.

        Call it before each training step, with steps counted from 0. Without schedules it does
        nothing.
        """
        self.function.set_progress(self._state(), step, total_steps)

    def _state(self) -> State:
        return {name: getattr(self, name) for name in self._state_names}

    def forward(
        self, features: ArrayLike, target: ArrayLike, reduction: Reduction = "mean"
    ) -> Tensor:
        """Return the loss of features (N, d) and labels (N,).

        Args:
            features, target: tensors on the device of the weights, or arrays or lists.
            reduction: `mean` and `sum` give a scalar, `none` gives (N,).

        Raises:
            ValueError: features or target of the wrong shape or dtype, a label out of range, or an
                unknown reduction.
        """
        if reduction not in REDUCTIONS:
            raise ValueError(f"reduction: {reduction!r}, expected 'mean', 'sum' or 'none'")
        features = self._validate_features(features)
        if not len(features):
            raise ValueError("features: 0 rows, expected at least 1")
        target = self._as_tensor("target", target)
        check_targets(target, features.shape[0], self.num_classes)
        target = target.to(features.device)
        with torch.autocast(features.device.type, enabled=False):
            loss, state = self.function(
                features,
                self.weight,
                target.long(),
                None,
                self._state(),
                bias=self.bias,
                training=self.training,
            )
        if self.training:
            for name in self._updated:
                # Not copied in place: the compiled backward pass may still read the old tensor.
                setattr(self, name, state[name].to(getattr(self, name).dtype))
        sample_weights = None
        if self.class_weights is not None:
            sample_weights = self.get_buffer("class_weights")[target.long()].to(loss.dtype)
            loss = loss * sample_weights
        if reduction == "none":
            return loss
        if reduction == "sum":
            return loss.sum()
        if sample_weights is None:
            return loss.mean()
        # a batch of classes with weight 0 has the loss 0
        return loss.sum() / sample_weights.sum().clamp(min=torch.finfo(loss.dtype).tiny)

    def similarities(self, features: ArrayLike) -> Tensor:
        """Return (N, C) similarities, unscaled, without margin."""
        features = self._validate_features(features)
        with torch.autocast(features.device.type, enabled=False):
            return self.function.similarities(features, self.weight, self.bias)

    def logits(self, features: ArrayLike) -> Tensor:
        """Return (N, C) scale x similarity, without margin; for probabilities and calibration."""
        features = self._validate_features(features)
        with torch.autocast(features.device.type, enabled=False):
            return self.function.logits(features, self.weight, self._state(), self.bias)

    def scale_similarities(self, similarities: Tensor, features: Tensor) -> Tensor:
        """Return the `logits` (N, C) from the similarities (N, C) of features (N, d)."""
        with torch.autocast(features.device.type, enabled=False):
            state = self._state()
            return self.function.scale_similarities(similarities, features, self.weight, state)

    def predict(self, features: ArrayLike) -> Tensor:
        """Return (N,) classes of the largest similarity, which differ even where the scale is 0."""
        return self.similarities(features).argmax(-1)

    def optimal_scale(self, features: ArrayLike) -> Tensor:
        """Return (N,) least-squares kappa* of each sample, whatever the objective's scale.

        Raises:
            RequestError: the similarity is not the cosine.
        """
        if self.spec.similarity.kind != "cosine":
            raise RequestError(
                f"the least-squares scale is defined on cosines and the similarity is "
                f"'{self.spec.similarity.kind}': use similarity 'cosine'"
            )
        features = self._validate_features(features)
        with torch.autocast(features.device.type, enabled=False):
            return self.function.optimal_scale(features, self.weight)

    def extra_repr(self) -> str:
        return f"{self.spec}, num_classes={self.num_classes}, feature_dim={self.feature_dim}"

    def _validate_features(self, given: ArrayLike) -> Tensor:
        features = self._as_tensor("features", given)
        if features.dim() != 2 or features.shape[1] != self.feature_dim:
            raise ValueError(
                f"features: shape {tuple(features.shape)}, expected (N, {self.feature_dim})"
            )
        if not features.is_floating_point():
            raise ValueError(f"features: dtype {features.dtype}, expected a floating-point dtype")
        return features.to(self.weight.device)

    def _as_tensor(self, name: str, given: ArrayLike) -> Tensor:
        """Return a tensor on the device of the weights as it is, an array as one on the CPU."""
        device = self.weight.device
        if isinstance(given, Tensor):
            if given.device != device:
                raise ValueError(
                    f"{name}: on {given.device}, expected {device}, where the objective's weights "
                    "are: move one of them with .to()"
                )
            return given
        try:
            array = np.array(given, order="C")
            dtype = np.int64 if array.dtype.kind == "u" else array.dtype.newbyteorder("=")
            return torch.from_numpy(array.astype(dtype))
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(
                f"{name}: {type(given).__name__} {shorten(repr(given))}: expected a tensor, or an "
                "array or list of numbers"
            ) from None


def _integer(name: str, number: Any, minimum: int) -> int:
    """Return an integer, also of numpy, as Python's."""
    try:
        value = operator.index(number)
    except TypeError:
        value = minimum - 1
    if isinstance(number, bool) or value < minimum:
        raise RequestError(f"{name} = {number!r}: expected an integer, at least {minimum}")
    return value


def _validate_class_weights(given: Any, num_classes: int) -> Tensor:
    """Return class weights (C,) in float32 or wider."""
    try:
        weights = torch.as_tensor(given).detach()
        weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    except (TypeError, ValueError, RuntimeError):
        raise RequestError(f"class_weights = {given!r}: expected {num_classes} numbers") from None
    shape, low = tuple(weights.shape), weights.min().item() if weights.numel() else 0.0
    if shape != (num_classes,):
        raise RequestError(f"class_weights: shape {shape}, expected ({num_classes},)")
    if not (weights.isfinite().all() and low >= 0 and weights.any()):
        raise RequestError("class_weights: expected finite numbers, at least 0, not all 0")
    return weights
