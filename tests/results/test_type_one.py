"""Marks of tuned comparisons: a short form of `python -m tests.results.type_one --tuned`."""

import pytest

from tests.results.type_one import marked

pytestmark = pytest.mark.slow


def test_identical_methods_tuned_alike_are_rarely_marked():
    share, difference = marked(100, methods=4)
    assert share <= 0.12  # 5 % and 3 standard errors
    assert abs(difference) < 1.5


def test_a_gap_is_marked_more_often():
    share, difference = marked(30, rows=400, gap=10.0)
    assert share >= 0.5
    assert difference == pytest.approx(10, abs=2)
