"""Options of parts, presets, schedules and models: types, ranges and text form. No torch here."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from marginctl.errors import RequestError
from marginctl.utils.text import did_you_mean

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

# A number, a boolean or a choice; or a `Schedule`, for an option that accepts one.
Value = Any

SYMBOLS = {"m": "margin", "s": "scale", "lambda": "strength"}  # of papers, for suggestions
LARGEST = 1e30  # beyond it, nothing is left of float32


@dataclass(frozen=True)
class Option:
    """One option: its default (None: it has to be given), its meaning, and what it accepts.

    Attributes:
        tune: the values that tuning tries; none for an option that is not tuned.
    """

    default: Value
    help: str
    minimum: float = -math.inf
    maximum: float = math.inf
    exclusive_minimum: bool = False
    integer: bool = False
    choices: tuple[str, ...] = ()
    tune: tuple[float, ...] = ()

    @property
    def expected(self) -> str:
        """The accepted values, for error messages and tables."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if isinstance(self.default, bool):
            return "true or false"
        low = f"{'above' if self.exclusive_minimum else 'at least'} {self.minimum:g}"
        bounds = [] if self.minimum == -math.inf else [low]
        bounds += [] if self.maximum == math.inf else [f"at most {self.maximum:g}"]
        number = "an integer" if self.integer else "a finite number"
        return " ".join([number, " and ".join(bounds)]).strip()

    def validate(self, value: object) -> Value:
        """Return `value` as the option's own type.

        Raises:
            ValueError: a wrong type, or a value outside the range. The message is empty where
                `expected` says it all.
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
            # rounded as in an objective's name, so that one name is one value; and -0 is 0
            number = float(f"{float(value):.12g}") + 0.0
        except (ValueError, OverflowError):
            raise ValueError from None
        self.check_range(number)
        return number

    def check_range(self, number: float) -> None:
        """Raise ValueError for a number outside the range."""
        below = number <= self.minimum if self.exclusive_minimum else number < self.minimum
        if below or number > self.maximum or not abs(number) <= LARGEST:
            raise ValueError
        if self.integer and number % 1:
            raise ValueError


@dataclass(frozen=True)
class TextOption(Option):
    """A text inside an objective's name: a comma is allowed in parentheses only."""

    @property
    def expected(self) -> str:
        return "a name or a path"

    def validate(self, value: object) -> Value:
        text = value.strip() if isinstance(value, str) else ""
        if not text:
            raise ValueError
        balanced = text.count("(") == text.count(")")
        if len(split_top_level(text, ",")) > 1 or not balanced or not text.isprintable():
            raise ValueError(
                f"expected {self.expected} without a comma or an unbalanced parenthesis"
            )
        return text


class TextForm:
    """A value with one canonical text, `str`; values with the same text are equal.

    A pydantic model reads one by `read`, and writes the text. A subclass is a dataclass with
    `eq=False` and defines `read` and `_text`.
    """

    @cached_property
    def _text(self) -> str:
        raise NotImplementedError

    @classmethod
    def read(cls, value: object) -> Self:
        """Return the value in a text or another form, or raise RequestError."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return self.read, (self._text,)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> "CoreSchema":
        from pydantic_core import core_schema

        def read(value: object) -> object:
            try:
                return cls.read(value)
            except RequestError as error:
                raise ValueError("\n".join(error.lines)) from None

        return core_schema.no_info_plain_validator_function(
            read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                str, return_schema=core_schema.str_schema()
            ),
        )


def validate_options(
    owner: str, options: Mapping[str, Option], given: Mapping[str, object]
) -> dict[str, Value]:
    """Return all options with their values, defaults included."""
    for key in given:
        if key not in options:
            known = ", ".join(options) or "none"
            raise RequestError(
                f"{owner}: unknown option '{key}': its options are {known}."
                + did_you_mean(SYMBOLS.get(key, key), options)
            )
    values = {}
    for key, option in options.items():
        value = given.get(key, option.default)
        if value is None:
            raise RequestError(f"{owner}: option '{key}' is missing: expected {option.expected}")
        try:
            values[key] = option.validate(value)
        except ValueError as error:
            problem = str(error) or f"expected {option.expected}"
            raise RequestError(f"{owner}: {key} = {value!r}: {problem}") from None
    return values


def format_value(value: Value) -> str:
    """Return a value as it appears in an objective's name."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def format_options(options: Mapping[str, Option], values: Mapping[str, Value]) -> str:
    """Return `option=value,option=value`: sorted, defaults dropped."""
    texts = {key: format_value(value) for key, value in sorted(values.items())}
    return ",".join(
        f"{key}={text}"
        for key, text in texts.items()
        if options[key].default is None or text != format_value(options[key].default)
    )


def split_top_level(text: str, separator: str) -> list[str]:
    """Split `text` at every `separator` outside parentheses."""
    pieces, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == separator and depth <= 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces


def parse_options(
    owner: str, text: str | None, expected: str = "option=value,option=value"
) -> dict[str, str]:
    """Parse `option=value,option=value`; None means no options."""
    if text is not None and text.count("(") != text.count(")"):
        raise RequestError(f"{owner}: '{text}': unbalanced parentheses")
    options: dict[str, str] = {}
    for item in [] if text is None else split_top_level(text, ","):
        key, equals, value = item.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise RequestError(f"{owner}: '{item}' is not option=value: expected {expected}")
        if key.strip() in options:
            raise RequestError(f"{owner}: option '{key.strip()}' is given twice")
        options[key.strip()] = value.strip()
    return options
