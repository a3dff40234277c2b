"""Regularisers: what is added to the loss of each sample.

A regulariser looks at the features or at the logits (`on`), and has a `penalty` that autograd can
differentiate and a `penalty_gradient` written out, with respect to what it looks at.
"""

import math

import torch
from torch import Tensor

from marginctl.objectives.scale import State


class Center:
    """Center loss (ArcGrad, eq. 5): strength/2 |x - c_y|^2.

    The centers start at zero (our choice; the paper does not say) and are moved outside the
    optimiser after each training batch: c_j -= alpha sum_{y = j} (c_j - x) / (1 + n_j).
    """

    on = "features"

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


class OnLogits:
    """A regulariser of the logits, without state."""

    on = "logits"

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def init_state(self, like: Tensor) -> State:
        return {}

    def observe(
        self, features: Tensor, targets: Tensor, valid: Tensor | None, state: State
    ) -> State:
        return {}


class LabelSmoothing(OnLogits):
    """strength (z_y - mean z), which turns cross-entropy into that of smoothed labels.

    -(1 - l) ln p_y - l/C sum_c ln p_c = -ln p_y + l (z_y - mean z) (Large Margin, eq. 13).
    """

    def penalty(self, logits: Tensor, targets: Tensor, state: State) -> Tensor:
        """(..., N, C), (..., N) -> (..., N)."""
        of_target = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        return self.strength * (of_target - logits.mean(-1))

    def penalty_gradient(
        self, logits: Tensor, targets: Tensor, state: State
    ) -> tuple[Tensor, Tensor]:
        """The penalty (..., N) and its gradient with respect to the logits (..., N, C)."""
        gradient = torch.full_like(logits, -self.strength / logits.shape[-1])
        own = torch.full_like(targets.unsqueeze(-1), self.strength, dtype=logits.dtype)
        gradient.scatter_add_(-1, targets.unsqueeze(-1), own)
        return self.penalty(logits, targets, state), gradient


class NonTargetUniformity(OnLogits):
    """strength x divergence between q, the softmax over c != y, and the uniform u = 1/(C - 1).

    Large Margin in Softmax's regulariser: `symmetric` is its eq. 8, `q-u` and `u-q` the two halves
    of eq. 10. With two classes there is one non-target class, and the divergence is exactly 0.
    """

    def __init__(self, strength: float, divergence: str) -> None:
        super().__init__(strength)
        self.divergence = divergence

    def penalty(self, logits: Tensor, targets: Tensor, state: State) -> Tensor:
        """(..., N, C), (..., N) -> (..., N)."""
        log_q, q = self._others(logits, targets)
        return self._divergence(log_q, q, 1 / (logits.shape[-1] - 1))

    def penalty_gradient(
        self, logits: Tensor, targets: Tensor, state: State
    ) -> tuple[Tensor, Tensor]:
        """The penalty (..., N) and its gradient with respect to the logits (..., N, C)."""
        log_q, q = self._others(logits, targets)
        u = 1 / (logits.shape[-1] - 1)
        of_qu = q * (log_q - (q * log_q).sum(-1, keepdim=True))
        of_uq = (q - u).scatter(-1, targets.unsqueeze(-1), 0.0)
        gradient = {"q-u": of_qu, "u-q": of_uq, "symmetric": (of_qu + of_uq) / 2}
        return self._divergence(log_q, q, u), self.strength * gradient[self.divergence]

    def _others(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """ln q and q; both 0 for the target, so that it adds nothing and gets no gradient."""
        index = targets.unsqueeze(-1)
        masked = logits.scatter(-1, index, -torch.inf)
        log_q = (logits - masked.logsumexp(-1, keepdim=True)).scatter(-1, index, 0.0)
        return log_q, log_q.exp().scatter(-1, index, 0.0)

    def _divergence(self, log_q: Tensor, q: Tensor, u: float) -> Tensor:
        of_qu, of_uq = (q * log_q).sum(-1), -u * log_q.sum(-1)
        if self.divergence == "q-u":
            return self.strength * (of_qu - math.log(u))
        if self.divergence == "u-q":
            return self.strength * (of_uq + math.log(u))
        return self.strength / 2 * (of_qu + of_uq)


Regularizer = Center | LabelSmoothing | NonTargetUniformity
REGULARIZERS = {
    "center": Center,
    "label-smoothing": LabelSmoothing,
    "non-target-uniformity": NonTargetUniformity,
}
