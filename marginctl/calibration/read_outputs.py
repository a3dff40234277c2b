"""Reading a classifier's outputs and labels from an .npz or a CSV file."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.calibration.outputs import Kind, Outputs, create_outputs
from marginctl.data.tabular import csv_file
from marginctl.errors import RequestError
from marginctl.utils.text import shorten

COLUMN_PREFIXES: dict[str, Kind] = {"logit": "logits", "prob": "probabilities"}
LABEL = "label"
FORMS = (
    ".npz with logits or probabilities (N, C) and labels (N,), or .csv with columns logit_0, "
    "logit_1, ... or prob_0, prob_1, ..., and label"
)


def is_outputs_file(path: Path) -> bool:
    """Whether a file's name ends as those of outputs do."""
    return path.suffix.lower() in (".npz", ".csv")


def read_outputs(path: Path) -> Outputs:
    """Return the outputs and labels of a file; its keys or columns name the kind.

    Raises:
        RequestError: the file cannot be read, has other keys or columns, or values that cannot be
            calibrated.
    """
    if path.suffix.lower() == ".npz":
        return _read_npz(path)
    if path.suffix.lower() == ".csv":
        return _read_csv(path)
    raise RequestError(f"{path}: expected {FORMS}")


def _read_npz(path: Path) -> Outputs:
    try:
        with path.open("rb") as content, np.load(content, allow_pickle=False) as file:
            names = sorted(file.files)
            kind = _kind(path, "keys", names, {k: k for k in COLUMN_PREFIXES.values()}, "labels")
            values, labels = file[kind], file["labels"]
    except RequestError:
        raise
    except Exception as error:  # numpy and zipfile raise anything for a corrupt file
        if isinstance(error, OSError) and error.filename:  # not a seek beyond the file's end
            problem = f"cannot be read: {error.strerror}"
        elif path.stat().st_size == 0:
            problem = "the file is empty"
        else:
            problem = "not an .npz file of plain arrays, or corrupt"
        raise RequestError(f"{path}: {problem}: expected {FORMS}") from None
    return create_outputs(str(path), kind, values, labels)


def _read_csv(path: Path) -> Outputs:
    table = csv_file.read_table(path)
    prefixes = sorted({name.rpartition("_")[0] or name for name in table.columns})
    kind = _kind(path, "columns", prefixes, COLUMN_PREFIXES, LABEL)
    prefix = next(p for p, k in COLUMN_PREFIXES.items() if k == kind)
    expected = [f"{prefix}_{c}" for c in range(len(table.columns) - 1)]
    for name in (*expected, LABEL):
        if name not in table.columns:
            other = next(n for n in table.columns if n not in (*expected, LABEL))
            raise RequestError(
                f"{path}:1: no column {name}, but {other}: expected {expected[0]} to "
                f"{prefix}_{{C-1}} and {LABEL}"
            )
    values = np.stack([_numbers(table, name) for name in expected], axis=1)
    labels = _numbers(table, LABEL)
    integers = (np.abs(labels) < 2**31) & (labels == np.round(labels))
    if not integers.all():
        row = int(np.argmin(integers))
        raise RequestError(
            f"{table.locations[row]}: label = '{shorten(table.columns[LABEL][row])}': expected "
            f"a class from 0 to {len(expected) - 1}"
        )
    return create_outputs(str(path), kind, values, labels.astype(np.int64))


def _numbers(table: csv_file.RawTable, name: str) -> NDArray[np.float64]:
    """Return a column as numbers.

    Raises:
        RequestError: a value that is not a number; the message names its line.
    """
    texts: list[Any] = table.columns[name]
    for text, where in zip(texts, table.locations, strict=True):
        if not csv_file.is_number(text):
            raise RequestError(f"{where}: {name} = '{shorten(text)}': expected a number")
    return np.array(texts, np.float64)


def _kind(path: Path, what: str, names: list[str], kinds: dict[str, Kind], labels: str) -> Kind:
    """Return the kind of values, which a file's keys or columns give."""
    named = [name for name in names if name in kinds]
    if len(named) > 1:
        raise RequestError(
            f"{path}: has {what} of {' and '.join(named)}: expected one kind: remove the other"
        )
    if not named or labels not in names:
        shown = ", ".join(shorten(name) for name in names[:8]) or "none"
        raise RequestError(f"{path}: {what}: {shown}: expected {FORMS}")
    return kinds[named[0]]
