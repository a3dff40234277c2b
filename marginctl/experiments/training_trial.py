"""Trials: one setting x objective x seed, computed and resumed as one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from marginctl import NUMERICS
from marginctl.data.images.image_sets import OODDataset
from marginctl.data.images.pairs import VerificationPairs
from marginctl.experiments.records import TrainingResult
from marginctl.experiments.reference_run import Reference
from marginctl.experiments.source_scale import ScaleFrom
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parsing import ParsedObjective, parse
from marginctl.objectives.parts import ObjectiveSpec, plugin_origins, scale_source, with_scale_value
from marginctl.recipe import ImageRecipe
from marginctl.recipe.image_recipe import sources_first
from marginctl.runs.run_dir import digest

if TYPE_CHECKING:
    from marginctl.experiments.source_model import Start


@dataclass(frozen=True, eq=False)
class Trial:
    """One network to train.

    Attributes:
        setting: what the grid sets, for a reader.
        recipe: of this setting alone, without a grid.
        data: digest of the images that it trains on and is tested on.
        reference: the trained network that says how hard its images are, where one was named.
        scale: the number of a fixed scale that is taken from a run, once it is known.
        foreign: images of other classes, which its network is to tell from its own.
        pairs: of images, which its network is to verify.
        start: the trained network from which it goes on; None for one that starts anew, and for a
            second stage whose first one is not done yet.
        first: of a second stage, the trial of the first.
    """

    setting: Mapping[str, Any]
    recipe: ImageRecipe
    objective: ParsedObjective
    seed: int
    data: str
    reference: Reference | None = None
    scale: ScaleFrom | None = None
    foreign: Sequence[OODDataset] = ()
    start: "Start | None" = None
    pairs: Sequence[VerificationPairs] = ()
    first: "Trial | None" = None

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that the result depends on; defaults are left out: a new option changes no id."""
        recipe = self.recipe
        plugins = {*plugin_origins(self.objective.spec)}
        if (origin := ModelSpec.parse(recipe.model).plugin_origin) is not None:
            plugins.add(origin)
        train = recipe.train.model_dump(exclude_defaults=True, exclude={"compile", "reference_run"})
        if self.reference is not None:
            train["reference_run"] = self.reference.weights  # wherever its folder is
        foreign = [[one.group, one.digest] for one in self.foreign]
        return {
            "task": recipe.task,
            "data": self.data,
            "augment": recipe.data.augment,
            "model": recipe.model,
            "objective": str(self.objective),
            "optim": recipe.optim.model_dump(exclude_defaults=True),
            "train": train,
            "seed": self.seed,
            "numerics": NUMERICS,
            **({"plugins": sorted(plugins)} if plugins else {}),
            **({"ood": foreign} if foreign else {}),
            **({"pairs": [one.digest for one in self.pairs]} if self.pairs else {}),
            **self._of_start,
        }

    @property
    def _of_start(self) -> dict[str, Any]:
        """What the identity has of a network that goes on from another, wherever that lies."""
        if self.first is not None:
            return {"first": self.first.id}
        if self.start is None:
            return {}
        moments = [list(channel) for channel in self.start.moments]
        return {
            "source_model": self.start.weights,
            "moments": moments,
            "blocks": self.recipe.trainable_blocks,
        }

    @cached_property
    def id(self) -> str:
        """The name of the trial's folder: readable, and unique by its digest."""
        data = self.recipe.data.name.replace("\\", "/").rpartition("/")[2]  # a folder's own name
        said = f"{data} {self.recipe.model} {self.objective} {self.seed}"
        words = re.sub(r"[^A-Za-z0-9.]+", "-", said)
        return f"{words[:60].strip('-')}-{digest(self.identity)[:16]}"

    @property
    def spec(self) -> ObjectiveSpec:
        """The parts of its objective; a scale from a run that is not known yet is left as it is."""
        spec = self.objective.spec
        return spec if self.scale is None else with_scale_value(spec, self.scale.value)

    @property
    def scale_record(self) -> dict[str, Any]:
        """`scale_from`, of a scale that is taken from a run."""
        return {} if self.scale is None else {"scale_from": self.scale.record()}

    @property
    def row(self) -> str:
        """The row of the table in which it stands."""
        return row_of(self.recipe, self.setting)

    def __str__(self) -> str:
        return f"{self.row} / {self.objective} (seed {self.seed})"


def row_of(recipe: ImageRecipe, setting: Mapping[str, Any]) -> str:
    """Data and model, and what the grid sets beside them."""
    others = {k: v for k, v in setting.items() if k not in ("data.name", "model")}
    said = "".join(f", {key.rpartition('.')[2]}={value}" for key, value in others.items())
    return f"{recipe.data.name}, {recipe.model}{said}"


def expand(
    settings: Sequence[tuple[Mapping[str, Any], ImageRecipe]],
    digests: Mapping[str, str],
    references: Mapping[tuple[str, str | None], Reference],
    scales: Mapping[str, ScaleFrom],
    foreign: Mapping[str, Sequence[OODDataset]],
    start: "Start | None" = None,
    pairs: Sequence[VerificationPairs] = (),
) -> list[Trial]:
    """The trials of a recipe, in the order in which they run.

    Every objective is trained with a seed before the next seed begins: what there is of an
    unfinished table compares, and what a machine does meanwhile slows all objectives alike.

    Args:
        settings: from `ImageRecipe.settings`; of two stages the first one stands before.
        digests: of the images of each setting's data, by its JSON.
        references: by that digest and by what `train.reference_run` says.
        scales: by objective, of those whose scale is from runs in a folder. They have the number
            in their name: another one makes another trial.
        foreign: by the digest of the data.
        start: from which all of them go on.
        pairs: that all of them verify.
    """
    trials: list[Trial] = []
    for setting, written in settings:
        recipe = written.in_stage()
        before = trials[-len(recipe.seeds) * len(recipe.objectives) :]  # of a first stage
        data = digests[recipe.data.model_dump_json()]
        reference = references.get((data, recipe.train.reference_run))
        own = [
            (seed, objective, scales.get(objective))
            for seed in recipe.seeds
            for objective in sources_first(recipe.objectives)
        ]
        trials += [
            Trial(
                *(setting, recipe, _named(objective, scale), seed, data, reference, scale),
                *(foreign[data], start, pairs),
                before[i] if recipe.retrains_classifier else None,
            )
            for i, (seed, objective, scale) in enumerate(own)
        ]
    return trials


def _named(objective: str, scale: ScaleFrom | None) -> ParsedObjective:
    name = parse(objective)
    return name if scale is None else scale.in_place(name)


def needs(trial: Trial, other: Trial) -> bool:
    """Whether a trial takes its scale from the other one, or goes on from its network."""
    found = scale_source(trial.objective.spec)
    return other is trial.first or (found is not None and _is_source(other, trial, found.source))


def _is_source(other: Trial, trial: Trial, source: str) -> bool:
    same = (other.data, other.seed) == (trial.data, trial.seed)
    return same and other.setting == trial.setting and str(other.objective) == source


def scale_of(trial: Trial, records: Mapping[Trial, TrainingResult]) -> ScaleFrom | None:
    """The scale of a trial that takes it from another one of its recipe.

    Args:
        records: of the trials that are done, the source with the same setting and seed among them.

    Returns:
        None where the source has no kappa*.
    """
    found = scale_source(trial.objective.spec)
    if found is None:
        return None
    for other, record in records.items():
        if (
            _is_source(other, trial, found.source)
            and record.diverged is None
            and record.kappa is not None
        ):
            return ScaleFrom(found, record.kappa)
    return None
