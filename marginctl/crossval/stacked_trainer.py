"""Trains a stack of small networks side by side with batched matrix products: the loop.

Every tensor has the network as its first dimension. The backward pass is written out, the
objective's part by part, in fewer passes than autograd takes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from marginctl.crossval.stack import BatchOrder, Stack
from marginctl.crossval.stacked_networks import StackedNetworks
from marginctl.crossval.stacked_optimizer import StackOptimizer, batches_in_epoch

GATHER_BYTES = 2**20


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
    batches = batches_in_epoch(counts, size, networks)
    # Rows are gathered for a few batches at a time, which costs fewer calls.
    a_batch = len(counts) * size * (networks.x.shape[1] + 2) * networks.x.element_size()
    at_once = max(1, GATHER_BYTES // a_batch)
    blocks = [(batches[i].start, batches[i : i + at_once]) for i in range(0, len(batches), at_once)]
    batches_of = [stack.batches_of(network) for network in stack.networks]
    optimizer = StackOptimizer(networks)
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
