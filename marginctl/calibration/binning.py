"""Maps of one probability: of every class by itself, or of the predicted class alone.

one-versus-rest: class c has its own map, from p_c to the share of samples of class c; the C mapped
probabilities of a sample are divided by their sum (Zadrozny and Elkan 2002), so that another class
may be predicted. top-label: one map for all, from the largest probability to the share that is
right; the prediction stays, and the other classes get no probability.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.calibration.fit import Fit
from marginctl.calibration.outputs import Outputs, Predicted, as_given, from_probabilities
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.calibration_error import bin_index

Map = Mapping[str, Sequence[float | None]]
Fitter = Callable[[FloatArray, NDArray[np.bool_]], Map]
Mapper = Callable[[Map, FloatArray], FloatArray]


def fit_one_versus_rest(outputs: Outputs, fitter: Fitter) -> Fit:
    """A map for each class, under `maps`."""
    p = _probabilities(outputs)
    maps = [fitter(p[:, c], outputs.labels == c) for c in range(outputs.classes)]
    absent = outputs.classes - len(np.unique(outputs.labels))
    said = f"{absent} of {outputs.classes} classes are not among the samples: their map is 0"
    return Fit({"maps": maps}, True, said if absent else None)


def apply_one_versus_rest(
    parameters: Mapping[str, Any], outputs: Outputs, mapper: Mapper
) -> Predicted:
    """The mapped probabilities over their sum; where all are 0, those of before."""
    before = _probabilities(outputs)
    p = np.stack([mapper(one, before[:, c]) for c, one in enumerate(parameters["maps"])], axis=1)
    sums = p.sum(axis=1, keepdims=True)
    return from_probabilities(np.where(sums > 0, p / np.where(sums > 0, sums, 1), before))


def fit_top_label(outputs: Outputs, fitter: Fitter) -> Fit:
    """One map, under `maps`."""
    said = as_given(outputs)
    return Fit({"maps": [fitter(said.confidence, said.classes == outputs.labels)]})


def apply_top_label(parameters: Mapping[str, Any], outputs: Outputs, mapper: Mapper) -> Predicted:
    """The mapped confidence of the class that was predicted before."""
    said = as_given(outputs)
    (one,) = parameters["maps"]
    return Predicted(said.classes, mapper(one, said.confidence), None)


def isotonic(p: FloatArray, there: NDArray[np.bool_]) -> Map:
    """The non-decreasing map with the least squared error (Zadrozny and Elkan 2002).

    Returns:
        `x` and `y`: corners of a line; below the first and above the last it is constant.
    """
    from sklearn.isotonic import IsotonicRegression

    found = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p, there.astype(float))
    return {"x": found.X_thresholds_.tolist(), "y": found.y_thresholds_.tolist()}


def on_line(one: Map, p: FloatArray) -> FloatArray:
    """What `isotonic`'s map says of probabilities."""
    x, y = np.array(one["x"], np.float64), np.array(one["y"], np.float64)
    return np.asarray(np.interp(p, x, y))


def histogram(bins: int) -> Fitter:
    """Histogram binning (Zadrozny and Elkan 2001), of equal width, (lo, hi]."""

    def fitter(p: FloatArray, there: NDArray[np.bool_]) -> Map:
        where = bin_index(p, bins)
        count, hits = (np.bincount(w, minlength=bins).tolist() for w in (where, where[there]))
        return {"y": [h / n if n else None for h, n in zip(hits, count, strict=True)]}

    return fitter


def in_bins(one: Map, p: FloatArray) -> FloatArray:
    """What `histogram`'s map says; in a bin that had no sample a probability stays as it is."""
    values = np.array([np.nan if v is None else v for v in one["y"]], np.float64)
    found = values[bin_index(p, len(values))]
    return np.where(np.isnan(found), p, found)


def _probabilities(outputs: Outputs) -> FloatArray:
    p = as_given(outputs).probabilities
    assert p is not None
    return p
