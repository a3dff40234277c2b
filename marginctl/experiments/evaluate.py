"""Evaluates a trained network: what `marginctl eval` computes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from marginctl.calibration.calibrator import Calibrator, evaluate_calibrator
from marginctl.data.images.base import ImageDataset
from marginctl.data.images.image_sets import load_ood_datasets
from marginctl.data.images.registry import FOLDER_PREFIX, check_image_set_name, loading_modes
from marginctl.data.paths import resolve_path
from marginctl.errors import RequestError
from marginctl.experiments.checks import images_of
from marginctl.experiments.find_run import located, run_of
from marginctl.experiments.records import evaluation_recipe
from marginctl.experiments.source_scale import spec_of
from marginctl.recipe.image_data import ImageData
from marginctl.training.epoch_metrics import (
    classification_record,
    detection_record,
    long_tail_record,
)
from marginctl.training.ood_evaluation import predict_ood
from marginctl.training.trainer import MISMATCH_ERRORS, DivergedError, Predictions, Trainer
from marginctl.utils.precision import device_config_for


@dataclass(frozen=True)
class Evaluated:
    """A trained network on test images.

    Attributes:
        about: the run's folder, checkpoint, step, data, model and objective, as JSON has them.
        images: of which the test part was seen.
        trainer: the network.
        tested: what it makes of them.
        classes: the names of the classes that it was trained for.
    """

    about: dict[str, Any]
    images: ImageDataset
    trainer: Trainer
    tested: Predictions
    classes: list[str]


def evaluate(
    path: Path,
    data: str | None,
    which: str,
    data_dir: Path,
    device: str,
    bins: int,
    calibration: Path | None = None,
    ood: Sequence[str] = (),
) -> dict[str, Any]:
    """Evaluates a run's folder or a checkpoint in one: the document of `eval --json`.

    Args:
        path, data, which, data_dir, device: of `tested_of`.
        bins: of the calibration.
        calibration: a calibrator of `calibrate --save`, whose scores are added.
        ood: foreign images, as `load_ood_datasets` takes them.

    Raises:
        RequestError: as `tested_of` and `load_ood_datasets`, or a calibrator that cannot be read
            or does not fit the network.
    """
    calibrator = None if calibration is None else Calibrator.load(calibration)
    found = tested_of(path, data, which, data_dir, device)
    images, tested = found.images, found.tested
    foreign = load_ood_datasets(ood, images, data_dir, stream=found.trainer.recipe.data.streamed)
    others = predict_ood(found.trainer, foreign, images, None)
    document: dict[str, Any] = {
        "schema": 1,
        "command": "eval",
        **found.about,
        **classification_record(found.trainer.objective, tested, images.classes, bins),
        # of its own images alone: others have another tail, or none
        **(long_tail_record(tested, images.train_y) if data is None else {}),
        "detection": detection_record(tested, others, curves=True),
    }
    if list(images.classes) != found.classes:
        document["reasons"]["per_class"] = "the classes have other names: compared by their number"
    if calibration is not None and calibrator is not None:
        logits, digest = tested.logits.double().numpy(), images.split_digests["test"]
        document["calibrated"] = evaluate_calibrator(
            calibration, calibrator, logits, tested.labels.numpy(), bins, digest
        )
    return document


def tested_of(path: Path, data: str | None, which: str, data_dir: Path, device: str) -> Evaluated:
    """Runs test images through a trained network.

    Args:
        path: the folder of a trial, or a checkpoint file in its `checkpoints`.
        data: other images than those that it was trained with, or None.
        which: `last` or `best`, for a folder.
        data_dir: where the images are.
        device: a torch device.

    Raises:
        RequestError: no run or checkpoint, a damaged one, or images that do not fit the network.
    """
    folder, file, state = located(path.absolute(), which)
    run = run_of(folder)
    recipe = evaluation_recipe(run)
    pixels = state["image_size"]  # checkpoints of old do not say
    own = recipe.data if data is None else _other(data, recipe.data, pixels, data_dir)
    images = images_of(own, data_dir)
    if data is None and images.digest != run.data:
        raise RequestError(
            f"{folder}: was trained on other content of {own.name} than there is now: name the "
            "folder that has it with --data-dir, or say --data to evaluate on this one"
        )
    _check_fit(state, images, file)
    device_config = device_config_for(device, recipe.train.precision)
    trainer = Trainer(recipe, spec_of(run), images, run.seed, device_config)
    try:
        trainer.load_weights(state)
    except MISMATCH_ERRORS as error:
        if data is not None:
            shape = f"{images.channels} x {images.image_size} x {images.image_size}"
            raise RequestError(
                f"{file}: {recipe.model} does not take the images of {data} ({shape}): evaluate it "
                f"on images as those of {recipe.data.name}"
            ) from None
        raise RequestError(
            f"{file}: holds another network than {recipe.model} with {run.objective}, which "
            f"{folder / 'run.json'} says ({str(error).splitlines()[0]}): train it again"
        ) from None
    try:
        tested = trainer.predict()
    except DivergedError as error:
        raise RequestError(f"{file}: {error}: there is nothing to evaluate") from None
    about = {
        "run": str(folder),
        "checkpoint": file.name,
        "step": int(state["step"]),
        "data": own.name,
        "model": recipe.model,
        "objective": run.objective,
    }
    return Evaluated(about, images, trainer, tested, state["classes"])


def _other(name: str, trained: ImageData, pixels: int, data_dir: Path) -> ImageData:
    """Other images, scaled as those of the training were; their test part is used as it is.

    A folder that the training divided is divided so again: no image of its training part is
    tested.

    Raises:
        RequestError: no such set.
    """
    ways = loading_modes(check_image_set_name(name))
    way = "stream" if trained.streamed and "stream" in ways else None
    folders = [
        os.path.realpath(resolve_path(own.removeprefix(FOLDER_PREFIX), data_dir))
        for own in (name, trained.name)
        if own.startswith(FOLDER_PREFIX)
    ]
    divided = len(folders) == 2 and folders[0] == folders[1]
    share = trained.test_fraction if divided else None
    return ImageData(name=name, image_size=pixels, load=way, test_fraction=share)


def _check_fit(state: dict[str, Any], images: ImageDataset, file: Path) -> None:
    weight = state["objective"].get("weight")
    found = len(weight) if isinstance(weight, Tensor) and weight.dim() else None
    if found != images.num_classes:
        raise RequestError(
            f"{file}: was trained for {found} classes, and {images.name} has {images.num_classes}: "
            "evaluate it on data with as many"
        )


def title(document: dict[str, Any]) -> str:
    """What was evaluated on what, in a line."""
    return (
        f"{document['model']} with {document['objective']} on {document['data']} "
        f"({document['checkpoint']}, step {document['step']})"
    )
