"""Options: what a part, a preset or a schedule can be given, checked. No torch here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marginctl.errors import RequestError
from marginctl.utils.text import did_you_mean

# A number, a truth, a choice; or a `Schedule`, for an option that takes one.
Value = Any


LARGEST = 1e30  # beyond it, nothing is left of float32


@dataclass(frozen=True)
class Option:
    """One option: its default (None: it has to be given) and what it accepts."""

    default: Value
    help: str
    minimum: float = -math.inf
    maximum: float = math.inf
    above_minimum: bool = False
    whole: bool = False
    choices: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if isinstance(self.default, bool):
            return "true or false"
        low = f"{'above' if self.above_minimum else 'at least'} {self.minimum:g}"
        bounds = [] if self.minimum == -math.inf else [low]
        bounds += [] if self.maximum == math.inf else [f"at most {self.maximum:g}"]
        number = "a whole number" if self.whole else "a finite number"
        return " ".join([number, " and ".join(bounds)]).strip()

    def accept(self, value: object) -> Value:
        """`value` with the option's own type.

        Raises:
            ValueError: it has the wrong type or lies outside the range. A message, where there is
                one, says more than `expected`.
        """
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            value = value.item()  # a number of numpy or torch
        if self.choices:
            if value in self.choices:
                return str(value)
            raise ValueError
        if isinstance(self.default, bool):
            if isinstance(value, bool | str) and str(value).lower() in ("true", "false"):
                return str(value).lower() == "true"
            raise ValueError
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        try:
            # as it is written in a name, so that one name is one value; and -0 is 0
            number = float(f"{float(value):.12g}") + 0.0
        except (ValueError, OverflowError):
            raise ValueError from None
        self.check_range(number)
        return number

    def check_range(self, number: float) -> None:
        """Raises ValueError for a number outside the range."""
        outside = number <= self.minimum if self.above_minimum else number < self.minimum
        if outside or number > self.maximum or not abs(number) <= LARGEST:
            raise ValueError
        if self.whole and number % 1:
            raise ValueError


@dataclass(frozen=True)
class Text(Option):
    """A text, as it stands in an objective's name: a comma in it has to stand in parentheses."""

    @property
    def expected(self) -> str:
        return "a name or a path"

    def accept(self, value: object) -> Value:
        written = str(value).strip() if isinstance(value, str) else ""
        if not written:
            raise ValueError
        apart = split_outside(written, ",")
        if len(apart) > 1 or written.count("(") != written.count(")") or not written.isprintable():
            raise ValueError(f"expected {self.expected} without a comma or a lone parenthesis")
        return written


def at_least(minimum: float, default: float | None, help: str, maximum: float = math.inf) -> Option:
    """A number from `minimum` to `maximum`."""
    return Option(default, help, minimum=minimum, maximum=maximum)


def accept_options(
    of: str, options: Mapping[str, Option], given: Mapping[str, object]
) -> dict[str, Value]:
    """All options with their values, defaults where none was given.

    Raises:
        RequestError: an unknown or missing option, or a value outside its range; `of` says of what.
    """
    for key in given:
        if key not in options:
            known = ", ".join(options) or "none"
            raise RequestError(
                f"{of}: unknown option '{key}': its options are {known}."
                + did_you_mean(key, options)
            )
    accepted = {}
    for key, option in options.items():
        value = given.get(key, option.default)
        if value is None:
            raise RequestError(f"{of}: option '{key}' is missing: expected {option.expected}")
        try:
            accepted[key] = option.accept(value)
        except ValueError as error:
            more = str(error) or f"expected {option.expected}"
            raise RequestError(f"{of}: {key} = {value!r}: {more}") from None
    return accepted


def plain(value: Value) -> str:
    """A value as it is written in an objective's name."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def written_options(options: Mapping[str, Option], values: Mapping[str, Value]) -> str:
    """`option=value,option=value`: sorted, defaults dropped."""
    shown = {key: plain(value) for key, value in sorted(values.items())}
    return ",".join(
        f"{key}={text}"
        for key, text in shown.items()
        if options[key].default is None or text != plain(options[key].default)
    )


def split_outside(text: str, separator: str) -> list[str]:
    """`text` cut at every `separator` that stands outside all parentheses."""
    pieces, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == separator and depth <= 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces


def read_options(
    of: str, listed: str | None, expected: str = "option=value,option=value"
) -> dict[str, str]:
    """Reads `option=value,option=value`; None is no options at all.

    Raises:
        RequestError: another form, or an option given twice; `of` says of what.
    """
    if listed is not None and listed.count("(") != listed.count(")"):
        raise RequestError(f"{of}: '{listed}': a parenthesis is missing or too many")
    options: dict[str, str] = {}
    for item in [] if listed is None else split_outside(listed, ","):
        key, equals, value = item.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise RequestError(f"{of}: '{item}' is not option=value: expected {expected}")
        if key.strip() in options:
            raise RequestError(f"{of}: option '{key.strip()}' is given twice")
        options[key.strip()] = value.strip()
    return options
