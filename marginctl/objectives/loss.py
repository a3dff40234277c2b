"""Losses: logits (..., N, C) and targets (..., N) -> one value a sample (..., N)."""

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


LOSSES = {"cross-entropy": cross_entropy}
