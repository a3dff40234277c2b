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

# Input rows that are gathered at a time, in bytes: what a CPU's cache holds; a GPU likes few calls.
GATHER_BYTES = {"cpu": 2**20, "cuda": 2**26, "mps": 2**26}


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
        on_epoch()
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
