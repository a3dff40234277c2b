"""The tasks: for each one its recipe and the functions that run, read and show it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

from pydantic import BaseModel

from marginctl.errors import RequestError
from marginctl.recipe.load import Options, RecipeFile, read_document, shipped_recipes, validate

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class Task:
    """A task by import paths, so that listing tasks imports nothing."""

    schema: str
    result: str
    # returns the session of a `Request`; None for uci-cv, whose command has its own
    prepare: str | None = None
    estimate: str | None = None  # returns the document of --dry-run for a session
    report: str | None = None  # returns what the command prints of results

    def load(self, attribute: str) -> Any:
        return resolve_name(getattr(self, attribute))


_EXPERIMENTS = "marginctl.experiments"
TASKS: Mapping[str, Task] = {
    "uci-cv": Task(
        schema="marginctl.recipe.uci_cv:UciCvRecipe", result=f"{_EXPERIMENTS}.records:CVResult"
    ),
    "train": Task(
        schema="marginctl.recipe.train:TrainRecipe",
        result=f"{_EXPERIMENTS}.records:TrainingResult",
        prepare=f"{_EXPERIMENTS}.training_session:prepare_train",
        estimate=f"{_EXPERIMENTS}.estimate:estimate_training",
        report="marginctl.reports.tables.training_table:training_report",
    ),
    "cosify": Task(
        schema="marginctl.recipe.cosify:CosifyRecipe",
        result=f"{_EXPERIMENTS}.records:FineTunedResult",
        prepare=f"{_EXPERIMENTS}.cosify_session:prepare_cosify",
        estimate=f"{_EXPERIMENTS}.estimate:estimate_training",
        report="marginctl.reports.tables.training_table:training_report",
    ),
    "transfer": Task(
        schema="marginctl.recipe.transfer:TransferRecipe",
        result=f"{_EXPERIMENTS}.records:TransferResult",
        prepare=f"{_EXPERIMENTS}.transfer_session:prepare_transfer",
        estimate=f"{_EXPERIMENTS}.estimate:estimate_transfer",
        report="marginctl.reports.tables.transfer_table:transfer_report",
    ),
}


def find_task(name: str) -> Task:
    if name not in TASKS:
        raise RequestError(f"unknown task '{name}': expected one of {', '.join(TASKS)}")
    return TASKS[name]


def load_task_recipe(
    recipe: RecipeFile, schema: type[R], overrides: Iterable[str], options: Options
) -> R:
    """Read and validate a recipe of one task, as `recipe.load.validate`."""
    document = read_document(recipe)
    task = document.task
    if task in TASKS and TASKS[task].load("schema") is not schema:
        shipped = shipped_recipes().get(recipe.name) == recipe.path
        raise RequestError(
            f"{document.origins['task',]}: task = '{task}': run it with marginctl {task} "
            f"{recipe.name if shipped else recipe.path}"
        )
    return validate(schema, document, overrides, options)


def load_any_recipe(recipe: RecipeFile, overrides: Iterable[str] = ()) -> Any:
    """Read and validate a recipe of any task, as `recipe.load.validate`."""
    document = read_document(recipe)
    task = TASKS.get(document.task, TASKS["uci-cv"])
    return validate(task.load("schema"), document, overrides)


def recipe_summaries(
    runs: Path, *, paper: str | None = None, task: str | None = None, cpu: bool = False
) -> list[dict[str, Any]]:
    """Return what `recipes list` shows of each shipped recipe.

    Args:
        runs: the runs folder in which finished trials are counted.
        paper, task: of the recipes to show; None for all.
        cpu: whether to show only those that a CPU can run.
    """
    rows = []
    for name, path in shipped_recipes().items():
        recipe = load_any_recipe(RecipeFile(name, path))
        about = recipe.about.model_dump()
        is_named = paper in (None, recipe.paper) and task in (None, recipe.task)
        if is_named and ("CPU" in about["cost"] or not cpu):
            finished = sum(1 for _ in (runs / name).glob("*/result.json"))
            place = {"paper": recipe.paper, "table": recipe.table, "task": recipe.task}
            rows.append({"name": name, "path": str(path), **place, **about, "your_runs": finished})
    return rows
