"""The critical-difference diagram."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from marginctl.errors import RequestError
from marginctl.reports.figures.critical_difference import cliques, draw_ranks
from marginctl.results.compare import Comparisons
from marginctl.results.statistics import critical_difference, ranks


@pytest.mark.parametrize(
    ("methods", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (7, 2.949), (10, 3.164)]
)
def test_the_critical_values_are_those_of_the_table(methods, q):
    """Demsar 2006, Table 5 (a)."""
    found = critical_difference(methods, 20)
    assert found == pytest.approx(q * math.sqrt(methods * (methods + 1) / 120), rel=1e-3)


def test_cliques_are_the_largest_groups_without_significant_difference():
    average = {"a": 1.0, "b": 1.5, "c": 2.4, "d": 4.0, "e": 4.0}
    assert cliques(average, 1.0) == [(1.0, 1.5), (1.5, 2.4), (4.0, 4.0)]
    assert cliques(average, 0.1) == [(4.0, 4.0)]
    assert cliques(average, 3.0) == [(1.0, 4.0)]
    assert cliques({"a": 1.0, "b": 2.0, "c": 3.0}, 0.9) == []


def nemenyi_p(k, n, difference):
    """All pairs after Friedman: the studentised range of the ranks over their standard error."""
    error = math.sqrt(k * (k + 1) / (6 * n))
    return stats.studentized_range.sf(abs(difference) / error * math.sqrt(2), k, math.inf)


@pytest.mark.parametrize(("k", "n", "levels"), [(3, 5, 3), (5, 12, 4), (6, 8, 9), (7, 23, 30)])
def test_cliques_agree_with_pairwise_nemenyi_tests(k, n, levels):
    """Maximal cliques of the graph by brute force, in any order of methods and data sets."""
    stream = np.random.default_rng(k)
    for shift in (0.0, 0.7, 2.0):
        rows = stream.integers(0, levels, (n, k)) + np.floor(shift * np.arange(k))
        average = stats.rankdata(-rows, axis=1).mean(0)
        together = {
            (i, j): nemenyi_p(k, n, average[i] - average[j]) >= 0.05
            for i, j in itertools.combinations(range(k), 2)
        }
        joined = [
            set(some)
            for size in range(2, k + 1)
            for some in itertools.combinations(range(k), size)
            if all(together[pair] for pair in itertools.combinations(some, 2))
        ]
        largest = [one for one in joined if not any(one < other for other in joined)]
        want = sorted((average[list(m)].min(), average[list(m)].max()) for m in largest)
        for columns in (range(k), range(k - 1, -1, -1), stream.permutation(k)):
            order = stream.permutation(n)
            found = ranks(rows[np.ix_(order, list(columns))])
            named = dict(zip((f"m{c}" for c in columns), found, strict=True))
            assert list(named.values()) == pytest.approx(average[list(columns)])
            spans = cliques(named, critical_difference(k, n))
            assert len(spans) == len(want)
            assert np.ravel(spans) == pytest.approx(np.ravel(want))


def test_draw_needs_three_methods_on_five_data_sets(tmp_path):
    average = {"soft": 1.8, "arcgrad": 2.0, "arcface": 2.2}
    for path in (tmp_path / "1.svg", tmp_path / "2.svg"):
        draw_ranks(Comparisons("soft", ranks=average, datasets=5), path)
    text = (tmp_path / "1.svg").read_text()
    assert text == (tmp_path / "2.svg").read_text()
    assert len(text) > 5000
    for compared in (
        Comparisons("soft", ranks=average, datasets=4),
        Comparisons("soft", ranks={"soft": 1.0, "arcgrad": 2.0}, datasets=15),
    ):
        with pytest.raises(RequestError, match="expected at least 3 on 5"):
            draw_ranks(compared, tmp_path / "3.svg")
