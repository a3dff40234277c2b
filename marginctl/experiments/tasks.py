"""The tasks: for each one its recipe and the functions that run, read and show it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, TypeVar

from pydantic import BaseModel

from marginctl.errors import RequestError
from marginctl.recipe import (
    RecipeDocument,
    RecipeFile,
    find_recipe,
    read_document,
    shipped_recipes,
    validate,
)

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class Task:
    """A task by import paths, so that listing tasks imports nothing.

    Attributes:
        schema: the class of its recipes.
        result: the class of its results.
    """

    schema: str
    result: str

    def load_schema(self) -> Any:
        """Import the schema of the task's recipes."""
        return resolve_name(self.schema)

    def load_result(self) -> Any:
        """Import the class of the task's results."""
        return resolve_name(self.result)


TASKS: Mapping[str, Task] = {
    "uci-cv": Task(
        schema="marginctl.recipe.uci_cv:UciCvRecipe",
        result="marginctl.experiments.records:CVResult",
    ),
    "train": Task(
        schema="marginctl.recipe.train:TrainRecipe",
        result="marginctl.experiments.records:TrainingResult",
    ),
    "cosify": Task(
        schema="marginctl.recipe.cosify:CosifyRecipe",
        result="marginctl.experiments.records:TrainingResult",
    ),
    "transfer": Task(
        schema="marginctl.recipe.transfer:TransferRecipe",
        result="marginctl.experiments.records:TransferResult",
    ),
}


def load_task_recipe(
    recipe: RecipeFile,
    schema: type[R],
    overrides: Iterable[str] = (),
    options: Mapping[str, tuple[str, Any]] | None = None,
) -> R:
    """Read and validate a recipe of one task, as `marginctl.recipe.validate`.

    Raises:
        RequestError: the recipe is of another task, or not valid.
    """
    document = read_document(recipe)
    task = document.task
    if task in TASKS and TASKS[task].load_schema() is not schema:
        shipped = shipped_recipes().get(recipe.name) == recipe.path
        raise RequestError(
            f"{document.origins['task',]}: task = '{task}': run it with marginctl {task} "
            f"{recipe.name if shipped else recipe.path}"
        )
    return validate(schema, document, overrides, options)


def load_any_recipe(recipe: RecipeFile, overrides: Iterable[str] = ()) -> Any:
    """Read and validate a recipe of any task, as `marginctl.recipe.validate`."""
    document = read_document(recipe)
    return validate(_schema(document), document, overrides)


def _schema(document: RecipeDocument) -> type[BaseModel]:
    task = TASKS.get(document.task, TASKS["uci-cv"])
    schema: type[BaseModel] = task.load_schema()
    return schema


def recipe_summaries() -> list[dict[str, str | None]]:
    """Return what `recipes list` shows of each shipped recipe."""
    rows: list[dict[str, str | None]] = []
    for name, path in shipped_recipes().items():
        recipe = load_any_recipe(find_recipe(name))
        rows.append(
            {
                "name": name,
                "path": str(path),
                "paper": recipe.paper,
                "table": recipe.table,
                "task": recipe.task,
                **recipe.about.model_dump(),
            }
        )
    return rows
