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
        index = targets.unsqueeze(-1).expand(features.shape)
        offset = features - state["centers"].gather(-2, index)
        return offset.square().sum(-1) * (self.strength / 2)

    @torch.no_grad()
    def observe(
        self, features: Tensor, targets: Tensor, valid: Tensor | None, state: State
    ) -> State:
        centers = state["centers"]
        member = torch.nn.functional.one_hot(targets, centers.shape[-2]).to(features.dtype)
        if valid is not None:
            member = member * valid.unsqueeze(-1)
        count = member.sum(-2).unsqueeze(-1)
        pull = count * centers - member.transpose(-1, -2) @ features
        return {"centers": centers - self.alpha * pull / (1 + count)}


REGULARIZERS = {"center": Center}
