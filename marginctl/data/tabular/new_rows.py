"""New rows of a table whose columns are known, such as those that a saved model predicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marginctl.data.tabular.cells import read_cells
from marginctl.data.tabular.columns import read_new_categories, read_new_numbers
from marginctl.data.tabular.custom import table_decimal_mark
from marginctl.data.tabular.dataset import Column
from marginctl.errors import RequestError
from marginctl.utils.text import did_you_mean, join_names, shorten


@dataclass(frozen=True)
class NewRows:
    # (n, d) float64, as `TabularDataset.x`; a category that is not known is missing
    x: NDArray[np.float64]
    labels: list[str] | None  # (n,) texts of the label column, if the file has it
    remarks: list[str]  # what was guessed, ignored or read as missing, a sentence each


def read_new_rows(
    path: Path, columns: Sequence[Column], target: str, mark: str, *, header: bool = True
) -> NewRows:
    """Return the rows of a file for columns that are known.

    The file may have its columns in any order, others besides, and another form than the training
    file.

    Args:
        columns: the feature columns, whose categories tell the type.
        target: the name of the label column, which the file need not have.
        mark: the training file's decimal mark, for a file whose own cannot be seen.
        header: whether the first line names the columns; else they are named 1, 2, ...

    Raises:
        RequestError: the file is no table, lacks a column, or has no number in a column of numbers.
    """
    cells = read_cells(path, header=header)
    names = [column.name for column in columns]
    missing = [name for name in names if name not in cells.frame]
    if missing:
        hint = did_you_mean(missing[0], [n for n in cells.frame if n not in names])
        quoted = join_names([f"'{name}'" for name in missing])
        raise RequestError(
            f"{path}: no column {quoted}, which the model was trained on: the columns are "
            f"{join_names(list(cells.frame))}.{hint}"
        )
    rows = np.arange(len(cells.frame))
    numeric = [column.name for column in columns if not column.categories]
    mark = table_decimal_mark(cells, numeric, rows) or mark
    remarks = list(cells.remarks)
    values = []
    for column in columns:
        texts = list(map(str, cells.frame[column.name]))
        if column.categories:
            read, column_remarks = read_new_categories(texts, column.categories)
        else:
            read, column_remarks = read_new_numbers(texts, mark)
            filled = [text for text in texts if text]
            if column_remarks and np.isnan(read).all():
                raise RequestError(
                    f"{path}: column '{column.name}': no number in {len(filled)} values, such as "
                    f"'{shorten(filled[0])}': expected numbers, as in the training table"
                )
        values.append(read)
        remarks += [f"column '{column.name}': {remark}" for remark in column_remarks]
    extra = [name for name in cells.frame if name not in names and name != target]
    if extra:
        remarks.append(f"columns that the model does not use: {join_names(extra)}")
    labels = list(map(str, cells.frame[target])) if target in cells.frame else None
    return NewRows(np.stack(values, axis=1), labels, remarks)
