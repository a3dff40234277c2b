"""Trains a stack of small networks side by side with batched matrix products.

Every tensor has the network as its first dimension. The hidden layers' backward pass is written
out (it has one form for every objective); the objective's own comes from autograd on the last
feature and the class weights, so there is one definition of each objective.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marginctl.crossval.stack import BatchOrder, Stack, initial_weights, scaling_statistics
from marginctl.objectives.objective import ObjectiveFunction

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda p, r: torch.optim.Adam(p, r.lr, weight_decay=r.weight_decay, fused=True),
    "adamw": lambda p, r: torch.optim.AdamW(p, r.lr, weight_decay=r.weight_decay, fused=True),
    "sgd": lambda p, r: torch.optim.SGD(
        p, r.lr, momentum=r.momentum, weight_decay=r.weight_decay, fused=True
    ),
}


@dataclass(frozen=True)
class StackResult:
    """What a stack of S networks gave, in the order of their numbers (repeat * folds + fold)."""

    correct: NDArray[np.int64]  # (S,) test rows predicted right
    tested: NDArray[np.int64]  # (S,) test rows
    diverged: NDArray[np.bool_]  # (S,) the loss was not finite; frozen before that epoch
    collapsed: NDArray[np.bool_]  # (S,) one class predicted for every row, training rows included
    losses: NDArray[np.float64]  # (S, epochs) mean training loss of each epoch
    seconds: float


class StackedNetworks:
    """S networks as stacked tensors: ReLU layers, then the objective's classifier."""

    def __init__(self, stack: Stack, device: torch.device, dtype: torch.dtype) -> None:
        self.stack, self.device, self.dtype = stack, device, dtype
        protocol, dataset = stack.protocol, stack.dataset
        self.objective = ObjectiveFunction(stack.objective.spec, dataset.num_classes)

        # Centred on the column medians in float64 first, so that float32 keeps the digits of a
        # column like 1,600,000,000 +- 1,000; the fold's own statistics are subtracted after.
        scaled = protocol.scaling != "none"
        x = dataset.x - np.median(dataset.x, axis=0) if scaled else dataset.x
        self.x = self._tensor(x)
        self.y = torch.as_tensor(dataset.y, device=device)
        statistics = [scaling_statistics(x, n.train, protocol.scaling) for n in stack.networks]
        self.shift = self._tensor(np.stack([shift for shift, _ in statistics]))[:, None]
        self.factor = self._tensor(np.stack([factor for _, factor in statistics]))[:, None]

        drawn = [
            initial_weights(stack.seed, n, stack.widths, dataset.num_classes)
            for n in stack.networks
        ]
        layers = range(len(protocol.hidden))
        names = [f"{part}{i}" for i in layers for part in ("weight", "bias")] + ["class_weight"]
        names += ["class_bias"] if self.objective.has_bias else []
        self.weights = {name: self._tensor(np.stack([d[name] for d in drawn])) for name in names}
        self.gradients = {name: torch.zeros_like(w) for name, w in self.weights.items()}
        self.layers = [(self.weights[f"weight{i}"], self.weights[f"bias{i}"]) for i in layers]
        self.state = self.objective.init_state(self.weights["class_weight"])

    def _tensor(self, array: NDArray[np.float64]) -> Tensor:
        return torch.as_tensor(array, dtype=self.dtype, device=self.device)

    def inputs(self, rows: Tensor) -> Tensor:
        """Scaled features (S', B, d) of row numbers (S', B), for the first S' networks."""
        x = self.x.index_select(0, rows.reshape(-1)).view(*rows.shape, -1)
        return x.sub_(self.shift[: len(rows)]).mul_(self.factor[: len(rows)])

    def hidden(self, x: Tensor) -> list[Tensor]:
        """x and the output of every hidden layer, (S', B, width) each; the last is the feature."""
        outputs = [x]
        for weight, bias in self.layers:
            z = torch.bmm(outputs[-1], weight[: len(x)])
            outputs.append(z.add_(bias[: len(x), None]).relu_())
        return outputs

    @torch.no_grad()
    def backward(self, rows: Tensor, valid: Tensor | None, row_weight: Tensor) -> Tensor:
        """Writes the gradient of each network's mean loss; returns these losses (S',).

        Args:
            rows: (S', B) row numbers of the first S' networks.
            valid: (S', B) which of them count, or None for all.
            row_weight: (S', B) 1/count where valid, else 0.
        """
        active = len(rows)
        outputs = self.hidden(self.inputs(rows))
        leaves = [outputs[-1].detach(), self.weights["class_weight"][:active].detach()]
        if self.objective.has_bias:
            leaves.append(self.weights["class_bias"][:active].detach())
        state = {name: value[:active] for name, value in self.state.items()}
        with torch.enable_grad():
            for leaf in leaves:
                leaf.requires_grad_()
            loss, after = self.objective(
                leaves[0],
                leaves[1],
                self.y[rows],
                valid,
                state,
                bias=leaves[2] if self.objective.has_bias else None,
            )
            losses = (loss * row_weight).sum(-1)
            gradients = torch.autograd.grad(losses.sum(), leaves)
        for name, value in after.items():
            self.state[name][:active] = value
        for name, gradient in zip(("class_weight", "class_bias"), gradients[1:], strict=False):
            self.gradients[name][:active] = gradient

        upstream = gradients[0]
        for i in reversed(range(len(self.layers))):
            upstream = upstream * outputs[i + 1].sign_()  # ReLU's mask, in place: the last use
            torch.bmm(
                outputs[i].transpose(1, 2), upstream, out=self.gradients[f"weight{i}"][:active]
            )
            torch.sum(upstream, 1, out=self.gradients[f"bias{i}"][:active])
            if i:
                upstream = torch.bmm(upstream, self.layers[i][0][:active].transpose(1, 2))
        return losses.detach()

    @torch.no_grad()
    def predict(self, rows_at_once: int = 256) -> NDArray[np.int64]:
        """(S, n): the class that each network predicts for every row of the data set."""
        bias = self.weights.get("class_bias")
        blocks = []
        for first in range(0, len(self.x), rows_at_once):
            last = min(first + rows_at_once, len(self.x))
            rows = torch.arange(first, last, device=self.device)
            features = self.hidden(self.inputs(rows.expand(len(self.shift), -1)))[-1]
            similarity = self.objective.similarities(features, self.weights["class_weight"], bias)
            blocks.append(similarity.argmax(-1))
        return torch.cat(blocks, 1).cpu().numpy()


class _Optimizer:
    """torch's optimiser over a stack in which networks may take different numbers of steps.

    Networks with the same number of batches an epoch form a group with parameters of its own, so
    that each network's steps are counted exactly; a group without a batch is left out of a step by
    having no gradient.
    """

    def __init__(self, networks: StackedNetworks, batches: list[int]) -> None:
        edges = [0] + [i for i in range(1, len(batches)) if batches[i] != batches[i - 1]]
        self._held = [
            (batches[first], torch.nn.Parameter(weight[first:last]), gradient[first:last])
            for first, last in zip(edges, [*edges[1:], len(batches)], strict=True)
            for weight, gradient in zip(
                networks.weights.values(), networks.gradients.values(), strict=True
            )
        ]
        protocol = networks.stack.protocol
        self._torch = OPTIMIZERS[protocol.optimizer]([p for _, p, _ in self._held], protocol)

    def step(self, batch: int) -> None:
        """Moves the networks that have a batch of this number (from 0)."""
        for batches, parameter, gradient in self._held:
            parameter.grad = gradient if batch < batches else None
        self._torch.step()


@dataclass(frozen=True)
class _Batch:
    """One batch of an epoch, for the networks that still have rows for it (the first S')."""

    number: int
    columns: slice  # of the epoch's order
    valid: Tensor | None  # (S', B), None where all rows count
    row_weight: Tensor  # (S', B): a row's share of its batch
    share: Tensor  # (S',): the batch's share of the epoch


def _batches(counts: list[int], size: int, networks: StackedNetworks) -> list[_Batch]:
    batches = []
    for number, start in enumerate(range(0, counts[0], size)):
        active = [min(count - start, size) for count in counts if count > start]
        count = torch.tensor(active, device=networks.device)
        valid = torch.arange(active[0], device=networks.device) < count[:, None]
        share = count / torch.tensor(counts[: len(active)], device=networks.device)
        batches.append(
            _Batch(
                number,
                slice(start, start + active[0]),
                valid if active[0] != active[-1] else None,
                valid.to(networks.dtype) / count[:, None],
                share.to(networks.dtype),
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
    optimizer = _Optimizer(networks, [-(-count // size) for count in counts])
    orders = [BatchOrder(stack.seed, network) for network in stack.networks]
    rows = np.zeros((len(counts), counts[0]), np.int64)
    losses = torch.zeros(stack.protocol.epochs, len(counts), dtype=dtype, device=networks.device)
    healthy = torch.ones(len(counts), dtype=torch.bool, device=networks.device)
    last_good = {name: weight.clone() for name, weight in networks.weights.items()}
    for loss_of_epoch in losses:
        for i, order in enumerate(orders):
            rows[i, : counts[i]] = order.next_epoch()
        order_of_epoch = torch.as_tensor(rows, device=networks.device)
        for batch in batches:
            order_of_batch = order_of_epoch[: len(batch.share), batch.columns]
            loss = networks.backward(order_of_batch, batch.valid, batch.row_weight)
            loss_of_epoch[: len(loss)].addcmul_(loss, batch.share)
            optimizer.step(batch.number)
        healthy &= loss_of_epoch.isfinite()
        for weight in networks.weights.values():
            healthy &= weight.flatten(1).isfinite().all(1)
        for name, weight in networks.weights.items():
            last_good[name][healthy] = weight[healthy]
        on_epoch()
    for name, weight in networks.weights.items():
        weight.copy_(last_good[name])

    predicted = networks.predict()
    hits = predicted == stack.dataset.y
    in_order = np.argsort([n.repeat * stack.protocol.folds + n.fold for n in stack.networks])
    result = StackResult(
        correct=np.array([h[n.test].sum() for h, n in zip(hits, stack.networks, strict=True)]),
        tested=np.array([len(n.test) for n in stack.networks]),
        diverged=~healthy.cpu().numpy(),
        collapsed=(predicted == predicted[:, :1]).all(1),
        losses=losses.double().cpu().numpy().T,
        seconds=time.perf_counter() - started,
    )
    per_network = {key: value[in_order] for key, value in vars(result).items() if key != "seconds"}
    return StackResult(**per_network, seconds=result.seconds), networks
