"""Calibration errors: reliability diagrams, ECE, MCE, adaptive and classwise ECE.

The errors take bootstrap weights and give one number per draw: draw d counts sample i w_di times,
and the counts of a draw sum to N. `unit_weights` counts each sample once. The gap of a sample is
correct_i - confidence_i, and |sum over a bin of w gap| / n_bin is |accuracy - mean confidence|.

Confidences are (N,) from 0 to 1, correct (N,) of bool, probabilities (N, C) with rows of sum 1,
labels (N,) from 0 to C - 1, weights (D, N); other arguments of diagrams raise a ValueError.
"""

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginctl.metrics.arrays import FloatArray, IntArray, check_rows, row_blocks
from marginctl.metrics.scoring_rules import check_probabilities

CONVENTION = "(lo, hi], the first closed at 0 too"

Weights = FloatArray  # (D, N): how often each draw counts each sample, whole numbers


@dataclass(frozen=True)
class Bin:
    """The number of samples with a confidence in (lo, hi], or [0, hi] for the first bin.

    The mean confidence and the accuracy of an empty bin are None.
    """

    lo: float
    hi: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram as numbers: bins of equal width from 0 to 1."""

    bins: tuple[Bin, ...]

    @property
    def n(self) -> int:
        return sum(b.count for b in self.bins)

    @property
    def confidence(self) -> float:
        return sum(b.count * b.confidence for b in self.bins if b.confidence is not None) / self.n

    @property
    def accuracy(self) -> float:
        """Fraction of correct samples."""
        return sum(b.count * b.accuracy for b in self.bins if b.accuracy is not None) / self.n

    @property
    def ece(self) -> float:
        """Expected calibration error, sum_b n_b/N |acc_b - conf_b| (Guo et al. 2017, eq. 3)."""
        return sum(b.count * gap for b, gap in self._gaps()) / self.n

    @property
    def mce(self) -> float:
        """Maximum calibration error, max_b |acc_b - conf_b| over bins with samples (eq. 5)."""
        return max(gap for _, gap in self._gaps())

    def _gaps(self) -> list[tuple[Bin, float]]:
        return [
            (b, abs(b.accuracy - b.confidence))
            for b in self.bins
            if b.accuracy is not None and b.confidence is not None
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the record; the numbers of an empty bin are null, with a reason."""
        return {
            "n": self.n,
            "bins": len(self.bins),
            "convention": CONVENTION,
            "ece": self.ece,
            "mce": self.mce,
            "confidence": self.confidence,
            "accuracy": self.accuracy,
            "reliability": [
                asdict(b) | {"reason": None if b.count else "no sample in this bin"}
                for b in self.bins
            ],
        }


def reliability(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> Reliability:
    """Return the diagram of the largest probability of each sample, the first of equal ones."""
    p, y = check_rows("probabilities", probabilities, labels)
    confidence, correct = np.empty(len(y)), np.empty(len(y), np.bool_)
    for rows in row_blocks(*p.shape):
        block = check_probabilities(p[rows])
        predicted = block.argmax(axis=1)
        confidence[rows] = block[np.arange(len(block)), predicted]
        correct[rows] = predicted == y[rows]
    return bin_by_confidence(confidence, correct, bins)


def bin_by_confidence(confidence: ArrayLike, correct: ArrayLike, bins: int = 15) -> Reliability:
    """Return the reliability diagram of given confidences.

    Bin i is (i/n, (i + 1)/n], the first [0, 1/n]. The edges are the float64 quotients, so that a
    confidence of exactly k/n ends bin k. A float32 confidence is compared as the float64 number
    that it equals: float32(0.2) is above 1/5.
    """
    x, is_correct = np.asarray(confidence, np.float64), np.asarray(correct)
    edges, index = bin_edges(bins).tolist(), bin_index(x, bins)
    counts = np.bincount(index, minlength=bins).tolist()
    sums = np.bincount(index, weights=x, minlength=bins).tolist()
    hits = np.bincount(index[is_correct], minlength=bins).tolist()
    return Reliability(
        tuple(
            Bin(lo, hi, n, total / n if n else None, right / n if n else None)
            for (lo, hi), n, total, right in zip(pairwise(edges), counts, sums, hits, strict=True)
        )
    )


def bin_edges(bins: int) -> FloatArray:
    """Return the (bins + 1,) edges of bins of equal width, i/bins in float64."""
    return np.arange(bins + 1) / bins


def bin_index(values: NDArray[Any], bins: int) -> IntArray:
    """Return the bin of each value, from 0: (lo, hi], the first closed at 0 too."""
    return np.maximum(np.searchsorted(bin_edges(bins), values, side="left") - 1, 0)


def unit_weights(n: int) -> Weights:
    """Return (1, n) weights: one draw that counts each sample once."""
    return np.ones((1, n))


def ece_and_mce(
    confidence: FloatArray, correct: NDArray[np.bool_], bins: int, weights: Weights
) -> tuple[FloatArray, FloatArray]:
    """Return (D,) ECE and MCE over the bins of `bin_by_confidence`; empty ones do not count."""
    one_hot = np.zeros((len(confidence), bins))
    one_hot[np.arange(len(confidence)), bin_index(confidence, bins)] = 1
    counts = weights @ one_hot
    gaps = np.abs(weights @ (one_hot * (correct - confidence)[:, None]))
    mean_gaps = np.divide(gaps, counts, out=np.zeros_like(gaps), where=counts > 0)
    return gaps.sum(axis=1) / len(confidence), mean_gaps.max(axis=1)


def adaptive_ece(
    confidence: FloatArray, correct: NDArray[np.bool_], bins: int, weights: Weights
) -> FloatArray:
    """Return (D,) adaptive ECE: bins of nearly equal mass (Nguyen and O'Connor 2015).

    Sample i is in bin floor(bins x #{j: confidence_j < confidence_i} / N). So equal confidences
    share a bin and the order of the samples does not matter; without ties the bin sizes differ by
    1 at most. Each draw has its own bins.
    """
    order = np.argsort(confidence, kind="stable")
    ordered, gaps = confidence[order], (correct - confidence)[order]
    first = np.searchsorted(ordered, ordered, side="left")
    n, errors = len(ordered), np.empty(len(weights))
    for d, counts in enumerate(weights):
        w = counts[order]
        below = np.concatenate([[0.0], np.cumsum(w)])[first].astype(np.int64)
        index = np.minimum(bins * below // n, bins - 1)  # a sample with w = 0 may rank behind all
        errors[d] = np.abs(np.bincount(index, w * gaps, minlength=bins)).sum() / n
    return errors


def classwise_ece(
    probabilities: FloatArray, labels: IntArray, bins: int, weights: Weights
) -> FloatArray:
    """Return (D,) classwise ECE, 1/C sum_c ECE of p_c against [y = c] (Kull et al. 2019, eq. 3).

    Each class has its own bins of equal width. A class without samples counts too: its
    probabilities should be 0.
    """
    n, c = probabilities.shape
    total = np.zeros(len(weights))
    for classes in row_blocks(c, n):
        block = probabilities[:, classes]
        gaps = (labels[:, None] == np.arange(classes.start, classes.stop)) - block
        total += _sum_of_gaps(block, gaps, bins, weights)
    return np.asarray(total / (n * c))


def _sum_of_gaps(
    probabilities: NDArray[Any], gaps: FloatArray, bins: int, weights: Weights
) -> FloatArray:
    """Return (D,) sums over classes and bins of |sum of w gap|.

    With many classes nearly all probabilities lie in the first bin. The other bins are a sparse
    product, and the first is the rest of the sum over all bins, which is one fast dense product.
    """
    from scipy.sparse import csr_matrix  # reports need the diagrams alone, without the import

    index = bin_index(probabilities, bins)
    num_classes = probabilities.shape[1]
    samples, classes = np.nonzero(index)
    sparse = csr_matrix(
        (gaps[samples, classes], (classes * bins + index[samples, classes], samples)),
        shape=(num_classes * bins, len(probabilities)),
    )
    others = (sparse @ weights.T).reshape(num_classes, bins, -1)  # bin 0 is empty
    first = (weights @ gaps).T - others.sum(axis=1)
    return np.asarray(np.abs(others).sum(axis=(0, 1)) + np.abs(first).sum(axis=0))
