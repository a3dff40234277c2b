"""One call of `transfer`: its recipe, its networks, its images, its trials."""

import csv
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from marginctl import recipe as recipes
from marginctl.data.images.base import ImageDataset
from marginctl.data.paths import default_data_dir
from marginctl.errors import RequestError
from marginctl.experiments import source_model
from marginctl.experiments.checks import check_processes, images_of, read_recipe
from marginctl.experiments.evaluate import tested_of
from marginctl.experiments.records import TrainingResult, TransferResult
from marginctl.experiments.run_trial import StoppedRunError, run_trial
from marginctl.experiments.source_models import Origin, origins
from marginctl.experiments.training_session import At, Session
from marginctl.experiments.training_trial import Trial
from marginctl.experiments.transfer_estimate import planned
from marginctl.experiments.transfer_trial import TransferTrial, expand
from marginctl.metrics.network_metrics import classification_metrics
from marginctl.models.factory import check_image_shape
from marginctl.models.registry import ModelSpec
from marginctl.recipe import ImageRecipe, TransferRecipe
from marginctl.runs.atomic_io import csv_text, write_csv, write_output
from marginctl.runs.run_dir import PREDICTIONS, RunDir, SavedResult, file_digest
from marginctl.transfer import cached_features
from marginctl.transfer.predictions import HEADER, prediction_rows
from marginctl.transfer.probe import fit_probe
from marginctl.utils.device import resolve_device, world_size
from marginctl.utils.distributed import local_device

BINS = 15  # of the calibration, as training has them


@dataclass(frozen=True)
class TransferSession(Session):
    """What a call of `transfer` asks for, checked; nothing has been computed yet.

    Attributes:
        data_dir: where the images are.
        left_out: a line for each trial of a folder of starts that cannot be one.
    """

    data_dir: Path = Path()
    left_out: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        name: str | None,
        *,
        schema: type[ImageRecipe] = TransferRecipe,
        overrides: Iterable[str],
        options: Mapping[str, tuple[str, Any]],
        data_dir: Path | None,
        out: Path,
        device: str,
    ) -> Self:
        """Reads the recipe, the networks and the images; arguments are those of training.

        Raises:
            RequestError: anything about the request is wrong.
        """
        recipe, named, read = read_recipe(name, schema, overrides, options, out)
        assert isinstance(recipe, TransferRecipe)
        if not recipe.names_data:
            raise RequestError(
                "data.name is missing: name the images to transfer to: --data folder:PATH"
            )
        found, left_out = origins(recipe.source_models)
        device = local_device(resolve_device(device, accelerated=True))
        folder = data_dir or default_data_dir()
        loaded: dict[str, ImageDataset] = {}
        settings: list[tuple[Mapping[str, Any], TransferRecipe, Origin, str]] = []
        for setting, of_setting in recipe.settings():
            for origin in found:
                own = of_setting.for_source_model(
                    origin.written, origin.model, origin.data, origin.pixels
                )
                key = own.data.model_dump_json()
                if key not in loaded:
                    loaded[key] = images_of(own.data, folder)
                _check(own, origin, loaded[key], device)
                settings.append((setting, own, origin, loaded[key].digest))
        said = f"transfer-{settings[0][1].data.name}-{found[0].row}"
        stored_as = named or recipes.folder_name(said)[:60].strip(".-")
        return cls(
            stored_as,
            recipe,
            list(expand(settings)),
            {images.digest: images for images in loaded.values()},
            out / stored_as,
            device,
            read,
            data_dir=folder,
            left_out=tuple(left_out),
        )

    @property
    def store(self) -> Path:
        """The run store: the trials' folder without the recipe's name, which may have a folder."""
        return self.folder.parents[self.name.count("/")]

    def find(self, trial: Trial) -> SavedResult[Any]:
        needed = (PREDICTIONS,) if _probes(trial) else ()
        return self.folder_of(trial).load_result(TransferResult, needed)

    def compute(self, trial: Trial, folder: RunDir, at: At) -> TrainingResult | None:
        assert isinstance(trial, TransferTrial)
        for line in self.left_out if trial is self.trials[0] else ():
            at.listener.message(line)
        return (self._probe if _probes(trial) else self._fine_tune)(trial, folder, at)

    def _fine_tune(self, trial: TransferTrial, folder: RunDir, at: At) -> TrainingResult | None:
        more = {"method": trial.transfer.method, "probe": None}
        images = self.images[trial.data]
        return run_trial(
            *(trial, images, folder, at.device_config, at.keeping, at.stop, at.listener, at.world),
            more=more,
        )

    def _probe(self, trial: TransferTrial, folder: RunDir, at: At) -> TrainingResult:
        began = time.perf_counter()
        images, recipe = self.images[trial.data], trial.transfer

        def check() -> None:
            if at.stop.asked:
                raise StoppedRunError(
                    at.stop.asked,
                    f"stopped: {trial} has no result yet: the same command again computes it; "
                    "features and results that are done are kept",
                )

        both = cached_features.extract_features(
            trial.origin, images, self.store, at.device_config, at.listener.message, check
        )
        of_features = time.perf_counter() - began
        found = fit_probe(
            both, images.train_y, images.test_y, images.num_classes, recipe.probe, trial.seed, check
        )
        for note in found.record["notes"]:
            at.listener.message(f"{trial}: {note}")
        evaluation = classification_metrics(
            *(found.features, found.logits, found.logits, images.test_y, images.classes, BINS),
            found.weight,
        )
        write_csv(
            folder.path / PREDICTIONS,
            prediction_rows(recipe.data, images, self.data_dir, found.logits),
        )
        last = {
            "epoch": found.record["fit"]["iterations"],
            "top1": evaluation["top1"],
            "nll": evaluation["nll"],
            "n": evaluation["n"],
            "collapsed": found.record["collapsed"],
        }
        record = {
            "task": recipe.task,
            "method": recipe.method,
            "trial": trial.id,
            "row": trial.row,
            "setting": dict(trial.setting),
            "data": recipe.data.name,
            "model": recipe.model,
            "objective": str(trial.objective),
            "seed": trial.seed,
            "source_model": trial.origin.record(),
            "epochs": last["epoch"],
            "last": last,
            "best": last,
            "selection": "the penalty was chosen on a part of the training images; the test "
            "images were seen once; an epoch is an iteration of L-BFGS",
            "probe": found.record,
            "evaluation": evaluation,
            "state": None,
            "diverged": None,
            "collapsed": last["collapsed"],
            "predictions_sha256": file_digest(folder.path / PREDICTIONS),
            "timing": {
                "seconds": time.perf_counter() - began,
                "epoch_seconds": None,
                "features_seconds": of_features,
            },
        }
        return folder.finish((), TransferResult.model_validate(record))

    def predictions(self, trial: TransferTrial) -> list[list[str]]:
        """The rows of a trial's predictions, without the heading; none where it has no result."""
        folder = self.folder_of(trial).path
        record = self.find(trial).result
        if record is None or record.diverged:
            return []
        path = folder / PREDICTIONS
        if not _probes(trial):
            tested = tested_of(folder, None, "last", self.data_dir, self.device)
            made = prediction_rows(
                trial.transfer.data, tested.images, self.data_dir, tested.tested.logits.numpy()
            )
            return [list(map(str, row)) for row in made][1:]
        return list(csv.reader(path.read_text("utf-8").splitlines()))[1:]

    def plan(self) -> dict[str, Any]:
        return planned(self)


def write_predictions(path: Path, session: TransferSession) -> None:
    """Write the predictions of all finished trials into one CSV file.

    The first columns identify the trial: data, method, source model, the objective and seed that
    it was trained with, and the seed of the transfer.

    Raises:
        StorageError: the file cannot be written.
    """
    header = ("data", "method", "source_model", "objective", "source_seed", "seed", *HEADER)
    rows: list[Sequence[Any]] = [header]
    for trial in session.trials:
        assert isinstance(trial, TransferTrial)
        origin = trial.origin
        source_seed = "" if origin.seed is None else origin.seed
        data, method = trial.transfer.data.name, trial.transfer.method
        columns = (data, method, origin.row, origin.trained_with, source_seed, trial.seed)
        rows += [(*columns, *row) for row in session.predictions(trial)]
    write_output(path, csv_text(rows))


def _probes(trial: Trial) -> bool:
    return isinstance(trial, TransferTrial) and trial.transfer.method == "probe"


def _check(recipe: TransferRecipe, origin: Origin, images: ImageDataset, device: str) -> None:
    """Raises RequestError for images that cannot be told apart, or that a network does not take."""
    if images.num_classes < 2:
        raise RequestError(
            f"data set '{images.name}': {images.num_classes} class: expected at least 2"
        )
    if recipe.method == "probe" and world_size() > 1:
        raise RequestError("method = probe: one process computes it: leave torchrun out")
    check_image_shape(ModelSpec.parse(recipe.model), images.channels, images.image_size)
    source_model.check(origin, recipe, images)
    check_processes(recipe, device)
