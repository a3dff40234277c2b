"""The trials of a `transfer`: one start x images x method x seed, computed and resumed as one."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from marginctl import NUMERICS
from marginctl.experiments.records import PROBE_OBJECTIVE
from marginctl.experiments.source_models import Origin
from marginctl.experiments.training_trial import Trial
from marginctl.objectives.parsing import parse
from marginctl.recipe import TransferRecipe


@dataclass(frozen=True, eq=False)
class TransferTrial(Trial):
    """One network on other images.

    `objective` is that of the new classifier; `start` says what the network was trained with.
    """

    @property
    def transfer(self) -> TransferRecipe:
        assert isinstance(self.recipe, TransferRecipe)
        return self.recipe

    @property
    def origin(self) -> Origin:
        assert isinstance(self.start, Origin)
        return self.start

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that the result depends on; of a probe neither optimiser nor augmentation are."""
        recipe = self.transfer
        if recipe.method == "fine-tune":
            return super().identity | {"method": recipe.method}
        return {
            "task": recipe.task,
            "method": recipe.method,
            "data": self.data,
            "model": recipe.model,
            "source_model": self.origin.weights,
            "moments": [list(channel) for channel in self.origin.moments],
            "objective": PROBE_OBJECTIVE,
            "probe": recipe.probe.model_dump(exclude_defaults=True),
            "seed": self.seed,
            "numerics": NUMERICS,
        }

    @property
    def row(self) -> str:
        """The data, the method, and whose network; the grid's other settings."""
        known = ("data.name", "method")
        others = {k: v for k, v in self.setting.items() if k not in known}
        said = "".join(f", {key.rpartition('.')[2]}={value}" for key, value in others.items())
        return f"{self.recipe.data.name}, {self.transfer.method} of {self.origin.row}{said}"

    def __str__(self) -> str:
        origin = self.origin
        seed = "" if origin.seed is None else f", seed {origin.seed}"
        return f"{self.row} / {origin.trained_with}{seed} (seed {self.seed})"


def expand(
    settings: list[tuple[Mapping[str, Any], TransferRecipe, Origin, str]],
) -> list[TransferTrial]:
    """The trials, in the order in which they run: each once, however many settings make it.

    Args:
        settings: what the grid sets, the recipe of one start, that start, the digest of the images.
    """
    made: dict[str, TransferTrial] = {}
    for setting, recipe, origin, data in settings:
        probes = recipe.method == "probe"
        for seed in recipe.seeds:
            for objective in [PROBE_OBJECTIVE] if probes else recipe.objectives:
                trial = TransferTrial(
                    *(setting, recipe, parse(objective), seed, data), start=origin
                )
                made.setdefault(trial.id, trial)
    return list(made.values())
