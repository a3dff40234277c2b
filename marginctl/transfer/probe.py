"""A linear probe: features scaled, the penalty chosen by validation, the test part used once."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.data.images.groups import hold_out_groups
from marginctl.metrics.accuracy import wilson_interval
from marginctl.metrics.arrays import FloatArray, IntArray
from marginctl.metrics.scoring_rules import nll
from marginctl.recipe.transfer import Probe
from marginctl.transfer.cached_features import SplitFeatures
from marginctl.transfer.logistic_regression import FittedProbe, ProbeProblem, gradient_limit
from marginctl.utils.seed import generator


@dataclass(frozen=True)
class ProbeResult:
    """A probe, evaluated on the test part."""

    record: dict[str, Any]
    features: FloatArray  # (n, d) scaled features of the test images
    logits: FloatArray  # (n, C) of the test images
    fitted: FittedProbe
    scaling: "FeatureScaling"

    @property
    def unscaled(self) -> tuple[FloatArray, FloatArray]:
        """Weights (C, d) and bias (C,) for features before `standardised` scaling."""
        weight = self.fitted.weight / self.scaling.std
        return weight, self.fitted.bias - weight @ self.scaling.mean


def fit_probe(
    features: SplitFeatures,
    train_y: IntArray,
    test_y: IntArray,
    num_classes: int,
    probe: Probe,
    seed: int,
    check: Callable[[], None] = lambda: None,
    groups: IntArray | None = None,
    val_y: IntArray | None = None,
) -> ProbeResult:
    """Choose the penalty by validation, fit to all training images, and test once.

    Validation images are those of the validation part, or are drawn of the training part. Of
    penalties with equal validation accuracy the one with the lower validation loss is chosen.

    Args:
        train_y, test_y, val_y: their classes, 0 .. num_classes - 1.
        groups: of the training images, which are validated in whole groups.
    """
    began = time.perf_counter()
    penalties = probe.l2_penalties
    fit_rows, held_out, notes = np.arange(len(train_y)), features.val, list[str]()
    if held_out is None or val_y is None:
        fit_rows, val_rows, notes = validation_split(
            train_y, num_classes, probe.validation_fraction, seed, groups
        )
        held_out, val_y = features.train[val_rows], train_y[val_rows]
    candidates: list[dict[str, Any]] = []
    chosen, initial = penalties[len(penalties) // 2], None
    if len(val_y) and len(penalties) > 1:
        fit_x = features.train[fit_rows]
        scaling = FeatureScaling.fit(probe.features, fit_x)
        val_x = scaling(held_out)
        problem = ProbeProblem(scaling(fit_x), train_y[fit_rows], num_classes, check)
        path = problem.path(penalties, probe.tolerance)
        candidates = [_validation_record(p, p.logits(val_x), val_y) for p in path]
        best = max(candidates, key=lambda record: (record["top1"], -record["nll"]))
        chosen = best["l2_penalty"]
        initial = path[penalties.index(chosen)]
        edges = {penalties[0]: "largest", penalties[-1]: "smallest"}
        if chosen in edges:
            edge = f"the {edges[chosen]} of probe.l2_penalties: try values beyond it"
            notes.append(f"l2_penalty {chosen:g} is {edge}")
        notes += _convergence_notes(path, probe.tolerance)
    elif not len(val_y):
        notes.append(
            f"no class has 2 training images: l2_penalty {chosen:g} is the middle one, not chosen"
        )
    scaling = FeatureScaling.fit(probe.features, features.train)
    train, test = scaling(features.train), scaling(features.test)
    final = ProbeProblem(train, train_y, num_classes, check).fit(chosen, probe.tolerance, initial)
    notes += _convergence_notes([final], probe.tolerance)
    logits = final.logits(test)
    predicted = logits.argmax(1)
    correct = int((predicted == test_y).sum())
    low, high = wilson_interval(correct, len(test_y))
    record = {
        "interval": [100 * low, 100 * high],
        "correct": correct,
        "collapsed": bool((predicted == predicted[0]).all() and correct < len(test_y)),
        "l2_penalty": chosen,
        "validation": {"n_fit": len(fit_rows), "n": len(val_y), "l2_penalties": candidates},
        "fit": _solver_record(final),
        "tolerance": probe.tolerance,
        "images": len(train_y),
        "feature_dim": train.shape[1],
        "notes": notes,
        "timing": {"seconds": time.perf_counter() - began},
    }
    return ProbeResult(record, test, logits, final, scaling)


def validation_split(
    y: IntArray, num_classes: int, fraction: float, seed: int, groups: IntArray | None = None
) -> tuple[IntArray, IntArray, list[str]]:
    """Return rows to fit on, rows to validate on, and notes; each class is in both if it can be.

    Args:
        fraction: of each class, for validation; at least one image and all but one at most. With
            groups, of all images, in whole groups.
    """
    if groups is not None:
        what = "the validation part of a probe"
        val_rows = hold_out_groups(what, y, groups, fraction, seed, "transfer")
        return np.setdiff1d(np.arange(len(y)), val_rows), val_rows, []
    stream = generator(seed, "transfer", "validation")
    held_out = []
    for label in range(num_classes):
        rows = stream.permutation(np.flatnonzero(y == label))
        count = min(max(round(fraction * len(rows)), 1), len(rows) - 1)
        held_out.append(rows[: max(count, 0)])
    val_rows = np.sort(np.concatenate(held_out))
    too_small = int((np.bincount(y, minlength=num_classes) < 2).sum())
    notes = []
    if too_small and len(val_rows):
        notes.append(
            f"{too_small} of {num_classes} classes have fewer than 2 training images: they are "
            "left out of the validation split"
        )
    return np.setdiff1d(np.arange(len(y)), val_rows), val_rows, notes


@dataclass(frozen=True)
class FeatureScaling:
    """The scaling of features before a probe: (x - mean) / std, or to length 1."""

    # (d,); 0 and 1 without standardisation
    mean: FloatArray
    std: FloatArray
    to_unit: bool = False

    @classmethod
    def fit(cls, kind: str, train: NDArray[Any]) -> "FeatureScaling":
        """Return the scaling `standardised`, `unit` or `raw` of training features (n, d).

        A feature that is constant is only shifted.
        """
        mean, std = np.zeros(train.shape[1]), np.ones(train.shape[1])
        if kind == "standardised":
            x = train.astype(np.float64)
            mean, std = x.mean(0), x.std(0)
            std[std <= 1e-7 * np.abs(mean)] = 1.0  # a deviation by rounding alone
            std[std == 0] = 1.0
        return cls(mean, std, kind == "unit")

    def __call__(self, features: NDArray[Any]) -> FloatArray:
        """Return scaled features (n, d)."""
        x = (features.astype(np.float64) - self.mean) / self.std
        if self.to_unit:
            length = np.linalg.norm(x, axis=1, keepdims=True)
            x = x / np.where(length == 0, 1.0, length)
        return np.asarray(x)


def _validation_record(probe: FittedProbe, logits: FloatArray, y: IntArray) -> dict[str, Any]:
    accuracy = float((logits.argmax(1) == y).mean())
    record = {"l2_penalty": probe.l2_penalty, "top1": 100 * accuracy, "nll": nll(logits, y)}
    return record | _solver_record(probe)


def _solver_record(probe: FittedProbe) -> dict[str, Any]:
    keys = ("loss", "gradient", "converged", "iterations", "evaluations")
    return {key: getattr(probe, key) for key in keys}


def _convergence_notes(path: list[FittedProbe], tolerance: float) -> list[str]:
    return [
        f"l2_penalty {probe.l2_penalty:g}: not converged: gradient {probe.gradient:.4g} after "
        f"{probe.iterations} iterations, above {gradient_limit(probe.l2_penalty, tolerance):g}"
        for probe in path
        if not probe.converged
    ]
