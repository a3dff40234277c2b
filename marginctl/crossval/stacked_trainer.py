"""The training loop of a stack of small networks, by batched matrix products.

Every tensor has the network as its first dimension. The backward pass is written out, the
objective's part by part, in fewer passes than autograd takes.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from marginctl.crossval.stack import BatchOrder, Stack, StackResult, evaluate_network
from marginctl.crossval.stacked_networks import StackedNetworks
from marginctl.crossval.stacked_optimizer import StackedOptimizer, epoch_batches

GATHER_BYTES = 2**20  # of input rows that are gathered at a time


def train_stack(
    stack: Stack,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    on_epoch: Callable[[], None] = lambda: None,
) -> tuple[StackResult, StackedNetworks]:
    """Train and test the networks of a stack.

    A network whose loss or weights are not finite after an epoch is reset to its weights before
    that epoch, is trained no further and is marked as diverged; no other network is affected.

    Args:
        device: a torch device.
        dtype: of weights and arithmetic; float32, and float64 to check against a reference.
        on_epoch: called after each epoch.
    """
    started = time.perf_counter()
    networks = StackedNetworks(stack, torch.device(device), dtype)
    counts = [len(network.train) for network in stack.networks]
    size = stack.protocol.batch_size
    batches = epoch_batches(counts, size, networks)
    # Rows are gathered for a few batches at a time, which costs fewer calls.
    batch_bytes = len(counts) * size * (networks.x.shape[1] + 2) * networks.x.element_size()
    per_block = max(1, GATHER_BYTES // batch_bytes)
    blocks = [
        (batches[i].start, batches[i : i + per_block]) for i in range(0, len(batches), per_block)
    ]
    batch_counts = [stack.num_batches(network) for network in stack.networks]
    optimizer = StackedOptimizer(networks)
    # variants share their batches, as objectives do
    orders = {(n.repeat, n.fold): BatchOrder(stack.seed, n) for n in stack.networks}
    rows = np.zeros((len(counts), max(counts)), np.int64)
    losses = torch.zeros(stack.protocol.epochs, len(counts), dtype=dtype, device=networks.device)
    healthy = torch.ones(len(counts), dtype=torch.bool, device=networks.device)
    tensors = {**networks.weights, **networks.state, **networks.running}
    last_good = {name: value.clone() for name, value in tensors.items()}
    for epoch, epoch_loss in enumerate(losses):
        epoch_orders = {key: order.next_epoch() for key, order in orders.items()}
        for i, network in enumerate(stack.networks):
            rows[i, : counts[i]] = epoch_orders[network.repeat, network.fold]
        epoch_rows = torch.as_tensor(rows, device=networks.device)
        for start, block in blocks:
            block_rows = epoch_rows[:, start : start + size * len(block)]
            x, y = networks.inputs(block_rows), networks.y[block_rows]
            for batch in block:
                columns = slice(batch.start - start, batch.stop - start)
                active = len(batch.batch_weight)
                networks.set_progress(epoch, batch.number, batch_counts)
                loss = networks.backward(
                    x[:active, columns],
                    y[:active, columns],
                    batch.valid,
                    batch.row_weight,
                    batch.rows,
                )
                epoch_loss[:active].addcmul_(loss, batch.batch_weight)
                optimizer.step(epoch, batch.number)
        healthy &= epoch_loss.isfinite()
        for weight in networks.weights.values():
            healthy &= weight.reshape(len(weight), -1).sum(1).isfinite()
        for name, value in tensors.items():
            mask = healthy.view(-1, *[1] * (value.dim() - 1))
            last_good[name].copy_(
                value if healthy.all() else torch.where(mask, value, last_good[name])
            )
        on_epoch()
    for name, value in tensors.items():
        value.copy_(last_good[name])
    networks.set_progress(stack.protocol.epochs, 0, batch_counts)

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
