"""Every statistic against scipy or an independent computation, and where there is none."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from marginctl.results.statistics import (
    bootstrap_interval,
    corrected_interval,
    corrected_resampled_t,
    friedman,
    holm,
    mean_interval,
    ranks,
    wilcoxon,
    wins_ties_losses,
)
from tests.results.type_one import rejected


def test_without_correction_it_is_the_paired_t_test():
    stream = np.random.default_rng(0)
    for n in (2, 5, 100):
        a, b = stream.integers(0, 5, n) * 1.0, stream.integers(0, 5, n) * 1.0
        a[0] += 1
        ours, theirs = corrected_resampled_t(a - b, 0.0), stats.ttest_rel(a, b)
        assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-12)
        assert ours.p == pytest.approx(theirs.pvalue, rel=1e-10)
        assert ours.df == n - 1


def test_the_correction_by_hand():
    d = [1.0, 3.0, -1.0, 2.0]
    variance = sum((x - 1.25) ** 2 for x in d) / 3
    t = 1.25 / math.sqrt((1 / 4 + 1 / 9) * variance)
    made = corrected_resampled_t(d, 1 / 9)
    assert made.statistic == pytest.approx(t, rel=1e-14)
    assert made.p == pytest.approx(2 * stats.t.sf(t, 3), rel=1e-12)
    assert made.effect == pytest.approx(1.25 / math.sqrt(variance), rel=1e-14)


def test_the_correction_in_exact_fractions():
    """t^2 = mean^2 / ((1/n + r) var), and Student's tail by integration of its density."""
    stream = np.random.default_rng(6)
    for folds, repeats in ((3, 2), (10, 10)):
        n, r = folds * repeats, Fraction(1, folds - 1)
        d = [Fraction(int(x), 16) for x in stream.integers(-20, 30, n)]
        mean = sum(d) / n
        squared = mean**2 / ((Fraction(1, n) + r) * sum((x - mean) ** 2 for x in d) / (n - 1))
        for order in (d, d[::-1], sorted(d)):
            made = corrected_resampled_t([float(x) for x in order], float(r))
            assert made.statistic**2 == pytest.approx(float(squared), rel=1e-12)
            assert (made.statistic > 0) == (mean > 0)
            tail, _ = integrate.quad(stats.t(n - 1).pdf, math.sqrt(squared), math.inf)
            assert made.p == pytest.approx(2 * tail, rel=1e-7)


def test_no_variance_gives_a_reason():
    for value in (0.0, 2.5):
        made = corrected_resampled_t([value, value + 1e-14] * 5, 1 / 9)
        assert (made.statistic, made.p) == (None, None)
        assert made.reason == "the difference is the same on every fold"
    assert corrected_resampled_t([1.0], 0.1).reason == "1 fold: a variance needs 2"


def test_equal_values_have_no_interval():
    for value in (0.0, 47.8, 100.0):
        assert corrected_interval([value, value + 1e-14] * 3, 1 / 9) is None
        assert mean_interval([value] * 2) is None
    assert corrected_interval([99.0, 100.0], 1 / 9) is not None


@pytest.mark.parametrize(
    ("repetitions", "limit"), [(30, 0.17), pytest.param(100, 0.12, marks=pytest.mark.slow)]
)
def test_type_one_error_by_simulation(repetitions, limit):
    """A short form of `python -m tests.results.type_one`; limit: 5 % and 3 standard errors."""
    corrected, plain = rejected(repetitions)
    assert corrected <= limit
    assert plain > 0.3


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=8))
def test_holm(p_values):
    made = holm(p_values)
    there = [p for p in p_values if p is not None]
    assert [m is None for m in made] == [p is None for p in p_values]
    if there:  # the definition: max over those at least as small of p times what is left
        for p, m in zip(p_values, made, strict=True):
            if p is None:
                continue
            order = sorted(there)
            want = max(min(1.0, q * (len(there) - i)) for i, q in enumerate(order) if q <= p)
            assert m == pytest.approx(want)


def test_holm_by_hand():
    assert holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert holm([]) == []


def test_holm_as_r_defines_it():
    """p.adjust: pmin(1, cummax((n - i + 1) p[o]))[order(o)], in any order of the methods."""
    stream = np.random.default_rng(8)
    for n in (1, 2, 5, 12):
        p = stream.integers(0, 30, n) / 100  # with ties
        order = np.argsort(p, kind="stable")
        want = np.empty(n)
        want[order] = np.minimum(1, np.maximum.accumulate((n - np.arange(n)) * p[order]))
        assert holm(p.tolist()) == pytest.approx(want.tolist(), abs=1e-15)
        mixed = stream.permutation(n)
        assert holm(p[mixed].tolist()) == pytest.approx(want[mixed].tolist(), abs=1e-15)


def test_ranks_and_friedman_with_ties():
    stream = np.random.default_rng(1)
    for _ in range(20):
        rows = stream.integers(0, 4, (8, 4)).astype(float)
        want = np.mean([stats.rankdata(-row) for row in rows], axis=0)
        assert ranks(rows) == pytest.approx(want)
        assert sum(ranks(rows)) == pytest.approx(10)
        made, theirs = friedman(rows), stats.friedmanchisquare(*rows.T)
        assert made.statistic == pytest.approx(theirs.statistic)
        assert made.p == pytest.approx(theirs.pvalue)
        shuffled = friedman(rows[::-1, ::-1])
        assert shuffled.statistic == pytest.approx(made.statistic)


def exact_ranks(row):
    """1 the largest; equal ones share the mean of their places."""
    return [
        Fraction(2 * sum(other > own for other in row) + sum(other == own for other in row) + 1, 2)
        for own in row
    ]


@pytest.mark.parametrize("levels", [2, 4, 50])
def test_friedman_by_exact_fractions_in_every_order(levels):
    """The form with ties (Conover 1999, 5.8): (k - 1) sum_j (R_j - n(k+1)/2)^2 / (A - C)."""
    stream = np.random.default_rng(levels)
    for k, n in ((3, 5), (4, 9), (7, 23)):
        rows = stream.integers(0, levels, (n, k)) / 8
        own = [exact_ranks(row) for row in rows.tolist()]
        sums = [sum(column) for column in zip(*own, strict=True)]
        middle = Fraction(n * (k + 1), 2)
        above = (k - 1) * sum((r - middle) ** 2 for r in sums)
        chi2 = above / (sum(r**2 for row in own for r in row) - Fraction(n * k * (k + 1) ** 2, 4))
        for columns in (list(range(k)), list(range(k))[::-1], stream.permutation(k).tolist()):
            asked = rows[np.ix_(stream.permutation(n), columns)]
            made = friedman(asked)
            assert made.statistic == pytest.approx(float(chi2), rel=1e-12)
            assert made.p == pytest.approx(stats.chi2.sf(float(chi2), k - 1), rel=1e-10)
            assert made.df == k - 1
            assert ranks(asked) == pytest.approx([float(sums[c] / n) for c in columns])


def test_friedman_says_when_it_is_not_made():
    assert friedman(np.ones((4, 3))).reason == "4 data sets and 3 methods: needs 5 and 3"
    assert friedman(np.ones((9, 2))).reason == "9 data sets and 2 methods: needs 5 and 3"
    assert friedman([]).reason == "0 data sets and 0 methods: needs 5 and 3"
    assert friedman(np.ones((9, 3))).reason == "all methods tie on every data set"


def test_wilcoxon_with_ties_and_zeros():
    stream = np.random.default_rng(2)
    for _ in range(3):
        d = stream.integers(-3, 4, 11).astype(float)
        made = wilcoxon(d)
        theirs = stats.wilcoxon(d[d != 0])
        assert made.statistic == pytest.approx(theirs.statistic)
        assert made.p == pytest.approx(theirs.pvalue)
        assert wilcoxon(-d).effect == pytest.approx(-made.effect)
    assert wilcoxon([1.0, 2, 3, 4, 5]).effect == 1
    assert wilcoxon([1.0, 2]).reason == "2 data sets: needs 5"
    assert wilcoxon([0.0] * 6).reason == "the means are the same on every data set"


def test_wilcoxon_by_all_signs():
    """Without ties: the share of the 2^n signs with a sum of ranks as far from its mean."""
    stream = np.random.default_rng(5)
    for n in (5, 8, 11):
        d = stream.permutation(np.arange(1, n + 1)) * stream.choice([-1.0, 1.0], n)
        signs = itertools.product((0, 1), repeat=n)
        sums = [sum(r for r, s in zip(range(1, n + 1), one, strict=True) if s) for one in signs]
        own = sum(x for x in d if x > 0)
        mean = n * (n + 1) / 4
        share = sum(abs(total - mean) >= abs(own - mean) for total in sums) / 2**n
        assert wilcoxon(d).p == pytest.approx(share, rel=1e-12)
        assert wilcoxon(np.append(d[::-1], 0.0)).p == pytest.approx(share, rel=1e-12)
        assert wilcoxon(d).effect == pytest.approx((2 * own - 2 * mean) / (2 * mean))


def by_folds(right, of):
    return math.fsum(100 * r / of for r in right) / len(right)


def test_rounding_breaks_no_tie():
    """Equally many right answers in other folds, and equal steps between other accuracies."""
    a, b = by_folds([14, 8, 8, 7], 15), by_folds([13, 12, 6, 6], 15)
    assert a != b
    assert a == pytest.approx(b, rel=1e-14)
    assert wins_ties_losses([a - b, b - a, 0.0, 1e-6, -1e-6]) == (1, 3, 1)
    assert ranks([[a, b, 50.0]]) == [1.5, 1.5, 3.0]
    exact, broken = ([[90.0, a, x], [60.0, 70.0, 50.0]] * 3 for x in (a, b))
    assert friedman(broken) == friedman(exact)
    steps = [80.3 - 80.2, 70.1 - 70.0, 50.2 - 50.1, 90.5 - 90.4, 60.3 - 60.1, 60.1 - 60.3]
    assert len({*map(abs, steps)}) > 2
    assert wilcoxon(steps).p == stats.wilcoxon([1, 1, 1, 1, 2, -2]).pvalue
    assert wilcoxon([*steps, a - b]) == wilcoxon(steps)


def test_the_bootstrap_by_all_draws():
    """Of 4 values there are 256 draws: the quantiles of their means, in any order."""
    values = [0.0, 1.0, 10.0, 100.0]
    means = sorted(sum(draw) / 4 for draw in itertools.product(values, repeat=4))
    low, high = bootstrap_interval(values)
    shares = [sum(m <= x for m in means) / 256 for x in (low, high)]
    assert shares[0] == pytest.approx(0.025, abs=0.02)
    assert shares[1] == pytest.approx(0.975, abs=0.02)
    for order in itertools.permutations(values):
        assert bootstrap_interval(order) == (low, high)
