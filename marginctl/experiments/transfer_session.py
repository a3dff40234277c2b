"""The session of `transfer`: source models on other images, by probes or fine-tuning."""

import csv
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from marginctl import NUMERICS
from marginctl.data.images import folders
from marginctl.data.images.image_sets import ImageDataset
from marginctl.data.images.on_disk import OnDiskImages
from marginctl.data.images.registry import FOLDER_PREFIX
from marginctl.data.images.resizing import SQUARE
from marginctl.data.paths import resolve_path
from marginctl.errors import RequestError
from marginctl.experiments import checks
from marginctl.experiments.evaluate import predict_run
from marginctl.experiments.records import PROBE_OBJECTIVE, TrainingResult, TransferResult
from marginctl.experiments.request import Request
from marginctl.experiments.run_trial import StoppedRunError, TrialContext
from marginctl.experiments.source_model import check_source_model, load_source_models
from marginctl.experiments.training_session import Session
from marginctl.experiments.training_trial import Trial
from marginctl.experiments.tuned_trial import run_trial
from marginctl.metrics.accuracy import largest_class, pack_correct
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.detection import Outputs
from marginctl.metrics.network_metrics import classification_metrics
from marginctl.metrics.scoring_rules import softmax
from marginctl.recipe.image_data import ImageData
from marginctl.recipe.image_recipe import grid_text
from marginctl.recipe.transfer import TransferRecipe
from marginctl.runs.atomic_io import csv_text, write_atomically, write_output
from marginctl.runs.base_record import parse_objective
from marginctl.runs.run_dir import PREDICTIONS, RunDir, SavedResult, file_digest
from marginctl.training.image_model import ImageModel, ImageRecord
from marginctl.transfer.cached_features import extract_features, missing_batches
from marginctl.transfer.probe import ProbeResult, fit_probe
from marginctl.transfer.source import SourceModel
from marginctl.utils.device import world_size
from marginctl.utils.precision import DeviceConfig, device_config_for

ECE_BINS = 15  # as in training
PROBE_CLASSIFIER = parse_objective(PROBE_OBJECTIVE)
HEADER = ("image", "label", "predicted", "probability")  # of predictions.csv


@dataclass(frozen=True, eq=False)
class TransferTrial(Trial):
    """One network on other images. `objective` is that of the new classifier."""

    recipe: TransferRecipe

    @property
    def source(self) -> SourceModel:
        assert self.source_model is not None
        return self.source_model

    @property
    def is_probe(self) -> bool:
        return self.recipe.method == "probe"

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that the result depends on; a probe depends on no optimizer or augmentation."""
        recipe = self.recipe
        if not self.is_probe:
            return super().identity | {"method": recipe.method}
        return {
            "task": recipe.task,
            "method": recipe.method,
            "data": self.data,
            "model": str(recipe.model),
            "source_model": self.source.weights,
            "moments": [list(channel) for channel in self.source.moments],
            "objective": PROBE_OBJECTIVE,
            "probe": recipe.probe.model_dump(exclude_defaults=True),
            "seed": self.seed,
            "numerics": NUMERICS,
        }

    @property
    def source_record(self) -> dict[str, Any]:
        return {"source_model": self.source.training_record()}

    @property
    def row(self) -> str:
        """Data, method and source model, and the other values of the grid."""
        values = grid_text(self.setting, ("data.name", "method"))
        return f"{self.recipe.data.name}, {self.recipe.method} of {self.source.row}{values}"

    @property
    def is_baseline(self) -> bool:
        return self.is_probe and self.recipe.adds_probe

    def is_validated(self, images: ImageDataset) -> bool:
        return self.is_probe or super().is_validated(images)

    def __str__(self) -> str:
        source = self.source
        seed = "" if source.seed is None else f", seed {source.seed}"
        return f"{self.row} / {source.trained_with}{seed} (seed {self.seed})"


@dataclass(frozen=True)
class TransferSession(Session):
    """A checked `transfer` command; nothing has been computed yet."""

    skipped: tuple[str, ...] = ()

    @property
    def runs_folder(self) -> Path:
        """The runs folder: without the recipe's name, which may have a folder."""
        return self.folder.parents[self.name.count("/")]

    def load_result(self, trial: Trial) -> SavedResult[Any]:
        assert isinstance(trial, TransferTrial)
        files = (PREDICTIONS,) if trial.is_probe else ()
        return self.run_dir(trial).load_result(TransferResult, files)

    def runs_in_workers(self, trial: Trial) -> bool:
        """Return False for probes: the first of a network computes the features of all."""
        assert isinstance(trial, TransferTrial)
        return not trial.is_probe

    def steps(self, trial: Trial) -> int:
        """Return the steps of fine-tuning, or the batches of features that a probe computes."""
        assert isinstance(trial, TransferTrial)
        if not trial.is_probe:
            return super().steps(trial)
        sharing = [t for t in self.trials if isinstance(t, TransferTrial) and t.is_probe]
        key = (trial.source.weights, trial.data)
        if trial is not next(t for t in sharing if (t.source.weights, t.data) == key):
            return 1  # an earlier probe computes the features
        images, config = self.images[trial.data], device_config_for(self.device, "fp32")
        return 1 + missing_batches(trial.source, images, self.runs_folder, config)

    def run_trial(
        self, trial: Trial, run_dir: RunDir, context: TrialContext
    ) -> TrainingResult | None:
        assert isinstance(trial, TransferTrial)
        for line in self.skipped if trial is self.trials[0] else ():
            context.callback.message(line)
        if trial.is_probe:
            return self._run_probe(trial, run_dir, context)
        extra = {"method": trial.recipe.method, "probe": None}
        return run_trial(trial, self.images[trial.data], run_dir, context, extra)

    def _run_probe(
        self, trial: TransferTrial, run_dir: RunDir, context: TrialContext
    ) -> TransferResult:
        started = time.perf_counter()
        images, recipe = self.images[trial.data], trial.recipe

        def check() -> None:
            number = context.signals.received
            if number:
                raise StoppedRunError(
                    number,
                    f"stopped: {trial} has no result yet: repeat the command to compute it; "
                    "extracted features and finished trials are kept",
                )

        steps, total = itertools.count(1), self.steps(trial)

        def on_batch() -> None:
            check()
            step = next(steps)  # more than planned where a cached file turned out to be corrupt
            context.callback.step(trial, step, max(step, total))

        report = context.callback.message
        probe, features_seconds = self._fit(trial, context.device_config, report, check, on_batch)
        for note in probe.record["notes"]:
            report(f"{trial}: {note}")
        evaluation = classification_metrics(
            Outputs(probe.features, probe.logits, probe.logits),
            images.test_y,
            images.classes,
            ECE_BINS,
            probe.fitted.weight,
        )
        rows = prediction_rows(recipe.data, images, self.data_dir, probe.logits)
        write_atomically(run_dir.path / PREDICTIONS, csv_text(rows))
        last = {
            "epoch": probe.record["fit"]["iterations"],
            "top1": evaluation["top1"],
            "nll": evaluation["nll"],
            "n": evaluation["n"],
            "collapsed": probe.record["collapsed"],
        }
        document = {
            **trial.result_fields,
            "method": recipe.method,
            "epochs": last["epoch"],
            "last": last,
            "best": last,
            "selection": "the penalty is selected on a part of the training images; the test "
            "images are used once; an epoch is an iteration of L-BFGS",
            "probe": probe.record,
            "evaluation": evaluation,
            "correct": pack_correct(probe.logits.argmax(1), images.test_y),
            "largest_class": largest_class(images.test_y),
            "state": None,
            "diverged": None,
            "collapsed": last["collapsed"],
            "predictions_sha256": file_digest(run_dir.path / PREDICTIONS),
            "timing": {
                "seconds": time.perf_counter() - started,
                "epoch_seconds": None,
                "features_seconds": features_seconds,
            },
        }
        return run_dir.finish((), TransferResult.model_validate(document))

    def _fit(
        self,
        trial: TransferTrial,
        device_config: DeviceConfig,
        report: Callable[[str], None],
        check: Callable[[], None],
        on_batch: Callable[[], None],
    ) -> tuple[ProbeResult, float]:
        """Return the probe of a trial, and the seconds that its features took."""
        started, images = time.perf_counter(), self.images[trial.data]
        features = extract_features(
            trial.source, images, self.runs_folder, device_config, report, on_batch
        )
        features_seconds = time.perf_counter() - started
        probe = fit_probe(
            features,
            images.train_y,
            images.test_y,
            images.num_classes,
            trial.recipe.probe,
            trial.seed,
            check,
            images.groups,
            images.validation_as_test().test_y if images.has_validation else None,
        )
        return probe, features_seconds

    def probe_model(self, trial: TransferTrial, chosen: str) -> ImageModel:
        """Return the source model with the probe of a finished trial, which is fitted again."""
        images, source = self.images[trial.data], trial.source
        device_config = device_config_for(self.device, "fp32")
        probe, _ = self._fit(trial, device_config, lambda line: None, *2 * [lambda: None])
        weight, bias = map(torch.from_numpy, probe.unscaled)
        mean, std = source.moments
        record = ImageRecord(
            data=trial.recipe.data.name,
            model=str(source.model),
            image_size=images.image_size,
            mean=list(mean),
            std=list(std),
            resizing=images.resizing if isinstance(images, OnDiskImages) else SQUARE,
            precision="fp32",
            unit_features=probe.scaling.to_unit,
            classes=list(images.classes),
            objective=PROBE_OBJECTIVE,
            chosen=chosen,
        )
        states = {"model": source.backbone, "objective": {"weight": weight, "bias": bias}}
        return ImageModel.create(record, states)

    def write_predictions(self, path: Path) -> None:
        """Write the test predictions of all finished trials into one CSV file."""
        heading = ("data", "method", "source_model", "objective", "source_seed", "seed")
        rows: list[Sequence[Any]] = [(*heading, *HEADER)]
        for trial in self.trials:
            assert isinstance(trial, TransferTrial)
            source = trial.source
            columns: tuple[Any, ...] = (trial.recipe.data.name, trial.recipe.method, source.row)
            columns += (source.trained_with, source.seed, trial.seed)
            rows += [(*columns, *row) for row in self.predictions(trial)]
        write_output(path, csv_text(rows))

    def predictions(self, trial: TransferTrial) -> list[list[str]]:
        """Return the rows of a trial's predictions; none if it has no result."""
        folder = self.run_dir(trial).path
        result = self.load_result(trial).result
        if result is None or result.diverged:
            return []
        if trial.is_probe:
            lines = (folder / PREDICTIONS).read_text("utf-8").splitlines()
            return list(csv.reader(lines))[1:]
        run = predict_run(folder, None, "last", self.data_dir, self.device)
        logits = run.predictions.logits.numpy()
        rows = prediction_rows(trial.recipe.data, run.images, self.data_dir, logits)
        return [list(map(str, row)) for row in rows][1:]


def prepare_transfer(request: Request) -> TransferSession:
    recipe, file = checks.read_recipe(TransferRecipe, request)
    if not recipe.names_data:
        raise RequestError(
            "data.name is missing: name the images to transfer to: --data folder:PATH"
        )
    if request.tune and not recipe.tuned_by_default:
        raise RequestError("--tune: a probe has no learning rate: add --method fine-tune")
    if not recipe.tuned_by_default and recipe.objectives != [PROBE_CLASSIFIER]:
        names = ", ".join(map(str, recipe.objectives))
        raise RequestError(
            f"objectives = {names} with method = probe: expected none: a probe is a softmax "
            "regression: leave --objective out, or add --method fine-tune"
        )
    if unused := recipe.unused_by_a_probe:
        raise RequestError(
            f"{', '.join(unused)} with method = probe: expected none: a probe has no epochs "
            "and trains no block: leave them out, or add --method fine-tune"
        )
    sources, skipped = load_source_models(recipe.source_models)
    device, data_folder = request.resolve_device(), request.data_folder
    loaded: dict[str, ImageDataset] = {}
    trials: dict[str, TransferTrial] = {}
    for values, setting_recipe in recipe.settings():
        for source in sources:
            source_recipe = setting_recipe.for_source_model(
                source.path, source.model, source.data, source.image_size, source.resizing
            )
            key = source_recipe.data.model_dump_json()
            if key not in loaded:
                loaded[key] = checks.load_recipe_images(source_recipe.data, data_folder)
            images = loaded[key]
            checks.check_images(source_recipe, images)
            is_probe = source_recipe.method == "probe"
            if is_probe and world_size() > 1:
                raise RequestError("method = probe runs in one process: leave torchrun out")
            check_source_model(source, source_recipe, images, "source_models")
            checks.check_device(source_recipe, device)
            heads = [source_recipe]
            if not is_probe and recipe.adds_probe and world_size() == 1:
                heads.append(source_recipe.as_probe())
            for head in heads:
                objectives = [PROBE_CLASSIFIER] if head.method == "probe" else head.objectives
                for seed, objective in itertools.product(head.seeds, objectives):
                    trial = TransferTrial(
                        values, head, objective, seed, images.digest, source_model=source
                    )
                    trials.setdefault(trial.id, trial)
    first = next(iter(trials.values()))
    name = checks.runs_name(file, f"transfer-{first.recipe.data.name}-{first.source.row}")
    return TransferSession(
        name,
        recipe,
        list(trials.values()),
        {images.digest: images for images in loaded.values()},
        request.out / name,
        device,
        file.path if file else None,
        data_dir=data_folder,
        skipped=tuple(skipped),
    )


def prediction_rows(
    data: ImageData, images: ImageDataset, data_dir: Path, logits: FloatArray
) -> Iterator[tuple[Any, ...]]:
    """Yield a header and a row per test image: name, label, prediction and its probability."""
    yield HEADER
    names, classes = _test_image_names(data, images, data_dir), images.classes
    probabilities = softmax(logits)
    columns = (names, images.test_y, probabilities.argmax(1), probabilities.max(1))
    for name, label, predicted, probability in zip(*columns, strict=True):
        yield name, classes[label], classes[predicted], f"{probability:.6f}"


def _test_image_names(data: ImageData, images: ImageDataset, data_dir: Path) -> list[str]:
    """Return the file of each test image, relative to its data set; else its number."""
    if isinstance(images, OnDiskImages):
        return [images.test.path(row) for row in range(len(images.test))]
    if data.name.startswith(FOLDER_PREFIX):
        root = resolve_path(data.name.removeprefix(FOLDER_PREFIX), data_dir)
        groups = checks.recipe_groups(data, data_dir)
        _, test, _ = folders.list_image_folder(
            data.name, root, test_fraction=data.test_fraction, groups=groups
        )
        return [path for files in test.values() for path in files]
    return [str(i) for i in range(len(images.test_y))]
