"""The records of a trial: a line an epoch, a result at the end, and the schema of both."""

import functools
import json
import os
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from marginctl.errors import RequestError, StorageError
from marginctl.experiments.tasks import TASKS
from marginctl.objectives.parsing import check_plugins, parse
from marginctl.objectives.parts import scale_source
from marginctl.recipe import ImageRecipe, TrainRecipe
from marginctl.runs.atomic_io import write_error, write_json_lines
from marginctl.runs.validation import READ, Objective, Percent, Timing, misfit, reason_of

Task = Literal["train", "cosify", "transfer"]


class _Epoch(BaseModel):
    model_config = READ
    epoch: Annotated[int, Field(ge=1)]
    top1: Percent


class _ScaleFrom(BaseModel):
    model_config = READ
    from_run: str
    times: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    kappa: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Start(BaseModel):
    model_config = READ
    written: Annotated[str, Field(alias="from")]
    weights_sha256: str


class _Before(BaseModel):
    model_config = READ
    top1: Percent | None
    interval: Annotated[list[Percent], Field(min_length=2, max_length=2)] | None
    n: Annotated[int, Field(ge=1)] | None
    kappa: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    detection: dict[str, Any] | None
    reason: str | None

    @model_validator(mode="after")
    def _whole(self) -> "_Before":
        if self.reason is None and None in (self.top1, self.interval, self.n):
            raise ValueError("'before' has no accuracy, and no reason why")
        return self


class _Result(BaseModel):
    model_config = READ
    task: Task
    trial: str
    row: str
    setting: dict[str, Any]
    objective: Objective
    seed: int
    epochs: int
    last: _Epoch | None
    best: _Epoch | None
    diverged: str | None
    collapsed: bool
    scale_from: _ScaleFrom | None = None
    versions: dict[str, str]
    timing: Timing

    @model_validator(mode="after")
    def _consistent(self) -> "_Result":
        if (self.last is None or self.best is None) and self.diverged is None:
            raise ValueError("no epoch was evaluated")
        _check_scale(self)
        return self


class _Cosified(BaseModel):
    """What a result of `cosify` has beside that of a training."""

    model_config = READ
    data: str
    model: str
    start: _Start
    before: _Before


class _Recipe(BaseModel):
    model_config = READ
    name: str
    paper: str | None
    table: str | None
    objectives: list[str]
    data: dict[str, Any]
    optim: dict[str, Any]
    train: dict[str, Any]


class _Started(BaseModel):
    model_config = READ
    started: str


class _Run(BaseModel):
    model_config = READ
    task: Task
    trial: str
    data: str
    objective: Objective
    seed: int
    recipe: dict[str, Any]
    scale_from: _ScaleFrom | None = None
    git_commit: str | None
    timing: _Started

    @model_validator(mode="after")
    def _read_again(self) -> "_Run":
        _read(json.dumps(self.recipe))
        _check_scale(self)
        return self


def _check_scale(of: _Result | _Run) -> None:
    """Raises ValueError where an objective has its scale from a run, and no number of it."""
    if of.scale_from is None and scale_source(parse(of.objective).spec) is not None:
        raise ValueError("'scale_from' is missing")


@functools.lru_cache(maxsize=1024)
def _read(written: str) -> None:
    """Reads a recipe again. Runs of one call have the same: it is read once."""
    recipe = json.loads(written)
    try:
        _Recipe.model_validate(recipe)
        del recipe["name"]
        _schema_of(recipe).model_validate(recipe)
    except ValidationError as error:
        raise RequestError(f"its recipe is none of this version: {reason_of(error)}") from None


def _schema_of(recipe: Mapping[str, Any]) -> type[ImageRecipe]:
    task = TASKS.get(str(recipe.get("task")), TASKS["train"])
    schema: type[ImageRecipe] = task.load_schema()
    return schema if issubclass(schema, ImageRecipe) else TrainRecipe


def recipe_of(run: Mapping[str, Any]) -> ImageRecipe:
    """The recipe of a trial, from a run.json that `is_run` takes, to evaluate its network.

    Without `train.compile`: a single pass is not worth it, and it changes no result. Of a second
    stage with the sections that it was trained with.
    """
    own = {k: v for k, v in run["recipe"].items() if k != "name"}
    recipe = _schema_of(own).model_validate(own).in_stage()
    train = recipe.train.model_copy(update={"compile": False})
    return recipe.model_copy(update={"train": train})


def why_no_result(record: Any) -> str | None:
    """What a record lacks that a result must have, or where it contradicts itself; else None.

    Raises:
        RequestError: a plug-in cannot be loaded, so that no record can be judged.
    """
    check_plugins()
    found = misfit(_Result, record)
    return misfit(_Cosified, record) if found is None and record["task"] == "cosify" else found


def why_no_run(document: Any) -> str | None:
    """What makes a run.json none of `train`; else None."""
    return misfit(_Run, document)


def is_result(record: Any) -> bool:
    """Whether a record has all that a result must have, as `why_no_result`."""
    return why_no_result(record) is None


def is_run(document: Any) -> bool:
    """Whether a run.json is one of `train`."""
    return why_no_run(document) is None


class Metrics:
    """metrics.jsonl: append-only, a line an epoch.

    Args:
        path: the file.
        lines: of the epochs that are done, from the checkpoint; the file is made to hold these.
    """

    def __init__(self, path: Path, lines: list[dict[str, Any]]) -> None:
        self._path, self.lines = path, list(lines)
        write_json_lines(path, self.lines)

    def append(self, line: Mapping[str, Any]) -> None:
        """Adds the record of an epoch; it is on the disk when this returns.

        Raises:
            StorageError: it cannot be written.
        """
        self.lines.append(dict(line))
        written = json.dumps(line, allow_nan=False) + "\n"
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(written)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(write_error(self._path, len(written), error)) from None


def result_of(
    trial: Any,
    lines: list[dict[str, Any]],
    evaluation: dict[str, Any] | None,
    digest: str | None,
    diverged: str | None,
) -> dict[str, Any]:
    """The result of a trial: its last and its best epoch side by side.

    Args:
        trial: the trial.
        lines: of its metrics.
        evaluation: calibration and angles at the end.
        digest: of the weights at the end.
        diverged: where the loss was not finite, if it was.
    """
    tested = [
        {"epoch": line["epoch"], **line["test"]} for line in lines if line.get("test") is not None
    ]
    return {
        "task": trial.recipe.task,
        "trial": trial.id,
        "row": trial.row,
        "setting": dict(trial.setting),
        "data": trial.recipe.data.name,
        "model": trial.recipe.model,
        "objective": str(trial.objective),
        "seed": trial.seed,
        "epochs": len(lines),
        "last": tested[-1] if tested else None,
        # the first of a tie
        "best": max(tested, key=lambda t: t["top1"]) if tested else None,
        "selection": "last: after the last epoch; best: the epoch with the highest test top-1, "
        "which has seen the test images",
        "evaluation": evaluation,
        "state": lines[-1].get("objective") if lines else None,
        **trial.scale_record,
        **({} if trial.start is None else {"start": trial.start.record()}),
        "diverged": diverged,
        "collapsed": bool(tested and tested[-1]["collapsed"]),
        "weights_sha256": digest,
        "timing": {
            "seconds": sum(line["timing"]["seconds"] for line in lines),
            # without evaluation; the median: a pause of the machine is no cost of a method
            "epoch_seconds": statistics.median(line["timing"]["train_seconds"] for line in lines)
            if lines
            else None,
        },
    }
