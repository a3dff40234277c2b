"""What the benchmarks share: interleaved timing, spreads, settings and the form of a result."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from marginctl.recipe.fields import Section
from marginctl.utils.device import synchronize

FULL_RANGE = "lowest to highest"
CONFIDENCE = "95 % interval of the median"

Count = Annotated[int, Field(ge=1, le=10_000_000)]


class Settings(Section):
    """The settings of a benchmark, which `--rounds` and `--set` override."""

    rounds: Count


@dataclass(frozen=True)
class Context:
    device: str  # a torch device; only those that say so use it
    data_dir: Path | None
    out: Path
    report: Callable[[str], None]


@dataclass(frozen=True)
class Spread:
    """The median of several values, and the interval around it that `interval` names."""

    median: float
    low: float
    high: float
    interval: str


def full_range(values: Sequence[float]) -> Spread:
    """Return the median with the lowest and the highest value."""
    return Spread(statistics.median(values), min(values), max(values), FULL_RANGE)


def middle_half(values: Sequence[float]) -> Spread:
    """Return the median with the lower and the upper quartile."""
    quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return Spread(statistics.median(values), quartiles[0], quartiles[2], "middle half")


def median_interval(values: Sequence[float]) -> Spread:
    """Return the median with a distribution-free interval of at least 95 %, by order statistics.

    Fewer than 6 values have no such interval: their full range is returned.
    """
    from scipy.stats import binom

    n = len(values)
    if n < 6:
        return full_range(values)
    ordered = sorted(values)
    # with a probability below 2.5 %, fewer values than this lie below the median
    k = max(int(binom.ppf(0.025, n, 0.5)), 1) - 1
    return Spread(statistics.median(values), ordered[k], ordered[n - 1 - k], CONFIDENCE)


def ratios(seconds: Mapping[str, Sequence[float]], side: str, reference: str) -> list[float]:
    return [a / b for a, b in zip(seconds[side], seconds[reference], strict=True)]


@dataclass(frozen=True)
class Measurement:
    """A measured quantity: a time, a rate, or a ratio to a reference."""

    measured: str
    value: Spread
    unit: str  # `s`, `ms`, `%`, `images/s`, `GFLOP`, or `x` for a ratio
    n: int
    reference: str | None = None  # of a ratio or a percentage, what it is relative to
    published: float | None = None  # the paper's value in the same unit


@dataclass(frozen=True)
class Skipped:
    measured: str
    reason: str


@dataclass
class Result:
    benchmark: str
    settings: dict[str, Any]
    device: str
    measurements: list[Measurement] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # sentences for the reader of the table
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(
        self,
        measured: str,
        values: Sequence[float],
        unit: str,
        reference: str | None = None,
        *,
        spread: Callable[[Sequence[float]], Spread] = median_interval,
        published: float | None = None,
    ) -> Spread:
        """Add the measurement of some values; return their spread."""
        value = spread(values)
        self.measurements.append(
            Measurement(measured, value, unit, len(values), reference, published)
        )
        return value


def interleave(
    sides: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    device: str = "cpu",
    warm_up: int = 1,
    prepare: Callable[[str], None] = lambda side: None,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, list[float]]:
    """Return the seconds of each side by round; the order alternates, so that rounds are paired."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(1 - warm_up, rounds + 1):
        for side in list(sides) if number % 2 else list(sides)[::-1]:
            prepare(side)
            taken = timed(sides[side], device)
            if number > 0:
                seconds[side].append(taken)
        if number > 0:
            latest = ", ".join(
                f"{side} {1000 * taken[-1]:.4g} ms" for side, taken in seconds.items()
            )
            report(f"round {number} of {rounds}: {latest}")
    return seconds


def timed(call: Callable[[], object], device: str = "cpu") -> float:
    """Return the seconds of a call, the device's work included."""
    synchronize(device)
    started = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - started
