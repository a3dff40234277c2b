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


LOSSES = {"cross-entropy": CrossEntropy}
