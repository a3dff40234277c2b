"""Diagnostics of training images at evaluated epochs: sample difficulty and input-gradient norm.

Zhang, Xie and Chen (Probability-Dependent Gradient Decay in Large Margin Softmax) claim that with a
small beta easy samples are learned first and hard ones later. Here a sample's difficulty is its
cross-entropy under a trained reference network; this measure and the groups are our choice.

The paper also relates beta to the Lipschitz constant of the loss. The input-gradient norm
|dJ(x)/dx|, a Euclidean norm with respect to the normalized image, estimates it from below: it is
the largest change of the loss by a small step of length 1. The estimator is ours.

The images depend on the data set alone, so that all objectives and seeds see the same ones.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marginctl.data.images.image_sets import ImageDataset
from marginctl.data.loading.loader import BatchLoader
from marginctl.data.loading.on_disk_loader import make_loader
from marginctl.metrics.accuracy import top_k_accuracy
from marginctl.metrics.arrays import FloatArray, IntArray
from marginctl.metrics.calibration_error import CONVENTION, bin_index
from marginctl.metrics.scoring_rules import nll_per_sample
from marginctl.objectives.module import Objective
from marginctl.recipe.image_recipe import MAX_DIAGNOSED
from marginctl.training.trainer import DivergedError, Predictions, Trainer
from marginctl.utils.distributed import World
from marginctl.utils.seed import generator

SEED = 0  # of the choice of images
HISTOGRAM_BINS = 20
GRADIENT_BATCH_SIZE = 64  # the gradients of this many images must fit into memory


class Diagnostics:
    """The diagnostics that a recipe asks for, on fixed training images.

    Args:
        reference_losses: gives the (N,) losses of a reference network on the training images of a
            data set; None without sample difficulty.
    """

    def __init__(
        self,
        trainer: Trainer,
        images: ImageDataset,
        world: World,
        reference_losses: Callable[[ImageDataset], FloatArray] | None = None,
    ) -> None:
        self._world = world
        self._difficulty: tuple[DifficultyGroups, BatchLoader] | None = None
        self._gradient_images: BatchLoader | None = None
        train, count = trainer.recipe.train, len(images.train_y)
        if reference_losses is not None:
            sample = images.select(sample_rows(count, MAX_DIAGNOSED, "curriculum"))
            groups = DifficultyGroups(reference_losses(sample), train.difficulty_groups)
            self._difficulty = groups, _loader(sample, trainer, world)
        if train.gradient_norm_samples:
            rows = sample_rows(count, train.gradient_norm_samples, "lipschitz")
            self._gradient_images = _loader(images.select(rows), trainer, world)

    def record(self, trainer: Trainer) -> dict[str, Any]:
        """Return the diagnostics of an epoch, for a line of metrics.jsonl."""
        record: dict[str, Any] = {}
        if self._difficulty is not None:
            groups, loader = self._difficulty
            predictions = trainer.predict(batches=loader, split="training")
            difficulty = groups.record(trainer.objective, predictions)
            record["sample_difficulty"] = difficulty | {"seed": SEED}
        if self._gradient_images is not None:
            norms = input_gradient_norm(trainer, self._gradient_images, self._world)
            record["input_gradient_norm"] = norms | {"seed": SEED}
        return record


def sample_rows(count: int, limit: int, stream: str) -> IntArray:
    """Return at most `limit` of `count` rows, in order, from a fixed random stream."""
    return np.sort(generator(SEED, "watched", stream).permutation(count)[:limit])


def _loader(sample: ImageDataset, trainer: Trainer, world: World) -> BatchLoader:
    """Return a loader of training images, in order and normalized as the trainer's own images."""
    loader = make_loader(sample.train_as_test(), trainer.device_config, 0, "none", world)
    loader.set_normalization(trainer.batches.mean, trainer.batches.std)
    return loader


class DifficultyGroups:
    """Training images grouped by their difficulty.

    Args:
        num_groups: number of groups; their sizes differ by 1 at most.

    Attributes:
        groups: the rows of each group, the easiest first; ties by row.
    """

    def __init__(self, losses: FloatArray, num_groups: int) -> None:
        self.groups = np.array_split(np.argsort(losses, kind="stable"), num_groups)

    def record(self, objective: Objective, predictions: Predictions) -> dict[str, Any]:
        """Return each group's mean p_y and NLL without margin, top-1, and share of the gradient.

        The gradient of an image is |dJ/dx|, the Euclidean norm of the gradient of the objective's
        loss with respect to the feature x; a group's share is the sum over its images divided by
        the sum over all. The loss is the training loss, with its margin; the objective's state
        does not change.

        Returns:
            `groups` by number, "1" the easiest, and `confidence_histogram` of all p_y. A share is
            null where all gradients are zero or one is not finite, confidence and NLL where a
            logit is not finite.
        """
        labels = predictions.labels.numpy()
        logits, scores = predictions.logits.double().numpy(), predictions.similarities.numpy()
        finite = bool(np.isfinite(logits).all())
        losses = nll_per_sample(logits, labels) if finite else np.full(len(labels), np.nan)
        confidence = np.exp(-losses)
        norms = feature_gradient_norms(objective, predictions.features, predictions.labels)
        total = norms.sum()
        has_shares = bool(np.isfinite(total) and total > 0)
        groups = {
            str(number): {
                "n": len(rows),
                "confidence": float(confidence[rows].mean()) if finite else None,
                "nll": float(losses[rows].mean()) if finite else None,
                "top1": 100 * top_k_accuracy(scores[rows], labels[rows], 1),
                "gradient_share": float(norms[rows].sum() / total) if has_shares else None,
            }
            for number, rows in enumerate(self.groups, 1)
        }
        counts = None
        if finite:
            index = bin_index(confidence, HISTOGRAM_BINS)
            counts = np.bincount(index, minlength=HISTOGRAM_BINS).tolist()
        histogram = {"bins": HISTOGRAM_BINS, "convention": CONVENTION, "counts": counts}
        return {"n": len(labels), "groups": groups, "confidence_histogram": histogram}


def feature_gradient_norms(objective: Objective, features: Tensor, labels: Tensor) -> FloatArray:
    """Return (N,) |dJ_i/dx_i| of features (N, d): of each sample's own loss, with the margin.

    With a linear similarity and one weight vector per class it is |sum_c dJ/dz_c w_c|; gradient
    decay has dJ/dz_y = -(1 - p)/(1 - (1 - beta) p) of the plain softmax's p.

    The objective stays in evaluation mode afterwards: no batch changes its state. A part that uses
    the whole batch (a pooled least-squares scale) uses all these samples.
    """
    objective.eval()
    device = objective.weight.device
    with torch.enable_grad():
        x = features.detach().to(device).requires_grad_()
        loss = objective(x, labels.to(device), reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
    return np.asarray(torch.linalg.vector_norm(gradient.cpu().double(), dim=1).numpy())


def input_gradient_norm(trainer: Trainer, loader: BatchLoader, world: World) -> dict[str, Any]:
    """Return mean, 95 % quantile and maximum of the input-gradient norms, in nats per unit.

    The loss is the training loss, with its margin; the network computes in evaluation mode and in
    float32, and the objective's state does not change.
    """
    trainer.model.eval()
    trainer.objective.eval()
    local = [np.zeros(0)]
    for x, y in loader.test_batches(min(GRADIENT_BATCH_SIZE, trainer.recipe.train.batch_size)):
        if not len(y):  # more processes than images
            continue
        x.requires_grad_()
        # no image affects another's loss: the gradient of the sum holds each image's own
        loss = trainer.objective(trainer.model(x).float(), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
        norm = torch.linalg.vector_norm(gradient.flatten(1), dim=1)
        local.append(norm.cpu().double().numpy())
    norms = np.concatenate(world.all_gather(np.concatenate(local)))
    if not np.isfinite(norms).all():
        raise DivergedError(f"the gradient of the loss is not finite at step {trainer.step}")
    return {
        "mean": float(norms.mean()),
        "quantile95": float(np.quantile(norms, 0.95)),
        "max": float(norms.max()),
        "n": len(norms),
    }
