"""Reads the JSON documents of trial folders in whatever state they are, and says what is wrong."""

import json
import os
import stat
from typing import Any, NoReturn

from pydantic_core import from_json

from marginctl.errors import StorageError

SCHEMA = 1
LARGEST = 32 * 2**20  # bytes; the largest records of ours are a hundred times smaller
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class DamageError(StorageError):
    """A file of a trial is not what it must be; the line says why, without its path."""


class AbsentError(DamageError):
    """There is no such file."""


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a regular file; whatever stands in its place, this does not wait for it.

    Raises:
        AbsentError: there is none.
        DamageError: it is no file, too large, cannot be read, is empty or not UTF-8.
    """
    data = read_bytes(path)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise DamageError(f"is damaged (not UTF-8: byte {error.start})") from None
    if not text.strip():
        raise DamageError("is damaged (empty)")
    return text


def read_bytes(path: str | os.PathLike[str], last: int | None = None) -> bytes:
    """The content of a regular file, or so many of its last bytes.

    Raises:
        AbsentError: there is none.
        DamageError: it is no file, too large, or cannot be read.
    """
    try:
        # a pipe that nobody writes to would be waited for without end
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        if os.path.islink(path):
            raise DamageError("is a link to nothing") from None
        raise AbsentError("is missing") from None
    except OSError as error:
        raise DamageError(_unreadable(path, error)) from None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise DamageError(f"is {_kind(about.st_mode)}: expected a file")
        if last is None and about.st_size > LARGEST:
            raise DamageError(f"is too large: {about.st_size} bytes, expected at most {LARGEST}")
        with open(handle, "rb", buffering=0, closefd=False) as file:
            if last is not None:
                file.seek(max(0, about.st_size - last))
            return file.read()
    except OSError as error:
        raise DamageError(_unreadable(path, error)) from None
    finally:
        os.close(handle)


def _unreadable(path: str | os.PathLike[str], error: OSError) -> str:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        mode = stat.S_IFREG
    if stat.S_ISREG(mode):
        return f"cannot be read: {error.strerror or error}"
    return f"is {_kind(mode)}: expected a file"


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant}, which is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _decoded(text: str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)  # reads the same, in a quarter of the time
    except ValueError:
        return _DECODER.decode(text)  # takes a little more, such as half a surrogate in a name


def document_in(text: str) -> dict[str, Any]:
    """The object that a JSON text holds, of a schema that this version reads.

    Raises:
        DamageError: it is no whole JSON, no object, or of another schema.
    """
    try:
        document = _decoded(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise DamageError(f"is damaged (no whole JSON: {where}: {error.msg})") from None
    except RecursionError:
        raise DamageError("is damaged (nested too deeply)") from None
    except ValueError as error:
        raise DamageError(f"is damaged ({error})") from None
    if not isinstance(document, dict):
        kind = "a list" if isinstance(document, list) else f"{str(document)[:20]!r}"
        raise DamageError(f"is damaged ({kind}: expected an object)")
    schema = document.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise DamageError(
            f"has schema = {str(schema)[:40]!r}: expected {SCHEMA}: another version of marginctl "
            "wrote it"
        )
    return document
