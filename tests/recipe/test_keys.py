"""The keys of recipes, as `recipes keys` lists them."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from marginctl.experiments.tasks import TASKS, find_task
from marginctl.recipe.keys import RecipeKey, recipe_keys
from marginctl.recipe.load import find_recipe, read_document, shipped_recipes


class Round(BaseModel):
    repeats: int


class Section(BaseModel):
    rate: Annotated[float, Field(gt=0, le=1, description="of learning")] = 0.5
    kind: Literal["a", "b"] | None = None


class Schema(BaseModel):
    task: Literal["toy"]
    section: Section = Section()
    rounds: list[Round] = []
    widths: list[Annotated[int, Field(ge=1)]] = [10, 10]
    strict: bool = False


def test_types_ranges_defaults_and_sections():
    assert recipe_keys(Schema) == [
        RecipeKey("task", "toy", "", ""),
        RecipeKey("section.rate", "number, above 0, at most 1", "0.5", "of learning"),
        RecipeKey("section.kind", "a, b or none", "none", ""),
        RecipeKey("rounds[].repeats", "integer", "", ""),
        RecipeKey("widths", "list of integer, at least 1", "[10, 10]", ""),
        RecipeKey("strict", "true or false", "false", ""),
    ]


def test_objectives_and_schedules_are_texts():
    keys = {key.key: key for key in recipe_keys(find_task("train").load("schema"))}
    assert (keys["objectives"].takes, keys["objectives"].default) == ("list of text", "[soft]")
    assert keys["optim.lr"].takes == "number or text"
    assert keys["optim.lr"].default == "cosine(end=0,start=0.1)"
    assert keys["model"].default == "resnet18"


@pytest.mark.parametrize("task", TASKS)
def test_every_key_of_a_shipped_recipe_is_listed(task):
    listed = {key.key.replace("[]", "") for key in recipe_keys(find_task(task).load("schema"))}

    def leaves(content, prefix):
        for name, value in content.items():
            key = f"{prefix}{name}"
            if key in listed or not isinstance(value, dict):
                yield key
            else:
                yield from leaves(value, f"{key}.")

    used = set()
    for name in shipped_recipes():
        document = read_document(find_recipe(name))
        if document.task == task:
            used |= {*leaves(document.content, "")} - {"search.rounds"}
    assert used
    assert used <= listed
