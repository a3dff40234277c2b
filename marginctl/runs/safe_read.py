"""Reading the JSON files of run directories, whatever is wrong with them."""

import json
import os
import stat
from typing import Any, NoReturn

from pydantic_core import from_json

from marginctl.errors import StorageError

# The files and folders by which a run directory is recognised.
RUN_FILES = frozenset({"run.json", "result.json", "metrics.jsonl", "error.txt", "checkpoints"})
CANDIDATES = "tune"  # the folder of the candidates of tuning in a run directory
SCHEMA = 1
MAX_BYTES = 32 * 2**20  # a hundred times the size of our largest records


class CorruptFileError(StorageError):
    """A file of a run cannot be used. The message gives the reason without the path."""


class MissingFileError(CorruptFileError):
    """There is no such file."""


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a regular file.

    Raises:
        MissingFileError: there is no such file.
        CorruptFileError: it is not a regular file, too large, unreadable, empty or not UTF-8.
    """
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"is corrupt (not UTF-8: byte {error.start})") from None
    if not text.strip():
        raise CorruptFileError("is corrupt (empty)")
    return text


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a regular file, or raise as `read_text`."""
    try:
        info = os.stat(path)  # before opening: opening a pipe would block
        if not stat.S_ISREG(info.st_mode):
            raise CorruptFileError("is not a regular file")
        if info.st_size > MAX_BYTES:
            raise CorruptFileError(
                f"is too large: {info.st_size} bytes, expected at most {MAX_BYTES}"
            )
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except FileNotFoundError:
        raise MissingFileError("is missing") from None
    except OSError as error:
        raise CorruptFileError(f"cannot be read: {error.strerror or error}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant}, which is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _decode(text: str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)  # the same numbers in a quarter of the time
    except ValueError:
        return _DECODER.decode(text)  # accepts a little more, such as a lone surrogate


def parse_document(text: str) -> dict[str, Any]:
    """Return the JSON object in a text, or raise CorruptFileError, as for another schema."""
    try:
        document = _decode(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise CorruptFileError(f"is corrupt (invalid JSON: {place}: {error.msg})") from None
    except RecursionError:
        raise CorruptFileError("is corrupt (nested too deeply)") from None
    except ValueError as error:
        raise CorruptFileError(f"is corrupt ({error})") from None
    if not isinstance(document, dict):
        kind = "a list" if isinstance(document, list) else f"{str(document)[:20]!r}"
        raise CorruptFileError(f"is corrupt ({kind}: expected an object)")
    schema = document.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise CorruptFileError(
            f"has schema = {str(schema)[:40]!r}: expected {SCHEMA}: it was written by another "
            "version of marginctl"
        )
    return document
