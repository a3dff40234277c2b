"""Finished runs of trained networks: their directories, records and checkpoints."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginctl.data.images.image_sets import ImageDataset
from marginctl.errors import RequestError
from marginctl.experiments.records import (
    TrainingInfo,
    TrainingResult,
    evaluation_recipe,
    parse_training_info,
)
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.runs.disk_usage import CHECKPOINTS
from marginctl.runs.run_dir import parse_result
from marginctl.runs.safe_read import CorruptFileError, MissingFileError, read_text
from marginctl.training import checkpoint


class UnusableRunError(Exception):
    """A run has no network that was trained to its end. `str` says why."""


class OtherTaskError(UnusableRunError):
    """A run is of a task that trains no such network."""


@dataclass(frozen=True)
class ReferenceRun:
    """A finished run whose network defines the difficulty of training images."""

    folder: Path
    run: TrainingInfo
    weights: str  # the SHA-256 of its weights: all that a result depends on


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The content of a checkpoint file, with the run directory and run.json that it belongs to."""

    folder: Path
    file: Path
    state: dict[str, Any]
    info: TrainingInfo
    recipe: ImageRecipe  # to evaluate the network with

    @property
    def description(self) -> dict[str, Any]:
        """The keys that name the network in the document of an evaluation."""
        return {
            "run": str(self.folder),
            "checkpoint": self.file.name,
            "step": int(self.state["step"]),
            "model": str(self.recipe.model),
            "objective": self.info.objective,
        }


def load_checkpoint(path: Path, kind: str) -> LoadedCheckpoint:
    """Return the last or best checkpoint of a run directory, or the file in its `checkpoints`."""
    path = path.absolute()
    if path.is_file() and path.parent.name == CHECKPOINTS:
        folder, file, state = path.parent.parent, path, checkpoint.load(path)
    elif is_run_dir(path):
        which = checkpoint.LAST if kind == "last" else checkpoint.BEST
        latest, problems = checkpoint.load_latest(path, which)
        if latest is None:
            raise RequestError(
                *problems,
                f"{path}: has no intact checkpoint: expected a trained trial; remove the folder "
                "and train it again",
            )
        folder, (file, state) = path, latest
    else:
        other = ": eval and transfer take other weights as MODEL=FILE, such as resnet50="
        raise RequestError(
            f"{path}: expected the folder of a trial of marginctl train, or a checkpoint in it"
            + (f"{other}{path.name}" if path.is_file() else "")
        )
    info = load_run_info(folder)
    return LoadedCheckpoint(folder, file, state, info, evaluation_recipe(info))


def load_run_info(folder: Path) -> TrainingInfo:
    path = folder / "run.json"
    try:
        info = parse_training_info(read_text(path))
    except CorruptFileError:
        info = None
    if info is None:
        raise RequestError(f"{path}: is missing, corrupt or not of marginctl train")
    return info


def find_reference_run(name: str, images: ImageDataset, groups: int) -> ReferenceRun:
    """Return the run that `train.reference_run` names."""
    key = f"train.reference_run = {name}"
    if len(images.train_y) < groups:
        raise RequestError(
            f"train.difficulty_groups = {groups} of {len(images.train_y)} training images: "
            "expected at least one image in each"
        )
    folder, info, result = find_trained_run(Path(name), key)
    if info.data != images.digest:
        raise RequestError(
            f"{key}: was trained on other images ({evaluation_recipe(info).data.name}) than "
            f"{images.name} of this recipe: train one with the same data section"
        )
    return ReferenceRun(folder, info, str(result.weights_sha256))


def find_trained_run(folder: Path, key: str) -> tuple[Path, TrainingInfo, TrainingResult]:
    """Return the directory, run.json and result of the only run in a folder, or of that folder.

    Raises:
        RequestError: there is none, or several, or it was not trained to its end.
    """
    folders = run_dirs(folder)
    if len(folders) > 1:
        raise RequestError(f"{key}: holds {len(folders)} trials: name the folder of one of them")
    if not folders or not (folders[0] / "result.json").exists():
        problem = "that trial is not finished" if folders else "no trial is there"
        raise RequestError(
            f"{key}: {problem}: expected the folder of a finished trial of marginctl train: train "
            "it first"
        )
    try:
        return folders[0], *load_trained_run(folders[0])
    except UnusableRunError as error:
        raise RequestError(
            f"{key}: {error}: expected a trial of marginctl train that was trained to its end"
        ) from None


def load_trained_run(
    folder: Path, exclude: Collection[str] = ()
) -> tuple[TrainingInfo, TrainingResult]:
    """Return the run.json and the result of a run that was trained to its end.

    Raises:
        OtherTaskError: it is of such a task, or of one that trains no network on images.
        UnusableRunError: it was not trained to its end, or is corrupt.
    """
    try:
        info = parse_training_info(read_text(folder / "run.json"))
    except CorruptFileError as error:
        raise UnusableRunError(f"its run.json {error}") from None
    if info is None or info.task in exclude:
        raise OtherTaskError("is of another command")
    try:
        result = parse_result(read_text(folder / "result.json"), TrainingResult)
    except MissingFileError:
        raise UnusableRunError("is not finished") from None
    except CorruptFileError as error:
        raise UnusableRunError(f"its result.json {error}") from None
    if result.diverged is not None:
        raise UnusableRunError(f"diverged: {result.diverged}")
    return info, result


def is_run_dir(folder: Path) -> bool:
    return (folder / "run.json").exists() or (folder / "result.json").exists()


def run_dirs(folder: Path) -> list[Path]:
    """Return the folder itself if it is a run directory, else the run directories in it."""
    if is_run_dir(folder):
        return [folder]
    return sorted(path.parent for path in folder.glob("*/run.json"))
