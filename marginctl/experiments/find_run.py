"""Finds a trained network: the checkpoint in a trial's folder, and its run.json."""

from pathlib import Path
from typing import Any

from marginctl.errors import RequestError
from marginctl.experiments.records import TrainingInfo, parse_training_info
from marginctl.runs.safe_read import CorruptFileError, read_text
from marginctl.training import checkpoint


def located(path: Path, which: str) -> tuple[Path, Path, dict[str, Any]]:
    """The trial's folder, the checkpoint and what it holds.

    Args:
        path: the folder of a trial, or a checkpoint file in its `checkpoints`.
        which: `last` or `best`, for a folder.

    Raises:
        RequestError: there is no whole checkpoint.
    """
    if path.is_file() and path.parent.name == checkpoint.FOLDER:
        return path.parent.parent, path, checkpoint.load(path)
    if not path.is_dir():
        raise RequestError(
            f"{path}: expected the folder of a trial of marginctl train, or a checkpoint in it"
        )
    kind = checkpoint.LAST if which == "last" else checkpoint.BEST
    found, problems = checkpoint.load_latest(path, kind)
    if found is None:
        raise RequestError(
            *problems,
            f"{path}: has no whole checkpoint: expected a trial that has been trained; without "
            "that folder, marginctl train trains it anew",
        )
    return path, *found


def run_of(folder: Path) -> TrainingInfo:
    """The run.json of a trial's folder.

    Raises:
        RequestError: it is missing, damaged or of another command.
    """
    path = folder / "run.json"
    try:
        run = parse_training_info(read_text(path))
    except CorruptFileError:
        run = None
    if run is None:
        raise RequestError(f"{path}: is missing, corrupt or not of marginctl train")
    return run
