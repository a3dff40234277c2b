"""The objective of one network as an `nn.Module`: it owns the classifier and the state."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from marginctl.errors import RequestError
from marginctl.objectives.objective import ObjectiveFunction, check_targets
from marginctl.objectives.scale import State
from marginctl.objectives.spec import Spec

Reduction = Literal["mean", "sum", "none"]


class Objective(nn.Module):
    """Class weights and a loss on features.

    `objective(features, target)` is the training loss. The margin stays in eval mode; what eval
    mode changes is that no batch moves the state (AdaCos's `scale`, center loss's `centers`).

    Args:
        spec: the parts.
        num_classes: C, at least 2.
        feature_dim: d, at least 1.
        dtype: of weights and state; torch's default where not given.

    Attributes:
        weight: (C, d) `nn.Parameter`.
        bias: (C,) `nn.Parameter`, or None.
    """

    def __init__(
        self, spec: Spec, num_classes: int, feature_dim: int, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        if feature_dim < 1:
            raise RequestError(f"feature_dim = {feature_dim}: expected at least 1")
        self.spec, self.num_classes, self.feature_dim = spec, num_classes, feature_dim
        self.function = ObjectiveFunction(spec, num_classes)
        bound = 1 / math.sqrt(feature_dim)
        weight = torch.empty(num_classes, feature_dim, dtype=dtype)
        self.weight = nn.Parameter(weight.uniform_(-bound, bound))
        self.bias: nn.Parameter | None = None
        if self.function.has_bias:
            bias = torch.empty(num_classes, dtype=dtype)
            self.bias = nn.Parameter(bias.uniform_(-bound, bound))
        start = self.function.init_state(self.weight.detach())
        self._state_names = tuple(start)
        for name, value in start.items():
            self.register_buffer(name, value)

    def _state(self) -> State:
        return {name: getattr(self, name) for name in self._state_names}

    def forward(self, features: Tensor, target: Tensor, reduction: Reduction = "mean") -> Tensor:
        """The loss of features (N, d) with labels (N,): a scalar, or (N,) with reduction `none`.

        Raises:
            ValueError: features or target of the wrong shape or dtype, a label out of range, or an
                unknown reduction.
        """
        self._check_features(features)
        check_targets(target, features.shape[0], self.num_classes)
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
            for name in self._state_names:
                getattr(self, name).copy_(state[name])
        if reduction == "none":
            return loss
        if reduction == "sum":
            return loss.sum()
        if reduction == "mean":
            return loss.mean()
        raise ValueError(f"reduction: {reduction!r}, expected 'mean', 'sum' or 'none'")

    def similarities(self, features: Tensor) -> Tensor:
        """(N, C): unscaled, without margin."""
        self._check_features(features)
        with torch.autocast(features.device.type, enabled=False):
            return self.function.similarities(features, self.weight, self.bias)

    def logits(self, features: Tensor) -> Tensor:
        """(N, C): scale x similarity, without margin; for probabilities and calibration."""
        self._check_features(features)
        with torch.autocast(features.device.type, enabled=False):
            return self.function.logits(features, self.weight, self._state(), self.bias)

    def predict(self, features: Tensor) -> Tensor:
        """(N,): the class of the largest similarity. At scale 0 all logits tie; this does not."""
        return self.similarities(features).argmax(-1)

    def extra_repr(self) -> str:
        return f"{self.spec}, num_classes={self.num_classes}, feature_dim={self.feature_dim}"

    def _check_features(self, features: Tensor) -> None:
        if features.dim() != 2 or features.shape[1] != self.feature_dim:
            raise ValueError(
                f"features: shape {tuple(features.shape)}, expected (N, {self.feature_dim})"
            )
        if not features.is_floating_point():
            raise ValueError(f"features: dtype {features.dtype}, expected a floating-point dtype")
