"""A hidden layer of a stack of networks, forward and backward written out."""

from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON, MOMENTUM = 1e-5, 0.1  # of batch normalisation: PyTorch's defaults


@dataclass(frozen=True)
class Rows:
    """Which rows of a batch count, for batch normalisation.

    A network with one row left has no variance: it is normalised by what it has seen so far.
    """

    share: Tensor  # (S', B, 1): 1 / count where a row counts, else 0
    several: Tensor  # (S', 1, 1): more than one counts
    unbiased: Tensor  # (S', 1, 1): count / (count - 1), and 1 for one

    @classmethod
    def of(cls, share: Tensor) -> "Rows":
        """From (S', B): a row's share of its batch, 0 where it does not count."""
        count = (share > 0).sum(1).to(share.dtype).view(-1, 1, 1)
        return cls(share.unsqueeze(-1), count > 1, count / (count - 1).clamp(min=1))


class Layer:
    """Linear, batch normalisation where asked for, ReLU; views of the first S' networks' tensors.

    Args:
        norm: `none`, `before-relu` or `after-relu`.
        relu: whether there is a ReLU; without one, the two places of batch normalisation are one.
    """

    def __init__(
        self,
        weights: dict[str, Tensor],
        gradients: dict[str, Tensor],
        running: dict[str, Tensor],
        i: int,
        *,
        norm: str,
        relu: bool,
    ) -> None:
        self.weight = weights[f"weight{i}"]  # (S', in, out)
        self.weight_transposed = self.weight.transpose(1, 2)
        self.bias = weights[f"bias{i}"].unsqueeze(1)  # (S', 1, out)
        self.weight_gradient = gradients[f"weight{i}"]
        self.bias_gradient = gradients[f"bias{i}"].unsqueeze(1)
        self._before = _BatchNorm(weights, gradients, running, i) if norm == "before-relu" else None
        self._after = _BatchNorm(weights, gradients, running, i) if norm == "after-relu" else None
        self._relu = relu

    def train(self, x: Tensor, rows: Rows) -> Tensor:
        """(S', B, in) -> (S', B, out); keeps what `backward` needs."""
        self._input = x
        out = torch.bmm(x, self.weight).add_(self.bias)
        if self._before is not None:
            out = self._before.train(out, rows)
        if self._relu:
            out = out.relu_()
        self._activated = out
        return out if self._after is None else self._after.train(out, rows)

    def backward(self, upstream: Tensor, rows: Rows) -> Tensor:
        """Writes the gradients; (S', B, out) -> the gradient of the linear part's output."""
        if self._after is not None:
            upstream = self._after.backward(upstream, rows)
        if self._relu:
            upstream.mul_(self._activated.sign_())  # ReLU's mask, in place: the last use
        if self._before is not None:
            upstream = self._before.backward(upstream, rows)
        torch.bmm(self._input.transpose(1, 2), upstream, out=self.weight_gradient)
        torch.sum(upstream, 1, keepdim=True, out=self.bias_gradient)
        return upstream

    def evaluate(self, x: Tensor) -> Tensor:
        """(S', B, in) -> (S', B, out), by the running statistics."""
        out = torch.bmm(x, self.weight).add_(self.bias)
        if self._before is not None:
            out = self._before.evaluate(out)
        if self._relu:
            out = out.relu_()
        return out if self._after is None else self._after.evaluate(out)


class _BatchNorm:
    """Over the rows of each network that count, as `torch.nn.BatchNorm1d`."""

    def __init__(
        self,
        weights: dict[str, Tensor],
        gradients: dict[str, Tensor],
        running: dict[str, Tensor],
        i: int,
    ) -> None:
        self.weight = weights[f"norm_weight{i}"].unsqueeze(1)  # (S', 1, width)
        self.bias = weights[f"norm_bias{i}"].unsqueeze(1)
        self.weight_gradient = gradients[f"norm_weight{i}"].unsqueeze(1)
        self.bias_gradient = gradients[f"norm_bias{i}"].unsqueeze(1)
        self.mean = running[f"mean{i}"].unsqueeze(1)
        self.variance = running[f"variance{i}"].unsqueeze(1)

    def train(self, x: Tensor, rows: Rows) -> Tensor:
        mean = (x * rows.share).sum(1, keepdim=True)
        variance = ((x - mean).square_() * rows.share).sum(1, keepdim=True)
        unbiased = variance * rows.unbiased
        # one row has neither: it is normalised by what has been seen, and adds nothing to it
        mean = torch.where(rows.several, mean, self.mean)
        variance = torch.where(rows.several, variance, self.variance)
        self.mean.lerp_(mean, MOMENTUM)
        self.variance.lerp_(torch.where(rows.several, unbiased, self.variance), MOMENTUM)
        self._factor = (variance + EPSILON).rsqrt_()
        self._normalized = (x - mean).mul_(self._factor)
        return self._normalized * self.weight + self.bias

    def backward(self, upstream: Tensor, rows: Rows) -> Tensor:
        """`upstream` is 0 where a row does not count, and so is what is returned."""
        along = upstream * self._normalized
        torch.sum(along, 1, keepdim=True, out=self.weight_gradient)
        torch.sum(upstream, 1, keepdim=True, out=self.bias_gradient)
        # through the mean and the variance, where they are the batch's own
        through = rows.share * rows.several
        pulled = through * (self.bias_gradient + self._normalized * self.weight_gradient)
        return (upstream - pulled).mul_(self.weight * self._factor)

    def evaluate(self, x: Tensor) -> Tensor:
        factor = self.weight * (self.variance + EPSILON).rsqrt()
        return (x - self.mean) * factor + self.bias
