"""Losses: logits (..., N, C) and targets (..., N) -> one value a sample (..., N)."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

# Up to here, softmax runs faster over the first dimension of a stack's memory than over the last.
FEW_CLASSES = 32


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """-ln softmax(z)_y."""
    if logits.dim() > 2 and logits.shape[-1] <= FEW_CLASSES:
        stack = logits.flatten(0, -3).transpose(1, 2)
        return F.cross_entropy(stack, targets.flatten(0, -2), reduction="none").view(targets.shape)
    flat = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
    return flat.view(targets.shape)


def cross_entropy_gradient(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss (..., N) and its gradient softmax(z) - e_y (..., N, C), for a stack."""
    target = targets.unsqueeze(-2)
    log_probability = logits.transpose(-1, -2).log_softmax(-2)
    of_target = log_probability.gather(-2, target)
    gradient = log_probability.exp().scatter_(-2, target, of_target.expm1())
    return -of_target.squeeze(-2), gradient.transpose(-1, -2)


class CrossEntropy:
    """-ln softmax(z)_y."""

    forward = staticmethod(cross_entropy)
    gradient = staticmethod(cross_entropy_gradient)


class Hinge:
    """max(0, max_{c != y} z_c - z_y + margin): the multi-class hinge (Large Margin, eq. 1)."""

    def __init__(self, margin: float) -> None:
        self.margin = margin

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self._excess(logits, targets).amax(-1).clamp(min=0)

    def gradient(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        excess = self._excess(logits, targets)
        largest, rival = excess.max(-1, keepdim=True)
        active = (largest > 0).to(logits.dtype)
        gradient = torch.zeros_like(logits).scatter_(-1, rival, active)
        gradient.scatter_(-1, targets.unsqueeze(-1), -active)
        return largest.squeeze(-1).clamp(min=0), gradient

    def _excess(self, logits: Tensor, targets: Tensor) -> Tensor:
        """z_c - z_y + margin, and -inf for the target itself."""
        index = targets.unsqueeze(-1)
        excess = logits - logits.gather(-1, index) + self.margin
        return excess.scatter(-1, index, -torch.inf)


class DenseHinge(Hinge):
    """The mean over c != y of max(0, z_c - z_y + margin) (Large Margin, eq. 14)."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self._excess(logits, targets).clamp(min=0).sum(-1) / (logits.shape[-1] - 1)

    def gradient(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        others = logits.shape[-1] - 1
        excess = self._excess(logits, targets).clamp(min=0)
        gradient = (excess > 0).to(logits.dtype) / others
        gradient.scatter_(-1, targets.unsqueeze(-1), -gradient.sum(-1, keepdim=True))
        return excess.sum(-1) / others, gradient


Loss = CrossEntropy | Hinge
LOSSES = {"cross-entropy": CrossEntropy, "hinge": Hinge, "dense-hinge": DenseHinge}
