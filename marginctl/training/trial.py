"""Trials: one setting x objective x seed, computed and resumed as one."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from marginctl import NUMERICS
from marginctl.objectives.extension import origins
from marginctl.objectives.names import ObjectiveName, parse
from marginctl.recipe import TrainRecipe
from marginctl.runs.store import digest
from marginctl.training.reference import Reference


@dataclass(frozen=True, eq=False)
class Trial:
    """One network to train.

    Attributes:
        setting: what the grid sets, for a reader.
        recipe: of this setting alone, without a grid.
        data: digest of the images that it trains on and is tested on.
        reference: the trained network that says how hard its images are, where one was named.
    """

    setting: Mapping[str, Any]
    recipe: TrainRecipe
    objective: ObjectiveName
    seed: int
    data: str
    reference: Reference | None = None

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that the result depends on; defaults are left out: a new option changes no id."""
        recipe = self.recipe
        others = origins(self.objective.spec)
        train = recipe.train.model_dump(exclude_defaults=True, exclude={"compile", "reference"})
        if self.reference is not None:
            train["reference"] = self.reference.weights  # wherever its folder is
        return {
            "task": "train",
            "data": self.data,
            "augment": recipe.data.augment,
            "model": recipe.model,
            "objective": str(self.objective),
            "optim": recipe.optim.model_dump(exclude_defaults=True),
            "train": train,
            "seed": self.seed,
            "numerics": NUMERICS,
            **({"extensions": others} if others else {}),
        }

    @cached_property
    def id(self) -> str:
        """The name of the trial's folder: readable, and unique by its digest."""
        data = self.recipe.data.name.replace("\\", "/").rpartition("/")[2]  # a folder's own name
        said = f"{data} {self.recipe.model} {self.objective} {self.seed}"
        words = re.sub(r"[^A-Za-z0-9.]+", "-", said)
        return f"{words[:60].strip('-')}-{digest(self.identity)[:16]}"

    @property
    def row(self) -> str:
        """The row of the table in which it stands."""
        return row_of(self.recipe, self.setting)

    def __str__(self) -> str:
        return f"{self.row} / {self.objective} (seed {self.seed})"


def row_of(recipe: TrainRecipe, setting: Mapping[str, Any]) -> str:
    """Data and model, and what the grid sets beside them."""
    others = {k: v for k, v in setting.items() if k not in ("data.name", "model")}
    said = "".join(f", {key.partition('.')[2]}={value}" for key, value in others.items())
    return f"{recipe.data.name}, {recipe.model}{said}"


def expand(
    settings: list[tuple[dict[str, Any], TrainRecipe]],
    digests: Mapping[str, str],
    references: Mapping[tuple[str, str | None], Reference],
) -> list[Trial]:
    """The trials of a recipe, in the order in which they run.

    Every objective is trained with a seed before the next seed begins: what there is of an
    unfinished table compares, and what a machine does meanwhile slows all objectives alike.

    Args:
        settings: from `TrainRecipe.settings`.
        digests: of the images of each setting's data, by its JSON.
        references: by that digest and by what `train.reference` says.
    """
    return [
        Trial(setting, recipe, parse(objective), seed, data, reference)
        for setting, recipe in settings
        for data in [digests[recipe.data.model_dump_json()]]
        for reference in [references.get((data, recipe.train.reference))]
        for seed in recipe.seeds
        for objective in recipe.objectives
    ]
