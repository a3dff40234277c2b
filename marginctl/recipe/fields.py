"""Field types and error texts that the schemas of all tasks share."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from marginctl.errors import RequestError
from marginctl.objectives.schedules import Schedule, parse_learning_rate

# In the context of a validation: the recipe of a run, whose data sets may be a user's own.
RECORDED = "recorded"
CUSTOM_ERROR = "custom_error"  # the type of errors whose message is complete
TYPE_NAMES = {  # pydantic's phrase -> ours
    "a valid dictionary": "a mapping of keys",
    "a valid list": "a list, such as [1, 2]",
    "a valid string": "text",
    "a valid integer": "an integer",
    "a valid number": "a number",
    "a valid boolean": "true or false",
}
T = TypeVar("T")


def _learning_rate(value: Any) -> float | Schedule:
    if isinstance(value, Schedule):
        return value
    try:
        return parse_learning_rate(value)
    except ValueError as error:
        raise PydanticCustomError(CUSTOM_ERROR, "{text}", {"text": str(error)}) from None


LearningRate = Annotated[
    float | Schedule,
    PlainValidator(_learning_rate),
    PlainSerializer(lambda r: str(r) if isinstance(r, Schedule) else r, return_type=float | str),
]
PositiveNumbers = list[Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]]
Distinct = AfterValidator(lambda values: list(dict.fromkeys(values)))  # no duplicates
Seeds = Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(min_length=1), Distinct]
Paper = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,40}$")]
PaperTable = Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,20}$")]


class Section(BaseModel):
    """A mapping of known keys, such as a section of a recipe."""

    # a docstring below a field is its description
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )


class About(Section):
    """What `recipes list` shows of a recipe; it changes no result."""

    data: str = ""
    cost: str = ""
    status: str = "never run"


def map_all(values: Iterable[Any], read: Callable[[Any], T]) -> list[T]:
    """Return `read` of every value, without duplicates, or raise ValueError with all problems."""
    distinct: dict[T, None] = {}
    problems: list[str] = []
    for value in values:
        try:
            distinct[read(value)] = None
        except RequestError as error:
            problems += error.lines
    if problems:
        raise ValueError("\n".join(problems))
    return list(distinct)


def expected_text(problem: Mapping[str, Any]) -> str:
    """Return what was expected instead of a value, from one of pydantic's errors."""
    if problem["type"] == CUSTOM_ERROR:
        return str(problem["msg"])
    expected = re.sub("^(Input should be|(List|String) should have) ", "", problem["msg"])
    expected = re.sub(" or instance of .*", "", expected.split(" after validation")[0])
    return f"expected {TYPE_NAMES.get(expected, expected)}"


def first_error_line(error: ValidationError) -> str:
    """Return the first line of the first of pydantic's errors."""
    problem = error.errors(include_url=False)[0]
    return str(problem.get("ctx", {}).get("error", problem["msg"])).splitlines()[0]


def shortened(value: Any) -> str:
    """Return the representation of a value for a message: at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
