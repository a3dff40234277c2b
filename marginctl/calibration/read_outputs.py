"""Reading a classifier's outputs and labels from an .npz or a CSV file."""

import io
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from marginctl.calibration.outputs import Kind, Outputs, create_outputs
from marginctl.data.tabular.cells import Cells, read_cells, read_content, unnamed
from marginctl.data.tabular.numbers import REMARKS, parse_numbers
from marginctl.errors import RequestError
from marginctl.utils.text import did_you_mean, join_names, shorten

PREFIXES: dict[str, Kind] = {"logit_": "logits", "prob_": "probabilities"}
LABEL = "label"
FORMS = (
    ".npz with logits or probabilities (N, C), labels (N,) and, for names, classes (C,), or .csv "
    "with columns logit_0, logit_1, ... or prob_0, prob_1, ..., or with names in place of the "
    "numbers, and label"
)
SUFFIXES = (".npz", ".csv", ".tsv", ".txt", ".gz", ".bz2", ".xz")


def is_outputs_file(path: Path) -> bool:
    """Whether a file's name ends as those of outputs do."""
    return path.suffix.lower() in SUFFIXES


def looks_like_outputs(path: Path) -> bool:
    """Whether a file is an .npz, or a table with no columns but outputs and labels."""
    if _is_npz(path):
        return True
    try:
        names = _without_row_names(read_cells(path, texts=[LABEL]))
    except RequestError:
        return False
    return LABEL in names and any(
        all(name.startswith(prefix) for name in names if name != LABEL) for prefix in PREFIXES
    )


def read_outputs(path: Path) -> Outputs:
    """Return the outputs and labels of a file; its keys or columns name the kind.

    Raises:
        RequestError: the file cannot be read, has other keys or columns, or values that cannot be
            calibrated.
    """
    content = read_content(path)[0]
    if not content.strip():
        raise RequestError(f"{path}: the file is empty: expected {FORMS}")
    return _read_npz(path, content) if _is_npz(path) else _read_csv(path)


def _is_npz(path: Path) -> bool:
    """Whether a file's name is that of an .npz, compressed again or not."""
    return ".npz" in map(str.lower, path.suffixes)


def _read_npz(path: Path, content: bytes) -> Outputs:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            names = sorted(file.files)
            kind = _kind(path, "keys", names, {k: k for k in PREFIXES.values()}, "labels")
            values, labels = file[kind], file["labels"]
            classes = file["classes"] if "classes" in names else None
    except RequestError:
        raise
    except Exception:  # numpy and zipfile raise anything for a corrupt file
        raise RequestError(
            f"{path}: not an .npz file of plain arrays, or corrupt: expected {FORMS}"
        ) from None
    if classes is None:
        if labels.dtype.kind in "US":
            raise RequestError(
                f"{path}: labels: text: expected the key classes with the names of the columns, or "
                "class numbers from 0"
            )
        return create_outputs(str(path), kind, values, labels)
    names = _texts(classes.ravel())
    if values.ndim == 2 and len(names) != values.shape[1]:
        raise RequestError(
            f"{path}: classes: {len(names)} names, expected one for each of {values.shape[1]} "
            "columns"
        )
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise RequestError(f"{path}: duplicate class '{shorten(duplicates[0])}': rename one")
    remarks: list[str] = []
    if labels.ndim == 1 and labels.dtype.kind in "iuUS":
        texts = pd.Series(_texts(labels), dtype=str)
        labels, remarks = _class_indices(texts, names, lambda i: f"{path}: row {i} (from 0)")
    return create_outputs(str(path), kind, values, labels, classes=names, remarks=remarks)


def _texts(array: NDArray[Any]) -> list[str]:
    """Return the items of an array as text without outer blanks, in Unicode's composed form."""
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    return [unicodedata.normalize("NFC", str(item).strip()) for item in array.tolist()]


def _without_row_names(cells: Cells) -> list[str]:
    """Return the names of the columns, without a first one that has no name in the file."""
    names = list(cells.frame)
    return names[1:] if names[0] == unnamed(1) else names


def _read_csv(path: Path) -> Outputs:
    cells = read_cells(path, texts=[LABEL])
    table, remarks = cells.frame, list(cells.remarks)
    names = _without_row_names(cells)
    if len(names) < len(table.columns):
        remarks.append("the first column has no name: taken for row names, and not used")
    prefixes = {n: next((p for p in PREFIXES if n.startswith(p)), n) for n in names}
    kind = _kind(path, "columns", sorted({*prefixes.values()}), PREFIXES, LABEL)
    for name, prefix in prefixes.items():
        if name != LABEL and prefix not in PREFIXES:
            raise RequestError(
                f"{path}: column '{shorten(name)}': expected no further column: remove it"
            )
    columns = [name for name in names if name != LABEL]
    classes = [column.removeprefix(prefixes[column]) for column in columns]
    if _are_numbers(classes):
        order = sorted(range(len(classes)), key=lambda i: int(classes[i]))
        columns, classes = [columns[i] for i in order], [classes[i] for i in order]
        first = int(classes[0])
        absent = next((i for i, name in enumerate(classes, first) if int(name) != i), None)
        if first < 2 and absent is not None:
            raise RequestError(
                f"{path}: no column {prefixes[columns[0]]}{absent}: expected "
                f"{columns[0]} to {columns[-1]}"
            )
    labels, more = _class_indices(table[LABEL], classes, cells.location)
    values, remark = _numbers(table[columns], cells.location)
    remarks += [remark] if remark else []
    return create_outputs(
        str(path),
        kind,
        values,
        labels,
        classes=classes,
        remarks=remarks + more,
        place=lambda row: f"line {cells.lines[row]}",
    )


def _numbers(
    table: pd.DataFrame, place: Callable[[int], str]
) -> tuple[NDArray[np.float64], str | None]:
    """Return columns as numbers, and a remark if the numbers have thousands separators."""
    if all(dtype.kind in "iuf" for dtype in table.dtypes):
        return table.to_numpy(np.float64), None
    texts = table.astype(str).to_numpy()
    read = parse_numbers(texts.ravel().tolist(), "")
    values = read.values.reshape(texts.shape)
    if np.isnan(values).any():
        row, i = (int(k) for k in np.argwhere(np.isnan(values))[0])
        name, text = shorten(table.columns[i]), shorten(texts[row, i])
        raise RequestError(f"{place(row)}: {name} = '{text}': expected a number")
    return values, None if read.remark == REMARKS["decimal commas"] else read.remark


def _are_numbers(names: Sequence[str]) -> bool:
    return all(re.fullmatch(r"0|[1-9][0-9]{0,8}", name) for name in names)


def _class_indices(
    labels: "pd.Series[str]", names: list[str], place: Callable[[int], str]
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the class of each label, which is a name or, if none is, a position from 0."""
    remarks = []
    is_number = labels.str.fullmatch(r"[0-9]{1,9}(\.0*)?")
    numbers = pd.to_numeric(labels.where(is_number))
    if _are_numbers(names):
        indices = numbers.map({int(name): i for i, name in enumerate(names)})
    else:
        indices = labels.map({name: i for i, name in enumerate(names)})
        if is_number.all() and indices.isna().all():
            indices = numbers.where(numbers < len(names))
            remarks.append(
                f"labels are numbers, columns have names: 0 is '{shorten(names[0])}', 1 is "
                f"'{shorten(names[1])}'{', ...' * (len(names) > 2)}"
            )
    if indices.isna().any():
        row = int(indices.isna().argmax())
        shown = join_names([f"'{shorten(name)}'" for name in names], 8)
        shown = f"{names[0]} to {names[-1]}" if _are_numbers(names) else shown
        raise RequestError(
            f"{place(row)}: label = '{shorten(labels.iloc[row])}': expected a class, {shown}."
            f"{did_you_mean(labels.iloc[row], names)}"
        )
    return indices.to_numpy(np.int64), remarks


def _kind(path: Path, what: str, names: list[str], kinds: dict[str, Kind], labels: str) -> Kind:
    """Return the kind of values, which a file's keys or columns give."""
    named = [name for name in names if name in kinds]
    if len(named) > 1:
        raise RequestError(
            f"{path}: has {what} of {' and '.join(n.rstrip('_') for n in named)}: expected one "
            "kind: remove the other"
        )
    if not named or labels not in names:
        shown = join_names([name.rstrip("_") for name in names], 8) or "none"
        raise RequestError(f"{path}: {what}: {shown}: expected {FORMS}")
    return kinds[named[0]]
