"""What the schemas of all tasks share: strict models, and fields with words of their own."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from marginctl.errors import RequestError
from marginctl.objectives.parsing import composed, parse
from marginctl.objectives.schedules import rate

OWN_WORDS = "own_words"
KINDS = {  # pydantic's words and ours
    "a valid dictionary": "a mapping of keys",
    "a valid list": "a list, such as [1, 2]",
    "a valid string": "text",
    "a valid integer": "an integer",
    "a valid number": "a number",
    "a valid boolean": "true or false",
}
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)


def _rate(value: Any) -> float | str:
    """A learning rate as `rate` gives it; what is wrong, in its words."""
    try:
        return rate(value)
    except ValueError as error:
        raise PydanticCustomError(OWN_WORDS, "{text}", {"text": str(error)}) from None


def _own_rate(value: Any) -> float | str | None:
    return None if value is None else _rate(value)


Rate = Annotated[float | str, BeforeValidator(_rate)]
OwnRate = Annotated[float | str | None, BeforeValidator(_own_rate)]  # None: another one's
Seeds = Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(min_length=1)]
Paper = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,40}$")]
PaperTable = Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,20}$")]


class About(BaseModel):
    """What `recipes list` says of a recipe; nothing here changes a result."""

    model_config = STRICT

    data: str = ""
    cost: str = ""
    status: str = "never run"


def canonical_objective(written: Any) -> str:
    """The canonical name of an objective as a recipe has it: a name, or a mapping of parts.

    Raises:
        RequestError: it is no objective.
    """
    if isinstance(written, dict):
        return str(composed(written))
    if isinstance(written, str):
        return str(parse(written))
    raise RequestError(f"objective {shown(written)}: expected a name, or a mapping of parts")


def each(values: Iterable[Any], read: Any) -> list[str]:
    """Reads every value, gathers all problems, and drops what stands twice."""
    seen: dict[str, None] = {}
    problems: list[str] = []
    for value in values:
        try:
            seen[read(value)] = None
        except RequestError as error:
            problems += error.lines
    if problems:
        raise ValueError("\n".join(problems))
    return list(seen)


def expected_in(problem: Mapping[str, Any]) -> str:
    """What was expected in place of a value, from one of pydantic's errors."""
    if problem["type"] == OWN_WORDS:
        return str(problem["msg"])
    expected = re.sub("^(Input should be|(List|String) should have) ", "", problem["msg"])
    expected = re.sub(" or instance of .*", "", expected.split(" after validation")[0])
    return f"expected {KINDS.get(expected, expected)}"


def shown(value: Any) -> str:
    """A value as it was written, for a message: 60 characters at most."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
