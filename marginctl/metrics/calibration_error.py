"""Calibration errors of weighted samples: each number for many bootstrap draws at once.

With N samples, draw d counts sample i w_di times, and the counts of a draw sum to N. Without
weights there is one draw, that counts each sample once: the plain number. A gap is
right_i - confidence_i, and |sum over a bin of w gap| / n_bin is |accuracy - mean confidence|.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from marginctl.metrics.accuracy import row_blocks
from marginctl.metrics.reliability import FloatArray, bin_index

Draws = FloatArray  # (D, N): how often each draw has each sample, whole numbers


def ones(n: int) -> Draws:
    """(1, N): the one draw that has each sample once."""
    return np.ones((1, n))


def ece_and_mce(
    confidence: FloatArray, correct: NDArray[np.bool_], bins: int, draws: Draws
) -> tuple[FloatArray, FloatArray]:
    """(D,) ECE and (D,) MCE over bins of equal width (Guo et al. 2017, eqs. 3 and 5).

    As `calibration.bin_by_confidence` has them; a bin without samples counts for nothing.

    Args:
        confidence: (N,), from 0 to 1.
        correct: (N,).
        bins: their number.
        draws: (D, N).
    """
    inside = np.zeros((len(confidence), bins))
    inside[np.arange(len(confidence)), bin_index(confidence, bins)] = 1
    count = draws @ inside
    gaps = np.abs(draws @ (inside * (correct - confidence)[:, None]))
    mean = np.divide(gaps, count, out=np.zeros_like(gaps), where=count > 0)
    return gaps.sum(axis=1) / len(confidence), mean.max(axis=1)


def adaptive_ece(
    confidence: FloatArray, correct: NDArray[np.bool_], bins: int, draws: Draws
) -> FloatArray:
    """(D,) adaptive ECE: bins with nearly as many samples each (Nguyen and O'Connor 2015).

    Sample i is in bin floor(bins x #{j: confidence_j < confidence_i} / N). Equal confidences are
    so always together, and their order in the file plays no part; without ties the bins' sizes
    differ by 1 at most.

    Args:
        confidence: (N,).
        correct: (N,).
        bins: their number.
        draws: (D, N), whose counts are ranked anew.
    """
    order = np.argsort(confidence, kind="stable")
    ordered, gaps = confidence[order], (correct - confidence)[order]
    first = np.searchsorted(ordered, ordered, side="left")
    n, found = len(ordered), np.empty(len(draws))
    for d, counts in enumerate(draws):
        mine = counts[order]
        below = np.concatenate([[0.0], np.cumsum(mine)])[first].astype(np.int64)
        where = np.minimum(bins * below // n, bins - 1)  # what a draw lacks may stand behind all
        found[d] = np.abs(np.bincount(where, mine * gaps, minlength=bins)).sum() / n
    return found


def classwise_ece(
    probabilities: FloatArray, labels: NDArray[np.int64], bins: int, draws: Draws
) -> FloatArray:
    """(D,) classwise ECE, 1/C sum_c ECE of p_c against [y = c] (Kull et al. 2019, eq. 3).

    Bins of equal width, for each class its own. A class without samples counts too: its
    probabilities should be 0.

    Args:
        probabilities: (N, C).
        labels: (N,).
        bins: their number.
        draws: (D, N).
    """
    n, c = probabilities.shape
    total = np.zeros(len(draws))
    for classes in row_blocks(c, n):
        part = probabilities[:, classes]
        gaps = (labels[:, None] == np.arange(classes.start, classes.stop)) - part
        total += _of_classes(part, gaps, bins, draws)
    return np.asarray(total / (n * c))


def _of_classes(
    part: NDArray[Any], gaps: NDArray[np.float64], bins: int, draws: Draws
) -> FloatArray:
    """(D,) sum over classes and bins of |sum of w gap|.

    With many classes nearly all probabilities lie in the first bin: the others are few, and the
    first is what they leave of the sum over all, which is one fast product.
    """
    where = bin_index(part, bins)
    samples, columns = np.nonzero(where)
    above = csr_matrix(
        (
            gaps[samples, columns],
            (columns * bins + where[samples, columns], samples),
        ),
        shape=(part.shape[1] * bins, len(part)),
    )
    others = (above @ draws.T).reshape(part.shape[1], bins, -1)  # bin 0 is empty
    first = (draws @ gaps).T - others.sum(axis=1)
    return np.asarray(np.abs(others).sum(axis=(0, 1)) + np.abs(first).sum(axis=0))
