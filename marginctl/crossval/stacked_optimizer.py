"""Batches and optimizer of a stack, whose networks may have different rates and batch counts."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from marginctl.crossval.stacked_layer import BatchRows
from marginctl.crossval.stacked_networks import StackedNetworks
from marginctl.objectives.schedules import Schedule, rate_at

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda groups: torch.optim.Adam(groups, fused=True),
    "adamw": lambda groups: torch.optim.AdamW(groups, fused=True),
    "sgd": lambda groups: torch.optim.SGD(groups, fused=True),
}


class StackedOptimizer:
    """torch's optimizer over a stack in which networks may take different steps.

    Networks of one variant with the same number of batches per epoch form a parameter group, so
    that each network's steps are counted exactly, at its variant's rate; a group without a batch
    is left out of a step by having no gradient.
    """

    def __init__(self, networks: StackedNetworks) -> None:
        stack = networks.stack
        group_keys = [(stack.num_batches(n), n.variant) for n in stack.networks]
        edges = [0]
        edges += [i for i in range(1, len(group_keys)) if group_keys[i] != group_keys[i - 1]]
        groups = []
        self._gradients = []
        for first, last in zip(edges, [*edges[1:], len(group_keys)], strict=True):
            batches, variant = group_keys[first]
            protocol = stack.variants[variant]
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
        self._optimizer = OPTIMIZERS[stack.protocol.optimizer](groups)

    def step(self, epoch: int, batch: int) -> None:
        """Update the networks that have a batch of this number (from 0)."""
        for group, (batches, protocol, gradients) in zip(
            self._optimizer.param_groups, self._gradients, strict=True
        ):
            if isinstance(protocol.lr, Schedule):
                step = epoch * batches + min(batch, batches)
                group["lr"] = rate_at(protocol.lr, step, protocol.epochs * batches)
            for parameter, gradient in zip(group["params"], gradients, strict=True):
                parameter.grad = gradient if batch < batches else None
        self._optimizer.step()


@dataclass(frozen=True)
class Batch:
    """One batch of an epoch, for the networks that still have rows (the first S')."""

    number: int
    start: int  # first column of the epoch's order
    stop: int  # one past the last column
    valid: Tensor | None  # (S', B), None where all rows are valid
    row_weight: Tensor  # (S', B): a row's weight in the batch's mean
    batch_weight: Tensor  # (S',): the batch's weight in the epoch's mean
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
        batch_weight = count / torch.tensor(counts[: len(active)], device=networks.device)
        row_weight = valid.to(networks.dtype) / count[:, None]
        batches.append(
            Batch(
                number,
                start,
                start + longest,
                valid if longest != min(active) else None,
                row_weight,
                batch_weight.to(networks.dtype),
                BatchRows.from_weights(row_weight),
            )
        )
    return batches
