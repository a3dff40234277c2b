"""The preprocessing that is fitted on the training rows of each fold.

Missing values and categories become numbers. All folds share one matrix; a fold differs only in two
vectors, so that a hundred folds need the memory of one. The result is that of scikit-learn's
SimpleImputer (median, with indicators) and OneHotEncoder, whose transformers would make a matrix
per fold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from marginctl.data.tabular.dataset import Column, TabularDataset
from marginctl.metrics.arrays import FloatArray, IntArray

SMALLEST_SPREAD = float(np.finfo(np.float32).tiny)  # of a column that is scaled


def scaling_statistics(rows: FloatArray, scaling: str) -> tuple[FloatArray, FloatArray]:
    """Return what is subtracted from each column and what it is then multiplied by, (d,) each.

    A column that is constant in `rows`, the training rows, is only centred; so is one that varies
    by less than float32 can scale. `standard`: mean and standard deviation (ddof 0); `minmax`: to
    0 .. 1; `none`: 0 and 1.
    """
    if scaling == "none":
        return np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    if scaling == "standard":
        shift, spread = rows.mean(0), rows.std(0)
    else:
        shift = rows.min(0)
        spread = rows.max(0) - shift
    constant = rows.max(0) - rows.min(0) < SMALLEST_SPREAD
    return np.where(constant, rows[0], shift), 1 / np.where(constant, 1.0, spread)


def class_weights(y: IntArray, train: IntArray, num_classes: int) -> FloatArray:
    """Return (C,) weights of a training row by class, so that all classes weigh the same."""
    counts = np.bincount(y[train], minlength=num_classes)
    return len(train) / (num_classes * np.maximum(counts, 1))


# A category has a column of its own if at least this many training rows have it, and as many as
# this fraction of the table's rows, which limits the columns of a table with thousands of
# categories. Logistic regression on seven tables (10 folds): with 10 rows instead of 5 it loses
# 8.7 points where 25 categories share 322 rows, with 1/100 instead of 1/200 it loses 3.1 where 125
# share 3,250; with 1 or 2 rows it gains at most 1.0.
MIN_ROWS, MIN_FRACTION = 5, 1 / 200


@dataclass(frozen=True)
class Layout:
    """The columns of `expand`, by the numbers of the table's columns."""

    numeric: Sequence[int]  # the columns of numbers
    missing: Sequence[int]  # of these, the ones whose missing values a column marks
    # the codes that have a column of their own, by the categorical column
    categories: Mapping[int, Sequence[int]]


def layout_of(dataset: TabularDataset) -> Layout:
    """Return the layout of a table: which missing values and which categories have a column."""
    numeric = [j for j, column in enumerate(dataset.columns) if not column.categories]
    missing = [j for j in numeric if np.isnan(dataset.x[:, j]).any()]
    categories = {}
    for j, column in enumerate(dataset.columns):
        if column.categories:
            counts = np.bincount(_codes(dataset.x[:, j], column))
            values = np.flatnonzero(counts)
            values = values[len(values) == 2 :]
            categories[j] = values[counts[values] >= min_rows(dataset)].tolist()
    return Layout(numeric, missing, categories)


def expand(dataset: TabularDataset) -> FloatArray:
    """Return (n, d') float64: numbers, NaN where missing, then the columns of zeros and ones.

    These mark the missing numbers of each column, then the categories; a missing category is a
    category too. A column of two categories becomes one column. Without missing values and
    categories the result is `dataset.x`.
    """
    layout = layout_of(dataset)
    if len(layout.numeric) == dataset.num_features and not layout.missing:
        return dataset.x
    return expand_rows(dataset.x, dataset.columns, layout)


def expand_rows(
    x: FloatArray, columns: Sequence[Column], layout: Layout, missing: float = 0.0
) -> FloatArray:
    """Return the columns of `expand` for rows (n, d), which may be others than the table's.

    A category without a column of its own is all zeros, or `missing` where the value is missing.
    """
    blocks = [x[:, layout.numeric], np.isnan(x[:, layout.missing])]
    for j, values in layout.categories.items():
        codes, marked = _codes(x[:, j], columns[j])[:, None], len(columns[j].categories) in values
        block = np.where(
            np.isnan(x[:, [j]]) & (not marked), missing, codes == np.array(values, int)
        )
        blocks.append(block)
    return np.concatenate(blocks, axis=1, dtype=np.float64)


def merged_categories(dataset: TabularDataset) -> dict[str, int]:
    """Return how many categories of a column share the code of zeros, by name, if several do."""
    counts = {}
    for j, values in layout_of(dataset).categories.items():
        column = dataset.columns[j]
        counts[column.name] = len(np.unique(_codes(dataset.x[:, j], column))) - len(values)
    return {name: count for name, count in counts.items() if count > 1}


def num_inputs(dataset: TabularDataset) -> int:
    """Return the number of columns of `expand`."""
    layout = layout_of(dataset)
    return len(layout.numeric) + len(layout.missing) + sum(map(len, layout.categories.values()))


def fit_fold(
    dataset: TabularDataset, x: FloatArray, train: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return what replaces a missing value in each column of `expand`, and 1 or 0, (d',) each.

    A missing number becomes the median of the training rows. The columns with 0 are not used:
    numbers that all of these rows lack, and what too few of them have.
    """
    fill, use = np.zeros(x.shape[1]), np.ones(x.shape[1])
    if x is dataset.x:
        return fill, use
    numbers = sum(not column.categories for column in dataset.columns)
    incomplete = np.flatnonzero(np.isnan(x[:, :numbers]).any(0))
    ordered = np.sort(x[np.ix_(train, incomplete)], axis=0)  # NaN last
    counts = (~np.isnan(ordered)).sum(0)
    middle = np.stack([(counts - 1) // 2, counts // 2])
    median = np.take_along_axis(ordered, middle, axis=0).mean(0)  # NaN where all are missing
    fill[incomplete], use[incomplete] = np.nan_to_num(median), ~np.isnan(median)
    is_train = np.zeros(len(x))
    is_train[train] = 1
    use[numbers:] = is_train @ x[:, numbers:] >= min_rows(dataset)
    return fill, use


def encode(dataset: TabularDataset, train: IntArray) -> FloatArray:
    """Return (n, d') float64 features of all rows, fitted on the training rows."""
    x = expand(dataset)
    fill, use = fit_fold(dataset, x, train)
    return x if x is dataset.x else np.where(np.isnan(x), fill, x) * use


def _codes(values: FloatArray, column: Column) -> IntArray:
    """Return (n,) the categories of a column; a missing one has the next number."""
    return np.nan_to_num(values, nan=len(column.categories)).astype(np.int64)


def min_rows(dataset: TabularDataset) -> float:
    """Return how many training rows a category needs for a column of its own."""
    return max(MIN_ROWS, dataset.num_rows * MIN_FRACTION)
