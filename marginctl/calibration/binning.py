"""Isotonic regression and histogram binning, one class against the rest.

Class c has a function of its own, from p_c to the fraction of samples of class c. The C calibrated
probabilities of a sample are divided by their sum (Zadrozny and Elkan 2002), so that another class
may be predicted.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.calibration.outputs import (
    Fit,
    Outputs,
    Predictions,
    from_probabilities,
    uncalibrated,
)
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.calibration_error import bin_index

Function = Mapping[str, Sequence[float | None]]  # of one class: x and y, or y


def fit_isotonic(outputs: Outputs, bins: int) -> Fit:
    """Fit the non-decreasing functions with the least squared error (Zadrozny and Elkan 2002).

    A function has `x` and `y`, the corners of a line; it is constant outside them.
    """
    return _fit(outputs, fit_line)


def fit_histogram(outputs: Outputs, bins: int) -> Fit:
    """Fit histogram binning (Zadrozny and Elkan 2001) with bins of equal width, (lo, hi]."""

    def fit_bins(p: FloatArray, positive: NDArray[np.bool_]) -> Function:
        index = bin_index(p, bins)
        count, hits = (np.bincount(i, minlength=bins).tolist() for i in (index, index[positive]))
        return {"y": [h / n if n else None for h, n in zip(hits, count, strict=True)]}

    return _fit(outputs, fit_bins)


def fit_line(p: FloatArray, positive: NDArray[np.bool_]) -> Function:
    """Return the isotonic function of (N,) probabilities of a class."""
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    model.fit(p, positive.astype(float))
    return {"x": model.X_thresholds_.tolist(), "y": model.y_thresholds_.tolist()}


def interpolate(function: Function, p: FloatArray) -> FloatArray:
    """Return the values of an isotonic function at (N,) probabilities."""
    x, y = np.array(function["x"], np.float64), np.array(function["y"], np.float64)
    return np.asarray(np.interp(p, x, y))


def binned(function: Function, p: FloatArray) -> FloatArray:
    """Return the values of the bins of (N,) probabilities; an empty bin keeps the probability."""
    values = np.array([np.nan if v is None else v for v in function["y"]], np.float64)
    means = values[bin_index(p, len(values))]
    return np.where(np.isnan(means), p, means)


def _fit(outputs: Outputs, fit_one: Callable[[FloatArray, NDArray[np.bool_]], Function]) -> Fit:
    p = uncalibrated(outputs).probabilities
    functions = [fit_one(p[:, c], outputs.labels == c) for c in range(outputs.num_classes)]
    absent = outputs.num_classes - len(np.unique(outputs.labels))
    note = f"{absent} of {outputs.num_classes} classes have no samples: their function is 0"
    return Fit({"maps": functions}, True, note if absent else None)


def apply(
    parameters: Mapping[str, Any],
    outputs: Outputs,
    *,
    evaluate: Callable[[Function, FloatArray], FloatArray],
) -> Predictions:
    """Return the calibrated probabilities over their sum; where all are 0, the uncalibrated."""
    before = uncalibrated(outputs).probabilities
    p = np.stack([evaluate(f, before[:, c]) for c, f in enumerate(parameters["maps"])], axis=1)
    sums = p.sum(axis=1, keepdims=True)
    return from_probabilities(np.where(sums > 0, p / np.where(sums > 0, sums, 1), before))
