"""The disk space of runs folders, and its release."""

import contextlib
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from marginctl.errors import RequestError
from marginctl.runs.run_dir import RunDir
from marginctl.runs.safe_read import CorruptFileError, parse_document, read_text

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class StoredRuns:
    """The trials in one folder."""

    folder: str
    trials: int
    finished: int  # how many of the trials have a result
    checkpoints: int  # the bytes of the checkpoints
    size: int  # the bytes of all files
    last_written: str  # the day of the newest file, in local time


def stored_runs(root: Path) -> list[StoredRuns]:
    """Return what each folder of trials below a runs folder holds, in the order of their names.

    Raises:
        RequestError: there is no trial.
    """
    folders: dict[Path, list[Path]] = {}
    for trial in _trials(root):
        folders.setdefault(trial.parent, []).append(trial)
    rows = []
    for folder, trials in folders.items():
        files = [file for trial in trials for file in trial.rglob("*") if file.is_file()]
        stats = {file: file.stat() for file in files}
        newest = max(stat.st_mtime for stat in stats.values())
        saved = [stat for file, stat in stats.items() if file.parent.name == CHECKPOINTS]
        rows.append(
            StoredRuns(
                folder=str(folder),
                trials=len(trials),
                finished=sum((trial / "result.json").is_file() for trial in trials),
                checkpoints=sum(stat.st_size for stat in saved),
                size=sum(stat.st_size for stat in stats.values()),
                last_written=time.strftime("%Y-%m-%d", time.localtime(newest)),
            )
        )
    return rows


def remove_runs(roots: Iterable[Path], *, checkpoints_only: bool) -> tuple[int, list[str]]:
    """Remove the trials in folders, or only the checkpoints of the finished ones.

    Returns:
        How many trials were treated, and a line for each that was not, with the reason.

    Raises:
        RequestError: a folder holds no trial; nothing has been removed.
    """
    trials = [trial for root in roots for trial in _trials(root)]
    count, skipped = 0, []
    for trial in trials:
        part = trial / CHECKPOINTS if checkpoints_only else trial
        if not part.is_dir() or (checkpoints_only and not (trial / "result.json").is_file()):
            continue
        lock = RunDir(trial)
        if not lock.try_lock():
            skipped.append(f"{trial}: is used by another process: skipped")
            continue
        try:
            shutil.rmtree(part)
            count += 1
        except OSError as error:
            skipped.append(f"{part}: cannot be removed: {error.strerror or error}: skipped")
        finally:
            lock.unlock()
    for folder in {trial.parent for trial in trials} if not checkpoints_only else ():
        if not any(folder.glob("*/run.json")):
            (folder / f"{folder.name}.yaml").unlink(missing_ok=True)  # the recipe of its trials
            with contextlib.suppress(OSError):  # it holds other files
                folder.rmdir()
    return count, skipped


def _trials(root: Path) -> list[Path]:
    trials = sorted(path.parent for path in root.rglob("run.json") if _is_ours(path))
    if not trials:
        raise RequestError(f"{root}: holds no trials: expected a runs folder, or a folder in it")
    return trials


def _is_ours(path: Path) -> bool:
    """Return whether a run.json is of a trial; other programs write files of this name, too."""
    try:
        return parse_document(read_text(path)).get("trial") == path.parent.name
    except CorruptFileError:
        return False
