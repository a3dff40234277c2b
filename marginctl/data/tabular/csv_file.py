"""A CSV file as text: encodings, separators and rows, before anything is made of it."""

import csv
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marginctl.errors import RequestError
from marginctl.utils.text import file_name, one_line, printable, short

SEPARATORS = ",;\t|"


@dataclass(frozen=True)
class RawTable:
    """A file's cells as stripped text, column by column."""

    name: str
    separator: str
    columns: dict[str, list[str]]
    where: list[str]  # the file and the line on which each row ends
    numbers: NDArray[np.int64]  # of each row in its file, from 1, blank rows not counted
    train: NDArray[np.bool_]  # what is decided about a column is decided on these rows alone
    blank: int = 0  # rows without any value, which are left out

    @property
    def rows(self) -> int:
        return len(self.where)


def read_table(path: Path) -> RawTable:
    """Reads a file whose first line names the columns.

    Raises:
        RequestError: one line that says what is wrong with the file and what to do.
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
        raise RequestError(f"{path}: the file is empty: expected a line of names and rows")
    separator = _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        numbered = [([c.strip() for c in r], reader.line_num) for r in reader]
    except csv.Error as error:
        raise RequestError(f"{path}:{reader.line_num}: not CSV: {error}") from None
    blank = sum(bool(r) and not any(r) for r, _ in numbered)
    numbered = [(r, n) for r, n in numbered if any(r)]
    if not numbered:
        raise RequestError(f"{path}: the file is empty: expected a line of names and rows")
    header, _ = numbered.pop(0)
    header = [one_line(column) for column in header]
    header = [column or f"unnamed column {i}" for i, column in enumerate(header, 1)]
    twice = [column for column, count in Counter(header).items() if count > 1]
    if twice:
        raise RequestError(f"{path}:1: column '{short(twice[0])}' stands twice: rename one")
    if len(header) < 2:
        raise RequestError(
            f"{path}:1: one column ('{short(header[0])}'): expected several, separated by comma, "
            "semicolon, tab or bar"
        )
    if all(is_number(c) for c in header):
        raise RequestError(f"{path}:1: the first line holds numbers: add a line of column names")
    for row, line in numbered:
        if len(row) != len(header):
            raise RequestError(
                f"{path}:{line}: {len(row)} columns, expected {len(header)}: "
                "quote values that hold the separator"
            )
    if not numbered:
        raise RequestError(f"{path}: no rows below the line of names")
    columns = dict(zip(header, map(list, zip(*(r for r, _ in numbered), strict=True)), strict=True))
    where = [f"{path}:{n}" for _, n in numbered]
    numbers = np.arange(1, len(where) + 1)
    return RawTable(name, separator, columns, where, numbers, np.ones(len(where), bool), blank)


def _separator(text: str) -> str:
    """The separator that cuts the first records into most columns, all alike if possible."""
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
        alike = columns > 1 and sum(c == columns for c in counts[:-1]) >= 0.8 * (len(counts) - 1)
        return alike, columns

    return max(SEPARATORS, key=fitness)


def is_number(text: str) -> bool:
    """Whether `float` reads it."""
    try:
        float(text)
    except ValueError:
        return False
    return True
