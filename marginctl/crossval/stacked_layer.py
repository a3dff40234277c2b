"""A hidden layer of a stack of networks, with its forward and backward pass written out."""

from dataclasses import dataclass

import torch
from torch import Tensor

from marginctl.recipe.uci_cv import Protocol

EPSILON, MOMENTUM = 1e-5, 0.1  # of batch normalisation, as PyTorch's defaults
_relu_backward = torch.ops.aten.threshold_backward.grad_input


@dataclass(frozen=True)
class BatchRows:
    """The valid rows of a batch, for batch normalisation.

    A network with a single row left has no variance: the row is normalised by the running
    statistics.
    """

    weight: Tensor  # (S', B, 1): 1 / count where a row is valid, else 0
    has_variance: Tensor  # (S', 1, 1): more than one row is valid
    correction: Tensor  # (S', 1, 1): count / (count - 1), and 1 for a single row

    @classmethod
    def from_weights(cls, weight: Tensor) -> "BatchRows":
        """Create from the rows' weights in the batch's mean, (S', B), 0 where invalid."""
        count = (weight > 0).sum(1).to(weight.dtype).view(-1, 1, 1)
        return cls(weight.unsqueeze(-1), count > 1, count / (count - 1).clamp(min=1))


class StackedLayer:
    """A linear layer with ReLU and optional batch normalisation, for the first S' networks.

    Without a ReLU, both kinds of batch normalisation are the same.
    """

    def __init__(
        self,
        protocol: Protocol,
        weights: dict[str, Tensor],
        gradients: dict[str, Tensor],
        running: dict[str, Tensor],
        i: int,
    ) -> None:
        norm = protocol.batch_norm
        self.weight = weights[f"weight{i}"]  # (S', in, out)
        self.weight_transposed = self.weight.transpose(1, 2)
        self.bias = weights[f"bias{i}"].unsqueeze(1)  # (S', 1, out)
        self.weight_gradient = gradients[f"weight{i}"]
        self.bias_gradient = gradients[f"bias{i}"].unsqueeze(1)
        batch_norm = None if norm == "none" else _StackedBatchNorm(weights, gradients, running, i)
        self._before = batch_norm if norm == "before-relu" else None
        self._after = batch_norm if norm == "after-relu" else None
        self._relu = i < len(protocol.hidden) - 1 or not protocol.linear_last_hidden

    def forward_train(self, x: Tensor, rows: BatchRows) -> Tensor:
        """Return the output (S', B, out) of inputs (S', B, in), and store what `backward` needs."""
        self._input = x
        out = torch.bmm(x, self.weight).add_(self.bias)
        if self._before is not None:
            out = self._before.forward_train(out, rows)
        if self._relu:
            out = out.relu_()
        self._activated = out
        return out if self._after is None else self._after.forward_train(out, rows)

    def backward(self, upstream: Tensor, rows: BatchRows) -> Tensor:
        """Write the parameters' gradients; return the gradient of the linear part's output."""
        if self._after is not None:
            upstream = self._after.backward(upstream, rows)
        if self._relu:
            _relu_backward(upstream, self._activated, 0, grad_input=upstream)
        if self._before is not None:
            upstream = self._before.backward(upstream, rows)
        torch.bmm(self._input.transpose(1, 2), upstream, out=self.weight_gradient)
        torch.sum(upstream, 1, keepdim=True, out=self.bias_gradient)
        return upstream

    def forward_eval(self, x: Tensor) -> Tensor:
        """Return the output (S', B, out), normalised by the running statistics."""
        out = torch.bmm(x, self.weight).add_(self.bias)
        if self._before is not None:
            out = self._before.forward_eval(out)
        if self._relu:
            out = out.relu_()
        return out if self._after is None else self._after.forward_eval(out)


def hidden_layers(
    protocol: Protocol,
    weights: dict[str, Tensor],
    gradients: dict[str, Tensor],
    running: dict[str, Tensor],
) -> list[StackedLayer]:
    """Return the hidden layers of networks with these tensors."""
    tensors = (weights, gradients, running)
    return [StackedLayer(protocol, *tensors, i) for i in range(len(protocol.hidden))]


class _StackedBatchNorm:
    """Batch normalisation over the valid rows of each network, as `torch.nn.BatchNorm1d`."""

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

    def forward_train(self, x: Tensor, rows: BatchRows) -> Tensor:
        mean = (x * rows.weight).sum(1, keepdim=True)
        variance = ((x - mean).square_() * rows.weight).sum(1, keepdim=True)
        unbiased = variance * rows.correction
        # a single row is normalised by the running statistics, and does not update them
        mean = torch.where(rows.has_variance, mean, self.mean)
        variance = torch.where(rows.has_variance, variance, self.variance)
        self.mean.lerp_(mean, MOMENTUM)
        self.variance.lerp_(torch.where(rows.has_variance, unbiased, self.variance), MOMENTUM)
        self._factor = (variance + EPSILON).rsqrt_()
        self._normalized = (x - mean).mul_(self._factor)
        return self._normalized * self.weight + self.bias

    def backward(self, upstream: Tensor, rows: BatchRows) -> Tensor:
        """Return the input's gradient, which like `upstream` is 0 in invalid rows."""
        along = upstream * self._normalized
        torch.sum(along, 1, keepdim=True, out=self.weight_gradient)
        torch.sum(upstream, 1, keepdim=True, out=self.bias_gradient)
        # through the mean and the variance, where these come from the batch
        through = rows.weight * rows.has_variance
        pulled = through * (self.bias_gradient + self._normalized * self.weight_gradient)
        return (upstream - pulled).mul_(self.weight * self._factor)

    def forward_eval(self, x: Tensor) -> Tensor:
        factor = self.weight * (self.variance + EPSILON).rsqrt()
        return (x - self.mean) * factor + self.bias
