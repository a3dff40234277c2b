"""Metrics of predicted classes and probabilities: balanced accuracy, macro-F1, AUROC.

Each equals scikit-learn's function of the same name on the same predictions.
"""

import numpy as np
from numpy.typing import ArrayLike

from marginctl.metrics.accuracy import confusion_matrix
from marginctl.metrics.arrays import FloatArray, check_rows, row_blocks
from marginctl.metrics.scoring_rules import softmax


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
