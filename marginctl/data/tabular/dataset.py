"""TabularDataset: a table for classification in memory."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from marginctl.data.tabular.summary import TableSummary


@dataclass(frozen=True)
class Column:
    """A feature column as the table has it, before any preprocessing.

    Attributes:
        name: of the column.
        categories: of a categorical column, in order; none for a numeric one.
    """

    name: str
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class TabularDataset:
    """A table for classification.

    Attributes:
        name: the data set's name.
        x: (n, d) float64: numbers, and the index of a category in its column's `categories`; NaN
            where a value is missing.
        y: (n,) int64 labels, 0 .. C - 1.
        classes: the C class names, by label.
        columns: the d feature columns.
        row_numbers: (n,) the number of each row in its file, from 1, without the header and blank
            rows; None where rows are numbered as in `x`.
        fixed_test: the rows of a fixed test split, if the data have one; all other rows are for
            training, and there are no folds.
        summary: what was read, of a user's table.
    """

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.int64]
    classes: tuple[str, ...]
    columns: tuple[Column, ...]
    row_numbers: NDArray[np.int64] | None = None
    fixed_test: NDArray[np.int64] | None = None
    summary: "TableSummary | None" = None

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
        if self.row_numbers is not None:
            content.update(np.ascontiguousarray(self.row_numbers, "<i8").tobytes())
        if self.fixed_test is not None:
            content.update(np.ascontiguousarray(self.fixed_test, "<i8").tobytes())
        return content.hexdigest()
