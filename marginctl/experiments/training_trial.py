"""Trials on images: one setting x objective x seed, computed and resumed as one."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from marginctl import NUMERICS
from marginctl.data.images.image_sets import ImageDataset, OODDataset
from marginctl.data.images.pairs import VerificationPairs
from marginctl.experiments.find_run import ReferenceRun
from marginctl.experiments.records import TrainingResult
from marginctl.experiments.source_scale import ResolvedScale
from marginctl.objectives.parsing import ParsedObjective
from marginctl.objectives.parts import ObjectiveSpec, plugin_origins, scale_source, with_scale_value
from marginctl.objectives.tuning import max_rate, tuning_candidates, with_max_rate
from marginctl.recipe.image_recipe import ImageRecipe, sources_first
from marginctl.runs.run_dir import digest
from marginctl.transfer.source import SourceModel


@dataclass(frozen=True, eq=False)
class Trial:
    """One network to train."""

    setting: Mapping[str, Any]
    recipe: ImageRecipe  # of this setting, without a grid
    objective: ParsedObjective
    seed: int
    data: str  # the digest of its training and test images
    # the finished run that defines the difficulty of its images, if one is named
    reference: ReferenceRun | None = None
    # the number of a scale that comes from another run, once it is known
    scale: ResolvedScale | None = None
    ood: Sequence[OODDataset] = ()
    # the network that it begins with; None for new weights, and for a second stage until the first
    # one is finished
    source_model: SourceModel | None = None
    pairs: Sequence[VerificationPairs] = ()
    first_stage: "Trial | None" = None

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that the result depends on, without defaults: a new option changes no id."""
        recipe = self.recipe
        plugins = {*plugin_origins(self.objective.spec)}
        if recipe.model.plugin_origin is not None:
            plugins.add(recipe.model.plugin_origin)
        train = recipe.train.model_dump(exclude_defaults=True, exclude={"compile", "reference_run"})
        if self.reference is not None:
            train["reference_run"] = self.reference.weights  # wherever its folder is
        ood = [[dataset.group, dataset.digest] for dataset in self.ood]
        fraction, tuned = recipe.data.val_fraction, recipe.tune is not None
        return {
            "task": recipe.task,
            "data": self.data,
            "augment": recipe.data.augment,
            "model": str(recipe.model),
            "objective": str(self.objective),
            "optim": recipe.optim.model_dump(exclude_defaults=True),
            "train": train,
            "seed": self.seed,
            "numerics": NUMERICS,
            **({} if fraction is None else {"val_fraction": fraction}),
            # whatever tuning chooses
            **({"tune": [c.candidate_name for c in self.candidates]} if tuned else {}),
            **({"plugins": sorted(plugins)} if plugins else {}),
            **({"ood": ood} if ood else {}),
            **({"pairs": [pairs.digest for pairs in self.pairs]} if self.pairs else {}),
            **self._source_identity,
        }

    @property
    def is_baseline(self) -> bool:
        """Whether it is there for comparison, and no model to save."""
        return False

    def is_validated(self, images: ImageDataset) -> bool:
        """Whether a part of its training images, or a validation part, measures its network."""
        return images.has_validation or self.recipe.validation_fraction is not None

    @cached_property
    def candidates(self) -> "list[Trial]":
        """The trial with the objective and the learning rate of each candidate of tuning."""
        optim, rates, trials = self.recipe.optim, self.recipe.candidate_rates, []
        candidates = tuning_candidates(self.objective, rates, start=max_rate(optim.lr))
        for objective, rate, _ in candidates:
            changed = optim.model_copy(update={"lr": with_max_rate(optim.lr, rate)})
            recipe = self.recipe.model_copy(update={"optim": changed, "tune": None})
            trials.append(replace(self, objective=objective, recipe=recipe))
        return trials

    @property
    def candidate_name(self) -> str:
        """Objective and learning rate, such as `arcface:scale=10, lr=0.032`."""
        return f"{self.objective}, lr={max_rate(self.recipe.optim.lr):g}"

    @property
    def _source_identity(self) -> dict[str, Any]:
        """What the identity has of the network that the trial begins with, wherever that lies."""
        if self.first_stage is not None:
            return {"first_stage": self.first_stage.id}
        if self.source_model is None:
            return {}
        return {
            "source_model": self.source_model.weights,
            "moments": [list(channel) for channel in self.source_model.moments],
            "blocks": self.recipe.trainable_blocks,
        }

    @cached_property
    def id(self) -> str:
        """The name of the run directory: readable, and unique by its digest."""
        data = self.recipe.data.name.replace("\\", "/").rpartition("/")[2]  # a folder's own name
        text = f"{data} {self.recipe.model} {self.objective} {self.seed}"
        words = re.sub(r"[^A-Za-z0-9.]+", "-", text)
        return f"{words[:60].strip('-')}-{digest(self.identity)[:16]}"

    @property
    def spec(self) -> ObjectiveSpec:
        """The parts of its objective; a scale from another run stays open until it is known."""
        spec = self.objective.spec
        return spec if self.scale is None else with_scale_value(spec, self.scale.value)

    @property
    def scale_record(self) -> dict[str, Any]:
        """`scale_from`, if the scale comes from another run."""
        return {} if self.scale is None else {"scale_from": self.scale.record()}

    @property
    def source_record(self) -> dict[str, Any]:
        """`source_model`, if the trial begins with one."""
        return {} if self.source_model is None else {"source_model": self.source_model.record()}

    @property
    def result_fields(self) -> dict[str, Any]:
        """What result.json records of a trial itself."""
        return {
            "task": self.recipe.task,
            "trial": self.id,
            "row": self.row,
            "setting": dict(self.setting),
            "data": self.recipe.data.name,
            "model": str(self.recipe.model),
            "objective": str(self.objective),
            "seed": self.seed,
            **self.source_record,
        }

    @property
    def row(self) -> str:
        return self.recipe.row_name(self.setting)

    def __str__(self) -> str:
        return f"{self.row} / {self.objective} (seed {self.seed})"

    def depends_on(self, other: "Trial") -> bool:
        """Whether the trial takes its scale from the other one, or begins with its network."""
        source = scale_source(self.objective.spec)
        return other is self.first_stage or (
            source is not None and self._is_scale_source(other, source.source)
        )

    def _is_scale_source(self, other: "Trial", source: str) -> bool:
        same = (other.data, other.seed) == (self.data, self.seed)
        return same and other.setting == self.setting and str(other.objective) == source

    def resolve_scale(self, results: "Mapping[Trial, TrainingResult]") -> ResolvedScale | None:
        """Return the scale that a trial takes from another one, None if that has no kappa*."""
        source = scale_source(self.objective.spec)
        if source is None:
            return None
        for other, result in results.items():
            usable = result.diverged is None and self._is_scale_source(other, source.source)
            if usable and result.kappa is not None:
                return ResolvedScale(source, result.kappa)
        return None


def expand_trials(
    settings: Sequence[tuple[Mapping[str, Any], ImageRecipe]],
    digests: Mapping[str, str],
    references: Mapping[tuple[str, str | None], ReferenceRun],
    scales: Mapping[ParsedObjective, ResolvedScale],
    ood: Mapping[str, Sequence[OODDataset]],
    source_model: SourceModel | None = None,
    pairs: Sequence[VerificationPairs] = (),
) -> list[Trial]:
    """Return the trials of a recipe in the order in which they run.

    Every objective is trained with one seed before the next seed begins: an unfinished table can
    be compared, and a slow phase of the machine affects all objectives alike.

    Args:
        scales: by objective, of those whose scale comes from runs in a folder. Their name has the
            number: another number makes another trial.
    """
    trials: list[Trial] = []
    for setting, setting_recipe in settings:
        recipe = setting_recipe.in_stage()
        first_stage = trials[-len(recipe.seeds) * len(recipe.objectives) :]
        data = digests[recipe.data.model_dump_json()]
        columns = itertools.product(recipe.seeds, sources_first(recipe.objectives))
        for i, (seed, objective) in enumerate(columns):
            scale = scales.get(objective)
            trials.append(
                Trial(
                    setting,
                    recipe,
                    objective if scale is None else scale.apply(objective),
                    seed,
                    data,
                    references.get((data, recipe.train.reference_run)),
                    scale,
                    ood[data],
                    source_model,
                    pairs,
                    first_stage[i] if recipe.retrains_classifier else None,
                )
            )
    return trials
