"""Temperature scaling: one number T, softmax(f / T) (Guo et al. 2017, Sec. 4.2)."""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from marginctl.calibration.outputs import Fit, Labels, Outputs, Predictions, from_logits
from marginctl.metrics.arrays import row_blocks

# T lies between the spread of the logits over this number and the spread times it. A spread over T
# of 1e-4 is a uniform distribution for any purpose, and one of 1e4 a certainty.
RANGE = 1e4
PRECISION = 1e-10  # of ln T
_BLOCK_DIVISOR = 32  # smaller blocks than usual stay in the processor's cache

AT_LOWER = "at bound: the samples are separable, the smaller T the lower the NLL"
AT_UPPER = "at bound: the logits mislead about the labels, the larger T the lower the NLL"
NO_SPREAD = "the logits of each sample are all equal: T has no effect"

Slope = Callable[[float], tuple[float, float]]


def fit(outputs: Outputs) -> Fit:
    """Return the T with the least mean NLL.

    The NLL is convex in 1/T, so that its derivative has one root at most: it is bracketed in ln T
    and solved by Brent's method to `PRECISION`, in float64 whatever the logits are in. Where
    there is none within the bounds T is a bound, `converged` False, and the note says which. The
    NLL on the fitting samples is never above that of T = 1.
    """
    f, y = outputs.logits(), outputs.labels
    spread = logit_spread(f)
    if spread == 0:
        nll = math.log(f.shape[1])
        return Fit({"temperature": 1.0}, True, NO_SPREAD, {"nll": nll, "nll_before": nll})
    low, high = math.log(spread / RANGE), math.log(spread * RANGE)
    slope = _slope(f, y)
    if slope(high)[1] > 0:  # T has to rise
        solution, note = high, AT_UPPER
    elif slope(low)[1] <= 0:  # rounding turns the very small slope of separable samples into 0
        solution, note = low, AT_LOWER
    else:
        solution, note = brentq(lambda u: slope(u)[1], low, high, xtol=PRECISION), None
    before, after = slope(0.0)[0], slope(solution)[0]
    if after > before:  # by rounding alone
        solution, after = 0.0, before
    details = {"nll_before": before, "nll": after, "bounds": [math.exp(low), math.exp(high)]}
    return Fit({"temperature": math.exp(solution)}, note is None, note, details)


def apply(parameters: Mapping[str, Any], outputs: Outputs) -> Predictions:
    """Return softmax(f / T); the predicted classes do not change."""
    f = outputs.logits().astype(np.float64)
    return from_logits(f / parameters["temperature"], outputs.predicted())


def logit_spread(logits: NDArray[Any]) -> float:
    """Return the root mean square of f - mean_c f: the unit of the logits."""
    total = 0.0
    for rows in row_blocks(*logits.shape):
        f = logits[rows].astype(np.float64)
        f -= f.mean(axis=1, keepdims=True)
        total += float(np.square(f, out=f).sum())
    spread = math.sqrt(total / logits.size)
    # rows of equal logits differ by rounding alone
    return spread if spread > 1e-14 * float(np.abs(logits).max()) else 0.0


def _slope(f: NDArray[Any], y: Labels) -> Slope:
    """Return ln T -> (mean NLL, its derivative to 1/T: the mean of sum_c p_c f_c - f_y)."""

    @cache
    def evaluate(log_temperature: float) -> tuple[float, float]:
        inverse = math.exp(-log_temperature)
        nll = slope = 0.0
        for rows in row_blocks(len(y), _BLOCK_DIVISOR * f.shape[1]):
            part = f[rows].astype(np.float64)
            part -= part.max(axis=1, keepdims=True)
            target = part[np.arange(len(part)), y[rows]]
            exp = np.exp(part * inverse)
            sums = exp.sum(axis=1)
            nll += float((np.log(sums) - inverse * target).sum())
            slope += float((np.einsum("ij,ij->i", exp, part) / sums - target).sum())
        return nll / len(y), slope / len(y)

    return evaluate
