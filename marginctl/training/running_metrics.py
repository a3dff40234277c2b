"""Running metrics of the training batches of an epoch."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from marginctl.objectives.module import Objective
from marginctl.utils.distributed import World

# Scores in one block: with 100,000 classes those of a whole batch would be the largest tensors of
# a training step.
BLOCK_SIZE = 2**24


class RunningMetrics:
    """Sums of loss, top-1 and top-5 hits, images and NLL; each process adds its part of a batch."""

    def __init__(self, objective: Objective, device: torch.device, world: World) -> None:
        self._objective, self._world = objective, world
        spec = objective.spec
        kinds = (spec.loss.kind, spec.margin.kind)
        # whether the loss is the plain cross-entropy of the logits without margin
        self._loss_is_nll = kinds == ("cross-entropy", "none") and not spec.regularizers
        dtype = torch.float32 if device.type == "mps" else torch.float64
        self._sums = torch.zeros(5, dtype=dtype, device=device)

    def reset(self) -> None:
        self._sums.zero_()  # in place: a CUDA graph adds to this memory

    @torch.no_grad()
    def update(self, loss: Tensor, features: Tensor, y: Tensor) -> None:
        """Add a batch: its mean loss, its features (B, d) and its labels (B,)."""
        rows, dtype = max(1, BLOCK_SIZE // self._objective.num_classes), self._sums.dtype
        for x, labels in zip(torch.split(features, rows), torch.split(y, rows), strict=True):
            scores = self._objective.similarities(x)
            top1, top5 = top1_top5_hits(scores, labels)
            n = y.new_full((), len(labels), dtype=torch.float32)  # filled there, not copied there
            nll = loss if self._loss_is_nll else self._nll(x, scores, labels)
            sums = [loss.to(dtype) * n, top1, top5, n, nll.to(dtype) * n]
            self._sums += torch.stack(sums).to(dtype)

    def _nll(self, features: Tensor, scores: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy of the logits without margin; NaN where it is expensive."""
        if self._objective.spec.scale.kind == "least-squares":  # it would search for kappa* again
            return scores.new_full((), math.nan)
        return functional.cross_entropy(self._objective.scale_similarities(scores, features), y)

    def total_loss(self) -> Tensor:
        """Return the sum of the losses of all batches and processes."""
        return self._world.all_reduce_sum(self._sums[0])

    def compute(self) -> dict[str, Any]:
        """Return the metrics of all processes.

        `nll` is of the logits without margin: unlike the losses it compares between objectives.
        """
        loss, top1, top5, n, nll = self._world.all_reduce_sum(self._sums).tolist()
        metrics = {"loss": loss / n, "top1": 100 * top1 / n}
        metrics |= {"nll": nll / n} if math.isfinite(nll) else {}
        return metrics | ({"top5": 100 * top5 / n} if self._objective.num_classes > 5 else {})

    def state(self) -> Tensor:
        """Return the (5,) sums of all processes, for a checkpoint."""
        return self._world.all_reduce_sum(self._sums).cpu().clone()

    def load_state(self, sums: Tensor) -> None:
        """Restore `state`; the main process continues its sums, the others start from zero."""
        sums = sums if self._world.is_main_process else torch.zeros_like(sums)
        self._sums.copy_(sums)


def top1_top5_hits(scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many labels rank first, and among the first five, by scores (N, C).

    Ties are broken as in argmax.
    """
    top1 = (scores.argmax(-1) == y).sum()
    target = scores.gather(1, y[:, None])
    lower_index = torch.arange(scores.shape[1], device=y.device) < y[:, None]
    rank = (scores > target).sum(1) + ((scores == target) & lower_index).sum(1)
    return top1, (rank < 5).sum()
