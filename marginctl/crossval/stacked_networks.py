"""The networks of a stack as stacked tensors: forward and backward pass, and predictions."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marginctl.crossval.preprocessing import class_weights, expand, fit_fold, scaling_statistics
from marginctl.crossval.stack import Stack, initial_weights
from marginctl.objectives.functional import ObjectiveFunction
from marginctl.recipe.uci_cv import Protocol

Tensors = dict[str, Tensor]  # of stacked networks, by name

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
        self, protocol: Protocol, weights: Tensors, gradients: Tensors, running: Tensors, i: int
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
    protocol: Protocol, weights: Tensors, gradients: Tensors, running: Tensors
) -> list[StackedLayer]:
    return [
        StackedLayer(protocol, weights, gradients, running, i) for i in range(len(protocol.hidden))
    ]


class _StackedBatchNorm:
    """Batch normalisation over the valid rows of each network, as `torch.nn.BatchNorm1d`."""

    def __init__(self, weights: Tensors, gradients: Tensors, running: Tensors, i: int) -> None:
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


BLOCK = 256  # rows that are evaluated at a time


@dataclass(frozen=True)
class _Views:
    """Views of the tensors of the first S' networks of a stack."""

    layers: list[StackedLayer]
    weights: Tensors
    state: Tensors


class StackedNetworks:
    """S networks as stacked tensors: ReLU layers, then the objective's classifier."""

    def __init__(self, stack: Stack, device: torch.device, dtype: torch.dtype) -> None:
        self.stack, self.device, self.dtype = stack, device, dtype
        protocol, dataset = stack.protocol, stack.dataset
        self.objective = ObjectiveFunction(stack.spec, dataset.num_classes)

        # Centred on the column medians in float64 first, so that float32 keeps the digits of a
        # column like 1,600,000,000 +- 1,000; the fold's statistics are subtracted after.
        x = expand(dataset)
        missing = np.isnan(x)
        self.center = np.zeros(x.shape[1])
        if protocol.scaling != "none":
            fill, _ = fit_fold(dataset, x, np.arange(len(x)))
            self.center = np.median(np.where(missing, fill, x), axis=0)
        centered = x - self.center
        self.x = self._tensor(centered)
        self.y = torch.as_tensor(dataset.y, device=device)
        by_split = {}
        for split in {(n.repeat, n.fold): n for n in stack.networks}.values():
            fill, use = fit_fold(dataset, x, split.train)
            fill -= self.center
            rows = np.where(missing[split.train], fill, centered[split.train])
            shift, factor = scaling_statistics(rows, protocol.scaling)
            factor *= use
            by_split[split.repeat, split.fold] = shift, factor, (fill - shift) * factor
        statistics = [by_split[n.repeat, n.fold] for n in stack.networks]
        self.shift, self.factor, scaled_fill = (
            self._tensor(np.stack(values))[:, None] for values in zip(*statistics, strict=True)
        )
        self.fill = scaled_fill if missing.any() else None  # in the place of missing values

        self.class_weights: Tensor | None = None
        if protocol.class_weights == "balanced":
            classes = dataset.num_classes
            weights = [class_weights(dataset.y, n.train, classes) for n in stack.networks]
            self.class_weights = self._tensor(np.stack(weights))

        by_fold = {(n.repeat, n.fold): initial_weights(stack, n) for n in stack.networks}
        initial = [by_fold[n.repeat, n.fold] for n in stack.networks]
        names = [n for n in initial[0] if n != "class_bias" or self.objective.has_bias]
        self.weights = {name: self._tensor(np.stack([w[name] for w in initial])) for name in names}
        self.state = self.objective.init_state(self.weights["class_weight"])
        self.weights |= {name: self.state[name] for name in self.objective.trained}
        # of the layers, in memory that is written over; those of the objective are new in each step
        in_head = {"class_weight", "class_bias", *self.objective.trained}
        self.gradients = {
            name: torch.zeros_like(w) for name, w in self.weights.items() if name not in in_head
        }
        not_updated = {*self.objective.trained, *self.objective.schedules}
        self.batch_counts = [stack.num_batches(network) for network in stack.networks]
        self.updated_state = [name for name in self.state if name not in not_updated]
        # running statistics of batch normalisation
        self.running: Tensors = {}
        for i, width in enumerate(protocol.hidden if protocol.batch_norm != "none" else []):
            self.running[f"mean{i}"] = self._tensor(np.zeros((len(initial), width)))
            self.running[f"variance{i}"] = self._tensor(np.ones((len(initial), width)))
        self._views: dict[int, _Views] = {}
        self._scheduled = self._schedule_values()
        count_index = np.unique(self.batch_counts, return_inverse=True)[1]
        self._count_index = torch.as_tensor(count_index, device=device)

    def _tensor(self, array: NDArray[np.float64]) -> Tensor:
        return torch.as_tensor(array, dtype=self.dtype, device=self.device)

    def inputs(self, rows: Tensor) -> Tensor:
        """Return the scaled inputs (S, L, d) of row numbers (S, L)."""
        x = self.x.index_select(0, rows.reshape(-1)).view(*rows.shape, -1)
        x.sub_(self.shift).mul_(self.factor)
        return x if self.fill is None else torch.where(x.isnan(), self.fill, x)

    def views(self, count: int) -> _Views:
        """Return views of the first `count` networks' tensors."""
        if count not in self._views:
            weights, gradients, state, running = (
                {name: value[:count] for name, value in tensors.items()}
                for tensors in (self.weights, self.gradients, self.state, self.running)
            )
            layers = hidden_layers(self.stack.protocol, weights, gradients, running)
            self._views[count] = _Views(layers, weights, state)
        return self._views[count]

    def _schedule_values(self) -> Tensors:
        """Return the scheduled values by step, for each number of batches (steps + 1, K)."""
        epochs, most = self.stack.protocol.epochs, max(self.batch_counts)
        steps = [*itertools.product(range(epochs), range(most)), (epochs, 0)]
        counts = sorted(set(self.batch_counts))
        values = {}
        for name, schedule in self.objective.schedules.items():
            by_step = [
                [schedule.value(epoch * n + min(batch, n), epochs * n) for n in counts]
                for epoch, batch in steps
            ]
            values[name] = self._tensor(np.array(by_step))
        return values

    def set_progress(self, epoch: int, batch: int) -> None:
        """Set scheduled values, for each network by its own number of batches per epoch."""
        for name, values in self._scheduled.items():
            row = values[epoch * max(self.batch_counts) + batch]
            torch.index_select(row, 0, self._count_index, out=self.state[name])

    def weigh(self, row_weight: Tensor, y: Tensor) -> Tensor:
        """Return the rows' weights (S', B) in the batch's mean, by class weights if there are any.

        Args:
            row_weight: (S', B) 1/count where valid, else 0.
            y: (S', B) classes.
        """
        if self.class_weights is None:
            return row_weight
        row_weight = row_weight * self.class_weights[: len(y)].gather(-1, y)
        return row_weight.div_(row_weight.sum(-1, keepdim=True))

    @torch.no_grad()
    def backward(
        self, x: Tensor, y: Tensor, valid: Tensor | None, row_weight: Tensor, rows: BatchRows
    ) -> Tensor:
        """Write the gradient of each network's mean loss; return the loss of each row (S', B).

        Args:
            x: (S', B, d) scaled features, for the first S' networks.
            y: (S', B) their classes.
            valid: (S', B) mask of the rows to use, or None for all.
            row_weight: (S', B) their weights in the mean, of `weigh`.
            rows: the valid rows, for batch normalisation.
        """
        networks = self.views(len(x))
        features = x
        for layer in networks.layers:
            features = layer.forward_train(features, rows)
        loss, new_state, head = self.objective.gradient(
            features,
            networks.weights["class_weight"],
            y,
            valid,
            networks.state,
            row_weight=row_weight,
            bias=networks.weights.get("class_bias"),
        )
        for name in self.updated_state:
            networks.state[name].copy_(new_state[name])
        head_gradients = zip(("class_weight", "class_bias", "log_scale"), head[1:], strict=True)
        self.gradients |= {name: g for name, g in head_gradients if g is not None}

        upstream = head.features
        for i, layer in reversed(list(enumerate(networks.layers))):
            upstream = layer.backward(upstream, rows)
            if i:
                upstream = torch.bmm(upstream, layer.weight_transposed)
        return loss

    def predict(self) -> NDArray[np.int64]:
        """Return the class that each network predicts for every row of the data set, (S, n)."""
        return self._evaluate_in_blocks(
            lambda x, weight, bias: self.objective.similarities(x, weight, bias).argmax(-1)
        )

    def confidence(self) -> NDArray[np.float64]:
        """Return the largest softmax probability of each network for every row, (S, n)."""
        return self._evaluate_in_blocks(lambda *x: self._logits(*x).softmax(-1).amax(-1))

    def logits(self) -> NDArray[np.float64]:
        """Return the logits of each network for every row, (S, n, C)."""
        return self._evaluate_in_blocks(self._logits).astype(np.float64)

    def _logits(self, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.objective.logits(features, weight, self.state, bias)

    @torch.no_grad()
    def _evaluate_in_blocks(
        self, compute: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    ) -> NDArray[Any]:
        weight, bias = self.weights["class_weight"], self.weights.get("class_bias")
        blocks = []
        for rows in torch.split(torch.arange(len(self.x), device=self.device), BLOCK):
            features = self.inputs(rows.expand(len(self.shift), -1))
            for layer in self.views(len(features)).layers:
                features = layer.forward_eval(features)
            blocks.append(compute(features, weight, bias))
        return torch.cat(blocks, 1).cpu().numpy()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays that a prediction needs, in the order of the networks' numbers.

        The inputs of an unscaled row x of `expand` are (x - input_shift) * input_factor, and
        input_fill where it is missing, (S, d) each.
        """
        shift = self.shift[:, 0].cpu().double().numpy() + self.center
        arrays = {"input_shift": shift, "input_factor": self.factor[:, 0].cpu().numpy()}
        if self.fill is not None:
            arrays["input_fill"] = self.fill[:, 0].cpu().numpy()
        for name, value in {**self.weights, **self.state, **self.running}.items():
            arrays[name] = value.cpu().numpy()
        return {name: value[self.result_order] for name, value in arrays.items()}

    def test_predictions(self) -> list[tuple[int, int, int, int, float]]:
        """Return (row, repeat, fold, predicted class, confidence) of each network's test rows."""
        predicted, confidence = self.predict(), self.confidence()
        predictions = []
        for i in self.result_order:
            network = self.stack.networks[i]
            for row in network.test:
                key = (int(row), network.repeat, network.fold)
                predictions.append((*key, int(predicted[i, row]), float(confidence[i, row])))
        return predictions

    @property
    def result_order(self) -> NDArray[np.int64]:
        """The networks' positions in the stack, sorted by variant and network number."""
        numbers = [(n.fold, n.repeat, n.variant) for n in self.stack.networks]
        return np.lexsort(np.transpose(numbers))
