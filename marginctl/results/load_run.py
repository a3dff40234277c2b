"""Reads one trial's folder in whatever state it is: a finished run, or a line on what is wrong."""

import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from marginctl.errors import RequestError
from marginctl.experiments import training_record as training
from marginctl.experiments import transfer_record as transfer
from marginctl.experiments import uci_cv_record as crossval
from marginctl.objectives.parsing import parse
from marginctl.runs.run_dir import OTHER_TRIAL, parse_result
from marginctl.runs.safe_read import (
    CorruptFileError,
    MissingFileError,
    parse_document,
    read_bytes,
    read_text,
)
from marginctl.utils.text import printable

# The files and folders of a trial, by which its folder is known.
MARKS = frozenset({"run.json", "result.json", "metrics.jsonl", "error.txt", "checkpoints"})
_Why = Callable[[Any], str | None]
_TASKS: dict[str, tuple[_Why, _Why]] = {
    "uci-cv": (crossval.why_no_run, crossval.why_no_result),
    "train": (training.why_no_run, training.why_no_result),
    "cosify": (training.why_no_run, training.why_no_result),
    "transfer": (training.why_no_run, transfer.why_no_result),
}


@dataclass(frozen=True)
class Run:
    """A finished trial: its folder, what run.json says of it, and its result."""

    path: Path
    about: dict[str, Any]
    record: dict[str, Any]

    @property
    def started(self) -> str:
        """When it began, in UTC, so that runs of several time zones have an order."""
        written = str(self.about["timing"]["started"])
        try:
            return datetime.fromisoformat(written).astimezone(UTC).isoformat()
        except ValueError:  # not written by us: by its text
            return written

    @property
    def task(self) -> str:
        return str(self.about.get("task", "uci-cv"))

    @property
    def of_folds(self) -> bool:
        """Whether it is a cross-validation, and no training of one network."""
        return self.task == "uci-cv"


def read_run(folder: str) -> Run:
    """The finished trial in a folder. Nothing but run.json and result.json is read.

    Control characters in what a table shows are escaped; runs of one recipe share one object.

    Raises:
        CorruptFileError: it is not finished, or not whole; the line says why, without the folder.
    """
    about, why_no_result = read_about(folder)
    try:
        text = read_text(os.path.join(folder, "result.json"))
    except MissingFileError:
        failed = os.path.lexists(os.path.join(folder, "error.txt"))
        raise CorruptFileError("failed, see error.txt" if failed else "not finished") from None
    except CorruptFileError as error:
        raise CorruptFileError(f"result.json {error}") from None
    try:
        record = parse_result(text)
    except CorruptFileError as error:
        raise CorruptFileError(f"result.json {error}") from None
    why = why_no_result(record) or _contradiction(about, record)
    if why is not None:
        raise CorruptFileError(f"result.json {OTHER_TRIAL} ({why})")
    record = _shown(text, record)
    if about.get("task") == "transfer":
        record = transfer.as_trained(record)
    return Run(Path(folder), about, record)


def read_about(folder: str) -> tuple[dict[str, Any], _Why]:
    """What run.json says, and what checks a result of its task.

    Raises:
        CorruptFileError: it is missing or damaged.
    """
    try:
        text = read_text(os.path.join(folder, "run.json"))
        about = parse_document(text)
    except CorruptFileError as error:
        raise CorruptFileError(f"run.json {error}") from None
    task = str(about.get("task", "uci-cv"))
    if task not in _TASKS:
        raise CorruptFileError(
            f"run.json is of the task {task[:40]!r}: expected one of {', '.join(_TASKS)}"
        )
    missing = _missing_plugins(about)
    if missing:
        raise CorruptFileError(
            f"needs {missing}, which is not installed: install it or add it to MARGINCTL_PLUGINS"
        )
    why_no_run, why_no_result = _TASKS[task]
    why = why_no_run(about)
    if why is not None:
        raise CorruptFileError(f"run.json is corrupt ({why})")
    about = _shown(text, about)
    try:
        written = json.dumps(about["recipe"], allow_nan=False)
    except ValueError:
        raise CorruptFileError("run.json is corrupt (a number is infinite)") from None
    return about | {"recipe": _shared(written)}, why_no_result


@functools.lru_cache(maxsize=1024)
def _shared(written: str) -> Any:
    """One object for all the runs that have the same: thousands of copies would fill the memory."""
    return json.loads(written)


def _missing_plugins(about: dict[str, Any]) -> str | None:
    """Return the plug-ins that a run needs and this installation lacks, None if there are none."""
    plugins = about.get("plugins")
    if not isinstance(plugins, list):
        return None
    try:
        parse(str(about.get("objective")))
    except RequestError:
        return ", ".join(map(str, plugins))
    return None


def _contradiction(about: dict[str, Any], record: dict[str, Any]) -> str | None:
    for key in ("trial", "objective", "seed", "dataset"):
        if key in about and about[key] != record.get(key):
            ours, theirs = str(record.get(key))[:60], str(about[key])[:60]
            return f"{key} = {ours!r}, and run.json has {theirs!r}"
    return None


def _shown(text: str, document: dict[str, Any]) -> dict[str, Any]:
    """The document, no string of which a terminal would obey."""
    if text.isascii() and "\\" not in text:  # then none can: JSON escapes what could
        return document
    found: dict[str, Any] = _printable(document)
    return found


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): _printable(item) for key, item in value.items()}
    return value


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the records of a metrics.jsonl in the order of their epochs.

    An incomplete line, or one without an epoch, is left out; a missing file has no records.
    """
    try:
        text = read_bytes(path).decode("utf-8", "replace")
    except CorruptFileError:
        return []
    records = {}
    for line in text.split("\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and isinstance(record.get("epoch"), int):
            records[record["epoch"]] = record
    return [records[epoch] for epoch in sorted(records)]
