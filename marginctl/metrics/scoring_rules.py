"""Proper scoring rules: negative log-likelihood and Brier score, in total and per sample.

Logits are (N, C) and finite, probabilities (N, C) with rows that sum to 1, labels (N,) from 0 to
C - 1; others, and no sample, raise a ValueError.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginctl.metrics.arrays import FloatArray, check_rows, row_blocks

# Tolerances of probabilities: their excess over 1 (float32 rounding) and the deviation of a row's
# sum from 1 (half precision, or a file with few digits).
_EXCESS, _SUM_TOLERANCE = 1e-6, 1e-2


def softmax(logits: ArrayLike) -> FloatArray:
    """Return exp(f_c) / sum_k exp(f_k) of each row, computed from f - max f to avoid overflow."""
    f = check_rows("logits", logits, np.zeros(np.shape(logits)[:1], np.int64))[0]
    probabilities = np.empty(f.shape)
    for rows in row_blocks(*f.shape):
        exp = np.exp(_shifted(f[rows]))
        probabilities[rows] = exp / exp.sum(axis=1, keepdims=True)
    return probabilities


def nll(logits: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean negative log-likelihood, mean_i [ln sum_c exp(f_ic) - f_iy], in nats.

    With m the largest logit it is (m - f_y) + log1p(sum of the others' exp(f_c - m)): exact for
    huge logits, and down to 1e-300 for confident ones. Nothing is clipped (scikit-learn's log_loss
    clips at the rounding of the dtype); beyond float64's largest number it is inf.
    """
    return float(nll_per_sample(logits, labels).mean())


def nll_per_sample(logits: ArrayLike, labels: ArrayLike) -> FloatArray:
    """Return (N,) negative log-likelihoods."""
    f, y = check_rows("logits", logits, labels)
    losses = np.empty(len(y))
    for rows in row_blocks(*f.shape):
        shifted = _shifted(f[rows])
        index = np.arange(len(shifted))
        target = shifted[index, y[rows]]
        largest = shifted.argmax(axis=1)
        exp = np.exp(shifted, out=shifted)
        exp[index, largest] = 0
        losses[rows] = np.log1p(exp.sum(axis=1)) - target
    return losses


def brier(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Return the Brier score, mean_i sum_c (p_ic - [c = y_i])^2, from 0 to 2 (Brier 1950).

    The sum runs over all classes: with two it is twice the score of the positive class alone.
    """
    return float(brier_per_sample(probabilities, labels).mean())


def brier_per_sample(probabilities: ArrayLike, labels: ArrayLike) -> FloatArray:
    p, y = check_rows("probabilities", probabilities, labels)
    scores = np.empty(len(y))
    for rows in row_blocks(*p.shape):
        difference = check_probabilities(p[rows])
        difference[np.arange(len(difference)), y[rows]] -= 1
        scores[rows] = np.square(difference, out=difference).sum(axis=1)
    return scores


def check_probabilities(probabilities: NDArray[Any]) -> FloatArray:
    """Return a float64 copy of rows of probabilities, clipped to 1."""
    p = probabilities.astype(np.float64)
    if not ((p >= 0) & (p <= 1 + _EXCESS)).all():
        raise ValueError("probabilities: expected 0 to 1 (logits go through softmax first)")
    sums = p.sum(axis=1)
    worst = float(sums[np.abs(sums - 1).argmax()])
    if abs(worst - 1) > _SUM_TOLERANCE:
        raise ValueError(f"probabilities: a row sums to {worst:.6g}, expected 1")
    return np.minimum(p, 1, out=p)


def _shifted(logits: NDArray[Any]) -> FloatArray:
    """Return f - max f of each row, as a float64 copy."""
    f = logits.astype(np.float64)
    if not np.isfinite(f).all():
        raise ValueError("logits: NaN or infinite")
    with np.errstate(over="ignore"):  # -inf, whose exponential is 0, which is right
        f -= f.max(axis=1, keepdims=True)
    return np.asarray(f)
