"""The schema of a trial's result.json and run.json: what a reader may rely on."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from marginctl.objectives.parsing import check_plugins
from marginctl.runs.validation import READ, Objective, Percent, Timing, misfit


class _Result(BaseModel):
    model_config = READ
    trial: str
    dataset: str
    objective: Objective
    seed: int
    classes: Annotated[int, Field(ge=2)]
    rows: Annotated[int, Field(ge=2)]
    split: Literal["folds", "fixed"]
    accuracies: list[list[Percent]]
    tested: list[list[Annotated[int, Field(ge=1)]]]
    diverged: list[int]
    collapsed: list[int]
    versions: dict[str, str]
    timing: Timing

    @model_validator(mode="after")
    def _consistent(self) -> "_Result":
        shape = [len(repeat) for repeat in self.accuracies]
        if shape != [len(repeat) for repeat in self.tested] or sum(shape) < 2:
            raise ValueError("accuracies and tested differ in shape")
        if any(n >= self.rows for repeat in self.tested for n in repeat):
            raise ValueError("more rows are tested than there are")
        return self


class _Recipe(BaseModel):
    model_config = READ
    name: str
    paper: str | None
    table: str | None
    protocol: dict[str, Any]
    datasets: Literal["all"] | list[str]
    objectives: list[str]

    @model_validator(mode="after")
    def _with_folds(self) -> "_Recipe":
        if not all(isinstance(self.protocol.get(key), int) for key in ("folds", "repeats")):
            raise ValueError("protocol without folds and repeats")
        return self


class _Started(BaseModel):
    model_config = READ
    started: str


class _Run(BaseModel):
    model_config = READ
    trial: str
    recipe: _Recipe
    data: str
    numerics: int
    git_commit: str | None
    timing: _Started


def why_no_result(record: Any) -> str | None:
    """What a record lacks that a result must have, or where it contradicts itself; else None.

    Raises:
        RequestError: a plug-in cannot be loaded, so that no record can be judged.
    """
    check_plugins()
    return misfit(_Result, record)


def why_no_run(document: Any) -> str | None:
    """What makes a run.json none of a cross-validation; else None."""
    return misfit(_Run, document)


def is_result(record: Any) -> bool:
    """Whether a record has all that a result must have, as `why_no_result`."""
    return why_no_result(record) is None
