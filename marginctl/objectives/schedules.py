"""Schedules: the value of an option or a learning rate over the training. No torch here."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from marginctl.errors import RequestError
from marginctl.objectives.options import (
    Option,
    Value,
    format_options,
    format_value,
    parse_options,
    validate_options,
)
from marginctl.utils.text import did_you_mean


@dataclass(frozen=True)
class Shape:
    """A kind of schedule.

    Args:
        value: options, step and fraction of the training done -> value.
        ends_in_last_epoch: whether a value that changes by epochs is `end` in the last one, as in
            `np.logspace`; others follow torch's schedulers, whose last epoch comes before the end.
    """

    formula: str
    options: Mapping[str, Option]
    value: Callable[[Mapping[str, float], int, float], float]
    ends_in_last_epoch: bool = False


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
    first = o["max_lr"] / o["div_factor"]
    last = o["max_lr"] / o["div_factor"] / o["final_div_factor"]
    rise = o["pct_start"]
    if done < rise:
        return _cosine({"start": first, "end": o["max_lr"], "over": rise}, step, done)
    fall = (done - rise) / (1 - rise)
    return _cosine({"start": o["max_lr"], "end": last, "over": 1.0}, step, fall)


def _step(o: Mapping[str, float], step: int, done: float) -> float:
    # 0.3 of 10 steps is step 3, however 3/10 and 0.3 are rounded
    return float(o["start"] * o["factor"] ** math.floor(done / o["every"] + 1e-9))


def _multi_step(o: Mapping[str, float], step: int, done: float) -> float:
    passed = sum(done >= o[name] - 1e-9 for name in ("first", "second", "third"))
    return float(o["start"] * o["factor"] ** passed)


def _annealed(o: Mapping[str, float], step: int, done: float) -> float:
    # the authors' code counts iterations from 1
    return max(o["minimum"], o["base"] * math.pow(1 + o["gamma"] * (step + 1), -o["power"]))


def _doubled(o: Mapping[str, float], step: int, done: float) -> float:
    grown = math.log(o["start"]) + step // o["every"] * math.log(o["factor"])
    return o["end"] if grown >= math.log(o["end"]) else math.exp(grown)


def _positive(default: float | None, help: str, maximum: float = math.inf) -> Option:
    return Option(default, help, 0.0, maximum, exclusive_minimum=True)


_START, _END = Option(None, "the first value"), Option(None, "the last value")
_FRACTION = "fraction of the training"


def _ramp(start: Option, end: Option, over: float = 1.0) -> dict[str, Option]:
    return {"start": start, "end": end, "over": _positive(over, _FRACTION, 1.0)}


def _annealing(base: float, gamma: float, power: float, minimum: float) -> dict[str, Option]:
    return {
        "base": Option(base, "the value before the first step", 0.0),
        "gamma": Option(gamma, "the decay with every step", 0.0),
        "power": Option(power, "the speed of the decay", 0.0),
        "minimum": Option(minimum, "the smallest value", 0.0),
    }


SHAPES: Mapping[str, Shape] = {
    "constant": Shape(
        "the same value throughout", {"value": _START}, lambda o, step, done: o["value"]
    ),
    "linear": Shape("from start to end in a straight line", _ramp(_START, _END), _linear),
    "cosine": Shape("from start to end on half a cosine", _ramp(_START, _END), _cosine),
    "exponential": Shape(
        "from start to end at a constant ratio",
        _ramp(_positive(None, "the first value"), _positive(None, "the last value")),
        _exponential,
        ends_in_last_epoch=True,
    ),
    "polynomial": Shape(
        "end + (start - end) (1 - fraction of the training / over)^power",
        {**_ramp(_START, _END), "power": _positive(2.0, "2 in the temperature paper")},
        _polynomial,
    ),
    "one-cycle": Shape(
        "up to max_lr and down again on half cosines: Smith's learning-rate policy",
        {
            "max_lr": _positive(None, "the largest value"),
            "pct_start": Option(0.3, f"{_FRACTION} before max_lr", 0.0, 0.99, True),
            "div_factor": Option(25.0, "max_lr over the first value", 1.0),
            "final_div_factor": Option(1e4, "the first value over the last", 1.0),
        },
        _one_cycle,
    ),
    "step": Shape(
        "start, times factor after every such fraction of the training",
        {
            "start": _START,
            "factor": _positive(None, "multiplies the value"),
            "every": _positive(None, _FRACTION, 1.0),
        },
        _step,
    ),
    "multi-step": Shape(
        "start, times factor after each of three fractions of the training",
        {
            "start": _START,
            "factor": _positive(None, "multiplies the value"),
            **{
                name: Option(1.0, f"{_FRACTION} before the {name} change", 0.0, 1.0, True)
                for name in ("first", "second", "third")
            },
        },
        _multi_step,
    ),
    "l-softmax": Shape(
        "max(minimum, base (1 + gamma (step + 1))^-power): L-Softmax's annealing, for CIFAR",
        _annealing(1000.0, 1e-5, 45.0, 0.0),
        _annealed,
    ),
    "sphereface": Shape(
        "max(minimum, base (1 + gamma (step + 1))^-power): SphereFace's annealing",
        _annealing(1000.0, 0.12, 1.0, 5.0),
        _annealed,
    ),
    "l-gm": Shape(
        "start, times factor after every so many steps, at most end: L-GM's doubling",
        {
            "start": _positive(0.1, "the first value"),
            "factor": Option(2.0, "multiplies the value", 1.0),
            "every": Option(5000.0, "steps", 1.0, integer=True),
            "end": _positive(0.3, "the largest value"),
        },
        _doubled,
    ),
    "warm-up": Shape(
        "from start to end in a straight line: gradient decay's; start and length are our choice",
        _ramp(_positive(0.01, "the first value"), _positive(None, "the last value"), 0.2),
        _linear,
    ),
}


@dataclass(frozen=True)
class Schedule:
    """A value over the training; a number is the schedule `constant`.

    `str` gives the canonical text, which `parse` reads.
    """

    kind: str
    options: tuple[tuple[str, float], ...]
    negative_log: bool = False  # the margin -ln beta, for a schedule of beta

    @classmethod
    def parse(cls, value: object) -> "Schedule":
        """Return the schedule in a number, in `kind(option=value,...)`, or a mapping with `kind`.

        Raises:
            ValueError: another form, or a wrong option. The message is empty for another form.
        """
        if isinstance(value, Mapping):
            given: dict[str, Any] = dict(value)
            if "kind" not in given:
                raise ValueError("a schedule's 'kind' is missing: " + ", ".join(SHAPES))
            kind, listed = str(given.pop("kind")), True
        else:
            match = re.fullmatch(r"\s*([A-Za-z][\w-]*)\s*(?:\((.*)\))?\s*", str(value))
            if match is None or not isinstance(value, str):
                return cls("constant", (("value", _START.validate(value)),))
            kind, listed = match[1], match[2] is not None
            try:
                given = dict(parse_options(f"schedule {kind}", match[2] or None))
            except RequestError as error:
                raise ValueError(error.lines[0]) from None
        if kind not in SHAPES:
            if not listed:
                raise ValueError
            raise ValueError(
                f"unknown schedule '{kind}': expected one of {', '.join(SHAPES)}."
                + did_you_mean(kind, SHAPES)
            )
        try:
            options = validate_options(f"schedule {kind}", SHAPES[kind].options, given)
        except RequestError as error:
            raise ValueError(error.lines[0]) from None
        if kind == "l-gm" and options["start"] > options["end"]:
            raise ValueError("schedule l-gm: start is above end, the largest value")
        return cls(kind, tuple(sorted(options.items())))

    @property
    def constant(self) -> float | None:
        """The value of a constant schedule, None of any other."""
        return dict(self.options)["value"] if self.kind == "constant" else None

    def value(self, step: int, total_steps: int) -> float:
        """Return the value at `step` of `total_steps`; beyond them, the last value."""
        if step < 0 or total_steps < 0:
            raise ValueError(
                f"set_progress({step}, {total_steps}): expected steps of at least 0, counted from 0"
            )
        done = min(1.0, step / total_steps) if total_steps else 0.0
        try:
            value = SHAPES[self.kind].value(dict(self.options), step, done)
        except OverflowError:
            return math.inf  # which no option accepts
        return -math.log(value) if self.negative_log else value

    def check_range(self, option: Option, expected: str) -> None:
        """Check the first, the largest and the last value of an endless training.

        The other values lie between them.
        """
        top, steps = dict(self.options).get("pct_start", 0.0), 10**12
        for step, total in ((0, 1), (int(top * steps), steps), (steps, steps)):
            number = self.value(step, total)
            try:
                option.check_range(number)
            except ValueError:
                raise ValueError(f"it has the value {number:g}: expected {expected}") from None

    def __str__(self) -> str:
        if self.constant is not None:
            return format_value(self.constant)
        options = format_options(SHAPES[self.kind].options, dict(self.options))
        text = self.kind + (f"({options})" if options else "")
        return f"-ln {text}" if self.negative_log else text


@dataclass(frozen=True)
class ScheduleOption(Option):
    """A number that may change in training: accepts a number or a schedule."""

    @property
    def expected(self) -> str:
        return super().expected + ", or a schedule"

    def validate(self, value: object) -> Value:
        if isinstance(value, str | Mapping):
            value = Schedule.parse(value)
        if not isinstance(value, Schedule):
            return super().validate(value)
        if value.constant is not None:
            return super().validate(value.constant)
        value.check_range(self, super().expected)
        return value


_LEARNING_RATE = ScheduleOption(None, "learning rate", 0.0, 1e6)


def parse_learning_rate(value: object) -> float | Schedule:
    """Return the learning rate in a number, in `kind(option=value,...)`, or a mapping with `kind`.

    Raises:
        ValueError: neither, a number that is not above 0, or a schedule with a value below 0 or
            above 1,000,000. The message is complete.
    """
    try:
        rate: float | Schedule = _LEARNING_RATE.validate(value)
        if rate == 0:
            raise ValueError
    except ValueError as error:
        expected = "expected a number above 0 and at most 1e+06, or a schedule"
        raise ValueError(str(error) or expected) from None
    return rate


def rate_at(rate: float | Schedule, step: int, total_steps: int) -> float:
    """Return the learning rate at `step` of `total_steps`."""
    return rate.value(step, total_steps) if isinstance(rate, Schedule) else rate


def rate_in_epoch(rate: float | Schedule, epoch: int, epochs: int) -> float:
    """Return the learning rate throughout an epoch, counted from 0."""
    ends = isinstance(rate, Schedule) and SHAPES[rate.kind].ends_in_last_epoch
    return rate_at(rate, epoch, max(1, epochs - 1) if ends else epochs)
