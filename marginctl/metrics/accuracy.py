"""Metrics of predicted classes: accuracy, confusion, balanced accuracy, macro-F1, AUROC.

Scores are (N, C), labels and predictions (N,) from 0 to C - 1; others, and no sample, raise a
ValueError. Balanced accuracy, macro-F1 and AUROC equal scikit-learn's functions of the same name.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from marginctl.metrics.arrays import FloatArray, IntArray, check_classes, check_rows, row_blocks
from marginctl.metrics.scoring_rules import softmax


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


def balanced_accuracy(
    *, features: FloatArray, logits: FloatArray, similarities: FloatArray, labels: ArrayLike
) -> float:
    """Return the mean recall, in percent, over the classes that occur in the labels (N,).

    The largest similarity (N, C) is the prediction.
    """
    matrix = _confusion(similarities, labels)
    counts = matrix.sum(1)
    occurs = counts > 0
    return float(100 * (np.diag(matrix)[occurs] / counts[occurs]).mean())


def macro_f1(
    *, features: FloatArray, logits: FloatArray, similarities: FloatArray, labels: ArrayLike
) -> float:
    """Return the mean F1 score over the classes that occur in the labels or the predictions."""
    matrix = _confusion(similarities, labels)
    total = matrix.sum(0) + matrix.sum(1)
    occurs = total > 0
    return float((2 * np.diag(matrix)[occurs] / total[occurs]).mean())


def auroc(
    *, features: FloatArray, logits: FloatArray, similarities: FloatArray, labels: ArrayLike
) -> float:
    """Return the area under the ROC curve, one class versus the rest, averaged over the C classes.

    A sample's score for a class is its softmax probability. With two classes it is the usual
    AUROC.

    Raises:
        ValueError: a class does not occur in the labels, or no other class does.
    """
    from scipy.stats import rankdata  # 0.5 s that other metrics do not wait for

    probabilities, y = check_rows("logits", softmax(logits), labels)
    n, num_classes = probabilities.shape
    positive = np.bincount(y, minlength=num_classes)
    if not positive.all():
        raise ValueError(f"class {int(positive.argmin())} has no test sample")
    areas = np.empty(num_classes)
    for columns in row_blocks(num_classes, n):
        ranks = rankdata(probabilities[:, columns], axis=0)
        classes = np.arange(num_classes)[columns]
        sums = (ranks * (y[:, None] == classes)).sum(0)
        p = positive[columns]
        areas[columns] = (sums - p * (p + 1) / 2) / (p * (n - p))
    return float(areas[1] if num_classes == 2 else areas.mean())


def _confusion(similarities: FloatArray, labels: ArrayLike) -> FloatArray:
    scores, y = check_rows("similarities", similarities, labels)
    return confusion_matrix(y, scores.argmax(1), scores.shape[1]).astype(np.float64)
