"""`marginctl bench probe`: a linear probe against scikit-learn, and a sweep against cold fits."""

import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.bench.train import median_interval
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.scoring_rules import nll
from marginctl.recipe.transfer import L2_PENALTIES
from marginctl.runs.run_dir import versions
from marginctl.transfer.logistic_regression import FittedProbe, ProbeProblem
from marginctl.utils.device import usable_cores
from marginctl.utils.seed import generator

STRENGTH = 1e-2  # of the single fit


def features(rows: int, length: int, classes: int) -> tuple[FloatArray, NDArray[np.int64]]:
    """Made features, standardised: rectified, of a spectrum that falls, around a mean a class.

    Args:
        rows, length, classes: n, d and C.

    Returns:
        (n, d) and (n,).
    """
    stream = generator(0, "bench", "probe")
    y = stream.integers(classes, size=rows)
    y[:classes] = np.arange(classes)
    axes = np.linalg.qr(stream.standard_normal((length, length)))[0]
    means = stream.standard_normal((classes, length))
    x = (stream.standard_normal((rows, length)) + means[y]) / np.sqrt(1 + np.arange(length))
    x = np.maximum(x @ axes, 0)
    return (x - x.mean(0)) / x.std(0), y


def run(
    *,
    rows: int,
    length: int,
    classes: int,
    rounds: int,
    tolerance: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Times one fit of each side, and a sweep over the default strengths of each kind.

    Every round times each side once, in an order that changes. All of what a side does is in its
    time; the gradient ends at the same tolerance everywhere.

    Args:
        rows, length, classes: of the features.
        rounds: that count; before them a small fit of each, that does not.
        tolerance: on the largest entry of the gradient.
        say: hears of each round.

    Returns:
        A JSON document: seconds, and ratios with 95 % intervals of their medians.
    """
    x, y = features(rows, length, classes)
    few = slice(max(200, 2 * classes))
    found: dict[str, Any] = {}
    sides: dict[str, Callable[[slice], Any]] = {
        "marginctl": lambda part: ProbeProblem(x[part], y[part], classes).fit(STRENGTH, tolerance),
        "scikit-learn": lambda part: _scikit_learn(x[part], y[part], tolerance),
        "path": lambda part: ProbeProblem(x[part], y[part], classes).path(L2_PENALTIES, tolerance),
        "cold": lambda part: [
            ProbeProblem(x[part], y[part], classes).fit(strength, tolerance)
            for strength in L2_PENALTIES
        ],
    }
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            started = time.perf_counter()
            found[side] = sides[side](slice(None) if number else few)
            if number:  # the first round warms up
                seconds[side].append(time.perf_counter() - started)
        if number:
            shown = ", ".join(f"{side} {taken[-1]:.1f} s" for side, taken in seconds.items())
            say(f"round {number} of {rounds}: {shown}")
    weight, bias = found["scikit-learn"]
    one = found["marginctl"]
    return {
        "schema": 1,
        "command": "bench probe",
        "rows": rows,
        "length": length,
        "classes": classes,
        "rounds": rounds,
        "tolerance": tolerance,
        "seconds": seconds,
        "one": {
            "strength": STRENGTH,
            "times_as_fast": _ratio(seconds, "scikit-learn", "marginctl"),
            "loss": _loss(one.weight, one.bias, x, y),
            "loss_of_scikit_learn": _loss(weight, bias, x, y),
            "converged": one.converged,
            "evaluations": one.evaluations,
        },
        "sweep": {
            "strengths": list(L2_PENALTIES),
            "share_of_cold": _ratio(seconds, "path", "cold"),
            **{side: _counted(found[side]) for side in ("path", "cold")},
        },
        "machine": {"cores": usable_cores(), "architecture": platform.machine()},
        "versions": versions(),
    }


def _scikit_learn(
    x: FloatArray, y: NDArray[np.int64], tolerance: float
) -> tuple[FloatArray, FloatArray]:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / (len(x) * STRENGTH), tol=tolerance, max_iter=10_000)
    model.fit(x, y)
    return model.coef_, model.intercept_


def _loss(weight: FloatArray, bias: FloatArray, x: FloatArray, y: NDArray[np.int64]) -> float:
    """What both sides minimise, by one formula."""
    return nll(x @ weight.T + bias, y) + STRENGTH / 2 * float((weight**2).sum())


def _ratio(seconds: dict[str, list[float]], a: str, b: str) -> dict[str, float]:
    pairs = zip(seconds[a], seconds[b], strict=True)
    return median_interval([one / other for one, other in pairs])


def _counted(fits: list[FittedProbe]) -> dict[str, Any]:
    return {
        "evaluations": [fit.evaluations for fit in fits],
        "converged": all(fit.converged for fit in fits),
    }
