"""Losses: logits (..., N, C) and targets (..., N) -> one value a sample (..., N)."""

from torch import Tensor
from torch.nn import functional as F  # noqa: N812


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """-ln softmax(z)_y."""
    flat = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
    return flat.view(targets.shape)


LOSSES = {"cross-entropy": cross_entropy}
