"""What is counted of the training batches of an epoch."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from marginctl.objectives.module import Objective
from marginctl.objectives.parts import ObjectiveSpec
from marginctl.utils.distributed import World

# Scores are counted for so many numbers at a time: with 100,000 classes a batch has several times
# as many, and they would be the largest that a step holds.
AT_ONCE = 2**24


class RunningMetrics:
    """Loss, top-1 and top-5 hits, images and NLL of the epoch so far.

    Args:
        objective: that is trained.
        device: where its batches are.
        world: the processes that train together; each counts its own part.
    """

    def __init__(self, objective: Objective, device: torch.device, world: World) -> None:
        self._objective, self._world = objective, world
        self._loss_is_nll = _is_nll(objective.spec)
        wide = torch.float32 if device.type == "mps" else torch.float64
        self._sums = torch.zeros(5, dtype=wide, device=device)

    def reset(self) -> None:
        """Begins an epoch."""
        self._sums = torch.zeros_like(self._sums)

    @torch.no_grad()
    def add(self, loss: Tensor, features: Tensor, y: Tensor) -> None:
        """Counts a batch: its mean loss, its features (B, d) and its labels (B,)."""
        rows = max(1, AT_ONCE // self._objective.num_classes)
        for x, labels in zip(torch.split(features, rows), torch.split(y, rows), strict=True):
            self._sums += self._counted(loss, x, labels)

    def _counted(self, loss: Tensor, features: Tensor, y: Tensor) -> Tensor:
        """(5,) of some rows of a batch whose mean loss this is."""
        scores = self._objective.similarities(features)
        one, five = top1_top5_hits(scores, y)
        n = torch.tensor(float(len(y)), device=y.device)
        nll = loss if self._loss_is_nll else self._nll(features, scores, y)
        wide = self._sums.dtype
        return torch.stack([loss.to(wide) * n, one, five, n, nll.to(wide) * n]).to(wide)

    def _nll(self, features: Tensor, scores: Tensor, y: Tensor) -> Tensor:
        """The mean cross-entropy of the logits without margin; NaN where they would cost much."""
        if self._objective.spec.scale.kind == "least-squares":  # another search for kappa*
            return scores.new_tensor(math.nan)
        return functional.cross_entropy(self._objective.scaled(scores, features), y)

    def is_finite(self) -> bool:
        """Whether the loss of every batch was, on all processes."""
        return math.isfinite(self._world.all_reduce_sum(self._sums[0]).item())

    def record(self) -> dict[str, Any]:
        """Of all processes; `nll` is of the logits without margin: it compares as losses do not."""
        loss, one, five, n, nll = self._world.all_reduce_sum(self._sums).tolist()
        record = {"loss": loss / n, "top1": 100 * one / n}
        record |= {"nll": nll / n} if math.isfinite(nll) else {}
        return record | ({"top5": 100 * five / n} if self._objective.num_classes > 5 else {})

    def state(self) -> Tensor:
        """(5,) of all processes, for a checkpoint."""
        return self._world.all_reduce_sum(self._sums).cpu()

    def load(self, sums: Tensor) -> None:
        """Takes up what `state` gave; the first of several processes goes on with it."""
        # an older checkpoint has no NLL: NaN, which the record of its epoch leaves out
        whole = functional.pad(sums, (0, len(self._sums) - len(sums)), value=math.nan)
        whole = whole if self._world.is_main_process else torch.zeros_like(whole)
        self._sums = whole.to(self._sums.device)


def _is_nll(spec: ObjectiveSpec) -> bool:
    """Whether the loss is the cross-entropy of the logits without margin, and nothing more."""
    return (spec.loss.kind, spec.margin.kind) == ("cross-entropy", "none") and not spec.regularizers


def top1_top5_hits(scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """How many labels are the first, and among the first five, by score (N, C); ties as argmax."""
    one = (scores.argmax(-1) == y).sum()
    own = scores.gather(1, y[:, None])
    before = torch.arange(scores.shape[1], device=y.device) < y[:, None]
    rank = (scores > own).sum(1) + ((scores == own) & before).sum(1)
    return one, (rank < 5).sum()
