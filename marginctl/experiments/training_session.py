"""One call of `train` or `cosify`: its recipe, its images, its trials, and where they are kept."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from marginctl import recipe as recipes
from marginctl.data.images.base import ImageDataset
from marginctl.data.images.image_sets import load_ood_datasets
from marginctl.data.images.pairs import load_pairs
from marginctl.data.paths import default_data_dir
from marginctl.errors import RequestError
from marginctl.experiments import reference_run
from marginctl.experiments.checks import check_processes, check_scores, images_of, read_recipe
from marginctl.experiments.records import TrainingResult, result_type
from marginctl.experiments.source_scale import by_path
from marginctl.experiments.training_trial import Trial, expand
from marginctl.models.factory import check_image_shape
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parsing import parse
from marginctl.objectives.parts import plugin_origins
from marginctl.recipe import ImageRecipe, TrainRecipe
from marginctl.recipe.cosify import CosifyRecipe
from marginctl.recipe.train import EvaluatedRecipe
from marginctl.runs.atomic_io import write_atomically
from marginctl.runs.run_dir import RunDir, SavedResult
from marginctl.utils.device import resolve_device

if TYPE_CHECKING:
    from marginctl.experiments.run_trial import Keeping, Stop
    from marginctl.utils.distributed import World
    from marginctl.utils.precision import DeviceConfig


@dataclass(frozen=True)
class Session:
    """What a call of `train` asks for, checked; nothing has been trained yet."""

    name: str
    recipe: ImageRecipe
    trials: list[Trial]
    images: Mapping[str, ImageDataset]  # by the digest
    folder: Path
    device: str
    read: Path | None = None  # the recipe's file

    @classmethod
    def open(
        cls,
        name: str | None,
        *,
        schema: type[Any] = TrainRecipe,
        overrides: Iterable[str],
        options: Mapping[str, tuple[str, Any]],
        data_dir: Path | None,
        out: Path,
        device: str,
    ) -> Self:
        """Reads the recipe and the images.

        Args:
            name: a shipped recipe, a file, or None for what the options alone say.
            schema: of the recipe: of `train`, or of `cosify`.
            overrides: from --set.
            options: dotted key -> (option, value); None where the option was not given.
            data_dir: None for the default one.
            out: the run store.
            device: as `resolve_device` takes it; `auto` is a GPU where there is one.

        Raises:
            RequestError: anything about the request is wrong.
        """
        recipe, named, read = read_recipe(name, schema, overrides, options, out)
        assert isinstance(recipe, EvaluatedRecipe)
        from marginctl.experiments import source_model

        begun: source_model.Start | None = None
        if isinstance(recipe, CosifyRecipe):
            begun = source_model.read(recipe.source_model)
            recipe = recipe.with_source_model(begun.model, begun.data, begun.pixels)
        said = f"{'' if begun is None else 'cosify-'}{recipe.data.name}-{recipe.model}"
        stored_as = named or recipes.folder_name(said)[:60].strip(".-")
        from marginctl.utils.distributed import local_device

        device = local_device(resolve_device(device, accelerated=True))
        settings = recipe.settings()
        for _, own in settings:
            for objective in own.objectives:
                if plugin_origins(parse(objective).spec):
                    from marginctl.objectives.functional import check_plugin_parts

                    check_plugin_parts(parse(objective).spec, 3)
        folder = data_dir or default_data_dir()
        pairs = load_pairs(recipe.pairs, folder)  # before images, which take longer
        asked = {own.data.model_dump_json(): own.data for _, own in settings}
        loaded = {key: images_of(data, folder) for key, data in asked.items()}
        digests = {key: images.digest for key, images in loaded.items()}
        foreign = {
            images.digest: load_ood_datasets(recipe.ood, images, folder, stream=asked[key].streamed)
            for key, images in loaded.items()
        }
        references: dict[tuple[str, str | None], reference_run.Reference] = {}
        for own in (written.in_stage() for _, written in settings):
            images = loaded[own.data.model_dump_json()]
            if images.num_classes < 2:
                raise RequestError(
                    f"data set '{images.name}': {images.num_classes} class: expected at least 2"
                )
            check_image_shape(ModelSpec.parse(own.model), images.channels, images.image_size)
            check_scores(images)
            if begun is not None:
                source_model.check(begun, own, images)
            check_processes(own, device)
            if own.train.reference_run is not None:
                key = images.digest, own.train.reference_run
                references[key] = reference_run.find(
                    own.train.reference_run, images, own.train.difficulty_groups
                )
        return cls(
            stored_as,
            recipe,
            expand(
                *(settings, digests, references, by_path(recipe.objectives), foreign, begun),
                pairs,
            ),
            {images.digest: images for images in loaded.values()},
            out / stored_as,
            device,
            read,
        )

    def folder_of(self, trial: Trial) -> RunDir:
        return RunDir(self.folder / trial.id)

    def steps(self, trial: Trial) -> int:
        """How many steps a trial takes, about: a short last batch may join the one before."""
        train = trial.recipe.train
        return train.epochs * -(-len(self.images[trial.data].train_y) // train.batch_size)

    def about(self, trial: Trial) -> dict[str, Any]:
        """The content of a trial's run.json: enough to run it again.

        The recipe of a second stage is that of both.
        """
        recipe = trial.recipe
        if trial.first is not None:
            assert isinstance(recipe, TrainRecipe)
            recipe = trial.first.recipe.model_copy(update={"second_stage": recipe.second_stage})
        return {
            "trial": trial.id,
            **trial.identity,
            **trial.scale_record,
            **({} if trial.start is None else {"source_model": trial.start.record()}),
            "data_identity": self.images[trial.data].digest_description,
            "device": self.device,
            "recipe": {"name": self.name, **recipe.model_dump(exclude={"about"})},
            "setting": dict(trial.setting),
        }

    def unfinished(self) -> list[Trial]:
        """The trials without a result that can be used."""
        return [t for t in self.trials if self.find(t).result is None]

    def plan(self) -> dict[str, Any]:
        """What is to be done and about how long it takes, as `training.cost.plan`."""
        from marginctl.experiments.estimate import plan

        return plan(self)

    def find(self, trial: Trial) -> SavedResult[Any]:
        """The result of a trial, if there is a whole one."""
        return self.folder_of(trial).load_result(result_type(self.recipe.task))

    def compute(self, trial: Trial, folder: RunDir, at: "At") -> TrainingResult | None:
        """Does a trial, with its folder's lock held; of several processes the first has its record.

        Raises:
            StoppedRunError, StorageError: as `run`.
        """
        from marginctl.experiments.baseline import before_record
        from marginctl.experiments.run_trial import run_trial

        images = self.images[trial.data]
        more = {}
        if trial.start is not None and trial.first is None:  # else the first stage says it
            if trial.data not in at.befores:
                at.befores[trial.data] = before_record(
                    *(trial.start, trial.recipe, images, trial.foreign, at.device_config, at.world)
                )
            more = {"baseline": at.befores[trial.data]}
        return run_trial(
            *(
                trial,
                images,
                folder,
                at.device_config,
                at.keeping,
                at.stop,
                at.listener,
                at.world,
                more,
            )
        )

    def write_recipe(self) -> None:
        """Writes the recipe that is run into its folder, as YAML; never over the one it read."""
        document = self.recipe.model_dump(exclude={"about"})
        text = f"# What was run, by marginctl {self.recipe.task}. "
        text += "Options of the command line are in it.\n"
        path = self.folder / f"{self.folder.name}.yaml"
        if self.read is None or path.resolve() != self.read.resolve():
            write_atomically(path, text + yaml.safe_dump(document, sort_keys=False))


@dataclass(frozen=True)
class At:
    """Where and how the trials of a call are done.

    Attributes:
        befores: the records of the network that `cosify` goes on from, by the images' digest.
    """

    device_config: "DeviceConfig"
    keeping: "Keeping"
    stop: "Stop"
    listener: Any
    world: "World"
    befores: dict[str, dict[str, Any]]
