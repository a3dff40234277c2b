"""Evaluation of trained runs on test images and image pairs: what `marginctl eval` computes."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from marginctl.calibration.calibrator import Calibrator, evaluate_calibrator
from marginctl.data.images.image_sets import ImageDataset, load_ood_datasets
from marginctl.data.images.pairs import read_pairs
from marginctl.data.images.registry import FOLDER_PREFIX, check_image_set_name, loading_modes
from marginctl.data.images.summary import ImageSummary, inspect_image_set
from marginctl.data.paths import resolve_path
from marginctl.errors import RequestError
from marginctl.experiments.checks import load_recipe_images, recipe_groups
from marginctl.experiments.find_run import load_checkpoint
from marginctl.experiments.source_scale import resolved_spec
from marginctl.metrics.detection import detection_metrics
from marginctl.models.factory import create_backbone
from marginctl.models.state_dicts import check_shapes
from marginctl.recipe.image_data import ImageData
from marginctl.runs.atomic_io import csv_text, write_output
from marginctl.training.epoch_metrics import classification_record, long_tail_record
from marginctl.training.ood_evaluation import InputFormat, predict_ood
from marginctl.training.pair_evaluation import PairSimilarities, pair_similarities
from marginctl.training.trainer import MISMATCH_ERRORS, DivergedError, Predictions, Trainer
from marginctl.utils.distributed import World
from marginctl.utils.precision import device_config_for

PAIR_HEADING = ("pairs", "line", "first", "second", "same", "cosine", "fold")
OnSummary = Callable[[str, ImageSummary], None]  # with the name of the images


@dataclass(frozen=True)
class RunPredictions:
    """The predictions of a trained network on test images."""

    description: dict[str, Any]
    images: ImageDataset
    trainer: Trainer
    predictions: Predictions

    @property
    def network(self) -> str:
        return f"{Path(self.description['run']).name}, step {self.description['step']}"


def evaluate(
    path: Path,
    data: str | None,
    checkpoint: str,
    data_dir: Path,
    device: str,
    bins: int,
    calibration: Path | None = None,
    ood: Sequence[str] = (),
    on_summary: OnSummary | None = None,
) -> dict[str, Any]:
    """Evaluate a run directory or a checkpoint; return the document of `eval --json`."""
    calibrator = None if calibration is None else Calibrator.load(calibration)
    run = predict_run(path, data, checkpoint, data_dir, device, on_summary)
    images, predictions, labels = run.images, run.predictions, run.predictions.labels.numpy()
    ood_sets = load_ood_datasets(ood, images, data_dir, stream=run.trainer.recipe.data.streamed)
    ood_predictions = predict_ood(run.trainer, ood_sets, images, None)
    document: dict[str, Any] = {
        "schema": 1,
        "command": "eval",
        **run.description,
        **classification_record(run.trainer.objective, predictions, images.classes, bins),
        # other images than its own have another long tail, or none
        **(long_tail_record(predictions, images.train_y) if data is None else {}),
        "detection": detection_metrics(predictions.outputs, labels, ood_predictions, curves=True),
    }
    if calibration is not None and calibrator is not None:
        logits, digest = predictions.logits.double().numpy(), images.split_digests["test"]
        document["calibrated"] = evaluate_calibrator(
            calibration, calibrator, logits, labels, bins, digest, run.network
        )
    return document


def predict_run(
    path: Path,
    data: str | None,
    checkpoint: str,
    data_dir: Path,
    device: str,
    on_summary: OnSummary | None = None,
) -> RunPredictions:
    """Return the predictions of a trained network on its test images, or on those of `data`.

    Classes of other images are matched by name; `on_summary` gets the summary of a folder or list.
    """
    loaded = load_checkpoint(path, checkpoint)
    file, state, info, recipe = loaded.file, loaded.state, loaded.info, loaded.recipe
    section, test_only = recipe.data, False
    if data is not None:
        section, test_only = _other_data(data, recipe.data, state["image_size"], data_dir)
        groups = recipe_groups(section, data_dir)
        summary = inspect_image_set(
            data, data_dir, section.test_fraction, groups, test_only=test_only
        )
        if summary is not None and on_summary is not None:
            on_summary(data, summary)
    images = load_recipe_images(section, data_dir, test_only=test_only)
    if data is None and images.digest != info.data:
        raise RequestError(
            f"{loaded.folder}: the content of {section.name} has changed since the training: name "
            "the folder of the old content with --data-dir, or evaluate on the new one with --data"
        )
    if list(images.classes) != state["classes"]:
        images = images.with_classes(state["classes"])
    device_config = device_config_for(device, recipe.train.precision)
    trainer = Trainer(recipe, resolved_spec(info), images, info.seed, device_config)
    try:
        trainer.load_weights(state)
    except MISMATCH_ERRORS as error:
        if data is not None:
            shape = f"{images.channels} x {images.image_size} x {images.image_size}"
            raise RequestError(
                f"{file}: {recipe.model} does not take the images of {data} ({shape}): evaluate it "
                f"on images like those of {recipe.data.name}"
            ) from None
        raise RequestError(
            f"{file}: holds another network than {recipe.model} with {info.objective}, which "
            f"{loaded.folder / 'run.json'} says ({str(error).splitlines()[0]}): train it again"
        ) from None
    try:
        predictions = trainer.predict()
    except DivergedError as error:
        raise RequestError(f"{file}: {error}: there is nothing to evaluate") from None
    description = loaded.description | {"data": section.name}
    return RunPredictions(description, images, trainer, predictions)


def _other_data(
    name: str, trained: ImageData, image_size: int, data_dir: Path
) -> tuple[ImageData, bool]:
    """Return the data section of other images, of the size of the training's.

    A folder that the training divided is divided in the same way: no training image is tested. Of
    any other one the test part alone is needed, which is all of a folder without parts.

    Returns:
        the section, and whether the test part alone is needed.
    """
    name = check_image_set_name(name)
    modes = loading_modes(name)
    streams = trained.streamed and "stream" in modes
    load: Literal["stream"] | None = "stream" if streams else None
    folders = [
        os.path.realpath(resolve_path(path.removeprefix(FOLDER_PREFIX), data_dir))
        for path in (name, trained.name)
        if path.startswith(FOLDER_PREFIX)
    ]
    same_folder = len(folders) == 2 and folders[0] == folders[1]
    split = trained.model_dump(include={"test_fraction", "groups"}) if same_folder else {}
    if (load or modes[0]) == "stream":
        split["resizing"] = trained.test_resizing
    section = ImageData(name=name, image_size=image_size, load=load, **split)
    return section, not same_folder


def title(document: dict[str, Any]) -> str:
    """Return one line: the evaluated network and data."""
    return (
        f"{document['model']} with {document['objective']} on {document['data']} "
        f"({document['checkpoint']}, step {document['step']})"
    )


@dataclass(frozen=True)
class PairVerification:
    """The verification of lists of pairs by a trained network."""

    document: dict[str, Any]
    lists: Sequence[PairSimilarities]

    def write(self, path: Path) -> None:
        """Write a CSV row for each pair, in the order of the files; folds count from 1."""
        rows: list[Sequence[Any]] = [PAIR_HEADING]
        for one in self.lists:
            pairs = one.pairs
            columns = (pairs.lines, pairs.rows.tolist(), pairs.same, one.scores, pairs.folds)
            for line, both, same, score, fold in zip(*columns, strict=True):
                files = (pairs.files[row] for row in both)
                rows.append((pairs.file, line, *files, int(same), f"{score:.6f}", fold + 1))
        write_output(path, csv_text(rows))


def verify(
    path: Path, files: Sequence[Path], root: Path | None, kind: str, device: str, *, flip: bool
) -> PairVerification:
    """Verify lists of pairs; the training images of the network are not needed."""
    lists = [read_pairs(file, root) for file in files]
    loaded = load_checkpoint(path, kind)
    recipe, (mean, std) = loaded.recipe, loaded.state["normalization"]
    image_size, resizing = loaded.state["image_size"], recipe.data.test_resizing
    input_format = InputFormat(len(mean), image_size, mean, std, resizing)
    device_config = device_config_for(device, recipe.train.precision)
    backbone, weights = create_backbone(recipe.model, len(mean), image_size), loaded.state["model"]
    try:
        check_shapes(backbone, weights)
        backbone.load_state_dict(weights)
    except MISMATCH_ERRORS as error:
        raise RequestError(
            f"{loaded.file}: holds another network than {recipe.model} "
            f"({str(error).splitlines()[0]}): train it again"
        ) from None
    backbone.eval().to(device_config.device).to(memory_format=device_config.memory_format)

    def extract(x: Tensor) -> Tensor:
        with device_config.autocast():
            features: Tensor = backbone(x)
        return features

    results = pair_similarities(extract, lists, input_format, device_config, World(), flip=flip)
    document = {
        "schema": 1,
        "command": "eval",
        **loaded.description,
        "score": "cosine of the embeddings" + (", each with its mirror image's" if flip else ""),
        "embedding": results[0].embedding_dim,
        "verification": [one.record() for one in results],
    }
    return PairVerification(document, results)


def pairs_title(document: dict[str, Any]) -> str:
    """Return one line: the network and the score of the verification."""
    return (
        f"{document['model']} with {document['objective']}: {document['score']}, "
        f"{document['embedding']} numbers ({document['checkpoint']}, step {document['step']})"
    )
