"""Benchmark `probe`: a linear probe against scikit-learn, and a sweep against cold fits."""

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from marginctl.bench.timing import Context, Count, Result, Settings, interleave, ratios
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.scoring_rules import nll
from marginctl.recipe.transfer import L2_PENALTIES
from marginctl.transfer.logistic_regression import ProbeProblem
from marginctl.utils.seed import generator

PENALTY = 1e-2  # of the single fit
OURS, THEIRS = "marginctl", "scikit-learn"
SWEEP, COLD = f"sweep over {len(L2_PENALTIES)} penalties", "cold fits"


class ProbeSettings(Settings):
    rounds: Count = 3
    images: Count = 10_000
    classes: Annotated[int, Field(ge=2)] = 100
    features: Count = 1280
    tolerance: Annotated[float, Field(ge=1e-10, le=1e-2)] = 1e-6  # of the gradient, all solvers

    @model_validator(mode="after")
    def _two_per_class(self) -> "ProbeSettings":
        if self.images < 2 * self.classes:
            raise ValueError(
                f"images = {self.images}: expected at least 2 per class ({2 * self.classes})"
            )
        return self


SETTINGS = ProbeSettings
SUITE = {"images": 5000, "classes": 50, "features": 640}
QUICK = {"rounds": 1, "images": 500, "classes": 10, "features": 64}


def run(settings: ProbeSettings, context: Context) -> Result:
    """Time one fit of each side, and the default penalties as a sweep and as cold fits.

    All fits end at the same gradient tolerance.
    """
    x, y = synthetic_features(settings.images, settings.features, settings.classes)
    few = slice(max(200, 2 * settings.classes))
    interleave(_solvers(x[few], y[few], settings, {}), 1, warm_up=0)  # warm-up
    fits: dict[str, Any] = {}
    solvers = _solvers(x, y, settings, fits)
    seconds = interleave(solvers, settings.rounds, warm_up=0, report=context.report)
    result = Result("probe", settings.model_dump(), "cpu")
    for side, values in seconds.items():
        result.add(side, values, "s")
    for a, b in ((THEIRS, OURS), (SWEEP, COLD)):
        result.add(a, ratios(seconds, a, b), "x", b)
    loss = _loss(fits[OURS].weight, fits[OURS].bias, x, y)
    weight, bias = fits[THEIRS]
    difference = loss / _loss(weight, bias, x, y) - 1
    result.notes.append(f"loss: {loss:.9g}, relative to scikit-learn's {difference:+.1e}")
    if not all(fit.converged for fit in (fits[OURS], *fits[SWEEP], *fits[COLD])):
        result.notes.append("not all fits converged")
    return result


def _solvers(
    x: FloatArray, y: NDArray[np.int64], settings: ProbeSettings, fits: dict[str, Any]
) -> dict[str, Callable[[], object]]:
    """Return what is timed; each call stores its fit in `fits`."""
    classes, tolerance = settings.classes, settings.tolerance
    solvers: dict[str, Callable[[], object]] = {
        OURS: lambda: ProbeProblem(x, y, classes).fit(PENALTY, tolerance),
        THEIRS: lambda: _fit_sklearn(x, y, tolerance),
        SWEEP: lambda: ProbeProblem(x, y, classes).path(L2_PENALTIES, tolerance),
        COLD: lambda: [
            ProbeProblem(x, y, classes).fit(penalty, tolerance) for penalty in L2_PENALTIES
        ],
    }
    return {
        side: lambda side=side, solve=solve: fits.update({side: solve()})  # type: ignore[misc]
        for side, solve in solvers.items()
    }


def synthetic_features(
    rows: int, features: int, classes: int
) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return standardised features (n, d) and classes (n,).

    The features are rectified, have a decaying spectrum, and vary around a mean for each class.
    """
    stream = generator(0, "bench", "probe")
    y = stream.integers(classes, size=rows)
    y[:classes] = np.arange(classes)
    axes = np.linalg.qr(stream.standard_normal((features, features)))[0]
    means = stream.standard_normal((classes, features))
    x = (stream.standard_normal((rows, features)) + means[y]) / np.sqrt(1 + np.arange(features))
    x = np.maximum(x @ axes, 0)
    return (x - x.mean(0)) / x.std(0), y


def _fit_sklearn(
    x: FloatArray, y: NDArray[np.int64], tolerance: float
) -> tuple[FloatArray, FloatArray]:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / (len(x) * PENALTY), tol=tolerance, max_iter=10_000)
    model.fit(x, y)
    return model.coef_, model.intercept_


def _loss(weight: FloatArray, bias: FloatArray, x: FloatArray, y: NDArray[np.int64]) -> float:
    """Return the loss that both sides minimise."""
    return nll(x @ weight.T + bias, y) + PENALTY / 2 * float((weight**2).sum())
