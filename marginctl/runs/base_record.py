"""The typed records of run.json and result.json: what all tasks share."""

import functools
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from marginctl.errors import RequestError
from marginctl.objectives.parsing import ParsedObjective, check_plugins, parse
from marginctl.recipe.fields import expected_text, shortened
from marginctl.recipe.uci_cv import BASELINES
from marginctl.runs.safe_read import CorruptFileError
from marginctl.utils.text import printable

Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


# Thousands of records name few objectives, and each is parsed once.
parse_objective = functools.lru_cache(maxsize=4096)(parse)


def _known_objective(text: str) -> str:
    if text not in BASELINES:
        parse_objective(text)
    return text


Objective = Annotated[str, AfterValidator(_known_objective)]


class Record(BaseModel):
    """A JSON object of a run. Unknown keys are kept."""

    model_config = ConfigDict(extra="allow", strict=True)

    def document(self) -> dict[str, Any]:
        """Return the record as JSON, with the keys that were set."""
        return self.model_dump(exclude_unset=True)


class StartTime(Record):
    """The `timing` of a run.json."""

    started: str


class RunInfo(Record):
    """A run.json: what a trial is and what it is computed with."""

    task: str = "uci-cv"
    trial: str
    data: str
    objective: Objective
    seed: int
    numerics: int  # the version of the numerical code, which is raised when a number changes
    recipe: dict[str, Any]
    plugins: list[str] = []  # the plug-ins that its objective needs, with their versions
    git_commit: str | None
    timing: StartTime


class Timing(Record):
    """The `timing` of a result.json, with the digests of the other files of the run."""

    seconds: Seconds
    sha256: dict[str, str | None] = {}


class Result(Record):
    """A result.json: what a trial measured."""

    trial: str
    objective: Objective
    seed: int
    # of the packages that the numbers may depend on; set when it is written
    versions: dict[str, str] = Field(default_factory=dict)
    timing: Timing

    @property
    def parsed_objective(self) -> ParsedObjective:
        return parse_objective(self.objective)


R = TypeVar("R", bound=Record)


def validated(model: type[R], document: Any) -> R:
    """Return a document as a record.

    Raises:
        CorruptFileError: it does not fit; the message is the first problem.
        RequestError: a plug-in cannot be loaded, so that no objective can be checked.
    """
    check_plugins()
    try:
        return model.model_validate(document)
    except RequestError as error:
        raise CorruptFileError(printable(error.lines[0])) from None
    except ValidationError as error:
        raise CorruptFileError(printable(first_problem(error))) from None


def first_problem(error: ValidationError) -> str:
    """Return the first of pydantic's problems as `key = value: what was expected`."""
    problem = error.errors(include_url=False)[0]
    # the path into a union has the name of the branch, which is not a key
    path = ".".join(str(k) for k in problem["loc"] if "[" not in str(k))
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"]).splitlines()[0]
    if problem["type"] == "missing":
        return f"'{path}' is missing"
    if problem["type"] == "extra_forbidden":
        return f"unknown key '{path}'"
    name = f"{path} = " if path else ""
    return f"{name}{shortened(problem['input'])}: {expected_text(problem)}"
