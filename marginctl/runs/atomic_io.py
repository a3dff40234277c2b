"""Files that are either whole or absent."""

import contextlib
import csv
import errno
import io
import json
import os
import shutil
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


def write_atomically(path: Path, content: str) -> None:
    """Writes a file through a temporary one beside it: fsync, then rename.

    Raises:
        StorageError: the disk is full or the folder cannot be written; what was there is unharmed.
    """
    write_bytes_atomically(path, content.encode())


def write_bytes_atomically(path: Path, data: bytes) -> None:
    """`write_atomically` of bytes."""
    try:
        _replace(path, data)
    except OSError as error:
        raise StorageError(unwritable(path, len(data), error)) from None


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep_temporaries(path.parent)
    with _temporary(path.parent) as (file, name):
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        if fcntl is None:
            file.close()  # Windows renames no open file
        os.chmod(name, 0o644)
        os.replace(name, path)
    _sync_folder(path.parent)


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[tuple[IO[bytes], str]]:
    """A new file and its name, locked: one that nobody holds was left by a kill. It never stays."""
    while True:
        handle, name = tempfile.mkstemp(prefix=TEMPORARY, dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                _lock(handle, wait=True)
                if not os.path.exists(name):
                    continue  # another process took it for a left one, before it was locked
                yield file, name
                return
        finally:
            with contextlib.suppress(OSError):
                os.unlink(name)


def _lock(handle: int, *, wait: bool) -> bool:
    """Locks an open file; False where another process holds it, or where there are no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def write_output(path: Path, content: str | bytes) -> None:
    """Writes a file that a user named, not one of a run, whole or not at all.

    A link stays, and what it leads to is written; a device or a pipe is written as it is.

    Raises:
        StorageError: it cannot be written; what was there is unharmed.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if _is_stream(path):
            path.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(path)) if path.is_symlink() else path, data)
    except OSError as error:
        full, otherwise = ": make room, or name another file", "name a file that can be"
        raise StorageError(_why(path, len(data), error, full, otherwise)) from None


def _is_stream(path: Path) -> bool:
    """Whether there is something other than a file or a folder: to rename onto it would end it."""
    if str(path).startswith(("/dev/", "/proc/")):
        return path.exists()
    return path.exists() and not path.is_file() and not path.is_dir()


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Writes one JSON document atomically. NaN is refused: a missing number is null."""
    write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def write_json_lines(path: Path, documents: Iterable[dict[str, Any]]) -> None:
    """Writes a line of JSON for each document, atomically."""
    write_atomically(path, "".join(json.dumps(d, allow_nan=False) + "\n" for d in documents))


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Writes a CSV file of a run atomically; the first row holds the names."""
    write_atomically(path, csv_text(rows))


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as a CSV file has them, their lines ending in a newline alone."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_arrays(path: Path, parts: Mapping[str, Sequence["NDArray[Any]"]]) -> None:
    """Writes an .npz of arrays, each the concatenation of its parts. No pickles."""
    import numpy as np  # 0.1 s that a list or a report need not wait for

    content = io.BytesIO()
    joined: dict[str, Any] = {name: np.concatenate(list(p)) for name, p in parts.items()}
    np.savez(content, allow_pickle=False, **joined)
    write_bytes_atomically(path, content.getvalue())


def check_writable(path: Path) -> None:
    """Finds out before the work whether a file can be written after it.

    Raises:
        RequestError: it is a folder, or its folder cannot be made or written.
    """
    if path.is_dir():
        raise RequestError(f"{path}: is a folder: name a file")
    if _is_stream(path):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(path.parent):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise RequestError(f"{path}: its folder cannot be written: {reason}") from None


def check_outputs(file: Path | None, folder: Path | None, inputs: Iterable[Path]) -> None:
    """`check_writable` of what is written at the end, which must not be what was read.

    Raises:
        RequestError: also where `file` is one of the inputs.
    """
    if file is not None:
        check_writable(file)
        if any(file.exists() and file.samefile(read) for read in inputs):
            raise RequestError(f"{file}: is read by this command: name another file to write")
    if folder is not None:
        check_writable(folder / "networks.npz")


def sweep_temporaries(folder: Path) -> None:
    """Removes what killed writes left in a folder; what is being written is locked, and stays."""
    for stale in folder.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError), stale.open("rb") as file:
            if _lock(file.fileno(), wait=False):
                stale.unlink()


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def unwritable(path: Path, needed: int, error: OSError) -> str:
    """Why a file of a run could not be written, and what to do."""
    return _why(
        *(path, needed, error),
        ". Finished trials are kept: make room and run the same command again, or name another "
        "folder with --out",
        "make the folder writable or name another one with --out",
    )


def _why(path: Path, needed: int, error: OSError, when_full: str, otherwise: str) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        folder = next(p for p in (path.parent, *path.parents) if p.exists())
        free = shutil.disk_usage(folder).free
        return f"{path}: the disk is full: {needed} bytes needed, {free} free{when_full}"
    return f"{path}: cannot be written: {error.strerror or error}: {otherwise}"
