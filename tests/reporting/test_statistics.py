"""Every statistic against scipy or an independent computation, and where there is none."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from marginctl.reporting.statistics import (
    against_published,
    corrected_resampled_t,
    friedman,
    holm,
    ranks,
    repeats_to_see,
    smallest_visible,
    wilcoxon,
)
from tests.reporting.type_one import rejected


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


def test_no_variance_gives_a_reason():
    for value in (0.0, 2.5):
        made = corrected_resampled_t([value, value + 1e-14] * 5, 1 / 9)
        assert (made.statistic, made.p) == (None, None)
        assert made.reason == "the difference is the same on every fold"
    assert corrected_resampled_t([1.0], 0.1).reason == "1 fold: a variance needs 2"


def test_type_one_error_by_simulation():
    """A short form of `python -m tests.reporting.type_one`, whose 1,000 give 2 to 8 %."""
    corrected, plain = rejected(100)
    assert corrected <= 0.12  # 5 % and three standard errors
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


def test_friedman_says_when_it_is_not_made():
    assert friedman(np.ones((4, 3))).reason == "4 data sets and 3 methods: needs 5 and 3"
    assert friedman(np.ones((9, 2))).reason == "9 data sets and 2 methods: needs 5 and 3"
    assert friedman([]).reason == "0 data sets and 0 methods: needs 5 and 3"
    assert friedman(np.ones((9, 3))).reason == "all methods tie on every data set"


def test_wilcoxon_with_ties_and_zeros():
    stream = np.random.default_rng(2)
    for _ in range(20):
        d = stream.integers(-3, 4, 12).astype(float)
        made = wilcoxon(d)
        theirs = stats.wilcoxon(d[d != 0])
        assert made.statistic == pytest.approx(theirs.statistic)
        assert made.p == pytest.approx(theirs.pvalue)
        assert wilcoxon(-d).effect == pytest.approx(-made.effect)
    assert wilcoxon([1.0, 2, 3, 4, 5]).effect == 1
    assert wilcoxon([1.0, 2]).reason == "2 data sets: needs 5"
    assert wilcoxon([0.0] * 6).reason == "the means are the same on every data set"


def test_z_against_the_published_value():
    made = against_published(80.0, 6.0, 100, 78.0, 8.0, 100)
    assert made.statistic == pytest.approx(2.0)
    assert made.p == pytest.approx(2 * stats.norm.sf(2.0))
    assert against_published(1.0, 0.0, 9, 2.0, 0.0, 9).reason == "both standard deviations are 0"


def test_the_power_is_what_was_promised():
    """At the number of repeats that it names, the corrected z reaches 80 % power by simulation."""
    d = np.random.default_rng(3).normal(0, 1, 100)
    needed = repeats_to_see(1.2, d, 1 / 9, 10)
    variance = d.var(ddof=1) * (1 / (10 * needed) + 1 / 9)
    drawn = np.random.default_rng(4).normal(1.2, math.sqrt(variance), 20_000)
    power = (np.abs(drawn) > 1.959964 * math.sqrt(variance)).mean()
    assert power == pytest.approx(0.8, abs=0.05) or needed == 1
    assert power > 0.79
    limit = smallest_visible(d, 1 / 9)
    assert repeats_to_see(limit * 0.99, d, 1 / 9, 10) is None
    assert repeats_to_see(limit * 1.01, d, 1 / 9, 10) > 10
    assert repeats_to_see(0.5, [0.0] * 10, 1 / 9, 10) == 1
