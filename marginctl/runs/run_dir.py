"""Run directories `<out>/<recipe name>/<trial id>/`: run.json, metrics.jsonl and result.json."""

import contextlib
import errno
import functools
import hashlib
import json
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, TypeVar

import filelock

import marginctl
from marginctl.errors import StorageError
from marginctl.runs import atomic_io, safe_read
from marginctl.runs.base_record import Result, validated

# that the files of a small trial take, next to two workers on 2 CPU cores (mean of 4,544 trials)
SAVE_SECONDS = 0.0055

# Files that a run directory may hold besides its result, on request.
PREDICTIONS = "predictions.csv"
EXAMPLE_IMAGE = "example.png"
NETWORKS = "checkpoints/networks.npz"
# The keys of result.json that hold their digests.
DIGEST_KEYS = {PREDICTIONS: "predictions_sha256", NETWORKS: "weights_sha256"}
# A result from other versions of these packages is recomputed: it may differ.
NUMERIC_PACKAGES = ("torch", "numpy")

R = TypeVar("R", bound=Result)
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(document: Any) -> str:
    """Return the SHA-256 of a JSON document, independent of the order of its keys."""
    return hashlib.sha256(_CANONICAL.encode(document).encode()).hexdigest()


def file_digest(path: Path) -> str | None:
    """Return the SHA-256 of a file, None if it cannot be read or is not a regular file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    except OSError:
        return None


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions that a result may depend on, without importing the packages."""
    result = {"marginctl": marginctl.__version__, "python": platform.python_version()}
    for package in NUMERIC_PACKAGES:
        try:
            result[package] = version(package)
        except PackageNotFoundError:
            result[package] = "unknown"
    return result


@functools.cache
def git_commit() -> str | None:
    """Return the commit of marginctl's checkout, with `+changes` if files differ; else None."""
    root = Path(marginctl.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty=+changes"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None


OTHER_TRIAL = "is not a result of this trial"


def checked_document(text: str) -> dict[str, Any]:
    """Return the document of a result.json without its checksum, or raise CorruptFileError."""
    record = safe_read.parse_document(text)
    checksum = record.pop("sha256", None)
    try:
        matches = checksum == digest(record)
    except ValueError:  # 1e999 is read as infinity
        raise safe_read.CorruptFileError("is corrupt (a number is infinite)") from None
    if not matches:
        raise safe_read.CorruptFileError("is corrupt (checksum mismatch)")
    return record


def parse_result(text: str, model: type[R]) -> R:
    """Return the record in the text of a result.json, or raise CorruptFileError."""
    document = checked_document(text)
    try:
        return validated(model, document)
    except safe_read.CorruptFileError as error:
        raise safe_read.CorruptFileError(f"{OTHER_TRIAL} ({error})") from None


@dataclass(frozen=True)
class SavedResult(Generic[R]):
    """The result that a run directory holds, or the reason why it cannot be used."""

    result: R | None  # None if there is no usable result
    problem: str | None = None  # a message for the user, None if nothing is wrong
    # whether run.json is unchanged; if not, `start` has to write it again
    run_json_intact: bool = True


class RunDir:
    """The directory of one trial. Write to it only while you hold its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = filelock.FileLock(path / ".lock", thread_local=False)

    def try_lock(self) -> bool:
        """Take the lock; False if another process holds it. A killed process holds none."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            return False
        except OSError as error:
            if error.errno == errno.EROFS and self.path.is_dir():
                return True  # nobody can write here: finished results can be read
            raise StorageError(atomic_io.write_error(self.path, 0, error)) from None
        for folder in (self.path, (self.path / NETWORKS).parent):
            atomic_io.remove_stale_temporaries(folder)
        return True

    def unlock(self) -> None:
        self._lock.release()

    def load_result(self, model: type[R], required: Iterable[str] = ()) -> SavedResult[R]:
        """Load the result if it is intact and from the same versions of the numeric packages.

        Args:
            required: files that must exist besides it and match the digests that it holds.
        """
        path = self.path / "result.json"
        try:
            result = parse_result(safe_read.read_text(path), model)
        except safe_read.MissingFileError:
            return SavedResult(None)
        except safe_read.CorruptFileError as error:
            return SavedResult(None, f"{path}: {error}: recomputing")
        if result.trial != self.path.name:
            return SavedResult(None, f"{path}: {OTHER_TRIAL}: recomputing")
        for package in NUMERIC_PACKAGES:
            recorded, current = result.versions.get(package), versions()[package]
            if recorded != current:
                problem = f"{path}: from {package} {recorded}, this is {current}: recomputing"
                return SavedResult(None, problem)
        checksums = {name: getattr(result, DIGEST_KEYS[name], None) for name in required}
        checksums |= result.timing.sha256
        corrupt = [n for n, c in checksums.items() if c is None or c != file_digest(self.path / n)]
        for name in corrupt:
            if name != "run.json":
                problem = f"{self.path}: {name} is missing or corrupt: recomputing"
                return SavedResult(None, problem)
        if corrupt:
            problem = f"{self.path}: run.json is missing or corrupt: writing it again"
            return SavedResult(result, problem, False)
        return SavedResult(result)

    def start(self, document: dict[str, Any]) -> None:
        """Write run.json: what this trial is and what it is computed with."""
        timing = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            "host": {"machine": platform.machine(), "system": platform.system()},
        }
        run = {
            "schema": safe_read.SCHEMA,
            **document,
            "versions": versions(),
            "git_commit": git_commit(),
            "timing": timing,
        }
        atomic_io.write_json(self.path / "run.json", run, sync=False)
        with contextlib.suppress(OSError):
            (self.path / "error.txt").unlink()  # from an earlier attempt

    def finish(self, metrics: Iterable[dict[str, Any]], result: R) -> R:
        """Write metrics.jsonl and then result.json, which marks the trial as finished."""
        atomic_io.write_json_lines(self.path / "metrics.jsonl", metrics, sync=False)
        return self.write_result(result)

    def write_result(self, result: R) -> R:
        """Write result.json with the versions and the digests of run.json and metrics.jsonl.

        The digests are part of its timing, like the seconds in these files.

        Raises:
            StorageError: it cannot be written, or one of these files has been removed.
        """
        checksums = {name: file_digest(self.path / name) for name in ("metrics.jsonl", "run.json")}
        for name in (name for name, checksum in checksums.items() if checksum is None):
            raise StorageError(
                f"{self.path}: {name} was removed while the trial ran, so that no result can be "
                "written: run the same command again"
            )
        timing = result.timing.model_copy(update={"sha256": checksums})
        result = result.model_copy(update={"timing": timing, "versions": versions()})
        document = {"schema": safe_read.SCHEMA, **result.document()}
        atomic_io.write_json(self.path / "result.json", {**document, "sha256": digest(document)})
        return result


# Keys of run.json in which trials may differ that differ only in the content of their data.
_VARYING = {"trial", "data", "data_identity", "data_summary", "device", "setting", "precision"}
_VARYING |= {"processes", "recipe", "schema", "versions", "git_commit", "timing"}


def changed_data_note(folder: Path, pending: Iterable[Mapping[str, Any]]) -> str | None:
    """Return a note if finished trials of pending ones read other content from the same data."""
    by_key = {_key_without_content(info): info for info in pending}
    if not by_key or not folder.is_dir():
        return None
    changed: dict[str, int] = {}
    for path in sorted(folder.glob("*/run.json")):
        try:
            run = safe_read.parse_document(safe_read.read_text(path))
            info = by_key.get(_key_without_content(run))
        except (safe_read.CorruptFileError, ValueError):
            continue
        finished = (path.parent / "result.json").exists()
        if finished and info is not None and info["data"] != run.get("data"):
            name = str(info.get("dataset") or _data_section(info)["name"])
            changed[name] = changed.get(name, 0) + 1
    if not changed:
        return None
    names = ", ".join(f"{name} (finished trials: {count})" for name, count in changed.items())
    changes = f"the data, or how they are read, changed since: {names}"
    return f"{folder}: {changes}: recomputing; the old runs stay"


def _key_without_content(run: Mapping[str, Any]) -> str:
    return digest([{k: v for k, v in run.items() if k not in _VARYING}, _data_section(run)])


def _data_section(run: Mapping[str, Any]) -> Any:
    recipe = run.get("recipe")
    return recipe.get("data") if isinstance(recipe, Mapping) else None
