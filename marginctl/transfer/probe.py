"""A linear probe: features prepared, the strength chosen, the test part seen once."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.metrics.accuracy import wilson_interval
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.scoring_rules import nll
from marginctl.recipe.transfer import Probe
from marginctl.transfer.cached_features import SplitFeatures
from marginctl.transfer.logistic_regression import FittedProbe, ProbeProblem
from marginctl.utils.seed import generator

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class ProbeResult:
    """A probe of the test part.

    Attributes:
        record: what result.json has of it.
        features: (n, d) of the test images, as they were given to it.
        logits: (n, C) of the test images.
        weight: (C, d).
    """

    record: dict[str, Any]
    features: FloatArray
    logits: FloatArray
    weight: FloatArray


def fit_probe(
    features: SplitFeatures,
    train_y: Labels,
    test_y: Labels,
    classes: int,
    probe: Probe,
    seed: int,
    check: Callable[[], None] = lambda: None,
) -> ProbeResult:
    """Chooses the strength on a part of the training images, fits all of them, tests once.

    Of strengths with equal validation accuracy the one with the lower validation loss is taken.

    Args:
        features: of both parts.
        train_y, test_y: their classes, 0 .. classes - 1.
        classes: C.
        probe: the recipe's.
        seed: of the validation split.
        check: called at every step; what it raises ends the work.
    """
    began = time.perf_counter()
    fitted_rows, held_rows, notes = split(train_y, classes, probe.validation_fraction, seed)
    validation: list[dict[str, Any]] = []
    chosen, near = probe.l2_penalties[len(probe.l2_penalties) // 2], None
    if len(held_rows) and len(probe.l2_penalties) > 1:
        part = features.train[fitted_rows]
        train, held = prepared(probe.features, part, features.train[held_rows])
        problem = ProbeProblem(train, train_y[fitted_rows], classes, check)
        path = problem.path(probe.l2_penalties, probe.tolerance)
        validation = [_validated(f, f.logits(held), train_y[held_rows]) for f in path]
        best = max(validation, key=lambda v: (v["top1"], -v["nll"]))
        chosen = best["strength"]
        near = path[probe.l2_penalties.index(chosen)]
        notes += _edge(chosen, probe.l2_penalties) + _open(path, probe.tolerance)
    elif not len(held_rows):
        notes.append(
            f"no class has 2 training images: strength {chosen:g} is the middle one, not chosen"
        )
    train, test = prepared(probe.features, features.train, features.test)
    last = ProbeProblem(train, train_y, classes, check).fit(chosen, probe.tolerance, near)
    notes += _open([last], probe.tolerance)
    logits = last.logits(test)
    predicted = logits.argmax(1)
    correct = int((predicted == test_y).sum())
    low, high = wilson_interval(correct, len(test_y))
    record = {
        "interval": [100 * low, 100 * high],
        "correct": correct,
        "collapsed": bool((predicted == predicted[0]).all()),
        "strength": chosen,
        "validation": {"fitted": len(fitted_rows), "n": len(held_rows), "strengths": validation},
        "fit": _solved(last),
        "tolerance": probe.tolerance,
        "images": len(train_y),
        "feature_length": train.shape[1],
        "notes": notes,
        "timing": {"seconds": time.perf_counter() - began},
    }
    return ProbeResult(record, test, logits, last.weight)


def split(y: Labels, classes: int, share: float, seed: int) -> tuple[Labels, Labels, list[str]]:
    """Rows to fit on and rows to choose on: of each class about its share, at least 1 in both.

    Args:
        y: (n,) classes.
        classes: C.
        share: of the second part.
        seed: which split it is.

    Returns:
        Both, in order, and a note on classes with a single image, which is fitted on.
    """
    stream = generator(seed, "transfer", "validation")
    held = []
    for number in range(classes):
        rows = stream.permutation(np.flatnonzero(y == number))
        count = min(max(round(share * len(rows)), 1), len(rows) - 1)
        held.append(rows[: max(count, 0)])
    chosen = np.sort(np.concatenate(held))
    single = int((np.bincount(y, minlength=classes) < 2).sum())
    said = (
        [
            f"{single} of {classes} classes have fewer than 2 training images: the strength is "
            "chosen without them"
        ]
        if single and len(chosen)
        else []
    )
    return np.setdiff1d(np.arange(len(y)), chosen), chosen, said


def prepared(kind: str, train: NDArray[Any], other: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    """Both parts as the recipe says; the mean and the deviation are those of the first one.

    Args:
        kind: `standardised`, `unit` or `raw`.
        train, other: (n, d) and (m, d); a feature that is constant in the first is only shifted.
    """
    a, b = train.astype(np.float64), other.astype(np.float64)
    if kind == "standardised":
        mean, std = a.mean(0), a.std(0)
        std[std <= 1e-7 * np.abs(mean)] = 1.0  # of rounding alone, too
        std[std == 0] = 1.0
        return (a - mean) / std, (b - mean) / std
    if kind == "unit":
        return _unit(a), _unit(b)
    return a, b


def _unit(x: FloatArray) -> FloatArray:
    length = np.linalg.norm(x, axis=1, keepdims=True)
    found: FloatArray = x / np.where(length == 0, 1.0, length)
    return found


def _validated(fitted: FittedProbe, logits: FloatArray, y: Labels) -> dict[str, Any]:
    right = float((logits.argmax(1) == y).mean())
    return {"strength": fitted.strength, "top1": 100 * right, "nll": nll(logits, y)} | _solved(
        fitted
    )


def _solved(fitted: FittedProbe) -> dict[str, Any]:
    return {
        "loss": fitted.loss,
        "gradient": fitted.gradient,
        "converged": fitted.converged,
        "iterations": fitted.iterations,
        "evaluations": fitted.evaluations,
    }


def _edge(chosen: float, strengths: list[float]) -> list[str]:
    edges = {strengths[0]: "largest", strengths[-1]: "smallest"}
    if chosen not in edges:
        return []
    return [
        f"strength {chosen:g} is the {edges[chosen]} of probe.l2_penalties: try others beyond it"
    ]


def _open(path: list[FittedProbe], tolerance: float) -> list[str]:
    return [
        f"strength {f.strength:g}: not converged: gradient {f.gradient:.2g} after "
        f"{f.iterations} iterations, above {tolerance:g}"
        for f in path
        if not f.converged
    ]
