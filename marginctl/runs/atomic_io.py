"""Atomic writes: a file is complete or absent."""

import contextlib
import csv
import errno
import io
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from marginctl.errors import RequestError, StorageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TEMPORARY = ".tmp-marginctl-"
READ_ONLY = "is read-only"
RECORDS = ("run.json", "result.json")  # a run directory has one of them


def write_atomically(path: Path, content: str | bytes, *, sync: bool = True) -> None:
    """Write a file of a run through a temporary file: fsync, then rename.

    Args:
        sync: False leaves out fsync, for what another file has a digest of: a loss is noticed.

    Raises:
        StorageError: the disk is full or the folder is not writable; an old file is unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        _replace(path, data, sync=sync)
    except OSError as error:
        raise StorageError(write_error(path, len(data), error)) from None


def _replace(path: Path, data: bytes, *, sync: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_temporaries(path.parent)
    with _temporary_file(path.parent) as (file, name):
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())
        if fcntl is None:
            file.close()  # Windows does not rename an open file
        os.chmod(name, stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644)
        os.replace(name, path)
    if sync and os.name == "posix":  # the rename too
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def _temporary_file(folder: Path) -> Iterator[tuple[IO[bytes], str]]:
    """Yield a new locked file and its name, and remove it at the end.

    A temporary file without a lock was left by a killed process.
    """
    while True:
        handle, name = tempfile.mkstemp(prefix=TEMPORARY, dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                _lock(handle, wait=True)
                if not os.path.exists(name):
                    continue  # another process removed it as stale before it was locked
                yield file, name
                return
        finally:
            with contextlib.suppress(OSError):
                os.unlink(name)


def _lock(handle: int, *, wait: bool) -> bool:
    """Lock an open file; False if another process holds it, or if there are no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file that the user named, atomically.

    The target of a symbolic link is replaced, not the link; a device or a pipe is written directly.

    Raises:
        StorageError: it cannot be written or is read-only; an old file is unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if _is_special(path):
            with path.open("ab") as file:  # /dev/stdout may be a file with earlier lines
                file.write(data)
        elif _is_read_only(path):
            raise PermissionError(errno.EACCES, READ_ONLY)
        else:
            _replace(Path(os.path.realpath(path)) if path.is_symlink() else path, data)
    except OSError as error:
        if_full, otherwise = ": free some space, or name another file", "name a writable file"
        raise StorageError(_reason(path, len(data), error, if_full, otherwise)) from None


def _is_special(path: Path) -> bool:
    """Whether a path is a device or a pipe, which a rename would replace."""
    if str(path).startswith(("/dev/", "/proc/")):
        return path.exists()
    return path.exists() and not path.is_file() and not path.is_dir()


def write_json(path: Path, document: dict[str, Any], *, sync: bool = True) -> None:
    """Write a JSON document atomically. NaN is refused: a missing number is null."""
    write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n", sync=sync)


def write_json_lines(path: Path, documents: Iterable[dict[str, Any]], *, sync: bool = True) -> None:
    """Write one line of JSON for each document, atomically."""
    lines = "".join(json.dumps(d, allow_nan=False) + "\n" for d in documents)
    write_atomically(path, lines, sync=sync)


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV with newlines as line ends."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_arrays(path: Path, parts: Mapping[str, Sequence["NDArray[Any]"]]) -> None:
    """Write an .npz file of arrays, each the concatenation of its parts, without pickles."""
    import numpy as np  # 0.1 s that a list or a report does not wait for

    content = io.BytesIO()
    joined: dict[str, Any] = {name: np.concatenate(list(p)) for name, p in parts.items()}
    np.savez(content, allow_pickle=False, **joined)
    write_atomically(path, content.getvalue())


def check_outputs(
    files: Mapping[str, Path | None],
    inputs: Iterable[Path] = (),
    folders: Mapping[str, Path | None] | None = None,
) -> None:
    """Check before the work that outputs can be written and that no other file is lost.

    Args:
        files, folders: the paths by option; None for an option that is not used.
        inputs: the files of the user that the command reads.

    Raises:
        RequestError: an output cannot be written, is read-only, an input, the file of another
            option or a file of a run.
    """
    taken = {
        os.path.realpath(path): "is an input of this command: name another file" for path in inputs
    }
    for option, path in (*files.items(), *(folders or {}).items()):
        if path is None or _is_special(path):
            continue
        real = os.path.realpath(path)
        kind, file = ("folder", path / "file") if option in (folders or {}) else ("file", path)
        stdout = f"stdout has the results: name a {kind}" if str(path) == "-" else None
        problem = stdout or taken.get(real) or _problem(file)
        if problem:
            raise RequestError(f"{option} {path}: {problem}")
        taken[real] = f"is the file of {option}: name another file"


def _problem(path: Path) -> str | None:
    """Return why a file cannot or must not be written."""
    if path.is_dir():
        return "is a folder: name a file"
    real = Path(os.path.realpath(path))
    records = [folder / name for folder in real.parents[:2] for name in RECORDS]
    if any(record.exists() for record in records):
        return "lies in a run directory, whose files it could overwrite: name another file"
    if real.name == f"{real.parent.name}.yaml" and any(real.parent.glob("*/run.json")):
        return "is the recipe of the runs there: name another file"
    if _is_read_only(path):
        return f"{READ_ONLY}: name another file, or make it writable"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary_file(path.parent):
            return None
    except OSError as error:
        return f"its folder cannot be written: {error.strerror or error}"


def _is_read_only(path: Path) -> bool:
    """Whether nobody may write a file: the rename of a new one would not ask."""
    return path.exists() and not path.stat().st_mode & 0o222


def remove_stale_temporaries(folder: Path) -> None:
    """Remove the temporary files of killed processes; those of running ones are locked."""
    for stale in folder.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError), stale.open("rb") as file:
            if _lock(file.fileno(), wait=False):
                stale.unlink()


def write_error(path: Path, needed: int, error: OSError) -> str:
    """Return why a file of a run could not be written, and what to do."""
    if_full = (
        ". Finished trials are kept: free some space and run the same command again, or name "
        "another folder with --out"
    )
    otherwise = "make the folder writable or name another one with --out"
    return _reason(path, needed, error, if_full, otherwise)


def _reason(path: Path, needed: int, error: OSError, if_full: str, otherwise: str) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        folder = next(p for p in (path.parent, *path.parents) if p.exists())
        free = shutil.disk_usage(folder).free
        return f"{path}: the disk is full: {needed} bytes needed, {free} free{if_full}"
    return f"{path}: cannot be written: {error.strerror or error}: {otherwise}"
