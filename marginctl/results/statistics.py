"""Statistical tests and intervals. Every test gives numbers or a reason, never NaN."""

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginctl.utils.seed import generator
from marginctl.utils.text import count_noun

FloatArray = NDArray[np.float64]
Interval = tuple[float, float]

# Accuracies in percent are compared to this many decimals. Two means of equally many correct
# answers differ in their last bits if the folds distribute them differently.
DECIMALS = 9


class MeanStd(NamedTuple):
    """A mean and a standard deviation with ddof 1; None where no value, or a single one, is."""

    mean: float | None
    std: float | None


def mean_and_std(values: Sequence[float]) -> MeanStd:
    return MeanStd(
        statistics.fmean(values) if values else None,
        statistics.stdev(values) if len(values) > 1 else None,
    )


@dataclass(frozen=True)
class Test:
    """The outcome of a test. If it cannot be computed, the numbers are None and `reason` says why.

    Attributes:
        statistic: t, W or chi squared.
        df: degrees of freedom, if the test has them.
        p: two-sided.
        effect: the effect size: mean/std of the differences for t, matched-pairs rank-biserial
            correlation for Wilcoxon.
    """

    statistic: float | None = None
    df: float | None = None
    p: float | None = None
    effect: float | None = None
    reason: str | None = None


def student_cdf(df: float, t: float) -> float:
    """Return the probability that Student's t with `df` degrees of freedom is below t."""
    from scipy.special import stdtr  # 0.3 s that a report without tests does not wait for

    return float(stdtr(df, t))


def student_quantile(df: float, p: float) -> float:
    """Return the p-quantile of Student's t with `df` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(df, p))


def corrected_resampled_t(differences: Sequence[float], test_to_train: float) -> Test:
    """Return the corrected resampled t-test (Nadeau and Bengio, 2003) of paired fold accuracies.

    t = mean(d) / sqrt((1/n + r) var(d)) with r = n_test/n_train and n - 1 degrees of freedom. The
    plain t-test (r = 0) takes overlapping training sets for independent and rejects too often.
    """
    d = np.asarray(differences, np.float64)
    n = len(d)
    if n < 2:
        return Test(reason=f"{n} fold: a variance needs 2")
    variance = d.var(ddof=1)
    if np.ptp(d) < 10.0**-DECIMALS:  # equal except for rounding
        return Test(df=n - 1, reason="the difference is the same on every fold")
    t = d.mean() / math.sqrt((1 / n + test_to_train) * variance)
    p = 2 * student_cdf(n - 1, -abs(t))
    return Test(float(t), n - 1, float(p), float(d.mean() / math.sqrt(variance)))


def corrected_interval(
    differences: Sequence[float], test_to_train: float, alpha: float = 0.05
) -> Interval | None:
    """Return the 1 - alpha interval of the corrected resampled t-test, or of one mean over folds.

    mean -+ t_{n-1} sqrt((1/n + r) var) with r = n_test/n_train, the quantile at 1 - alpha/2. It
    excludes 0 exactly if the test's p is below alpha. None for fewer than two values, or equal
    ones, which do not show how much they vary.
    """
    d = np.asarray(differences, np.float64)
    n = len(d)
    if n < 2 or np.ptp(d) < 10.0**-DECIMALS:
        return None
    half = student_quantile(n - 1, 1 - alpha / 2) * math.sqrt(
        (1 / n + test_to_train) * d.var(ddof=1)
    )
    return float(d.mean() - half), float(d.mean() + half)


def paired_rows_test(a: ArrayLike, b: ArrayLike) -> Test:
    """Test whether two classifiers are right equally often on the same test rows.

    With one network each, the entries are 0 or 1 and the test is McNemar's, exact (binomial over
    the rows where only one is right). With means over several networks it is the paired bootstrap
    over rows: p is twice the smaller part of 10,000 means on either side of 0. The seed is fixed.

    Args:
        a, b: (n,) how often each row is classified correctly, from 0 to 1.

    Returns:
        `statistic` is the mean of a - b; `effect` is its mean over its standard deviation.
    """
    d = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    if not d.any():
        return Test(reason="both classify the same samples correctly")
    mean, std = float(d.mean()), float(d.std(ddof=1)) if len(d) > 1 else 0.0
    effect = mean / std if std else None
    if set(np.unique([a, b])) <= {0.0, 1.0}:
        from scipy.stats import binomtest

        first, second = int((d > 0).sum()), int((d < 0).sum())
        p = float(binomtest(first, first + second).pvalue)
        return Test(statistic=mean, p=p, effect=effect)
    # rows of equal difference are alike: their numbers in a bootstrap sample are multinomial
    values, counts = np.unique(d, return_counts=True)
    drawn = generator(0, "rows", len(d)).multinomial(len(d), counts / len(d), size=10_000)
    sums = np.round(drawn @ values, DECIMALS)
    smaller = min((sums <= 0).sum(), (sums >= 0).sum())
    return Test(statistic=mean, p=min(1.0, 2 * (float(smaller) + 1) / 10_001), effect=effect)


def paired_t(differences: Sequence[float]) -> Test:
    """Return the paired t-test of independent pairs, such as networks of one seed.

    t = mean(d) / (sd(d) / sqrt(n)) with n - 1 degrees of freedom.
    """
    if len(differences) < 2:
        return Test(reason=f"{count_noun(len(differences), 'shared seed')}: a test needs 2")
    test = corrected_resampled_t(differences, 0.0)
    if test.p is None:
        return Test(df=test.df, reason="the difference is the same for every seed")
    return test


def mean_interval(values: Sequence[float], alpha: float = 0.05) -> Interval | None:
    """Return the 1 - alpha interval of a mean by Student's t; None for fewer than two values."""
    return corrected_interval(values, 0.0, alpha)


def bootstrap_interval(values: Sequence[float], draws: int = 10_000) -> Interval | None:
    """Return the 95 % bootstrap percentile interval of a mean; None for fewer than two values.

    The seed is fixed and the values are sorted, so that their order does not matter.
    """
    n = len(values)
    if n < 2:
        return None
    drawn = np.sort(np.asarray(values, np.float64))[_drawn(n, draws)]
    low, high = np.quantile(drawn.mean(1), [0.025, 0.975])
    return float(low), float(high)


@functools.lru_cache(maxsize=4)
def _drawn(n: int, draws: int) -> NDArray[np.int64]:
    """Return the (draws, n) indices of the bootstrap samples, the same for any n values."""
    return generator(0, "bootstrap", n).integers(n, size=(draws, n))


def wins_ties_losses(differences: Sequence[float]) -> tuple[int, int, int]:
    """Return how many differences in percent are above 0, 0 except for rounding, and below 0."""
    d = np.round(np.asarray(differences, np.float64), DECIMALS)
    return int((d > 0).sum()), int((d == 0).sum()), int((d < 0).sum())


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's step-down adjustment of p-values; None stays None and is not counted."""
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        adjusted[i] = highest
    return adjusted


def holm_levels(p_values: Sequence[float | None], alpha: float = 0.05) -> list[float | None]:
    """Return the level at which Holm's procedure tests each p-value; None stays None.

    The i-th smallest of m is tested at alpha / (m - i + 1) as long as all before it are rejected;
    the others have the level of the first that is not. So p is below its level exactly if the
    adjusted p is below alpha, and intervals of these levels agree with the adjusted p-values.
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    levels: list[float | None] = [None] * len(p_values)
    level, rejecting = alpha, True
    for rank, (p, i) in enumerate(known):
        if rejecting:
            level = alpha / (len(known) - rank)
            rejecting = p < level
        levels[i] = level
    return levels


def ranks(rows: ArrayLike) -> list[float]:
    """Return the average rank of each column, 1 for the largest; ties share their ranks."""
    values = np.round(np.asarray(rows, np.float64), DECIMALS)
    return [float(r) for r in _ranks(-values).mean(0)]


def _ranks(values: NDArray[Any]) -> FloatArray:
    """Return the ranks of numbers (..., n) in their row, 1 for the smallest; ties share theirs."""
    one, other = values[..., :, None], values[..., None, :]
    return np.asarray((other < one).sum(-1) + ((other == one).sum(-1) + 1) / 2)


def friedman(rows: Sequence[Sequence[float]]) -> Test:
    """Return Friedman's test of at least 3 methods (columns) over at least 5 data sets (rows).

    It is corrected for ties, which are equal except for rounding.
    """
    values = np.round(np.asarray(rows, np.float64), DECIMALS)
    if values.ndim != 2 or values.shape[1] < 3 or len(values) < 5:
        shape = f"{len(values)} data sets and {values.shape[1] if values.ndim == 2 else 0} methods"
        return Test(reason=f"{shape}: needs 5 and 3")
    if (values == values[:, :1]).all():
        return Test(reason="all methods tie on every data set")
    from scipy.stats import friedmanchisquare  # 0.5 s that a few data sets do not wait for

    result = friedmanchisquare(*values.T)
    return Test(float(result.statistic), values.shape[1] - 1, float(result.pvalue))


def critical_difference(methods: int, datasets: int, alpha: float = 0.05) -> float:
    """Return Nemenyi's critical difference of average ranks, for all pairs tested together.

    q_alpha sqrt(k (k + 1) / (6 N)), q the studentised range's over sqrt(2) (Demsar 2006, eq. in
    Sec. 3.2.2). For diagrams only: the other tests have more power.
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - alpha, methods, math.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * datasets))


def wilcoxon(differences: Sequence[float]) -> Test:
    """Return Wilcoxon's signed-rank test over at least 5 data sets.

    Differences that are 0 except for rounding are dropped; equal ones are ties.
    """
    d = np.round(np.asarray(differences, np.float64), DECIMALS)
    if len(d) < 5:
        return Test(reason=f"{len(d)} data sets: needs 5")
    d = d[d != 0]
    if not len(d):
        return Test(reason="the means are the same on every data set")
    from scipy.stats import wilcoxon as signed_rank

    rank = _ranks(np.abs(d))
    effect = float((rank * np.sign(d)).sum() / rank.sum())
    result = signed_rank(d)
    return Test(float(result.statistic), p=float(result.pvalue), effect=effect)
