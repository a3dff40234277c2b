"""Batches, optimizer and training loop of a stack of small networks, by batched products.

Every tensor has the network as its first dimension. The backward pass is written out, the
objective's part by part, in fewer passes than autograd takes.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from marginctl.crossval.stack import BatchOrder, Stack, StackResult, evaluate_network
from marginctl.crossval.stacked_networks import BatchRows, StackedNetworks
from marginctl.objectives.schedules import rate_at
from marginctl.recipe.uci_cv import Protocol

EPSILON, BETAS = 1e-8, (0.9, 0.999)  # of Adam, as PyTorch's defaults


@dataclass
class _Group:
    """Networks of one variant with the same number of batches, which take the same steps."""

    networks: slice
    batches: int  # of an epoch
    protocol: Protocol
    parameters: list[Tensor]
    gradients: list[Tensor]  # of the layers; those of the objective follow
    moments: list[Tensor]  # Adam's first, and SGD's momentum
    squares: list[Tensor]  # Adam's second
    step: Tensor  # how many it has taken, for Adam

    def settings(self, epoch: int, batch: int) -> tuple[float, float, float]:
        """Return learning rate, weight decay and momentum at a batch."""
        protocol = self.protocol
        step, steps = epoch * self.batches + batch, protocol.epochs * self.batches
        return rate_at(protocol.lr, step, steps), protocol.weight_decay, protocol.momentum


class StackedOptimizer:
    """torch's fused optimizers over a stack in which networks may take different steps.

    Each network's steps are counted exactly, at its variant's rate. The kernels are called by
    themselves: `torch.optim` around them takes as long as they do.
    """

    def __init__(self, networks: StackedNetworks) -> None:
        stack = networks.stack
        self._networks, self._kind = networks, stack.protocol.optimizer
        self._head = [name for name in networks.weights if name not in networks.gradients]
        keys = [(stack.num_batches(n), n.variant) for n in stack.networks]
        edges = [i for i in range(len(keys)) if not i or keys[i] != keys[i - 1]]
        self._groups = []
        for first, last in itertools.pairwise([*edges, len(keys)]):
            batches, variant = keys[first]
            part = slice(first, last)
            parameters = [weight[part] for weight in networks.weights.values()]
            gradients = [gradient[part] for gradient in networks.gradients.values()]
            moments, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
            step = torch.zeros((), device=networks.device)
            group = (part, batches, stack.variants[variant], parameters, gradients)
            self._groups.append(_Group(*group, moments, squares, step))

    def step(self, epoch: int, batch: int) -> None:
        """Update the networks that have a batch of this number (from 0)."""
        by_settings: dict[tuple[float, float, float], list[_Group]] = {}
        for group in self._groups:
            if batch < group.batches:
                by_settings.setdefault(group.settings(epoch, batch), []).append(group)
        head = [self._networks.gradients[name] for name in self._head]
        for (lr, weight_decay, momentum), groups in by_settings.items():
            parameters = [p for g in groups for p in g.parameters]
            gradients = [p for g in groups for p in (*g.gradients, *(h[g.networks] for h in head))]
            moments = [m for g in groups for m in g.moments]
            if self._kind == "sgd":
                torch._fused_sgd_(
                    parameters,
                    gradients,
                    moments if momentum else [],
                    weight_decay=weight_decay,
                    momentum=momentum,
                    lr=lr,
                    dampening=0,
                    nesterov=False,
                    maximize=False,
                    is_first_step=False,
                )
                continue
            torch._foreach_add_([g.step for g in groups], 1)
            kernel = torch._fused_adam_ if self._kind == "adam" else torch._fused_adamw_
            kernel(
                parameters,
                gradients,
                moments,
                [s for g in groups for s in g.squares],
                [],
                [g.step for g in groups for _ in g.parameters],
                lr=lr,
                beta1=BETAS[0],
                beta2=BETAS[1],
                weight_decay=weight_decay,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
            )


@dataclass(frozen=True)
class Batch:
    """One batch of an epoch, for the networks that still have rows (the first S')."""

    number: int
    start: int  # first column of the epoch's order
    stop: int  # one past the last column
    valid: Tensor | None  # (S', B), None where all rows are valid
    row_weight: Tensor  # (S', B): a row's weight in the batch's mean
    weight: Tensor  # (S',): the batch's weight in the epoch's mean
    rows: BatchRows


def epoch_batches(counts: list[int], size: int, networks: StackedNetworks) -> list[Batch]:
    """Return the batches of an epoch.

    Args:
        counts: (S,) training rows of each network, most first.
        size: rows of a full batch.
        networks: give the tensors' device and dtype.
    """
    batches = []
    for number, start in enumerate(range(0, max(counts), size)):
        active = [min(count - start, size) for count in counts if count > start]
        longest = max(active)
        count = torch.tensor(active, device=networks.device)
        valid = torch.arange(longest, device=networks.device) < count[:, None]
        fraction = count / torch.tensor(counts[: len(active)], device=networks.device)
        row_weight, weight = valid.to(networks.dtype) / count[:, None], fraction.to(networks.dtype)
        mask = valid if longest != min(active) else None
        rows = BatchRows.from_weights(row_weight)
        batches.append(Batch(number, start, start + longest, mask, row_weight, weight, rows))
    return batches


# Input rows that are gathered at a time, in bytes: what a CPU's cache holds; a GPU is faster with
# few calls.
GATHER_BYTES = {"cpu": 2**20, "cuda": 2**26, "mps": 2**26}


def train_stack(
    stack: Stack,
    device: str = "cpu",
    report_cost: Callable[[float], None] = lambda cost: None,
    dtype: torch.dtype = torch.float32,
) -> tuple[StackResult, StackedNetworks]:
    """Train and test the networks of a stack.

    A network whose loss or weights are not finite after an epoch is reset to its weights before
    that epoch, is trained no further and is marked as diverged; no other network is affected.

    Args:
        report_cost: called with the cost of every finished epoch.
        dtype: of weights and arithmetic; float32, and float64 to check against a reference.
    """
    started = time.perf_counter()
    networks = StackedNetworks(stack, torch.device(device), dtype)
    counts = [len(network.train) for network in stack.networks]
    size = stack.protocol.batch_size
    batches = epoch_batches(counts, size, networks)
    # Rows are gathered for a few batches at a time, which costs fewer calls.
    batch_bytes = len(counts) * size * (networks.x.shape[1] + 2) * networks.x.element_size()
    per_block = max(1, GATHER_BYTES[networks.device.type] // batch_bytes)
    blocks = [
        (batches[i].start, batches[i : i + per_block]) for i in range(0, len(batches), per_block)
    ]
    optimizer = StackedOptimizer(networks)
    # variants share their batches, as objectives do
    orders = {(n.repeat, n.fold): BatchOrder(stack.seed, n) for n in stack.networks}
    # copied without a wait: the one at the end of an epoch comes before the rows change
    pinned = networks.device.type == "cuda"
    host_rows = torch.zeros(len(counts), max(counts), dtype=torch.int64, pin_memory=pinned)
    rows = host_rows.numpy()
    losses = torch.zeros(stack.protocol.epochs, len(counts), dtype=dtype, device=networks.device)
    # the weighted losses of an epoch's rows, and the weight of each row's batch; 0 where no row is
    row_losses, batch_weight = torch.zeros(2, *rows.shape, dtype=dtype, device=networks.device)
    for batch in batches:
        batch_weight[: len(batch.weight), batch.start : batch.stop] = batch.weight[:, None]
    healthy = torch.ones(len(counts), dtype=torch.bool, device=networks.device)
    tensors = list({**networks.weights, **networks.state, **networks.running}.values())
    last_good = [value.clone() for value in tensors]
    epoch_cost = stack.cost / stack.protocol.epochs
    for epoch in range(stack.protocol.epochs):
        epoch_orders = {key: order.next_epoch() for key, order in orders.items()}
        for i, network in enumerate(stack.networks):
            rows[i, : counts[i]] = epoch_orders[network.repeat, network.fold]
        epoch_rows = host_rows.to(networks.device, non_blocking=True)
        for start, block in blocks:
            block_rows = epoch_rows[:, start : start + size * len(block)]
            x, y = networks.inputs(block_rows), networks.y[block_rows]
            for batch in block:
                columns = slice(batch.start - start, batch.stop - start)
                active = len(batch.weight)
                batch_x, batch_y = x[:active, columns], y[:active, columns]
                networks.set_progress(epoch, batch.number)
                row_weight = networks.weigh(batch.row_weight, batch_y)
                loss = networks.backward(batch_x, batch_y, batch.valid, row_weight, batch.rows)
                torch.mul(loss, row_weight, out=row_losses[:active, batch.start : batch.stop])
                optimizer.step(epoch, batch.number)
        losses[epoch] = total = (row_losses * batch_weight).sum(1)
        for weight in networks.weights.values():
            total = total + weight.reshape(len(weight), -1).sum(1)
        healthy &= total.isfinite()
        if healthy.all():  # the one wait of an epoch
            torch._foreach_copy_(last_good, tensors)
        else:
            for good, value in zip(last_good, tensors, strict=True):
                mask = healthy.view(-1, *[1] * (value.dim() - 1))
                good.copy_(torch.where(mask, value, good))
        report_cost(epoch_cost)
    torch._foreach_copy_(tensors, last_good)
    networks.set_progress(stack.protocol.epochs, 0)

    predicted = networks.predict()
    logits = networks.logits() if stack.measured else None
    order = networks.result_order
    tests = [
        evaluate_network(stack.dataset, n, predicted[i], None if logits is None else logits[i])
        for i, n in enumerate(stack.networks)
    ]
    result = StackResult(
        **{key: np.stack([test[key] for test in tests])[order] for key in tests[0]},
        diverged=~healthy.cpu().numpy()[order],
        collapsed=(predicted == predicted[:, :1]).all(1)[order],
        losses=losses.cpu().double().numpy().T[order],
        seconds=time.perf_counter() - started,
    )
    return result, networks
