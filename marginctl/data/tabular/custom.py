"""Tables of the user as data sets for cross-validation."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from marginctl.data.names import look_alikes
from marginctl.data.tabular.cells import Cells, read_cells
from marginctl.data.tabular.columns import (
    MAY_MEAN_MISSING,
    ReadColumn,
    look_like_groups,
    read_column,
)
from marginctl.data.tabular.dataset import Column, TableSummary, TabularDataset
from marginctl.data.tabular.numbers import decimal_mark, parse_numbers, to_number
from marginctl.errors import RequestError
from marginctl.utils.text import count_noun, did_you_mean, join_names, one_line, shorten

MANY_VALUES = 20  # a target with more distinct numbers may be a quantity
MISSING_FRACTION = 0.5  # with missing = drop, a column with more missing values is not used


@dataclass(frozen=True)
class ReadOptions:
    # `impute` keeps rows with missing values; `drop` leaves them out, and columns with mostly
    # missing values first
    missing: Literal["impute", "drop"] = "impute"
    header: bool = True  # whether the first line names the columns; else they are 1, 2, ...
    # the column that names the person or object of a row; None for independent rows
    groups: str | None = None


DEFAULT = ReadOptions()


def read_table(path: Path, target: str, options: ReadOptions = DEFAULT) -> TabularDataset:
    """Return a table as a data set; its `summary` tells what is used of it.

    Args:
        target: the column of the class.

    Raises:
        RequestError: the file is no table for classification.
    """
    target = _column_name(target)
    texts = [target] if options.groups is None else [target, _column_name(options.groups)]
    cells = read_cells(path, header=options.header, texts=texts)
    train = np.ones(len(cells.frame), bool)
    return _build_dataset(cells, target, train, options)[0]


def read_train_test_tables(
    train: Path, test: Path, target: str, options: ReadOptions = DEFAULT
) -> TabularDataset:
    """Return a training and a test file with the same columns as a data set with a test split.

    Types, categories and classes come from the training file.

    Raises:
        RequestError: as `read_table`, or the files do not match.
    """
    target = _column_name(target)
    first, second = (read_cells(path, header=options.header) for path in (train, test))
    for one, other in ((first, second), (second, first)):
        if target not in one.frame and target in other.frame:
            raise RequestError(
                f"{one.path}: no column '{target}', which {other.path} has: the file has no labels "
                "and cannot be scored: give a test file with labels"
            )
    different = sorted(set(first.frame) ^ set(second.frame))
    if different:
        raise RequestError(
            f"{test}: other columns than {train}: only one of them has '{different[0]}'"
        )
    if test.samefile(train):
        raise RequestError(f"{test}: the training and the test file are the same")
    joined = Cells(
        Path(f"{first.name}+{second.name}"),
        first.form,
        pd.concat([first.frame, second.frame[list(first.frame)]], ignore_index=True),
        np.concatenate([first.lines, second.lines]),
        first.remarks + second.remarks,
        {len(first.frame): second.path, 0: first.path},
    )
    is_train = np.arange(len(joined.frame)) < len(first.frame)
    dataset, used = _build_dataset(joined, target, is_train, options)
    test_rows = np.flatnonzero(~is_train[used])
    if not 0 < len(test_rows) < dataset.num_rows:
        split = "training" if len(test_rows) else "test"
        reason = "no class" if options.missing == "impute" else "no class or a missing value"
        raise RequestError(f"{joined.name}: no {split} row can be used: each one has {reason}")
    assert dataset.summary is not None
    remarks = dataset.summary.remarks
    compared = _without_ids(joined.frame, dataset.summary.columns)
    shared = compared[~is_train].merge(compared[is_train].drop_duplicates(), how="inner")
    if len(shared):
        rows = count_noun(len(shared), "row")
        verb = "is" if len(shared) == 1 else "are"
        remarks.append(f"{rows} of the test file {verb} also in the training file")
    remarks.append(f"{len(test_rows)} of the used rows are test rows")
    if dataset.groups is not None:
        in_test = np.isin(np.arange(dataset.num_rows), test_rows)
        both = np.intersect1d(dataset.groups[in_test], dataset.groups[~in_test])
        if len(both):
            remarks.append(
                f"{count_noun(len(both), 'group')} of column '{options.groups}' occur in both "
                "files: what is learned about them leaks into the test"
            )
    numbers = np.concatenate([np.arange(1, len(c.frame) + 1) for c in (first, second)])
    return replace(dataset, fixed_test=test_rows, row_numbers=numbers[used])


def _column_name(target: str) -> str:
    """Return a name as the columns have it."""
    return one_line(unicodedata.normalize("NFC", target))


def inspect_table(path: Path, target: str | None, options: ReadOptions = DEFAULT) -> TableSummary:
    """Return the summary of a table; without a target, all columns are features.

    Raises:
        RequestError: the file is no table, or no table for classification by this target.
    """
    if target is not None:
        summary = read_table(path, target, options).summary
        assert summary is not None
        return summary
    cells = read_cells(path, header=options.header)
    rows = len(cells.frame)
    names, every = list(cells.frame), np.arange(rows)
    mark = table_decimal_mark(cells, names, every)
    columns = _read_columns(cells, names, every, np.ones(rows, bool), mark)
    remarks = cells.remarks + _column_remarks(columns, rows)
    return TableSummary(cells.name, cells.form, rows, rows, {}, columns, remarks)


def _build_dataset(
    cells: Cells, target: str, train: NDArray[np.bool_], options: ReadOptions
) -> tuple[TabularDataset, NDArray[np.int64]]:
    """Return the data set, and the rows of the table that it uses."""
    rows = len(cells.frame)
    summary = TableSummary(cells.name, cells.form, rows, remarks=list(cells.remarks), target=target)
    labels, classes, used = _labels(cells, target, train, summary)
    group_column = None if options.groups is None else _column_name(options.groups)
    if group_column == target:
        raise RequestError(
            f"--groups {target}: is the target: name the column of persons or objects"
        )
    if group_column is not None and group_column not in cells.frame:
        names = list(cells.frame)
        raise RequestError(
            f"{cells.name}: no column '{group_column}' for --groups: the columns are "
            f"{join_names(names)}.{did_you_mean(group_column, names)}"
        )
    features = [name for name in cells.frame if name not in (target, group_column)]
    summary.decimal_mark = table_decimal_mark(cells, features, used)
    columns = _read_columns(cells, features, used, train[used], summary.decimal_mark)
    if options.missing == "drop":
        columns, used = _drop_missing(columns, used, summary)
    counts = Counter(labels[i] for i in used)
    summary.rows_used = len(used)
    summary.classes = {name: counts[name] for name in classes if counts[name]}
    summary.columns = [replace(column, values=None) for column in columns]
    summary.remarks += _column_remarks(columns, len(used))
    repeated, compared = 0, _without_ids(cells.frame, columns)
    if compared.iloc[:, :8].duplicated().any():  # seldom true, and fast
        repeated = int(compared.iloc[used].duplicated().sum())
    if repeated:
        repeat = "repeats" if repeated == 1 else "repeat"
        summary.remarks.append(
            f"{count_noun(repeated, 'row')} {repeat} an earlier row: one of the two may be trained "
            "on and the other tested: remove the copies unless they are other persons or objects"
        )
    if len(summary.classes) < 2:
        only = f"only class '{shorten(next(iter(counts)))}'" if counts else "no class"
        raise RequestError(
            f"{cells.name}: target '{target}' has {only} in the {len(used)} rows that can be used: "
            "expected at least 2 classes"
        )
    values = [(column, column.values) for column in columns if column.values is not None]
    if not values:
        why = join_names([f"{c.name} ({c.type})" for c in columns]) or "none"
        raise RequestError(f"{cells.name}: no column can be used as a feature: {why}")
    index = {name: i for i, name in enumerate(summary.classes)}
    dataset = TabularDataset(
        cells.name,
        np.stack([x for _, x in values], axis=1),
        np.array([index[labels[i]] for i in used], np.int64),
        tuple(summary.classes),
        tuple(Column(column.name, column.categories) for column, _ in values),
        row_numbers=used + 1,
        summary=summary,
        groups=None if group_column is None else _groups(cells, group_column, used, summary),
    )
    if group_column is None:
        summary.remarks += look_like_groups(cells.frame[features].iloc[used])
    return dataset, used


def _without_ids(frame: pd.DataFrame, columns: Sequence[ReadColumn]) -> pd.DataFrame:
    """Return the columns by which rows are copies of each other."""
    return frame.drop(columns=[column.name for column in columns if column.type == "id"])


def _rows(cells: Cells, rows: NDArray[np.int64]) -> pd.DataFrame:
    return cells.frame if len(rows) == len(cells.frame) else cells.frame.iloc[rows]


def table_decimal_mark(cells: Cells, names: Sequence[str], rows: NDArray[np.int64]) -> str:
    """Return the decimal mark in the given rows and columns, as `decimal_mark`."""
    frame = _rows(cells, rows)
    head = [map(str, frame[name].head(300)) for name in names]
    return decimal_mark([list(dict.fromkeys(filter(None, texts))) for texts in head])


def _groups(
    cells: Cells, name: str, used: NDArray[np.int64], summary: TableSummary
) -> NDArray[np.int64]:
    """Return the number of each used row's group; a row without one is a group of its own."""
    texts = cells.frame[name].iloc[used].astype(str).tolist()
    keys = [text or ("row", i) for i, text in enumerate(texts)]
    numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    summary.remarks.append(
        f"{count_noun(len(numbers), 'group')} of rows by column '{name}': the rows of a group "
        "share a fold"
    )
    if empty := texts.count(""):
        summary.remarks.append(
            f"{count_noun(empty, 'row')} without a group in column '{name}': each is a group of "
            "its own"
        )
    return np.array([numbers[key] for key in keys], np.int64)


def _read_columns(
    cells: Cells, names: Sequence[str], rows: NDArray[np.int64], train: NDArray[np.bool_], mark: str
) -> list[ReadColumn]:
    frame = _rows(cells, rows)
    columns = []
    for name in names:
        numeric = frame[name].dtype.kind in "iuf"
        values = frame[name].to_numpy(np.float64) if numeric else frame[name].tolist()
        columns.append(read_column(name, values, train, mark))
    return columns


def _column_remarks(columns: list[ReadColumn], rows: int) -> list[str]:
    remarks = [f"column '{c.name}': {remark}" for c in columns for remark in c.remarks]
    for word in dict.fromkeys(word for column in columns for word in column.words):
        names = [c.name for c in columns if word in c.words]
        count = sum(c.words[word] for c in columns)
        remarks.append(
            f"'{word}' read as missing in numeric columns: {join_names(names)} ({count})"
        )
    values = [v for c in columns for v in c.categories if v.lower() in MAY_MEAN_MISSING]
    for word in dict.fromkeys(values):
        names = [c.name for c in columns if word in c.categories]
        remarks.append(
            f"'{word}' read as a value, though it may mean missing: {join_names(names)}: leave a "
            "cell empty where its value is missing"
        )
    numbers, categories = list[str](), list[str]()
    for column in columns:
        if column.values is not None and (missing := int(np.isnan(column.values).sum())):
            names = categories if column.categories else numbers
            names.append(f"{column.name} ({missing})")
    if numbers:
        text = "missing numbers, imputed by the median of the training rows"
        remarks.append(f"{text}, of {rows} rows: {join_names(numbers)}")
    if categories:
        text = "missing values of categories, a category of their own"
        remarks.append(f"{text}, of {rows} rows: {join_names(categories)}")
    return remarks


def _drop_missing(
    columns: list[ReadColumn], used: NDArray[np.int64], summary: TableSummary
) -> tuple[list[ReadColumn], NDArray[np.int64]]:
    """Return the columns and rows without those that have missing values."""
    rows = len(used)
    sparse = [c.name for c in columns if c.used and c.missing > MISSING_FRACTION * rows]
    if sparse:
        columns = [replace(c, used=False, values=None) if c.name in sparse else c for c in columns]
        summary.remarks.append(f"not used, because more than half is missing: {join_names(sparse)}")
    complete = np.ones(rows, bool)
    for column in columns:
        if column.values is not None:
            complete &= ~np.isnan(column.values)
    if not complete.all():
        summary.remarks.append(
            f"{count_noun(int((~complete).sum()), 'row')} with a missing value were dropped"
        )
    return [
        c if c.values is None else replace(c, values=c.values[complete]) for c in columns
    ], used[complete]


def _labels(
    cells: Cells, target: str, train: NDArray[np.bool_], summary: TableSummary
) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """Return the label of each row, the classes in order, and the rows that have a label."""
    if target not in cells.frame:
        names = list(cells.frame)
        hints = "; ".join(filter(None, [did_you_mean(target, names).strip(), *cells.remarks]))
        raise RequestError(
            f"{cells.name}: no column '{target}' for --target: the columns are "
            f"{join_names(names)}. {hints}".strip()
        )
    labels = cells.frame[target].tolist()
    labelled = np.flatnonzero([bool(label) for label in labels])
    if len(labelled) < len(labels):
        summary.remarks.append(
            f"{count_noun(len(labels) - len(labelled), 'row')} without a class were dropped"
        )
    if not len(labelled):
        raise RequestError(
            f"{cells.name}: target '{target}' has no class in any of {len(labels)} rows"
        )
    distinct = {labels[i] for i in labelled if train[i]}
    unknown = next((int(i) for i in labelled if labels[i] not in distinct), None)
    if unknown is not None:
        raise RequestError(
            f"{cells.location(unknown)}: class '{shorten(labels[unknown])}' occurs in no training "
            f"row: expected one of {join_names(sorted(distinct))}"
        )
    _check_classes(cells.name, target, distinct, len(labelled))
    classes = sorted(
        distinct, key=lambda c: (np.nan_to_num(to_number(c), nan=np.inf, posinf=np.inf), c)
    )
    words = [f"'{c}' ({labels.count(c)})" for c in classes if c.lower() in MAY_MEAN_MISSING]
    if words:
        summary.remarks.append(
            f"target: {', '.join(words)} may mean that the class is unknown and was read as a "
            "class: leave the cell empty to drop the row"
        )
    summary.remarks += look_alikes("classes", classes)
    return labels, classes, labelled


def _check_classes(name: str, target: str, distinct: set[str], rows: int) -> None:
    """Refuse a target whose values are a quantity or texts instead of classes."""
    many = f"{name}: target '{target}' has {len(distinct)} distinct"
    values = parse_numbers(sorted(distinct), "").values
    numeric = np.isfinite(values)
    if numeric.mean() > 0.9 and numeric.sum() > MANY_VALUES:
        numbers = np.unique(values[numeric])
        codes = numbers[0] in (0, 1) and (np.diff(numbers) == 1).all() and len(numbers) <= rows / 2
        if not codes:
            raise RequestError(
                f"{many} numbers in {rows} rows, a quantity: expected classes: bin it first, or "
                "name another column with --target"
            )
    elif len(distinct) > max(MANY_VALUES, rows / 2):
        raise RequestError(
            f"{many} values in {rows} rows: expected classes with several rows each: name another "
            "column with --target"
        )


def read_tables(
    files: Sequence[Path],
    targets: Sequence[str],
    split: tuple[Path | None, Path | None] = (None, None),
    options: ReadOptions = DEFAULT,
) -> list[TabularDataset]:
    """Return the data sets that --csv, --target, --train-csv and --test-csv name.

    Args:
        files: each is a data set, named by its file name.
        targets: one for all, or one for each file in the order of the files.
        split: a training and a test file, read after the others.

    Raises:
        RequestError: all problems of all files, one line each.
    """
    train, test = split
    _check_options(files, targets, train, test)
    problems: list[str] = []
    datasets = []
    named = zip(files, [*targets] * len(files) if len(targets) == 1 else targets, strict=False)
    reads = [partial(read_table, path, target, options) for path, target in named]
    if train and test:
        reads.append(partial(read_train_test_tables, train, test, targets[-1], options))
    for read in reads:
        try:
            datasets.append(read())
        except RequestError as error:
            problems += error.lines
    if problems:
        raise RequestError(*problems)
    return datasets


def _check_options(
    files: Sequence[Path], targets: Sequence[str], train: Path | None, test: Path | None
) -> None:
    if bool(train) != bool(test):
        missing = "--test-csv" if train else "--train-csv"
        raise RequestError(f"{missing} is missing: a fixed split needs both files")
    number = len(files) + bool(train)
    if number and not targets:
        raise RequestError("--target is missing: name the column of the class")
    if targets and not number:
        raise RequestError("--target is given without --csv: name the file")
    if number and len(targets) not in (1, number):
        raise RequestError(
            f"--target is given {len(targets)} times for {number} files: give one for all, or one "
            "for each in their order"
        )
    duplicates = [name for name, count in Counter(p.name for p in files).items() if count > 1]
    if duplicates:
        raise RequestError(f"--csv: two files are named '{duplicates[0]}': rename one")
