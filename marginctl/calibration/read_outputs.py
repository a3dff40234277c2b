"""Reading a classifier's outputs and labels from an .npz or a CSV file."""

import bz2
import csv
import gzip
import io
import lzma
import re
import unicodedata
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from marginctl.calibration.outputs import Kind, Outputs, create_outputs
from marginctl.errors import RequestError
from marginctl.utils.text import did_you_mean, shorten

PREFIXES: dict[str, Kind] = {"logit_": "logits", "prob_": "probabilities"}
LABEL = "label"
FORMS = (
    ".npz with logits or probabilities (N, C), labels (N,) and, for names, classes (C,), or .csv "
    "with columns logit_0, logit_1, ... or prob_0, prob_1, ..., or with names in place of the "
    "numbers, and label"
)
SUFFIXES = (".npz", ".csv", ".tsv", ".txt", ".gz", ".bz2", ".xz")
SEPARATORS = ",;\t|"
DECOMPRESS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ": lzma.decompress,
}


@dataclass(frozen=True)
class OutputsSummary:
    """What `calibrate` reads from a file or a run.

    Attributes:
        rows: the number of samples.
        classes: the number of classes.
        form: logits or probabilities.
        remarks: what a user should know about them.
    """

    rows: int
    classes: int
    form: Kind
    remarks: list[str]

    def as_json(self) -> dict[str, Any]:
        return {"kind": "outputs", **asdict(self)}


def summarize_outputs(outputs: Outputs) -> OutputsSummary:
    """Return the summary of outputs."""
    return OutputsSummary(
        len(outputs.labels), outputs.num_classes, outputs.kind, list(outputs.remarks)
    )


def inspect_outputs(path: Path) -> OutputsSummary:
    """Return the summary of a file; errors are those of `read_outputs`."""
    return summarize_outputs(read_outputs(path))


def is_outputs_file(path: Path) -> bool:
    """Whether a file's name ends as those of outputs do."""
    return path.suffix.lower() in SUFFIXES


def looks_like_outputs(path: Path) -> bool:
    """Whether a file is an .npz, or a table with no columns but outputs and labels."""
    if path.suffix.lower() == ".npz":
        return True
    try:
        names = _header(path, _text(path, _content(path))).names
    except RequestError:
        return False
    return LABEL in names and any(
        all(n.startswith(prefix) for n in names if n not in (LABEL, "")) for prefix in PREFIXES
    )


def read_outputs(path: Path) -> Outputs:
    """Return the outputs and labels of a file; its keys or columns name the kind.

    Raises:
        RequestError: the file cannot be read, has other keys or columns, or values that cannot be
            calibrated.
    """
    content = _content(path)
    if content.startswith(b"PK") or path.suffix.lower() == ".npz":
        return _read_npz(path, content)
    return _read_csv(path, _text(path, content))


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        for magic, decompress in DECOMPRESS.items():
            if content.startswith(magic):
                content = decompress(content)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the compressed file is corrupt"
        raise RequestError(f"{path}: cannot be read: {reason}: expected {FORMS}") from None
    if not content.strip():
        raise RequestError(f"{path}: the file is empty: expected {FORMS}")
    return content


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
    _check_distinct(path, "class", names)
    remarks: list[str] = []
    if labels.ndim == 1 and labels.dtype.kind in "iuUS":
        texts = pd.Series(_texts(labels), dtype=str)
        labels, remarks = _class_indices(texts, names, lambda i: f"{path}: row {i} (from 0)")
    return create_outputs(str(path), kind, values, labels, classes=names, remarks=remarks)


def _texts(array: NDArray[Any]) -> list[str]:
    """Return the items of an array as text without outer blanks, in Unicode's composed form."""
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    return [_clean(str(item)) for item in array.tolist()]


def _clean(text: str) -> str:
    return unicodedata.normalize("NFC", text.strip())


def _text(path: Path, content: bytes) -> str:
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{path}: not UTF-8 text at byte {error.start}: expected {FORMS}"
        ) from None
    if "\0" in text:
        raise RequestError(f"{path}: a binary file: expected {FORMS}")
    return text.replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True)
class _Header:
    """The first line of a table that is not blank.

    Attributes:
        line: its number, from 1.
        separator: of the columns.
        names: of the columns.
    """

    line: int
    separator: str
    names: list[str]


def _header(path: Path, text: str) -> _Header:
    line, first = next((i, t) for i, t in enumerate(text.split("\n"), 1) if t.strip())
    try:
        names = {s: next(csv.reader([first], delimiter=s)) for s in SEPARATORS}
    except csv.Error as error:
        raise RequestError(f"{path}:{line}: no column names: {error}: expected {FORMS}") from None
    separator = max(SEPARATORS, key=lambda s: len(names[s]))
    return _Header(line, separator, [_clean(name) for name in names[separator]])


def _read_csv(path: Path, text: str) -> Outputs:
    header = _header(path, text)
    where = f"{path}:{header.line}"
    remarks = []
    skipped = [i for i, name in enumerate(header.names) if not name]
    if skipped == [0]:  # pandas and R write row names so
        remarks.append("the first column has no name: taken for row names, and not used")
    elif skipped:
        raise RequestError(f"{where}: column {skipped[-1] + 1} has no name: name or remove it")
    names = [name for name in header.names if name]
    _check_distinct(where, "column", names)
    prefixes = {n: next((p for p in PREFIXES if n.startswith(p)), n) for n in names}
    kind = _kind(path, "columns", sorted({*prefixes.values()}), PREFIXES, LABEL)
    for name, prefix in prefixes.items():
        if name != LABEL and prefix not in PREFIXES:
            raise RequestError(f"{where}: column '{shorten(name)}': expected no more: remove it")
    table = _frame(path, text, header)
    if table.empty:
        raise RequestError(f"{path}: no rows below the header")

    def place(row: int) -> str:
        return f"{path}:{table.index[row] + header.line + 1}"

    columns = [name for name in names if name != LABEL]
    classes = [column.removeprefix(prefixes[column]) for column in columns]
    if _are_numbers(classes):
        order = sorted(range(len(classes)), key=lambda i: int(classes[i]))
        columns, classes = [columns[i] for i in order], [classes[i] for i in order]
        first, last = int(classes[0]), int(classes[-1])
        absent = {*range(first, last + 1)} - {*map(int, classes)}
        if first < 2 and absent:
            raise RequestError(
                f"{where}: no column {prefixes[columns[0]]}{min(absent)}: expected "
                f"{columns[0]} to {columns[-1]}"
            )
    labels, more = _class_indices(table[LABEL].fillna("").map(_clean), classes, place)
    values = np.stack([_numbers(table[c], c, place) for c in columns], axis=1)
    return create_outputs(
        str(path),
        kind,
        values,
        labels,
        classes=classes,
        remarks=remarks + more,
        place=lambda row: f"line {table.index[row] + header.line + 1}",
    )


def _frame(path: Path, text: str, header: _Header) -> pd.DataFrame:
    """Return the rows below the header; the index counts the lines, blank ones are left out."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                io.StringIO(text),
                sep=header.separator,
                header=None,
                names=[name or "row name" for name in header.names],
                index_col=False,
                skiprows=header.line,
                skip_blank_lines=False,
                skipinitialspace=True,
                dtype={LABEL: str},
                keep_default_na=False,
                na_values=[""],
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        if line := re.search(r"Expected \d+ fields in line (\d+), saw (\d+)", str(error)):
            raise RequestError(
                f"{path}:{line[1]}: {line[2]} columns, expected {len(header.names)}: quote values "
                "that hold the separator"
            ) from None
        if line := re.search(r"EOF inside string starting at row (\d+)", str(error)):
            raise RequestError(
                f"{path}:{int(line[1]) + 1}: a quote opens here and is never closed"
            ) from None
        raise RequestError(
            f"{path}: a row has more than {len(header.names)} columns: quote values that hold the "
            "separator"
        ) from None
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    return table.dropna(how="all")


def _numbers(column: "pd.Series[Any]", name: str, place: Callable[[int], str]) -> NDArray[Any]:
    """Return a column as numbers, which may have decimal commas.

    Raises:
        RequestError: a value that is not a number; the message names its line.
    """
    if column.dtype.kind in "iuf":
        values = column
    else:
        texts = column.astype(str).str.replace(",", ".", regex=False)
        values = pd.to_numeric(texts, errors="coerce")
    if values.isna().any():
        row = int(values.isna().argmax())
        text = "" if pd.isna(column.iloc[row]) else shorten(str(column.iloc[row]))
        raise RequestError(f"{place(row)}: {shorten(name)} = '{text}': expected a number")
    return np.asarray(values, np.float64)


def _are_numbers(names: Iterable[str]) -> bool:
    return all(name.isascii() and name.isdigit() for name in names)


def _class_indices(
    labels: "pd.Series[str]", names: list[str], place: Callable[[int], str]
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the class of each label, which is a name or, if none is, a position from 0.

    Raises:
        RequestError: a label that is neither; the message names its place.
    """
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
        shown = f"{names[0]} to {names[-1]}" if _are_numbers(names) else ", ".join(
            f"'{shorten(name)}'" for name in names[:8]
        )  # fmt: skip
        raise RequestError(
            f"{place(row)}: label = '{shorten(labels.iloc[row])}': expected a class, {shown}"
            f"{', ...' * (not _are_numbers(names) and len(names) > 8)}."
            f"{did_you_mean(labels.iloc[row], names)}"
        )
    return indices.to_numpy(np.int64), remarks


def _check_distinct(where: Path | str, what: str, names: list[str]) -> None:
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise RequestError(f"{where}: duplicate {what} '{shorten(duplicates[0])}': rename one")


def _kind(path: Path, what: str, names: list[str], kinds: dict[str, Kind], labels: str) -> Kind:
    """Return the kind of values, which a file's keys or columns give."""
    named = [name for name in names if name in kinds]
    if len(named) > 1:
        raise RequestError(
            f"{path}: has {what} of {' and '.join(n.rstrip('_') for n in named)}: expected one "
            "kind: remove the other"
        )
    if not named or labels not in names:
        shown = ", ".join(shorten(name.rstrip("_")) for name in names[:8]) or "none"
        raise RequestError(f"{path}: {what}: {shown}: expected {FORMS}")
    return kinds[named[0]]
