"""Trial folders: `<out>/<recipe name>/<trial id>/` with run.json, metrics.jsonl, result.json."""

import contextlib
import errno
import functools
import hashlib
import json
import platform
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import filelock

import marginctl
from marginctl.errors import StorageError
from marginctl.runs.atomic_io import sweep_temporaries, unwritable, write_json, write_json_lines
from marginctl.runs.safe_read import SCHEMA, AbsentError, DamageError, document_in, read_text

# Files that a trial may have beside its result, where they were asked for.
PREDICTIONS = "predictions.csv"
NETWORKS = "checkpoints/networks.npz"
# Where result.json keeps the digest of each.
KEPT = {PREDICTIONS: "predictions_sha256", NETWORKS: "weights_sha256"}
# A result computed under other versions of these is not resumed: it may differ.
NUMERIC_PACKAGES = ("torch", "numpy")


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(document: Any) -> str:
    """SHA-256 of a JSON document, independent of the order of keys."""
    return hashlib.sha256(_CANONICAL.encode(document).encode()).hexdigest()


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file, None where it cannot be read; a pipe is not waited for."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    except OSError:
        return None


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what a result may depend on, read without importing it."""
    found = {"marginctl": marginctl.__version__, "python": platform.python_version()}
    for package in NUMERIC_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


@functools.cache
def git_commit() -> str | None:
    """The commit of marginctl's own checkout, `+changes` where files differ; None elsewhere."""
    root = Path(marginctl.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        asked = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty=+changes"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() or None


FOREIGN = "is not a result of this trial"


def result_in(text: str) -> dict[str, Any]:
    """The record in the text of a result.json, without its checksum.

    Raises:
        DamageError: it is not whole.
    """
    record = document_in(text)
    said = record.pop("sha256", None)
    try:
        fits = said == digest(record)
    except ValueError:  # 1e999 is read as infinity
        raise DamageError("is damaged (a number is infinite)") from None
    if not fits:
        raise DamageError("is damaged (its checksum does not fit)")
    return record


def parse_run(text: str, kinds: Iterable[Callable[[Any], bool]]) -> dict[str, Any] | None:
    """The content of a run.json, or None where it is of none of the kinds."""
    try:
        document = document_in(text)
    except DamageError:
        return None
    return document if any(is_run(document) for is_run in kinds) else None


@dataclass(frozen=True)
class Found:
    """What a trial folder holds: a result, or the reason why there is none to use.

    Attributes:
        reason: only where something is there that cannot be used.
        whole: whether run.json is as it was written; else `begin` writes it anew.
    """

    result: dict[str, Any] | None
    reason: str | None = None
    whole: bool = True


class TrialFolder:
    """One trial's folder. Write only with its lock held."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = filelock.FileLock(path / ".lock", thread_local=False)

    def try_lock(self) -> bool:
        """Takes the lock; False where another process holds it. A killed holder holds nothing.

        Raises:
            StorageError: the folder cannot be made or written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            return False
        except OSError as error:
            if error.errno == errno.EROFS and self.path.is_dir():
                return True  # nobody writes there: what is done can be read
            raise StorageError(unwritable(self.path, 0, error)) from None
        for folder in (self.path, (self.path / NETWORKS).parent):
            sweep_temporaries(folder)
        return True

    def unlock(self) -> None:
        self._lock.release()

    def find(
        self,
        needed: Iterable[str] = (),
        is_result: Callable[[dict[str, Any]], bool] = lambda record: True,
    ) -> Found:
        """Reads the result, if there is a whole one from the same numerics.

        Args:
            needed: files that must be there beside it, with the digests that it names.
            is_result: whether a record has what a result of this kind must have.
        """
        path = self.path / "result.json"
        try:
            record = result_in(read_text(path))
        except AbsentError:
            return Found(None)
        except DamageError as error:
            return Found(None, f"{path}: {error}: computed anew")
        if not is_result(record) or record["trial"] != self.path.name:
            return Found(None, f"{path}: {FOREIGN}: computed anew")
        now = versions()
        for package in NUMERIC_PACKAGES:
            then = record["versions"].get(package)
            if then != now[package]:
                return Found(
                    None,
                    f"{path}: from {package} {then}, this is {now[package]}: computed anew",
                )
        for name in needed:
            kept = record.get(KEPT[name])
            if kept is None or kept != file_digest(self.path / name):
                return Found(None, f"{self.path}: has no whole {name}: computed anew")
        written = record["timing"].get("sha256", {})  # results of old have none
        for name in written:
            if written[name] == file_digest(self.path / name):
                continue
            if name == "run.json":
                return Found(record, f"{self.path}: has no whole run.json: written anew", False)
            return Found(None, f"{self.path}: has no whole {name}: computed anew")
        return Found(record)

    def begin(self, document: dict[str, Any]) -> None:
        """Writes run.json: what this trial is and what it is computed with."""
        timing = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            "host": {"machine": platform.machine(), "system": platform.system()},
        }
        run = {
            "schema": SCHEMA,
            **document,
            "versions": versions(),
            "git_commit": git_commit(),
            "timing": timing,
        }
        write_json(self.path / "run.json", run)
        with contextlib.suppress(OSError):
            (self.path / "error.txt").unlink()  # of an earlier try

    def finish(self, metrics: Iterable[dict[str, Any]], result: dict[str, Any]) -> dict[str, Any]:
        """Writes metrics.jsonl and then, last, result.json, whose presence means done."""
        write_json_lines(self.path / "metrics.jsonl", metrics)
        return self.finish_appended(result)

    def finish_appended(self, result: dict[str, Any]) -> dict[str, Any]:
        """`finish` where metrics.jsonl has been written line by line.

        The digests of the files beside it are part of its timing, as the seconds in these are.

        Raises:
            StorageError: it cannot be written, or one of these files has gone in the meantime.
        """
        written = {name: file_digest(self.path / name) for name in ("metrics.jsonl", "run.json")}
        for name in (name for name, found in written.items() if found is None):
            raise StorageError(
                f"{self.path}: {name} has gone while the trial was at work: was the folder moved "
                "or removed? Without a result: run the same command again"
            )
        timing = {**result["timing"], "sha256": written}
        record = {"schema": SCHEMA, **result, "timing": timing, "versions": versions()}
        write_json(self.path / "result.json", {**record, "sha256": digest(record)})
        return record

    def told_anew(self, record: dict[str, Any]) -> dict[str, Any]:
        """Writes a record that `find` has read, changed or beside a changed run.json, once more."""
        return self.finish_appended(
            {k: v for k, v in record.items() if k not in ("schema", "versions")}
        )
