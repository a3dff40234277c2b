"""Temperature scaling: one number T, softmax(f / T) (Guo et al. 2017, Sec. 4.2)."""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from marginctl.calibration.fit import Fit
from marginctl.calibration.outputs import Labels, Outputs, Predicted, from_logits
from marginctl.metrics.arrays import row_blocks

# T lies between the spread of the logits times and over this number. A spread over T of 1e-4 is a
# uniform distribution for any purpose, and one of 1e4 a certainty.
RANGE = 1e4
PRECISION = 1e-10  # of ln T
_AT_ONCE = 32  # blocks are so many times smaller than usual: they stay in the processor's cache
_A_LOOK = 2000  # samples that say where to begin
_STEP = 0.05  # of ln T, the first one to either side of it

AT_LOWER = "at bound: the samples are separable, the smaller T the lower the NLL"
AT_UPPER = "at bound: the logits tell less than nothing of the labels, the larger T the better"
NO_SPREAD = "the logits of each sample are all equal: no T changes anything"

Slope = Callable[[float], tuple[float, float]]


def fit(outputs: Outputs) -> Fit:
    """The T with the least mean NLL.

    The NLL is convex in 1/T, so that its derivative has one root at most: it is bracketed in ln T
    and solved by Brent's method to `PRECISION`, in float64 whatever the logits are in. Where
    there is none within the bounds T is a bound, `converged` False, and the note says which. The
    NLL on the fitting samples is never above that of T = 1.
    """
    f, y = outputs.logits(), outputs.labels
    spread = spread_of(f)
    if spread == 0:
        nll = math.log(f.shape[1])
        return Fit({"temperature": 1.0}, True, NO_SPREAD, {"nll": nll, "nll_before": nll})
    low, high = math.log(spread / RANGE), math.log(spread * RANGE)
    whole = _slope(f, y)
    start = 0.0
    if len(y) > 2 * _A_LOOK:
        few = np.linspace(0, len(y) - 1, _A_LOOK).astype(np.int64)
        start = _solved(_slope(f[few], y[few]), 0.0, low, high)[0]
    found, note = _solved(whole, start, low, high)
    before, after = whole(0.0)[0], whole(found)[0]
    if after > before:  # by rounding alone
        found, after = 0.0, before
    details = {"nll_before": before, "nll": after, "bounds": [math.exp(low), math.exp(high)]}
    return Fit({"temperature": math.exp(found)}, note is None, note, details)


def apply(parameters: Mapping[str, Any], outputs: Outputs) -> Predicted:
    """softmax(f / T); the predicted classes are those without it."""
    f = outputs.logits().astype(np.float64)
    return from_logits(f / parameters["temperature"], outputs.predicted())


def spread_of(logits: NDArray[Any]) -> float:
    """The root mean square of f - mean_c f: the unit of the logits."""
    total = 0.0
    for rows in row_blocks(*logits.shape):
        f = logits[rows].astype(np.float64)
        f -= f.mean(axis=1, keepdims=True)
        total += float(np.square(f, out=f).sum())
    spread = math.sqrt(total / logits.size)
    # what rounding makes of rows of equal logits is no spread
    return spread if spread > 1e-14 * float(np.abs(logits).max()) else 0.0


def _solved(slope: Slope, start: float, low: float, high: float) -> tuple[float, str | None]:
    """The ln T where the slope changes sign; a bound, and what it means, where it does not."""
    at = min(max(start, low), high)
    larger = slope(at)[1] > 0  # then T has to rise
    step, other = _STEP, at
    while True:
        at, other = other, min(max(other + (step if larger else -step), low), high)
        # a slope of 0 is what rounding makes of a very small one of separable samples: T falls on
        if (slope(other)[1] > 0) != larger:
            break
        if other in (low, high):
            return other, AT_UPPER if larger else AT_LOWER
        step *= 4
    return float(brentq(lambda u: slope(u)[1], *sorted((at, other)), xtol=PRECISION)), None


def _slope(f: NDArray[Any], y: Labels) -> Slope:
    """ln T -> (mean NLL, mean of sum_c p_c f_c - f_y), the derivative of the NLL to 1/T."""

    @cache
    def found(log_temperature: float) -> tuple[float, float]:
        inverse = math.exp(-log_temperature)
        nll = slope = 0.0
        for rows in row_blocks(len(y), _AT_ONCE * f.shape[1]):
            part = f[rows].astype(np.float64)
            part -= part.max(axis=1, keepdims=True)
            own = part[np.arange(len(part)), y[rows]]
            exp = np.exp(part * inverse)
            sums = exp.sum(axis=1)
            nll += float((np.log(sums) - inverse * own).sum())
            slope += float((np.einsum("ij,ij->i", exp, part) / sums - own).sum())
        return nll / len(y), slope / len(y)

    return found
