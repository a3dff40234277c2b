"""Regularisers: what is added to the loss of each sample."""

import torch
from torch import Tensor

from marginctl.objectives.scale import State


class Center:
    """Center loss (ArcGrad, eq. 5): strength/2 |x - c_y|^2.

    The centers start at zero (our choice; the paper does not say) and are moved outside the
    optimiser after each training batch: c_j -= alpha sum_{y = j} (c_j - x) / (1 + n_j).
    """

    def __init__(self, strength: float, alpha: float) -> None:
        self.strength, self.alpha = strength, alpha

    def init_state(self, like: Tensor) -> State:
        """`like`: class weights (..., C, d); the centers have their shape."""
        return {"centers": torch.zeros_like(like)}

    def penalty(self, features: Tensor, targets: Tensor, state: State) -> Tensor:
        """(..., N, d), (..., N) -> (..., N)."""
        return self._offset(features, targets, state).square().sum(-1) * (self.strength / 2)

    def penalty_gradient(
        self, features: Tensor, targets: Tensor, state: State
    ) -> tuple[Tensor, Tensor]:
        """The penalty (..., N) and its gradient with respect to the features (..., N, d)."""
        offset = self._offset(features, targets, state)
        return offset.square().sum(-1) * (self.strength / 2), offset * self.strength

    @staticmethod
    def _offset(features: Tensor, targets: Tensor, state: State) -> Tensor:
        centers = state["centers"]
        classes, length = centers.shape[-2:]
        network = torch.arange(targets[..., 0].numel(), device=targets.device) * classes
        row = targets + network.view(*targets.shape[:-1], 1)
        own = centers.reshape(-1, length).index_select(0, row.flatten()).view(features.shape)
        return features - own

    @torch.no_grad()
    def observe(
        self, features: Tensor, targets: Tensor, valid: Tensor | None, state: State
    ) -> State:
        centers = state["centers"]
        classes = torch.arange(centers.shape[-2], device=targets.device).unsqueeze(-1)
        member = targets.unsqueeze(-2) == classes  # (..., C, N)
        if valid is not None:
            member &= valid.unsqueeze(-2)
        member = member.to(features.dtype)
        count = member.sum(-1, keepdim=True)
        pull = count * centers - member @ features
        return {"centers": centers - self.alpha * pull / (1 + count)}


REGULARIZERS = {"center": Center}
