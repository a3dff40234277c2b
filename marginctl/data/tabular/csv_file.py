"""CSV files as text: encoding, separator and rows."""

import csv
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marginctl.errors import RequestError
from marginctl.utils.text import file_name, one_line, printable, shorten

SEPARATORS = ",;\t|"


@dataclass(frozen=True)
class RawTable:
    """A file's cells as stripped text, by column.

    Attributes:
        name: the file's name.
        separator: of its columns.
        columns: the cells of each column.
        locations: the file and the line of each row's end, for messages.
        row_numbers: (n,) the number of each row in its file, from 1, without blank rows.
        train: (n,) whether a row is a training row; only these decide the type of a column.
        blank: the number of rows without any value, which are left out.
    """

    name: str
    separator: str
    columns: dict[str, list[str]]
    locations: list[str]
    row_numbers: NDArray[np.int64]
    train: NDArray[np.bool_]
    blank: int = 0

    @property
    def rows(self) -> int:
        return len(self.locations)


def read_table(path: Path) -> RawTable:
    """Return the cells of a file whose first line names the columns.

    Raises:
        RequestError: the file is no such table.
    """
    name = printable(file_name(path))
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{path}: not UTF-8 text at byte {error.start}: save the table as CSV in UTF-8"
        ) from None
    if "\0" in text:
        raise RequestError(f"{path}: a binary file: expected a table saved as CSV")
    if not text.strip():
        raise RequestError(f"{path}: the file is empty: expected a header and rows")
    separator = _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        numbered = [([c.strip() for c in r], reader.line_num) for r in reader]
    except csv.Error as error:
        raise RequestError(f"{path}:{reader.line_num}: not CSV: {error}") from None
    blank = sum(bool(r) and not any(r) for r, _ in numbered)
    numbered = [(r, n) for r, n in numbered if any(r)]
    if not numbered:
        raise RequestError(f"{path}: the file is empty: expected a header and rows")
    header, _ = numbered.pop(0)
    header = [one_line(column) for column in header]
    header = [column or f"unnamed column {i}" for i, column in enumerate(header, 1)]
    duplicates = [column for column, count in Counter(header).items() if count > 1]
    if duplicates:
        raise RequestError(f"{path}:1: duplicate column '{shorten(duplicates[0])}': rename one")
    if len(header) < 2:
        raise RequestError(
            f"{path}:1: a single column ('{shorten(header[0])}'): expected several, separated by "
            "comma, semicolon, tab or bar"
        )
    if all(is_number(c) for c in header):
        raise RequestError(
            f"{path}:1: the first line has only numbers: add a header of column names"
        )
    for row, line in numbered:
        if len(row) != len(header):
            raise RequestError(
                f"{path}:{line}: {len(row)} columns, expected {len(header)}: "
                "quote values that contain the separator"
            )
    if not numbered:
        raise RequestError(f"{path}: no rows below the header")
    columns = dict(zip(header, map(list, zip(*(r for r, _ in numbered), strict=True)), strict=True))
    n = len(numbered)
    return RawTable(
        name=name,
        separator=separator,
        columns=columns,
        locations=[f"{path}:{line}" for _, line in numbered],
        row_numbers=np.arange(1, n + 1),
        train=np.ones(n, bool),
        blank=blank,
    )


def _separator(text: str) -> str:
    """Return the separator that gives the most columns, equally many in each record if possible."""
    head = text[:200_000]

    def fitness(separator: str) -> tuple[bool, int]:
        counts = []
        try:
            for row in csv.reader(io.StringIO(head, newline=""), delimiter=separator):
                if any(row):
                    counts.append(len(row))
                if len(counts) == 50:
                    break
        except csv.Error:
            return False, 0
        columns = counts[0] if counts else 0
        equal = columns > 1 and sum(c == columns for c in counts[:-1]) >= 0.8 * (len(counts) - 1)
        return equal, columns

    return max(SEPARATORS, key=fitness)


def is_number(text: str) -> bool:
    """Return whether `float` can read a text."""
    try:
        float(text)
    except ValueError:
        return False
    return True
