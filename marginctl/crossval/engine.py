"""Trains a stack of small networks side by side with batched matrix products.

Every tensor has the network as its first dimension. The backward pass is written out, the
objective's part by part, in fewer passes than autograd takes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marginctl.crossval.layer import Layer, Rows
from marginctl.crossval.stack import (
    BatchOrder,
    Stack,
    class_weights,
    initial_weights,
    scaling_statistics,
)
from marginctl.objectives.objective import ObjectiveFunction
from marginctl.objectives.schedule import rate_at

GATHER_BYTES = 2**20

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda groups: torch.optim.Adam(groups, fused=True),
    "adamw": lambda groups: torch.optim.AdamW(groups, fused=True),
    "sgd": lambda groups: torch.optim.SGD(groups, fused=True),
}


@dataclass(frozen=True)
class StackResult:
    """What a stack of S networks gave, by lane and by number (repeat * folds + fold)."""

    correct: NDArray[np.int64]  # (S,) test rows predicted right
    tested: NDArray[np.int64]  # (S,) test rows
    diverged: NDArray[np.bool_]  # (S,) the loss was not finite; frozen before that epoch
    collapsed: NDArray[np.bool_]  # (S,) one class predicted for every row, training rows included
    losses: NDArray[np.float64]  # (S, epochs) mean training loss of each epoch
    seconds: float

    def of_lane(self, lane: int, lanes: int) -> "StackResult":
        """The part of one of `lanes` lanes with as many networks each."""
        size = len(self.correct) // lanes
        own = slice(lane * size, (lane + 1) * size)
        arrays = {key: value[own] for key, value in vars(self).items() if key != "seconds"}
        return StackResult(**arrays, seconds=self.seconds / lanes)


@dataclass(frozen=True)
class _First:
    """Views of everything that belongs to the first S' networks of a stack."""

    layers: list[Layer]
    weights: dict[str, Tensor]
    gradients: dict[str, Tensor]
    state: dict[str, Tensor]


class StackedNetworks:
    """S networks as stacked tensors: ReLU layers, then the objective's classifier."""

    def __init__(self, stack: Stack, device: torch.device, dtype: torch.dtype) -> None:
        self.stack, self.device, self.dtype = stack, device, dtype
        protocol, dataset = stack.protocol, stack.dataset
        self.objective = ObjectiveFunction(stack.objective.spec, dataset.num_classes)

        # Centred on the column medians in float64 first, so that float32 keeps the digits of a
        # column like 1,600,000,000 +- 1,000; the fold's own statistics are subtracted after.
        scaled = protocol.scaling != "none"
        self.center = np.median(dataset.x, axis=0) if scaled else np.zeros(dataset.num_features)
        x = dataset.x - self.center
        self.x = self._tensor(x)
        self.y = torch.as_tensor(dataset.y, device=device)
        statistics = [scaling_statistics(x, n.train, protocol.scaling) for n in stack.networks]
        self.shift = self._tensor(np.stack([shift for shift, _ in statistics]))[:, None]
        self.factor = self._tensor(np.stack([factor for _, factor in statistics]))[:, None]

        self.class_weights: Tensor | None = None
        if protocol.class_weights == "balanced":
            classes = dataset.num_classes
            of_each = [class_weights(dataset.y, n.train, classes) for n in stack.networks]
            self.class_weights = self._tensor(np.stack(of_each))

        of_number = {(n.repeat, n.fold): initial_weights(stack, n) for n in stack.networks}
        drawn = [of_number[n.repeat, n.fold] for n in stack.networks]
        names = [n for n in drawn[0] if n != "class_bias" or self.objective.has_bias]
        self.weights = {name: self._tensor(np.stack([d[name] for d in drawn])) for name in names}
        self.state = self.objective.init_state(self.weights["class_weight"])
        self.weights |= {name: self.state[name] for name in self.objective.trained}
        self.gradients = {name: torch.zeros_like(w) for name, w in self.weights.items()}
        held = {*self.objective.trained, *self.objective.schedules}
        self.moved = [name for name in self.state if name not in held]
        # what batch normalisation has seen
        self.running: dict[str, Tensor] = {}
        for i, width in enumerate(protocol.hidden if protocol.batch_norm != "none" else []):
            self.running[f"mean{i}"] = self._tensor(np.zeros((len(drawn), width)))
            self.running[f"variance{i}"] = self._tensor(np.ones((len(drawn), width)))
        self._views: dict[int, _First] = {}

    def _tensor(self, array: NDArray[np.float64]) -> Tensor:
        return torch.as_tensor(array, dtype=self.dtype, device=self.device)

    def inputs(self, rows: Tensor) -> Tensor:
        """Scaled features (S, L, d) of row numbers (S, L)."""
        x = self.x.index_select(0, rows.reshape(-1)).view(*rows.shape, -1)
        return x.sub_(self.shift).mul_(self.factor)

    def first(self, count: int) -> "_First":
        """Views of the first `count` networks' tensors."""
        if count not in self._views:
            weights = {name: weight[:count] for name, weight in self.weights.items()}
            gradients = {name: gradient[:count] for name, gradient in self.gradients.items()}
            state = {name: value[:count] for name, value in self.state.items()}
            running = {name: value[:count] for name, value in self.running.items()}
            last = len(self.stack.protocol.hidden) - 1
            layers = [
                Layer(
                    *(weights, gradients, running, i),
                    norm=self.stack.protocol.batch_norm,
                    relu=i < last or not self.stack.protocol.linear_feature,
                )
                for i in range(last + 1)
            ]
            self._views[count] = _First(layers, weights, gradients, state)
        return self._views[count]

    def set_progress(self, epoch: int, batch: int, batches: list[int]) -> None:
        """Sets what follows a schedule, each network by its own number of batches an epoch."""
        epochs = self.stack.protocol.epochs
        for name, schedule in self.objective.schedules.items():
            of_count = {
                n: schedule.value(epoch * n + min(batch, n), epochs * n) for n in set(batches)
            }
            self.state[name].copy_(self._tensor(np.array([of_count[n] for n in batches])))

    @torch.no_grad()
    def backward(
        self,
        x: Tensor,
        y: Tensor,
        valid: Tensor | None,
        row_weight: Tensor,
        rows: Rows,
    ) -> Tensor:
        """Writes the gradient of each network's mean loss; returns these losses (S',).

        Args:
            x: (S', B, d) scaled features, for the first S' networks.
            y: (S', B) their classes.
            valid: (S', B) which of them count, or None for all.
            row_weight: (S', B) 1/count where valid, else 0.
            rows: the same for batch normalisation.
        """
        networks = self.first(len(x))
        if self.class_weights is not None:
            row_weight = row_weight * self.class_weights[: len(x)].gather(-1, y)
            row_weight /= row_weight.sum(-1, keepdim=True)
        features = x
        for layer in networks.layers:
            features = layer.train(features, rows)
        loss, after, head = self.objective.gradient(
            features,
            networks.weights["class_weight"],
            y,
            valid,
            networks.state,
            row_weight=row_weight,
            bias=networks.weights.get("class_bias"),
        )
        for name in self.moved:
            networks.state[name].copy_(after[name])
        networks.gradients["class_weight"].copy_(head.weights)
        if head.bias is not None:
            networks.gradients["class_bias"].copy_(head.bias)
        if head.log_scale is not None:
            networks.gradients["log_scale"].copy_(head.log_scale)

        upstream = head.features
        for i, layer in reversed(list(enumerate(networks.layers))):
            upstream = layer.backward(upstream, rows)
            if i:
                upstream = torch.bmm(upstream, layer.weight_transposed)
        return (loss * row_weight).sum(-1)

    @torch.no_grad()
    def predict(self) -> NDArray[np.int64]:
        """(S, n): the class that each network predicts for every row of the data set."""
        return self._over_rows(
            lambda features, weight, bias: self.objective.similarities(
                features, weight, bias
            ).argmax(-1)
        )

    @torch.no_grad()
    def confidence(self) -> NDArray[np.float64]:
        """(S, n): the largest softmax probability of each network for every row."""
        return self._over_rows(
            lambda features, weight, bias: (
                self.objective.logits(features, weight, self.state, bias).softmax(-1).amax(-1)
            )
        )

    def _over_rows(
        self, compute: Callable[[Tensor, Tensor, Tensor | None], Tensor], rows_at_once: int = 256
    ) -> NDArray[Any]:
        weight, bias = self.weights["class_weight"], self.weights.get("class_bias")
        blocks = []
        for first in range(0, len(self.x), rows_at_once):
            last = min(first + rows_at_once, len(self.x))
            rows = torch.arange(first, last, device=self.device)
            x = self.inputs(rows.expand(len(self.shift), -1))
            features = x
            for layer in self.first(len(x)).layers:
                features = layer.evaluate(features)
            blocks.append(compute(features, weight, bias))
        return torch.cat(blocks, 1).cpu().numpy()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that predicts, in the order of the networks' numbers: to be saved.

        A raw row x gives the inputs (x - input_shift) * input_factor, (S, d) each.
        """
        shift = self.shift[:, 0].cpu().double().numpy() + self.center
        kept = {"input_shift": shift, "input_factor": self.factor[:, 0].cpu().numpy()}
        for name, value in {**self.weights, **self.state, **self.running}.items():
            kept[name] = value.cpu().numpy()
        return {name: value[self.in_order] for name, value in kept.items()}

    def test_predictions(self) -> list[tuple[int, int, int, int, float]]:
        """(row, repeat, fold, predicted class, confidence) of every test row of every network."""
        predicted, confidence = self.predict(), self.confidence()
        found = []
        for i in self.in_order:
            network = self.stack.networks[i]
            for row in network.test:
                at = (int(row), network.repeat, network.fold)
                found.append((*at, int(predicted[i, row]), float(confidence[i, row])))
        return found

    @property
    def in_order(self) -> NDArray[np.int64]:
        """Positions in the stack by lane and number: the stack has most batches first."""
        numbers = [(n.fold, n.repeat, n.lane) for n in self.stack.networks]
        return np.lexsort(np.transpose(numbers))


class _Optimizer:
    """torch's optimiser over a stack in which networks may take different steps.

    Networks of one lane with the same number of batches an epoch form a group with parameters of
    its own, so that each network's steps are counted exactly, at its lane's rate; a group without
    a batch is left out of a step by having no gradient.
    """

    def __init__(self, networks: StackedNetworks) -> None:
        stack = networks.stack
        kinds = [(stack.batches_of(n), n.lane) for n in stack.networks]
        edges = [0] + [i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]]
        groups = []
        self._gradients = []
        for first, last in zip(edges, [*edges[1:], len(kinds)], strict=True):
            batches, lane = kinds[first]
            protocol = stack.lanes[lane]
            group = {
                "params": [torch.nn.Parameter(w[first:last]) for w in networks.weights.values()],
                "lr": rate_at(protocol.lr, 0, 1),
                "weight_decay": protocol.weight_decay,
            }
            if protocol.optimizer == "sgd":
                group["momentum"] = protocol.momentum
            groups.append(group)
            gradients = [g[first:last] for g in networks.gradients.values()]
            self._gradients.append((batches, protocol, gradients))
        self._torch = OPTIMIZERS[stack.protocol.optimizer](groups)

    def step(self, epoch: int, batch: int) -> None:
        """Moves the networks that have a batch of this number (from 0)."""
        for group, (batches, protocol, gradients) in zip(
            self._torch.param_groups, self._gradients, strict=True
        ):
            if isinstance(protocol.lr, str):
                step = epoch * batches + min(batch, batches)
                group["lr"] = rate_at(protocol.lr, step, protocol.epochs * batches)
            for parameter, gradient in zip(group["params"], gradients, strict=True):
                parameter.grad = gradient if batch < batches else None
        self._torch.step()


@dataclass(frozen=True)
class _Batch:
    """One batch of an epoch, for the networks that still have rows for it (the first S')."""

    number: int
    start: int  # its columns of the epoch's order
    stop: int
    valid: Tensor | None  # (S', B), None where all rows count
    row_weight: Tensor  # (S', B): a row's share of its batch
    share: Tensor  # (S',): the batch's share of the epoch
    rows: Rows  # for batch normalisation


def _batches(counts: list[int], size: int, networks: StackedNetworks) -> list[_Batch]:
    batches = []
    for number, start in enumerate(range(0, max(counts), size)):
        active = [min(count - start, size) for count in counts if count > start]
        longest = max(active)
        count = torch.tensor(active, device=networks.device)
        valid = torch.arange(longest, device=networks.device) < count[:, None]
        share = count / torch.tensor(counts[: len(active)], device=networks.device)
        row_weight = valid.to(networks.dtype) / count[:, None]
        batches.append(
            _Batch(
                number,
                start,
                start + longest,
                valid if longest != min(active) else None,
                row_weight,
                share.to(networks.dtype),
                Rows.of(row_weight),
            )
        )
    return batches


def train_stack(
    stack: Stack,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    on_epoch: Callable[[], None] = lambda: None,
) -> tuple[StackResult, StackedNetworks]:
    """Trains and tests the networks of a stack.

    A network whose loss or weights are not finite after an epoch is put back to its weights before
    that epoch, takes no further part, and is marked as diverged; no other network is touched.

    Args:
        stack: what to train.
        device: a torch device.
        dtype: of weights and arithmetic; float32, and float64 to check against a reference.
        on_epoch: called after each epoch, to report progress.
    """
    started = time.perf_counter()
    networks = StackedNetworks(stack, torch.device(device), dtype)
    counts = [len(network.train) for network in stack.networks]
    size = stack.protocol.batch_size
    batches = _batches(counts, size, networks)
    # Rows are gathered for a few batches at a time, which costs fewer calls.
    a_batch = len(counts) * size * (networks.x.shape[1] + 2) * networks.x.element_size()
    at_once = max(1, GATHER_BYTES // a_batch)
    blocks = [(batches[i].start, batches[i : i + at_once]) for i in range(0, len(batches), at_once)]
    batches_of = [stack.batches_of(network) for network in stack.networks]
    optimizer = _Optimizer(networks)
    # lanes share their batches, as objectives do
    orders = {(n.repeat, n.fold): BatchOrder(stack.seed, n) for n in stack.networks}
    rows = np.zeros((len(counts), max(counts)), np.int64)
    losses = torch.zeros(stack.protocol.epochs, len(counts), dtype=dtype, device=networks.device)
    healthy = torch.ones(len(counts), dtype=torch.bool, device=networks.device)
    movable = {**networks.weights, **networks.state, **networks.running}
    last_good = {name: value.clone() for name, value in movable.items()}
    for epoch, loss_of_epoch in enumerate(losses):
        drawn = {number: order.next_epoch() for number, order in orders.items()}
        for i, network in enumerate(stack.networks):
            rows[i, : counts[i]] = drawn[network.repeat, network.fold]
        order_of_epoch = torch.as_tensor(rows, device=networks.device)
        for start, block in blocks:
            rows_of_block = order_of_epoch[:, start : start + size * len(block)]
            x, y = networks.inputs(rows_of_block), networks.y[rows_of_block]
            for batch in block:
                columns = slice(batch.start - start, batch.stop - start)
                active = len(batch.share)
                networks.set_progress(epoch, batch.number, batches_of)
                loss = networks.backward(
                    x[:active, columns],
                    y[:active, columns],
                    batch.valid,
                    batch.row_weight,
                    batch.rows,
                )
                loss_of_epoch[:active].addcmul_(loss, batch.share)
                optimizer.step(epoch, batch.number)
        healthy &= loss_of_epoch.isfinite()
        for weight in networks.weights.values():
            healthy &= weight.reshape(len(weight), -1).sum(1).isfinite()
        for name, value in movable.items():
            kept = healthy.view(-1, *[1] * (value.dim() - 1))
            last_good[name].copy_(
                value if healthy.all() else torch.where(kept, value, last_good[name])
            )
        on_epoch()
    for name, value in movable.items():
        value.copy_(last_good[name])
    networks.set_progress(stack.protocol.epochs, 0, batches_of)

    predicted = networks.predict()
    hits = predicted == stack.dataset.y
    result = StackResult(
        correct=np.array([h[n.test].sum() for h, n in zip(hits, stack.networks, strict=True)]),
        tested=np.array([len(n.test) for n in stack.networks]),
        diverged=~healthy.cpu().numpy(),
        collapsed=(predicted == predicted[:, :1]).all(1),
        losses=losses.cpu().double().numpy().T,
        seconds=time.perf_counter() - started,
    )
    per_network = {
        key: value[networks.in_order] for key, value in vars(result).items() if key != "seconds"
    }
    return StackResult(**per_network, seconds=result.seconds), networks
