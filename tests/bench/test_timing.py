"""Interleaved timing and spreads, on a clock that the test sets."""

import pytest
from scipy.stats import binom

from marginctl.bench import timing
from marginctl.bench.timing import (
    CONFIDENCE,
    FULL_RANGE,
    full_range,
    interleave,
    median_interval,
    middle_half,
    ratios,
)


class Clock:
    """A clock that calls advance by their own durations."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def perf_counter(self):
        return self.now

    def takes(self, name, seconds):
        def call():
            self.calls.append(name)
            self.now += seconds

        return call


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    return clock


def test_sides_are_paired_in_alternating_order(clock):
    lines, prepared = [], []
    sides = {"a": clock.takes("a", 1.0), "b": clock.takes("b", 4.0)}
    seconds = interleave(sides, 3, warm_up=1, prepare=prepared.append, report=lines.append)
    assert seconds == {"a": [1.0] * 3, "b": [4.0] * 3}
    assert clock.calls == ["b", "a", "a", "b", "b", "a", "a", "b"]
    assert prepared == clock.calls
    assert lines[-1] == "round 3 of 3: a 1000 ms, b 4000 ms"
    assert ratios(seconds, "b", "a") == [4.0] * 3


def test_preparation_is_not_timed(clock):
    sides = {"a": clock.takes("a", 1.0)}
    seconds = interleave(sides, 2, warm_up=0, prepare=lambda side: clock.takes("", 9.0)())
    assert seconds["a"] == [1.0, 1.0]


def test_spreads():
    assert (full_range([3.0, 1.0, 2.0]).low, full_range([3.0, 1.0, 2.0]).high) == (1.0, 3.0)
    assert middle_half([1.0]).median == middle_half([1.0]).low == 1.0
    quartiles = middle_half([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (quartiles.low, quartiles.high) == (1.5, 4.5)


@pytest.mark.parametrize("n", [1, 5, 6, 9, 20, 101])
def test_the_interval_of_the_median_has_its_coverage(n):
    """Between the k-th values from below and above, the median lies with at least 95 %."""
    spread = median_interval([float(i) for i in range(1, n + 1)])
    assert spread.interval == (FULL_RANGE if n < 6 else CONFIDENCE)
    assert spread.low + spread.high == n + 1
    if n >= 6:
        assert 1 - 2 * binom.cdf(spread.low - 1, n, 0.5) >= 0.95
        assert 1 - 2 * binom.cdf(spread.low, n, 0.5) < 0.95  # a narrower one has not
