"""Schedules: an option's value over the course of training. No torch here."""

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from marginctl.errors import RequestError
from marginctl.objectives.options import (
    Option,
    Value,
    accept_options,
    at_least,
    read_options,
    written_options,
)
from marginctl.utils.text import did_you_mean


@dataclass(frozen=True)
class Shape:
    """A kind of schedule. `value` takes the options, the step, and the share of training done."""

    formula: str
    options: Mapping[str, Option]
    value: Callable[[Mapping[str, float], int, float], float]


def _linear(o: Mapping[str, float], step: int, done: float) -> float:
    ramp = min(1.0, done / o["over"])
    return (1 - ramp) * o["start"] + ramp * o["end"]


def _cosine(o: Mapping[str, float], step: int, done: float) -> float:
    ramp = (1 - math.cos(math.pi * min(1.0, done / o["over"]))) / 2
    return (1 - ramp) * o["start"] + ramp * o["end"]


def _exponential(o: Mapping[str, float], step: int, done: float) -> float:
    ramp = min(1.0, done / o["over"])
    return float(o["start"] ** (1 - ramp) * o["end"] ** ramp)


def _polynomial(o: Mapping[str, float], step: int, done: float) -> float:
    return float(
        o["end"] + (o["start"] - o["end"]) * (1 - min(1.0, done / o["over"])) ** o["power"]
    )


def _one_cycle(o: Mapping[str, float], step: int, done: float) -> float:
    first, last = o["peak"] / o["divide"], o["peak"] / o["divide"] / o["final"]
    rise = o["rise"]
    if done < rise:
        return _cosine({"start": first, "end": o["peak"], "over": rise}, step, done)
    fall = (done - rise) / (1 - rise)
    return _cosine({"start": o["peak"], "end": last, "over": 1.0}, step, fall)


def _step(o: Mapping[str, float], step: int, done: float) -> float:
    # 0.3 of 10 steps is step 3, however 3/10 and 0.3 are rounded
    return float(o["start"] * o["factor"] ** math.floor(done / o["every"] + 1e-9))


def _annealed(o: Mapping[str, float], step: int, done: float) -> float:
    return max(o["minimum"], o["base"] * math.pow(1 + o["gamma"] * step, -o["power"]))


def _doubled(o: Mapping[str, float], step: int, done: float) -> float:
    grown = math.log(o["start"]) + step // o["every"] * math.log(o["factor"])
    return o["end"] if grown >= math.log(o["end"]) else math.exp(grown)


def _positive(default: float | None, help: str, maximum: float = math.inf) -> Option:
    return Option(default, help, minimum=0.0, maximum=maximum, above_minimum=True)


def _ramp(start: Option, end: Option, over: float = 1.0) -> dict[str, Option]:
    return {"start": start, "end": end, "over": _positive(over, "share of the training", 1.0)}


_START, _END = Option(None, "the value at first"), Option(None, "the value at last")
_POSITIVE_ENDS = (_positive(None, "the value at first"), _positive(None, "the value at last"))


def _annealing(base: float, gamma: float, power: float, minimum: float) -> dict[str, Option]:
    return {
        "base": at_least(0.0, base, "the value at first"),
        "gamma": at_least(0.0, gamma, "its fall with every step"),
        "power": at_least(0.0, power, "how fast that is"),
        "minimum": at_least(0.0, minimum, "the smallest value"),
    }


SHAPES: Mapping[str, Shape] = {
    "linear": Shape("from start to end in a straight line", _ramp(_START, _END), _linear),
    "cosine": Shape("from start to end on half a cosine", _ramp(_START, _END), _cosine),
    "exponential": Shape(
        "from start to end at a constant ratio", _ramp(*_POSITIVE_ENDS), _exponential
    ),
    "polynomial": Shape(
        "end + (start - end) (1 - share of the training / over)^power",
        {**_ramp(_START, _END), "power": _positive(2.0, "2 in the temperature paper")},
        _polynomial,
    ),
    "one-cycle": Shape(
        "up to peak and down again on half cosines: the rate of Smith's policy",
        {
            "peak": _positive(None, "the largest value"),
            "rise": Option(0.3, "share of the training", 0.0, 0.99, above_minimum=True),
            "divide": Option(25.0, "peak is so many times the first value", minimum=1.0),
            "final": Option(1e4, "the first value is so many times the last", minimum=1.0),
        },
        _one_cycle,
    ),
    "step": Shape(
        "start, times factor after every such share of the training",
        {
            "start": _START,
            "factor": _positive(None, "multiplies the value"),
            "every": _positive(None, "share of the training", 1.0),
        },
        _step,
    ),
    "l-softmax": Shape(
        "max(minimum, base (1 + gamma step)^-power): L-Softmax's annealing, for CIFAR",
        _annealing(1000.0, 1e-5, 45.0, 0.0),
        _annealed,
    ),
    "sphereface": Shape(
        "max(minimum, base (1 + gamma step)^-power): SphereFace's annealing",
        _annealing(1000.0, 0.12, 1.0, 5.0),
        _annealed,
    ),
    "l-gm": Shape(
        "start, times factor after every so many steps, at most end: L-GM's doubling",
        {
            "start": _positive(0.1, "the value at first"),
            "factor": Option(2.0, "multiplies the value", minimum=1.0),
            "every": Option(5000.0, "steps", minimum=1.0, whole=True),
            "end": _positive(0.3, "the largest value"),
        },
        _doubled,
    ),
    "warm-up": Shape(
        "from start to end in a straight line: gradient decay's; start and length are our choice",
        _ramp(_positive(0.01, "the value at first"), _positive(None, "the value at last"), 0.2),
        _linear,
    ),
}
KINDS = ("constant", *SHAPES)


@dataclass(frozen=True)
class Schedule:
    """A value that `set_progress` moves. `str` gives the form in which it is written."""

    kind: str
    options: tuple[tuple[str, float], ...]
    negative_log: bool = False  # the margin -ln beta, for a schedule of beta

    def value(self, step: int, total_steps: int) -> float:
        """The value at `step` of `total_steps`; beyond them, what it has at the end.

        Raises:
            ValueError: a negative number of steps.
        """
        if step < 0 or total_steps < 0:
            raise ValueError(
                f"set_progress({step}, {total_steps}): expected steps of at least 0, counted from 0"
            )
        done = min(1.0, step / total_steps) if total_steps else 0.0
        try:
            value = SHAPES[self.kind].value(dict(self.options), step, done)
        except OverflowError:
            return math.inf  # which no option takes
        return -math.log(value) if self.negative_log else value

    @property
    def extremes(self) -> tuple[float, ...]:
        """The first value, the peak and the last of an endless training; others lie between."""
        top = dict(self.options).get("rise", 0.0)  # where one-cycle has its peak
        whole = 10**12
        return self.value(0, 1), self.value(int(top * whole), whole), self.value(whole, whole)

    def of_negative_log(self) -> "Schedule":
        return replace(self, negative_log=True)

    def __str__(self) -> str:
        options = written_options(SHAPES[self.kind].options, dict(self.options))
        written = self.kind + (f"({options})" if options else "")
        return f"-ln {written}" if self.negative_log else written


@dataclass(frozen=True)
class Timed(Option):
    """A number that may change in training: takes a number or a schedule."""

    @property
    def expected(self) -> str:
        return super().expected + ", or a schedule"

    def accept(self, value: object) -> Value:
        written = isinstance(value, str | Mapping)
        found = _read(value) if written else value if isinstance(value, Schedule) else None
        if found is None:
            return super().accept(value)
        if isinstance(found, Schedule):
            for number in found.extremes:
                try:
                    self.check_range(number)
                except ValueError:
                    raise ValueError(
                        f"it has the value {number:g}: expected {super().expected}"
                    ) from None
            return found
        return super().accept(found)


def timed(minimum: float, default: float, help: str, maximum: float = math.inf) -> Timed:
    """A number from `minimum` to `maximum`, or a schedule."""
    return Timed(default, help, minimum=minimum, maximum=maximum)


def rate(value: object) -> float | str:
    """A learning rate: a number above 0, or a schedule in the form in which it is written.

    Raises:
        ValueError: neither, or a value below 0 or above 1,000,000.
    """
    try:
        accepted = _RATE.accept(value)
        if accepted == 0:
            raise ValueError
    except ValueError as error:
        raise ValueError(
            str(error) or "expected a number above 0 and at most 1e+06, or a schedule"
        ) from None
    return str(accepted) if isinstance(accepted, Schedule) else float(accepted)


def rate_at(written: float | str, step: int, total_steps: int) -> float:
    """The learning rate at `step` of `total_steps`, of a number or a schedule as written."""
    if not isinstance(written, str):
        return written
    schedule = _parsed(written)
    return schedule.value(step, total_steps)


@functools.cache
def _parsed(written: str) -> Schedule:
    found = _read(written)
    assert isinstance(found, Schedule)
    return found


_RATE = timed(0.0, 1e-3, "learning rate", 1e6)


def _read(value: object) -> Schedule | float | None:
    """The schedule in `kind(option=value,...)` or in a mapping with `kind`; None for neither."""
    match = None
    if isinstance(value, Mapping):
        given: dict[str, Any] = dict(value)
        if "kind" not in given:
            raise ValueError("a schedule's 'kind' is missing: " + ", ".join(KINDS))
        kind = str(given.pop("kind"))
    else:
        match = re.fullmatch(r"\s*([A-Za-z][\w-]*)\s*(?:\((.*)\))?\s*", str(value))
        if match is None:
            return None
        kind = match[1]
        try:
            given = dict(read_options(f"schedule {kind}", match[2] or None))
        except RequestError as error:
            raise ValueError(error.lines[0]) from None
    try:
        if kind == "constant":
            constant = accept_options("schedule constant", {"value": _START}, given)
            return float(constant["value"])
        if kind not in SHAPES and match is not None and match[2] is None:
            return None
        if kind not in SHAPES:
            known = ", ".join(KINDS)
            hint = did_you_mean(kind, KINDS)
            raise ValueError(f"unknown schedule '{kind}': expected one of {known}.{hint}")
        options = accept_options(f"schedule {kind}", SHAPES[kind].options, given)
        if kind == "l-gm" and options["start"] > options["end"]:
            raise ValueError("schedule l-gm: start is above end, the largest value")
    except RequestError as error:
        raise ValueError(error.lines[0]) from None
    return Schedule(kind, tuple(sorted(options.items())))
