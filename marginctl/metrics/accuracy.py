"""Accuracy: top-k, its confidence interval, per class, and the confusion matrix.

Scores are (N, C), labels and predictions (N,) from 0 to C - 1; others, and no sample, raise a
ValueError.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from marginctl.metrics.arrays import IntArray, check_classes, check_rows, row_blocks


def top_k_accuracy(scores: ArrayLike, labels: ArrayLike, k: int) -> float:
    """Return the fraction of samples whose label is among the k classes with the largest scores.

    Among equal scores the lower class index ranks first, as in argmax: the label of row i counts
    where #{c: s_ic > s_iy} + #{c < y: s_ic = s_iy} < k. So `top_k_accuracy(..., 1)` is the mean of
    `scores.argmax(1) == labels` even with ties. Scores have any real dtype; infinities are allowed,
    NaN is not. A k above C counts as C.
    """
    s, y = check_rows("scores", scores, labels)
    index, hits = np.arange(s.shape[1]), 0
    for rows in row_blocks(*s.shape):
        block, label = s[rows], y[rows, None]
        if np.isnan(block).any():
            raise ValueError("scores: NaN, which has no rank")
        score = np.take_along_axis(block, label, axis=1)
        ahead = (block > score) | ((block == score) & (index < label))
        hits += int((ahead.sum(axis=1) < k).sum())
    return hits / len(y)


def pack_correct(predicted: IntArray, labels: IntArray) -> str:
    """Return which samples are classified correctly, as the hexadecimal digits of (N,) bits."""
    return np.packbits(predicted == labels).tobytes().hex()


def largest_class(labels: IntArray) -> float:
    """Return the fraction of labels (N,) in the largest class, in percent: the chance level."""
    return 100 * float(np.bincount(labels).max()) / len(labels)


def unpack_correct(text: str, n: int) -> NDArray[np.uint8]:
    """Return the (n,) bits of `pack_correct`: 1 where a sample is classified correctly."""
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))[:n]


def wilson_interval(correct: int, n: int) -> tuple[float, float]:
    """Return Wilson's score interval of 95 % of an accuracy, in [0, 1] (Wilson 1927).

    (p + z^2/2n -+ z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n) with p = correct/n and z the normal
    quantile at 0.975, without continuity correction. It covers the sampling of test images, not
    the variation between training runs.
    """
    z, p = -float(ndtri((1 - 0.95) / 2)), correct / n
    center = p + z * z / (2 * n)
    half_width = z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    denominator = 1 + z * z / n
    low = 0.0 if correct == 0 else max(0.0, (center - half_width) / denominator)
    high = 1.0 if correct == n else min(1.0, (center + half_width) / denominator)
    return low, high


def confusion_matrix(labels: ArrayLike, predicted: ArrayLike, num_classes: int) -> IntArray:
    """Return (C, C) counts: entry (t, p) counts the samples of class t predicted as p."""
    y, p = _check_pair(labels, predicted, num_classes)
    counts = np.bincount(y * num_classes + p, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes).astype(np.int64, copy=False)


def per_class_accuracy(
    labels: ArrayLike, predicted: ArrayLike, num_classes: int
) -> list[dict[str, Any]]:
    """Return class, n, correct and accuracy (recall; None where n is 0) of each of C classes."""
    y, p = _check_pair(labels, predicted, num_classes)
    totals = np.bincount(y, minlength=num_classes).tolist()
    hits = np.bincount(y[y == p], minlength=num_classes).tolist()
    return [
        {"class": c, "n": n, "correct": correct, "accuracy": correct / n if n else None}
        for c, (n, correct) in enumerate(zip(totals, hits, strict=True))
    ]


def _check_pair(
    labels: ArrayLike, predicted: ArrayLike, num_classes: int
) -> tuple[IntArray, IntArray]:
    y = check_classes("labels", labels, num_classes)
    p = check_classes("predicted", predicted, num_classes)
    if len(p) != len(y):
        raise ValueError(f"predicted: {len(p)} of them, expected as many as labels, {len(y)}")
    return y, p
