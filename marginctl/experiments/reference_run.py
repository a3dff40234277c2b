"""The trained network that says how hard training images are: where it is, and whether it fits."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from marginctl.data.images.base import ImageDataset
from marginctl.errors import RequestError
from marginctl.experiments.records import (
    TrainingInfo,
    TrainingResult,
    evaluation_recipe,
    parse_training_info,
)
from marginctl.runs.run_dir import parse_result
from marginctl.runs.safe_read import CorruptFileError, MissingFileError, read_text


@dataclass(frozen=True)
class Reference:
    """A finished trial.

    Attributes:
        folder: the trial's.
        run: its run.json.
        weights: the SHA-256 of its weights, which is all that a result depends on.
    """

    folder: Path
    run: TrainingInfo
    weights: str


def find(written: str, images: ImageDataset, groups: int) -> Reference:
    """The trial that `train.reference_run` names.

    Args:
        written: its folder, or one that holds the folder of this trial alone.
        images: that the new networks train on.
        groups: into which the training images are to be parted.

    Raises:
        RequestError: no finished trial, one that diverged or was trained on other images, or fewer
            images than groups.
    """
    said = f"train.reference_run = {written}"
    if len(images.train_y) < groups:
        raise RequestError(
            f"train.difficulty_groups = {groups} of {len(images.train_y)} "
            "training images: expected at least "
            "one image in each"
        )
    folder, run, result = trained_in(Path(written), said)
    if run.data != images.digest:
        raise RequestError(
            f"{said}: was trained on other images ({evaluation_recipe(run).data.name}) than "
            f"{images.name} as this recipe has it: train one with the same data section"
        )
    return Reference(folder, run, str(result.weights_sha256))


def trained_in(folder: Path, said: str) -> tuple[Path, TrainingInfo, TrainingResult]:
    """The folder of a trial that was trained to its end, its run.json and its result.

    Args:
        folder, said: as `trial_in` takes them.

    Raises:
        RequestError: as `trial_in`, or it diverged, is damaged or of another command.
    """
    folder = trial_in(folder, said)
    try:
        return folder, *read_trained(folder)
    except UnfitError as error:
        raise RequestError(
            f"{said}: {error}: expected a trial of marginctl train that was trained to its end"
        ) from None


class UnfitError(Exception):
    """A trial has no network that was trained to its end. `str` says why."""


class OtherCommandError(UnfitError):
    """A trial is of a command that trains no such network."""


def read_trained(
    folder: Path, without: Collection[str] = ()
) -> tuple[TrainingInfo, TrainingResult]:
    """The run.json and the result of a trial that was trained to its end.

    Args:
        folder: of the trial.
        without: tasks whose networks are not meant.

    Raises:
        OtherCommandError: it is of such a task, or of one that trains no network on images.
        UnfitError: it was not trained to its end, or is damaged.
    """
    try:
        run = parse_training_info(read_text(folder / "run.json"))
    except CorruptFileError as error:
        raise UnfitError(f"its run.json {error}") from None
    if run is None or run.task in without:
        raise OtherCommandError("is of another command")
    try:
        result = parse_result(read_text(folder / "result.json"), TrainingResult)
    except MissingFileError:
        raise UnfitError("is not finished") from None
    except CorruptFileError as error:
        raise UnfitError(f"its result.json {error}") from None
    if result.diverged is not None:
        raise UnfitError(f"diverged: {result.diverged}")
    return run, result


def folders_of(folder: Path) -> list[Path]:
    """The folder itself where it is a trial's, else the trials in it."""
    if (folder / "run.json").exists() or (folder / "result.json").exists():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/run.json"))


def trial_in(folder: Path, said: str) -> Path:
    """The folder itself where it is a trial's, else the only finished one in it.

    Args:
        folder: a trial's, or one that holds it alone.
        said: what an error begins with.

    Raises:
        RequestError: none is there, it is not finished, or there are several.
    """
    found = folders_of(folder)
    if len(found) > 1:
        raise RequestError(f"{said}: holds {len(found)} trials: name the folder of one of them")
    if not found or not (found[0] / "result.json").exists():
        what = "no trial is there" if not found else "that trial is not finished"
        raise RequestError(
            f"{said}: {what}: expected the folder of a finished trial of marginctl train: train it "
            "first"
        )
    return found[0]
