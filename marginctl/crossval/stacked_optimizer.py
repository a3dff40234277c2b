"""Batches and optimizer of a stack, whose networks may have different rates and batch counts."""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from marginctl.crossval.stacked_layer import BatchRows
from marginctl.crossval.stacked_networks import StackedNetworks
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
