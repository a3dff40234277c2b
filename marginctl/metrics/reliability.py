"""Whether a probability means what it says: NLL, Brier score, reliability, ECE and MCE."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginctl.metrics.accuracy import check_rows, row_blocks

FloatArray = NDArray[np.float64]

CONVENTION = "(lo, hi], the first closed at 0 too"

# How far above 1 a probability, and from 1 their sum, may be: what float32, and half precision or
# a file with few digits, make of a softmax.
_ABOVE, _SUM = 1e-6, 1e-2


def softmax(logits: ArrayLike) -> FloatArray:
    """exp(f_c) / sum_k exp(f_k) of each row, by way of f - max f: no logit is too large.

    Args:
        logits: (N, C), finite.

    Raises:
        ValueError: no row, another shape, or a logit that is not finite.
    """
    f = check_rows("logits", logits, np.zeros(np.shape(logits)[:1], np.int64))[0]
    found = np.empty(f.shape)
    for rows in row_blocks(*f.shape):
        exp = np.exp(_below_largest(f[rows]))
        found[rows] = exp / exp.sum(axis=1, keepdims=True)
    return found


def nll(logits: ArrayLike, labels: ArrayLike) -> float:
    """The mean negative log-likelihood, mean_i [ln sum_c exp(f_ic) - f_iy], in nats.

    With m the largest logit it is (m - f_y) + log1p(sum of the others' exp(f_c - m)): exact for
    huge logits, and down to 1e-300 for confident ones. Nothing is clipped (scikit-learn's log_loss
    clips at the rounding of the dtype); beyond float64's largest number it is inf.

    Args:
        logits: (N, C), finite.
        labels: (N,), from 0 to C - 1.

    Raises:
        ValueError: no sample, other shapes, a label outside its range, or a logit not finite.
    """
    return float(nll_per_sample(logits, labels).mean())


def nll_per_sample(logits: ArrayLike, labels: ArrayLike) -> FloatArray:
    """(N,) the terms that `nll` is the mean of; arguments and errors as its."""
    f, y = check_rows("logits", logits, labels)
    found = np.empty(len(y))
    for rows in row_blocks(*f.shape):
        shifted = _below_largest(f[rows])
        each = np.arange(len(shifted))
        own = shifted[each, y[rows]]
        largest = shifted.argmax(axis=1)
        exp = np.exp(shifted, out=shifted)
        exp[each, largest] = 0
        found[rows] = np.log1p(exp.sum(axis=1)) - own
    return found


def brier(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """The Brier score, mean_i sum_c (p_ic - [c = y_i])^2: from 0 to 2 (Brier 1950).

    The sum over all classes: with two it is twice the score of the positive class alone.

    Args:
        probabilities: (N, C), rows that sum to 1.
        labels: (N,), from 0 to C - 1.

    Raises:
        ValueError: no sample, other shapes, a label outside its range, or no probabilities.
    """
    return float(brier_per_sample(probabilities, labels).mean())


def brier_per_sample(probabilities: ArrayLike, labels: ArrayLike) -> FloatArray:
    """(N,) the terms that `brier` is the mean of; arguments and errors as its."""
    p, y = check_rows("probabilities", probabilities, labels)
    found = np.empty(len(y))
    for rows in row_blocks(*p.shape):
        difference = check_probabilities(p[rows])
        difference[np.arange(len(difference)), y[rows]] -= 1
        found[rows] = np.square(difference, out=difference).sum(axis=1)
    return found


@dataclass(frozen=True)
class Bin:
    """The samples with a confidence in (lo, hi]; in [0, hi] for the first bin.

    Attributes:
        count: how many.
        confidence: their mean confidence; None for an empty bin.
        accuracy: the share of them that is right; None for an empty bin.
    """

    lo: float
    hi: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram in numbers, and what is read off it.

    Attributes:
        bins: of equal width, from 0 to 1.
    """

    bins: tuple[Bin, ...]

    @property
    def n(self) -> int:
        """Samples."""
        return sum(b.count for b in self.bins)

    @property
    def confidence(self) -> float:
        """The mean confidence."""
        return sum(b.count * b.confidence for b in self.bins if b.confidence is not None) / self.n

    @property
    def accuracy(self) -> float:
        """The share that is right."""
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
        """The record, with the number of bins and the convention; null and a reason, never NaN."""
        return {
            "n": self.n,
            "bins": len(self.bins),
            "convention": CONVENTION,
            "ece": self.ece,
            "mce": self.mce,
            "confidence": self.confidence,
            "accuracy": self.accuracy,
            "reliability": [
                {
                    "lo": b.lo,
                    "hi": b.hi,
                    "count": b.count,
                    "confidence": b.confidence,
                    "accuracy": b.accuracy,
                    "reason": None if b.count else "no sample in this bin",
                }
                for b in self.bins
            ],
        }


def reliability(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> Reliability:
    """Samples binned by their confidence, the largest probability.

    The prediction is its class, the first of equal ones.

    Args:
        probabilities: (N, C), rows that sum to 1.
        labels: (N,), from 0 to C - 1.
        bins: of equal width.

    Raises:
        ValueError: no sample, other shapes, a label outside its range, no probabilities, or
            fewer bins than one.
    """
    p, y = check_rows("probabilities", probabilities, labels)
    confidence, correct = np.empty(len(y)), np.empty(len(y), np.bool_)
    for rows in row_blocks(*p.shape):
        part = check_probabilities(p[rows])
        predicted = part.argmax(axis=1)
        confidence[rows] = part[np.arange(len(part)), predicted]
        correct[rows] = predicted == y[rows]
    return bin_by_confidence(confidence, correct, bins)


def bin_by_confidence(confidence: ArrayLike, correct: ArrayLike, bins: int = 15) -> Reliability:
    """Samples binned by a confidence: bin i is (i/n, (i + 1)/n], the first [0, 1/n].

    The edges are the float64 quotients, so that a confidence of exactly k/n ends bin k. A float32
    one is compared as the float64 number that it is: float32(0.2) is above 1/5.

    Args:
        confidence: (N,), from 0 to 1.
        correct: (N,) of bool.
        bins: n.

    Raises:
        ValueError: no sample, other shapes, a confidence outside 0 to 1, correct not of bool, or
            fewer bins than one.
    """
    x, right = np.asarray(confidence, np.float64), np.asarray(correct)
    if x.ndim != 1 or right.shape != x.shape:
        raise ValueError(f"confidence, correct: shapes {x.shape}, {right.shape}, expected (N,)")
    if not len(x):
        raise ValueError("confidence: no sample")
    if right.dtype != np.bool_:
        raise ValueError(f"correct: dtype {right.dtype}, expected bool")
    if not ((x >= 0) & (x <= 1)).all():
        raise ValueError("confidence: expected 0 to 1")
    if bins < 1:
        raise ValueError(f"bins = {bins}: expected at least 1")
    edges, where = bin_edges(bins), bin_index(x, bins)
    count = np.bincount(where, minlength=bins).tolist()
    sums = np.bincount(where, weights=x, minlength=bins).tolist()
    hits = np.bincount(where[right], minlength=bins).tolist()
    return Reliability(
        tuple(
            Bin(lo, hi, n, s / n if n else None, h / n if n else None)
            for lo, hi, n, s, h in zip(
                edges[:-1].tolist(), edges[1:].tolist(), count, sums, hits, strict=True
            )
        )
    )


def bin_edges(bins: int) -> FloatArray:
    """(bins + 1,) edges of bins of equal width, i/bins in float64."""
    return np.arange(bins + 1) / bins


def bin_index(values: NDArray[Any], bins: int) -> NDArray[np.int64]:
    """The bin of each value, from 0: (lo, hi], the first closed at 0 too."""
    return np.maximum(np.searchsorted(bin_edges(bins), values, side="left") - 1, 0)


def _below_largest(logits: NDArray[Any]) -> FloatArray:
    """f - max f of each row, in memory of its own."""
    f = logits.astype(np.float64)
    if not np.isfinite(f).all():
        raise ValueError("logits: NaN or infinite")
    with np.errstate(over="ignore"):  # -inf, where the exponential is 0 as it should be
        f -= f.max(axis=1, keepdims=True)
    return np.asarray(f)


def check_probabilities(probabilities: NDArray[Any]) -> FloatArray:
    """Rows of probabilities in memory of their own, none above 1.

    Raises:
        ValueError: one outside 0 to 1, or a row that does not sum to 1.
    """
    p = probabilities.astype(np.float64)
    if not ((p >= 0) & (p <= 1 + _ABOVE)).all():
        raise ValueError("probabilities: expected 0 to 1 (logits go through softmax first)")
    sums = p.sum(axis=1)
    worst = float(sums[np.abs(sums - 1).argmax()])
    if abs(worst - 1) > _SUM:
        raise ValueError(f"probabilities: a row sums to {worst:.6g}, expected 1")
    return np.minimum(p, 1, out=p)
