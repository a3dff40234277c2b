"""Sessions: the recipe, images and trials of one command; and that of `train`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from marginctl.data.images.image_sets import ImageDataset, load_ood_datasets
from marginctl.data.images.pairs import load_pairs
from marginctl.data.images.registry import expand_ood_names
from marginctl.data.images.summary import ImageSummary, inspect_image_set, with_pixel_duplicates
from marginctl.experiments import checks
from marginctl.experiments.find_run import ReferenceRun, find_reference_run
from marginctl.experiments.records import TrainingResult, result_type
from marginctl.experiments.request import Request
from marginctl.experiments.run_trial import TrialContext
from marginctl.experiments.source_model import check_source_model, load_initial_weights
from marginctl.experiments.source_scale import scales_from_folders
from marginctl.experiments.training_trial import Trial, expand_trials
from marginctl.experiments.tuned_trial import run_trial, tuning_cost
from marginctl.models.stages import forward_operations
from marginctl.objectives.functional import check_plugin_parts
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.recipe.load import RecipeFile
from marginctl.recipe.train import EvaluatedRecipe, TrainRecipe
from marginctl.runs.atomic_io import write_atomically
from marginctl.runs.run_dir import RunDir, SavedResult
from marginctl.transfer.source import SourceModel

FORWARD_SHARE = 1 / 3  # of a step: the backward pass takes about twice as long
# What a step takes besides its backbone. Our choice: a step of the last block of mnist-cnn takes
# 1.8 ms with 64 digits (2 trials of 80 epochs, 2 CPU cores), nearly all of it in calls.
STEP_OPERATIONS = 1e8


@dataclass(frozen=True)
class Session:
    """A checked command of an image task; nothing has been trained yet."""

    name: str
    recipe: ImageRecipe
    trials: list[Trial]
    images: Mapping[str, ImageDataset]  # by their digest
    folder: Path
    device: str
    recipe_file: Path | None = None
    data_dir: Path = Path()

    @cached_property
    def summaries(self) -> Mapping[str, ImageSummary]:
        """The summaries of folders and lists of images, by the name of the data.

        Raises:
            RequestError: a file that should be an image cannot be read.
        """
        summaries: dict[str, ImageSummary] = {}
        for trial in self.trials:
            data, images = trial.recipe.data, self.images[trial.data]
            if data.name not in summaries:
                groups = checks.recipe_groups(data, self.data_dir)
                summary = inspect_image_set(data.name, self.data_dir, data.test_fraction, groups)
                if summary is not None:
                    summary.check_readable(data.name)
                    summaries[data.name] = with_pixel_duplicates(summary, images)
        return summaries

    @property
    def remarks(self) -> list[str]:
        """The lines on OOD sets that `openood` leaves out, and on classifiers left out."""
        names = self.recipe.ood if isinstance(self.recipe, EvaluatedRecipe) else ()
        lines = [s for i in self.images.values() for s in expand_ood_names(names, i.name)[1]]
        lines += [t.source_model.remark or "" for t in self.trials if t.source_model is not None]
        return [line for line in dict.fromkeys(lines) if line]

    def run_dir(self, trial: Trial) -> RunDir:
        return RunDir(self.folder / trial.id)

    def steps(self, trial: Trial) -> int:
        """Return the steps of a trial and of the candidates of its tuning.

        It is a few too many if a short last batch joins another.
        """
        train = trial.recipe.train
        count = checks.fitted_images(trial.recipe, self.images[trial.data])
        rounds = [(1, train.epochs, count), *tuning_cost(trial, count)]
        return sum(n * epochs * -(-size // train.batch_size) for n, epochs, size in rounds)

    def step_operations(self, trial: Trial) -> float:
        """Return about how many floating-point operations a step of a trial takes.

        They tell how much longer it takes than a step of another trial, on a CPU.
        """
        recipe, images = trial.recipe, self.images[trial.data]
        total, frozen = forward_operations(
            recipe.model, images.channels, images.image_size, recipe.trainable_blocks
        )
        operations = (total - frozen) / FORWARD_SHARE
        if recipe.data.augment != "none":  # else the output of the frozen modules is cached
            operations += frozen
        return STEP_OPERATIONS + operations * min(recipe.train.batch_size, len(images.train_y))

    def runs_in_workers(self, trial: Trial) -> bool:
        """Return whether the trial may run in a worker process, next to others."""
        return True

    def run_info(self, trial: Trial) -> dict[str, Any]:
        """Return the content of a trial's run.json; a second stage has the recipe of both."""
        recipe, summary = trial.recipe, self.summaries.get(trial.recipe.data.name)
        if trial.first_stage is not None:
            assert isinstance(recipe, TrainRecipe)
            second_stage = {"second_stage": recipe.second_stage}
            recipe = trial.first_stage.recipe.model_copy(update=second_stage)
        return {
            "trial": trial.id,
            **trial.identity,
            **trial.scale_record,
            **trial.source_record,
            "data_identity": self.images[trial.data].digest_description,
            **({} if summary is None else {"data_summary": asdict(summary)}),
            "device": self.device,
            "recipe": {"name": self.name, **recipe.model_dump(exclude={"about"})},
            "setting": dict(trial.setting),
        }

    def load_result(self, trial: Trial) -> SavedResult[Any]:
        return self.run_dir(trial).load_result(result_type(self.recipe.task))

    def unfinished(self) -> list[Trial]:
        return [trial for trial in self.trials if self.load_result(trial).result is None]

    def run_trial(
        self, trial: Trial, run_dir: RunDir, context: TrialContext
    ) -> TrainingResult | None:
        """Run a trial whose run directory is locked, as `TrialRunner.run`, tuned or not."""
        return run_trial(trial, self.images[trial.data], run_dir, context)

    def write_recipe(self) -> None:
        """Write the recipe as YAML into the folder of its runs, unless it was read from there."""
        document = self.recipe.model_dump(exclude={"about"})
        text = f"# The recipe of these runs, by marginctl {self.recipe.task}, with the options of "
        text += "the command line.\n"
        path = self.folder / f"{self.folder.name}.yaml"
        if self.recipe_file is None or path.resolve() != self.recipe_file.resolve():
            write_atomically(path, text + yaml.safe_dump(document, sort_keys=False))


def prepare_train(request: Request) -> Session:
    recipe, file = checks.read_recipe(TrainRecipe, request)
    source = None
    if recipe.weights is not None:
        source = load_initial_weights(recipe.model, recipe.weights)
        section = recipe.data_like_source(None, source.image_size, source.resizing)
        recipe = TrainRecipe.model_validate(recipe.model_dump() | {"data": section})
    default_name = f"{recipe.data.name}-{recipe.model}"
    return Session(**session_fields(recipe, file, request, default_name, source, "weights"))


def session_fields(
    recipe: EvaluatedRecipe,
    file: RecipeFile | None,
    request: Request,
    default_name: str,
    source_model: SourceModel | None,
    source_key: str = "source_model",
) -> dict[str, Any]:
    """Load and check the images of a recipe; return the fields of its session.

    Args:
        source_key: of the recipe, which names the source model; for messages.
    """
    device, data_folder = request.resolve_device(), request.data_folder
    settings = recipe.settings()
    recipes = [setting_recipe for _, setting_recipe in settings]
    for setting_recipe in recipes:  # a broken plug-in fails before any training
        for objective in setting_recipe.objectives:
            check_plugin_parts(objective.spec, 3)
    pairs = load_pairs(recipe.pairs, data_folder)  # before images, which take longer
    sections = {one.data.model_dump_json(): one.data for one in recipes}
    loaded = {key: checks.load_recipe_images(data, data_folder) for key, data in sections.items()}
    ood = {}
    for key, images in loaded.items():
        stream = sections[key].streamed
        ood[images.digest] = load_ood_datasets(recipe.ood, images, data_folder, stream=stream)
    references: dict[tuple[str, str | None], ReferenceRun] = {}
    for setting_recipe in recipes:
        stage = setting_recipe.in_stage()
        images = loaded[stage.data.model_dump_json()]
        checks.check_images(stage, images)
        checks.check_logits_fit(images)
        if source_model is not None:
            check_source_model(source_model, stage, images, source_key)
        checks.check_device(stage, device)
        reference, groups = stage.train.reference_run, stage.train.difficulty_groups
        if reference is not None:
            references[images.digest, reference] = find_reference_run(reference, images, groups)
    name = checks.runs_name(file, default_name)
    return {
        "name": name,
        "recipe": recipe,
        "trials": expand_trials(
            settings,
            {key: images.digest for key, images in loaded.items()},
            references,
            scales_from_folders(recipe.objectives),
            ood,
            source_model,
            pairs,
        ),
        "images": {images.digest: images for images in loaded.values()},
        "folder": request.out / name,
        "device": device,
        "recipe_file": file.path if file else None,
        "data_dir": data_folder,
    }
