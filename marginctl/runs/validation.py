"""What the schemas of records have in common."""

import functools
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from marginctl.errors import RequestError
from marginctl.objectives.parsing import parse
from marginctl.recipe.fields import expected_text, shortened
from marginctl.utils.text import printable

READ = ConfigDict(extra="allow", strict=True)
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@functools.lru_cache(maxsize=4096)
def _known(written: str) -> str:
    """An objective of this version. Thousands of records name few of them: each is read once."""
    parse(written)
    return written


Objective = Annotated[str, AfterValidator(_known)]


class Timing(BaseModel):
    """What a result says of its time, with the digests of the files beside it."""

    model_config = READ
    seconds: Seconds
    sha256: dict[str, str | None] = {}


def misfit(model: type[BaseModel], document: Any) -> str | None:
    """Why a document is not one of a schema, in one line; None where it is one."""
    try:
        model.model_validate(document)
    except RequestError as error:
        return printable(error.lines[0])
    except ValidationError as error:
        return printable(reason_of(error))
    return None


def reason_of(error: ValidationError) -> str:
    """The first of pydantic's problems as `key = value: what was expected`."""
    problem = error.errors(include_url=False)[0]
    # a place in a union carries the branch's name, which is no key
    place = ".".join(str(k) for k in problem["loc"] if "[" not in str(k))
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"]).splitlines()[0]
    if problem["type"] == "missing":
        return f"'{place}' is missing"
    if problem["type"] == "extra_forbidden":
        return f"unknown key '{place}'"
    said = f"{place} = " if place else ""
    return f"{said}{shortened(problem['input'])}: {expected_text(problem)}"
