"""Accuracy: top-k, its interval, and by class. All counts are exact.

`checked` and `blocks` are what the other modules here read their arguments with.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

Counts = NDArray[np.int64]

# Rows are worked on so many numbers at a time: 16 MiB of float64, and a few arrays of that size.
AT_ONCE = 2**21


def top_k(scores: ArrayLike, labels: ArrayLike, k: int) -> float:
    """The share of samples whose label is among the k classes with the largest scores.

    Of equal scores the class with the lower index comes first, as with argmax: the label of row i
    is in where #{c: s_ic > s_iy} + #{c < y: s_ic = s_iy} < k. So `top_k(..., 1)` is the mean of
    `scores.argmax(1) == labels`, whatever ties, and a row of equal scores counts for class 0.

    Args:
        scores: (N, C) of any real dtype, compared as they are; infinite ones allowed.
        labels: (N,), from 0 to C - 1.
        k: at least 1; above C it counts as C, and the share is 1.

    Raises:
        ValueError: no sample, other shapes, a label outside its range, a NaN, or k below 1.
    """
    s, y = check_rows("scores", scores, labels)
    if k < 1:
        raise ValueError(f"k = {k}: expected at least 1")
    index, hits = np.arange(s.shape[1]), 0
    for rows in row_blocks(*s.shape):
        part, own_class = s[rows], y[rows, None]
        if np.isnan(part).any():
            raise ValueError("scores: NaN, which has no rank")
        own = np.take_along_axis(part, own_class, axis=1)
        before = (part > own) | ((part == own) & (index < own_class))
        hits += int((before.sum(axis=1) < k).sum())
    return hits / len(y)


def wilson_interval(correct: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of an accuracy (Wilson 1927): (low, high), between 0 and 1.

    (p + z^2/2n -+ z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n) with p = correct/n and z the normal
    quantile at (1 + level)/2. Without continuity correction; low is 0 where none is correct, high 1
    where all are. It speaks of other samples, not of other trainings.

    Raises:
        ValueError: n below 1, correct not from 0 to n, or a level not between 0 and 1.
    """
    if n < 1:
        raise ValueError(f"n = {n}: an interval needs at least 1 sample")
    if not 0 <= correct <= n:
        raise ValueError(f"correct = {correct}: expected 0 to n = {n}")
    if not 0 < level < 1:
        raise ValueError(f"level = {level}: expected between 0 and 1")
    z, p = -float(ndtri((1 - level) / 2)), correct / n
    middle = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    whole = 1 + z * z / n
    low = 0.0 if correct == 0 else max(0.0, (middle - half) / whole)
    high = 1.0 if correct == n else min(1.0, (middle + half) / whole)
    return low, high


def confusion_matrix(labels: ArrayLike, predicted: ArrayLike, num_classes: int) -> Counts:
    """(C, C) counts: entry (t, p) is how many samples of class t were predicted as p.

    Args:
        labels: (N,) the truth, from 0 to C - 1.
        predicted: (N,) likewise.
        num_classes: C.

    Raises:
        ValueError: no sample, other shapes, or a class outside its range.
    """
    y, p = _both(labels, predicted, num_classes)
    counts = np.bincount(y * num_classes + p, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes).astype(np.int64, copy=False)


def per_class_accuracy(
    labels: ArrayLike, predicted: ArrayLike, num_classes: int
) -> list[dict[str, Any]]:
    """Accuracy of each class (its recall): C dicts of class, n, correct, accuracy.

    Accuracy is correct/n, a share; None where n is 0. Arguments and errors as `confusion`'s.
    """
    y, p = _both(labels, predicted, num_classes)
    there = np.bincount(y, minlength=num_classes).tolist()
    right = np.bincount(y[y == p], minlength=num_classes).tolist()
    return [
        {"class": c, "n": n, "correct": correct, "accuracy": correct / n if n else None}
        for c, (n, correct) in enumerate(zip(there, right, strict=True))
    ]


def _both(labels: ArrayLike, predicted: ArrayLike, num_classes: int) -> tuple[Counts, Counts]:
    y = check_classes("labels", labels, num_classes)
    p = check_classes("predicted", predicted, num_classes)
    if len(p) != len(y):
        raise ValueError(f"predicted: {len(p)} of them, expected as many as labels, {len(y)}")
    return y, p


def check_rows(name: str, rows: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], Counts]:
    """An (N, C) array of numbers in its own dtype, and its N labels from 0 to C - 1.

    Raises:
        ValueError: no sample, other shapes or dtypes, or a label outside its range.
    """
    x = np.asarray(rows)
    if x.ndim != 2 or x.shape[1] < 1:
        raise ValueError(f"{name}: shape {x.shape}, expected (N, C)")
    if x.dtype.kind not in "iuf":
        raise ValueError(f"{name}: dtype {x.dtype}, expected real numbers")
    if not len(x):
        raise ValueError(f"{name}: no sample")
    y = check_classes("labels", labels, x.shape[1])
    if len(y) != len(x):
        raise ValueError(f"labels: {len(y)} of them, expected one for each of {len(x)} {name}")
    return x, y


def check_classes(name: str, classes: ArrayLike, num_classes: int) -> Counts:
    """(N,) classes as int64, every one from 0 to `num_classes` - 1.

    Raises:
        ValueError: none, not one dimension, not of an integer dtype, or one outside its range.
    """
    y = np.asarray(classes)
    if y.ndim != 1:
        raise ValueError(f"{name}: shape {y.shape}, expected (N,)")
    if not len(y):
        raise ValueError(f"{name}: no sample")
    if y.dtype.kind not in "iu":  # to numpy a timedelta is an integer, too
        raise ValueError(f"{name}: dtype {y.dtype}, expected an integer one")
    for value in (int(y.min()), int(y.max())):
        if not 0 <= value < num_classes:
            raise ValueError(f"{name}: {value}, expected 0 to {num_classes - 1}")
    return y.astype(np.int64)


def row_blocks(n: int, width: int) -> Iterator[slice]:
    """Slices of n rows, each with about `AT_ONCE` numbers where a row has `width`."""
    rows = max(1, AT_ONCE // max(1, width))
    for start in range(0, n, rows):
        yield slice(start, min(start + rows, n))
