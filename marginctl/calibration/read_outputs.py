"""Reads a classifier's outputs and labels from an .npz or a CSV file."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.calibration.outputs import Kind, Outputs, checked_outputs
from marginctl.data.tabular import csv_file
from marginctl.errors import RequestError
from marginctl.utils.text import short

COLUMNS: dict[str, Kind] = {"logit": "logits", "prob": "probabilities"}  # the columns' first word
LABEL = "label"
FORMS = (
    ".npz with logits or probabilities (N, C) and labels (N,), or .csv with columns logit_0, "
    "logit_1, ... or prob_0, prob_1, ..., and label"
)


def is_file_of_outputs(path: Path) -> bool:
    """Whether the name says that a file holds outputs."""
    return path.suffix.lower() in (".npz", ".csv")


def read_outputs(path: Path) -> Outputs:
    """Outputs and labels of a file; whether they are logits or probabilities its names say.

    Raises:
        RequestError: it cannot be read, has other names, or values that cannot be calibrated.
    """
    if path.suffix.lower() == ".npz":
        return _of_npz(path)
    if path.suffix.lower() == ".csv":
        return _of_csv(path)
    raise RequestError(f"{path}: expected {FORMS}")


def _of_npz(path: Path) -> Outputs:
    try:
        with path.open("rb") as content, np.load(content, allow_pickle=False) as file:
            names = sorted(file.files)
            kind = _kind(path, "keys", names, {k: k for k in COLUMNS.values()}, "labels")
            values, labels = file[kind], file["labels"]
    except RequestError:
        raise
    except Exception as error:  # numpy and zipfile raise anything for a damaged file
        if isinstance(error, OSError) and error.filename:  # and not a place beyond its end
            said = f"cannot be read: {error.strerror}"
        elif path.stat().st_size == 0:
            said = "the file is empty"
        else:
            said = "not an .npz file of plain arrays, or damaged"
        raise RequestError(f"{path}: {said}: expected {FORMS}") from None
    return checked_outputs(str(path), kind, values, labels)


def _of_csv(path: Path) -> Outputs:
    table = csv_file.read_table(path)
    words = sorted({name.rpartition("_")[0] or name for name in table.columns})
    kind = _kind(path, "columns", words, COLUMNS, LABEL)
    word = next(w for w, k in COLUMNS.items() if k == kind)
    expected = [f"{word}_{c}" for c in range(len(table.columns) - 1)]
    for name in (*expected, LABEL):
        if name not in table.columns:
            strange = next(n for n in table.columns if n not in (*expected, LABEL))
            raise RequestError(
                f"{path}:1: no column {name}, and {strange} is there: expected {expected[0]} to "
                f"{word}_{{C-1}} and {LABEL}"
            )
    values = np.stack([_numbers(table, name) for name in expected], axis=1)
    labels = _numbers(table, LABEL)
    whole = (np.abs(labels) < 2**31) & (labels == np.round(labels))
    if not whole.all():
        row = int(np.argmin(whole))
        raise RequestError(
            f"{table.where[row]}: label = '{short(table.columns[LABEL][row])}': expected "
            f"a class from 0 to {len(expected) - 1}"
        )
    return checked_outputs(str(path), kind, values, labels.astype(np.int64))


def _numbers(table: csv_file.RawTable, name: str) -> NDArray[np.float64]:
    """A column as numbers.

    Raises:
        RequestError: at the line that has none.
    """
    found: list[Any] = table.columns[name]
    for text, where in zip(found, table.where, strict=True):
        if not csv_file.is_number(text):
            raise RequestError(f"{where}: {name} = '{short(text)}': expected a number")
    return np.array(found, np.float64)


def _kind(path: Path, what: str, found: list[str], kinds: dict[str, Kind], labels: str) -> Kind:
    """Which of the kinds the names are of."""
    named = [name for name in found if name in kinds]
    if len(named) > 1:
        raise RequestError(
            f"{path}: has {what} of {' and '.join(named)}: expected one of them: leave the other "
            "out"
        )
    if not named or labels not in found:
        shown = ", ".join(short(name) for name in found[:8]) or "none"
        raise RequestError(f"{path}: {what}: {shown}: expected {FORMS}")
    return kinds[named[0]]
