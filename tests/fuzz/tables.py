"""Tables of one's own: CSV files with their cells, lines and bytes changed."""

import csv
import io
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.draft import Case, Draft
from tests.fuzz.values import BYTES, TEXT, WORDS

Rows = list[list[str]]


def prepare(base: Path) -> None:
    """Nothing: each case makes its table."""


def make(draft: Draft) -> Case:
    """One table, or a training and a test file, planned."""
    stream = draft.stream("base")
    separator = stream.choice(",,,;\t|")
    for name in ("a.csv", "b.csv"):
        text = io.StringIO()
        rows = draft.changed(_table(stream, separator != ","), CELLS)
        csv.writer(text, delimiter=separator, lineterminator="\n").writerows(rows)
        data = text.getvalue().encode("utf-8", "surrogatepass")
        if stream.random() < 0.5:
            data = draft.changed(data, [*TEXT, *BYTES], 2)
        (draft.folder / name).write_bytes(data)
    target = stream.choice(
        ["kind", "kind", "kind", "kind", "size", "knid", "", "id", "unnamed column 1"]
    )
    files: tuple[str, ...] = ("--csv", "a.csv")
    if stream.random() < 0.25:
        files = ("--train-csv", "a.csv", "--test-csv", stream.choice(["b.csv", "b.csv", "a.csv"]))
    elif stream.random() < 0.2:
        files += ("--csv", stream.choice(["b.csv", "none.csv", "."]))
    more = ("--dry-run",) if stream.random() < 0.9 else ("--workers", "1", "--out", "runs")
    small = ("--folds", "2", "--repeats", "1", "--set", "protocol.epochs=1", "--objective", "soft")
    arguments = ("uci-cv", *files, "--target", target, *small, "--json", "--quiet", *more)
    return Case(arguments, ("kind", "classes", "--csv", ".: "))


def _table(stream: Random, commas: bool) -> Rows:
    rows = [["id", "color", "size", "weight", "when", "kind"]]
    for i in range(stream.choice([3, 12, 40, 40])):
        kind = stream.randrange(3)
        size = f"{stream.gauss(kind, 1):.3f}"
        color = stream.choice(["red", "green", "blue"])
        size = size.replace(".", ",") if commas else size
        rows.append([str(i), color, size, f"{stream.random():.3f}", "2026-01-01", str(kind)])
    return rows


def _odd_cells(stream: Random, rows: Rows) -> Rows:
    odd = [*WORDS, "?", "NA", "1,5", "1e29", "1e31", "1e400", "-0", "٣", "1_0", "0x1p3", "½", "∞"]
    odd += ["9" * 400, "x" * 140_000, 'a"b', "1e-400", "12 ", "１２", "true"]
    for _ in range(stream.choice([1, 2, 20])):
        if rows and (row := stream.choice(rows)):
            row[stream.randrange(len(row))] = stream.choice(odd)
    return rows


def _odd_column(stream: Random, rows: Rows) -> Rows:
    """A column of one odd value, or of few."""
    if rows and rows[0]:
        at = stream.randrange(len(rows[0]))
        values = [stream.choice([*WORDS, "1", "2", "1.5", "1e308", "-1e29"]) for _ in range(2)]
        for row in rows[1:]:
            if at < len(row):
                row[at] = stream.choice(values)
    return rows


def _ragged(stream: Random, rows: Rows) -> Rows:
    if rows:
        row = stream.choice(rows)
        row[:] = row[:-1] if stream.random() < 0.5 else [*row, "more"]
    return rows


def _header(stream: Random, rows: Rows) -> Rows:
    """Names that are odd, doubled, absent, or numbers."""
    if rows and rows[0]:
        at = stream.randrange(len(rows[0]))
        rows[0][at] = stream.choice([*WORDS, "kind", "id", "1", "a=b", "kind ", "KIND"])
        if stream.random() < 0.2:
            del rows[0]
    return rows


def _few_rows(stream: Random, rows: Rows) -> Rows:
    return rows[: stream.randint(0, 4)]


def _few_columns(stream: Random, rows: Rows) -> Rows:
    left = stream.randint(0, 3)
    return [row[left:] for row in rows]


CELLS: list[Any] = [_odd_cells, _odd_cells, _odd_column, _ragged, _header, _few_rows, _few_columns]
