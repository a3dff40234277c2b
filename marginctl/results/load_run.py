"""Loading run directories: a finished run, or the reason why there is none."""

import hashlib
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from marginctl.errors import RequestError
from marginctl.experiments import records
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.recipe.transfer import TransferRecipe
from marginctl.recipe.uci_cv import UciCvRecipe
from marginctl.runs import safe_read
from marginctl.runs.base_record import RunInfo, parse_objective, validated
from marginctl.runs.run_dir import OTHER_TRIAL, checked_document
from marginctl.utils.text import printable


@dataclass(frozen=True)
class Run:
    path: Path
    info: RunInfo  # its run.json
    # its result.json; of a transfer as tables of training read it: by the new classifier where an
    # own recipe compares several, else by the source model
    result: records.CVResult | records.TrainingResult
    recipe: UciCvRecipe | ImageRecipe  # of its setting: one object for all runs that have the same

    @property
    def recipe_name(self) -> str:
        return str(self.info.recipe["name"])

    @cached_property
    def started(self) -> str:
        """Return the start time in UTC, so that runs from different time zones can be ordered."""
        text = self.info.timing.started
        try:
            return datetime.fromisoformat(text).astimezone(UTC).isoformat()
        except ValueError:
            return text

    @property
    def cv_result(self) -> records.CVResult:
        assert isinstance(self.result, records.CVResult)
        return self.result

    @property
    def training_result(self) -> records.TrainingResult:
        assert isinstance(self.result, records.TrainingResult)
        return self.result


def load_run(folder: str) -> Run:
    """Load the finished run in a directory from its run.json and result.json.

    Control characters are escaped.

    Raises:
        safe_read.CorruptFileError: it is incomplete or corrupt; the message has no path.
    """
    info, recipe, checksum = _load_info(folder)
    model = records.result_type(info.task)
    try:
        text = safe_read.read_text(os.path.join(folder, "result.json"))
        document = _escaped(text, checked_document(text))
    except safe_read.MissingFileError:
        failed = os.path.lexists(os.path.join(folder, "error.txt"))
        raise safe_read.CorruptFileError(
            "failed, see error.txt" if failed else "not finished"
        ) from None
    except safe_read.CorruptFileError as error:
        raise safe_read.CorruptFileError(f"result.json {error}") from None
    try:
        result = validated(model, document)
    except safe_read.CorruptFileError as error:
        raise safe_read.CorruptFileError(f"result.json {OTHER_TRIAL} ({error})") from None
    problem = _contradiction(info, result) if result.versions else "'versions' is missing"
    if problem:
        raise safe_read.CorruptFileError(f"result.json {OTHER_TRIAL} ({problem})")
    if result.timing.sha256.get("run.json", checksum) != checksum:
        raise safe_read.CorruptFileError("run.json has changed since the run finished")
    if isinstance(result, records.TransferResult):
        heads = isinstance(recipe, TransferRecipe) and recipe.compares_heads(result.setting)
        result = result.in_table(by_head=heads)
    return Run(Path(folder), info, result, recipe)


def _load_info(folder: str) -> tuple[RunInfo, UciCvRecipe | ImageRecipe, str]:
    """Return run.json, its recipe and its SHA-256."""
    try:
        text = safe_read.read_text(os.path.join(folder, "run.json"))
        document = _escaped(text, safe_read.parse_document(text))
    except safe_read.CorruptFileError as error:
        raise safe_read.CorruptFileError(f"run.json {error}") from None
    if problem := _missing_plugins(document):
        raise safe_read.CorruptFileError(problem)
    try:
        return *records.validate_info(document), hashlib.sha256(text.encode()).hexdigest()
    except safe_read.CorruptFileError as error:
        raise safe_read.CorruptFileError(f"run.json {error}") from None


def _missing_plugins(document: dict[str, Any]) -> str | None:
    """Return a message if an objective needs a plug-in that is not installed."""
    names = document.get("plugins")
    if not isinstance(names, list) or not names:
        return None
    try:
        parse_objective(str(document.get("objective")))
    except RequestError:
        return (
            f"needs {', '.join(map(str, names))}, which is not installed: install it or add it to "
            "MARGINCTL_PLUGINS"
        )
    return None


def _contradiction(info: RunInfo, result: records.CVResult | records.TrainingResult) -> str | None:
    """Return how a result differs from its run.json, None if it does not."""
    for key in ("trial", "objective", "seed", "dataset"):
        expected, actual = getattr(info, key, None), getattr(result, key, None)
        if expected is not None and expected != actual:
            return f"{key} = {str(actual)[:60]!r}, and run.json has {str(expected)[:60]!r}"
    return None


def _escaped(text: str, document: Any) -> Any:
    """Return the document of a text with its control characters escaped."""
    if text.isascii() and "\\" not in text:
        return document  # JSON escapes control characters, so that there is none
    if isinstance(document, str):
        return printable(document)
    if isinstance(document, list):
        return [_escaped(text, item) for item in document]
    if isinstance(document, dict):
        return {printable(key): _escaped(text, item) for key, item in document.items()}
    return document


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the records of a metrics.jsonl in the order of their epochs.

    An incomplete line, or one without an epoch, is left out; a missing file has no records.
    """
    try:
        text = safe_read.read_bytes(path).decode("utf-8", "replace")
    except safe_read.CorruptFileError:
        return []
    by_epoch = {}
    for line in text.split("\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and isinstance(record.get("epoch"), int):
            by_epoch[record["epoch"]] = record
    return [by_epoch[epoch] for epoch in sorted(by_epoch)]
