"""TabularDataset: a table for classification in memory, and what is used of a user's table."""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from marginctl.data.tabular.columns import ReadColumn


@dataclass(frozen=True)
class Column:
    """A feature column as the table has it, before any preprocessing."""

    name: str  # of the column
    categories: tuple[str, ...] = ()  # of a categorical column, in order; none for a numeric one


@dataclass
class TableSummary:
    name: str
    form: str  # how the file is written, such as `comma-separated`
    rows: int = 0  # data rows in the file
    rows_used: int = 0  # of them, those that are used
    classes: dict[str, int] = field(default_factory=dict)  # the number of used rows of each class
    # the feature columns, the unused ones included
    columns: "list[ReadColumn]" = field(default_factory=list)
    # what was dropped, guessed or may be wrong, a sentence each
    remarks: list[str] = field(default_factory=list)
    target: str = ""  # the column of the class; empty without one
    decimal_mark: str = ""  # of its numbers, where it can be seen: `,` or `.`

    def as_json(self) -> dict[str, Any]:
        """Return the document of `data inspect --json`."""
        return {
            "kind": "table",
            "rows": self.rows,
            "rows_used": self.rows_used,
            "classes": [{"name": name, "count": count} for name, count in self.classes.items()],
            "columns": [
                {key: getattr(column, key) for key in ("name", "type", "used", "missing")}
                | {"categories": list(column.categories)}
                for column in self.columns
            ],
            "remarks": self.remarks,
        }


@dataclass(frozen=True, eq=False)
class TabularDataset:
    name: str
    # (n, d) float64: numbers, and the index of a category in its column's `categories`; NaN where a
    # value is missing
    x: NDArray[np.float64]
    y: NDArray[np.int64]  # (n,) int64 labels, 0 .. C - 1
    classes: tuple[str, ...]  # the C class names, by label
    columns: tuple[Column, ...]  # the d feature columns
    # (n,) the number of each row in its file, from 1, without the header and blank rows; None where
    # rows are numbered as in `x`
    row_numbers: NDArray[np.int64] | None = None
    # the rows of a fixed test split, if the data have one; all other rows are for training, and
    # there are no folds
    fixed_test: NDArray[np.int64] | None = None
    summary: TableSummary | None = None  # what was read, of a user's table
    # (n,) int64, equal for the rows of one person or object, which share a fold; None where rows
    # are independent
    groups: NDArray[np.int64] | None = None

    @property
    def num_rows(self) -> int:
        return len(self.y)

    @property
    def num_features(self) -> int:
        return int(self.x.shape[1])

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the parsed content: the same rows from any file have the same digest."""
        content = hashlib.sha256(repr((self.x.shape, self.classes)).encode())
        if any(column.categories for column in self.columns):
            content.update(repr([column.categories for column in self.columns]).encode())
        content.update(np.ascontiguousarray(self.x, "<f8").tobytes())
        content.update(np.ascontiguousarray(self.y, "<i8").tobytes())
        for rows in (self.row_numbers, self.fixed_test, self.groups):
            if rows is not None:
                content.update(np.ascontiguousarray(rows, "<i8").tobytes())
        return content.hexdigest()
