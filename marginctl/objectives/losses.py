"""Losses: logits (..., N, C) and targets (..., N) -> one value per sample (..., N)."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from marginctl.objectives.margins import Number

# Up to here, softmax runs faster over the first dimension of a stack's memory than over the last.
FEW_CLASSES = 32


def log_softmax(logits: Tensor) -> Tensor:
    """Return the log-softmax over the classes, the last dimension."""
    if logits.dim() > 2 and logits.shape[-1] <= FEW_CLASSES:
        return logits.transpose(-1, -2).log_softmax(-2).transpose(-1, -2)
    return logits.log_softmax(-1)


class Loss:
    """A loss given by its value; autograd gives the derivative.

    A subclass defines `forward`. The ones below write the derivative out.
    """

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss (..., N) of logits (..., N, C) and targets (..., N)."""
        raise NotImplementedError

    def gradient(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss (..., N) and its gradient (..., N, C) in new memory."""
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            loss = self.forward(leaf, targets)
            (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), gradient.contiguous()  # autograd may give one expanded number


class CrossEntropy(Loss):
    """-ln softmax(z)_y."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return 0 - log_softmax(logits).gather(-1, targets.unsqueeze(-1)).squeeze(-1)

    def gradient(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        index = targets.unsqueeze(-1)
        log_probability = log_softmax(logits)
        loss = 0 - log_probability.gather(-1, index).squeeze(-1)  # not -0.0
        # p_y - 1 as minus the sum of the others, which is exact where p_y rounds to 1
        gradient = log_probability.exp_().scatter_(-1, index, 0.0)
        return loss, gradient.scatter_(-1, index, -gradient.sum(-1, keepdim=True))


class Hinge(Loss):
    """max(0, max_{c != y} z_c - z_y + margin): the multi-class hinge (Large Margin, eq. 1)."""

    def __init__(self, margin: Number) -> None:
        self.margin = margin

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self._loss_and_slope(self._excess(logits, targets).amax(-1))[0]

    def gradient(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        largest, rival = self._excess(logits, targets).max(-1, keepdim=True)
        loss, slope = self._loss_and_slope(largest)
        gradient = torch.zeros_like(logits).scatter_(-1, rival, slope)
        gradient.scatter_(-1, targets.unsqueeze(-1), -slope)
        return loss.squeeze(-1), gradient

    def _loss_and_slope(self, excess: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of the largest excess, and its slope."""
        return excess.clamp(min=0), (excess > 0).to(excess.dtype)

    def _excess(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return z_c - z_y + margin, and -inf for the target itself."""
        index = targets.unsqueeze(-1)
        excess = logits - (logits.gather(-1, index) - self.margin)
        return excess.scatter_(-1, index, -torch.inf)


class MaxSoftplus(Hinge):
    """softplus(max_{c != y} z_c - z_y + margin) (Large Margin, Sec. 3)."""

    def _loss_and_slope(self, excess: Tensor) -> tuple[Tensor, Tensor]:
        return F.softplus(excess, threshold=50), excess.sigmoid()


class DenseHinge(Hinge):
    """The mean over c != y of max(0, z_c - z_y + margin) (Large Margin, eq. 14)."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self._excess(logits, targets).clamp_(min=0).sum(-1) / (logits.shape[-1] - 1)

    def gradient(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        others = logits.shape[-1] - 1
        excess = self._excess(logits, targets).clamp_(min=0)
        loss = excess.sum(-1) / others
        gradient = (excess > 0).to(logits.dtype).div_(others)
        gradient.scatter_(-1, targets.unsqueeze(-1), -gradient.sum(-1, keepdim=True))
        return loss, gradient
