"""The critical-difference diagram."""

import math

import pytest

from marginctl.errors import RequestError
from marginctl.reporting.compare import Comparisons
from marginctl.reporting.figures.rank import cliques, draw
from marginctl.reporting.statistics import critical_difference


@pytest.mark.parametrize(
    ("methods", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (7, 2.949), (10, 3.164)]
)
def test_the_critical_values_are_those_of_the_table(methods, q):
    """Demsar 2006, Table 5 (a)."""
    found = critical_difference(methods, 20)
    assert found == pytest.approx(q * math.sqrt(methods * (methods + 1) / 120), rel=1e-3)


def test_groups_are_the_largest_that_cannot_be_told_apart():
    ranks = {"a": 1.0, "b": 1.5, "c": 2.4, "d": 4.0, "e": 4.0}
    assert cliques(ranks, 1.0) == [(1.0, 1.5), (1.5, 2.4)]
    assert cliques(ranks, 0.1) == []
    assert cliques(ranks, 3.0) == [(1.0, 4.0)]


def test_it_is_drawn_and_needs_methods_and_data_sets(tmp_path):
    ranks = {"soft": 1.8, "arcgrad": 2.0, "arcface": 2.2}
    for path in (tmp_path / "1.svg", tmp_path / "2.svg"):
        draw(Comparisons("soft", ranks=ranks, datasets=5), path)
    text = (tmp_path / "1.svg").read_text()
    assert text == (tmp_path / "2.svg").read_text()
    assert len(text) > 5000
    for compared in (
        Comparisons("soft", ranks=ranks, datasets=4),
        Comparisons("soft", ranks={"soft": 1.0, "arcgrad": 2.0}, datasets=15),
    ):
        with pytest.raises(RequestError, match="expected at least 3 on 5"):
            draw(compared, tmp_path / "3.svg")
    with pytest.raises(RequestError, match=r"ending in \.png"):
        draw(Comparisons("soft", ranks=ranks, datasets=5), tmp_path / "a.gif")
