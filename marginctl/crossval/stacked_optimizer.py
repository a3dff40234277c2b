"""The steps of a stack: its batches of an epoch, and one optimiser for networks that differ."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from marginctl.crossval.stacked_layer import Rows
from marginctl.crossval.stacked_networks import StackedNetworks
from marginctl.objectives.schedules import rate_at

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda groups: torch.optim.Adam(groups, fused=True),
    "adamw": lambda groups: torch.optim.AdamW(groups, fused=True),
    "sgd": lambda groups: torch.optim.SGD(groups, fused=True),
}


class StackOptimizer:
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
class Batch:
    """One batch of an epoch, for the networks that still have rows for it (the first S')."""

    number: int
    start: int  # its columns of the epoch's order
    stop: int
    valid: Tensor | None  # (S', B), None where all rows count
    row_weight: Tensor  # (S', B): a row's share of its batch
    share: Tensor  # (S',): the batch's share of the epoch
    rows: Rows  # for batch normalisation


def batches_in_epoch(counts: list[int], size: int, networks: StackedNetworks) -> list[Batch]:
    """The batches of an epoch.

    Args:
        counts: (S,) training rows of each network, most first.
        size: rows of a whole batch.
        networks: whose device and dtype the tensors have.
    """
    batches = []
    for number, start in enumerate(range(0, max(counts), size)):
        active = [min(count - start, size) for count in counts if count > start]
        longest = max(active)
        count = torch.tensor(active, device=networks.device)
        valid = torch.arange(longest, device=networks.device) < count[:, None]
        share = count / torch.tensor(counts[: len(active)], device=networks.device)
        row_weight = valid.to(networks.dtype) / count[:, None]
        batches.append(
            Batch(
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
