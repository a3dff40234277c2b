"""A user's own CSV file: read, understood, and reported on before anything is trained."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marginctl.data.tabular.csv_file import RawTable, is_number, read_table
from marginctl.data.tabular.dataset import TabularDataset
from marginctl.data.tabular.features import MISSING, extract_features
from marginctl.data.tabular.summary import CSVSummary, join_names
from marginctl.errors import RequestError
from marginctl.utils.text import did_you_mean, short


def read_csv(path: Path, target: str) -> tuple[TabularDataset, CSVSummary]:
    """Reads a CSV file for cross-validation.

    Separators, decimal commas, missing values, categories, dates and ids are recognised. A row
    with a missing value is dropped, a column that is mostly missing is not used.

    Args:
        path: the file; the first line names the columns.
        target: the column that holds the class.

    Raises:
        RequestError: one line that says what is wrong with the file and what to do.
    """
    return _understand(read_table(path), target)[:2]


def read_train_test_csv(train: Path, test: Path, target: str) -> tuple[TabularDataset, CSVSummary]:
    """Reads a training and a test file with the same columns; the test rows stay test rows.

    Types, categories and classes come from the training file.

    Raises:
        RequestError: as `read_csv`, or the files do not fit together.
    """
    first, second = read_table(train), read_table(test)
    if set(first.columns) != set(second.columns):
        differ = sorted(set(first.columns) ^ set(second.columns))
        raise RequestError(
            f"{test}: other columns than {train}: '{differ[0]}' is in one of them alone"
        )
    if test.samefile(train):
        raise RequestError(f"{test}: the training and the test file are one file")
    joined = RawTable(
        f"{first.name}+{second.name}",
        first.separator,
        {c: cells + second.columns[c] for c, cells in first.columns.items()},
        first.where + second.where,
        np.concatenate([first.numbers, second.numbers]),
        np.arange(first.rows + second.rows) < first.rows,
        first.blank + second.blank,
    )
    dataset, understood, used = _understand(joined, target)
    tested = np.flatnonzero(~joined.train[used])
    if not 0 < len(tested) < dataset.num_rows:
        what = "test" if not len(tested) else "training"
        raise RequestError(f"{joined.name}: no {what} row can be used: see what was dropped")
    understood.remarks.append(f"{len(tested)} of the used rows are test rows")
    return replace(dataset, fixed_test=tested), understood


def _understand(raw: RawTable, target: str) -> tuple[TabularDataset, CSVSummary, NDArray[np.int64]]:
    """The data set, what was understood, and which rows are used."""
    understood = CSVSummary(raw.name, raw.separator, raw.rows + raw.blank)
    if raw.blank:
        understood.dropped["no value at all"] = raw.blank
    y, classes, kept = _labels(raw, target, understood)
    x, columns, complete = extract_features(raw, target, kept, understood)
    used = kept[complete]
    if len(used) < len(kept):
        understood.dropped["a missing value"] = len(kept) - len(used)
    labels = [y[i] for i in used]
    counts = Counter(labels)
    classes = [c for c in classes if c in counts]
    understood.classes = {c: counts[c] for c in classes}
    _check_classes(raw, target, understood)
    index = {c: i for i, c in enumerate(classes)}
    codes = np.array([index[label] for label in labels], np.int64)
    dataset = TabularDataset(
        raw.name, x[complete], codes, tuple(classes), tuple(columns), row_numbers=raw.numbers[used]
    )
    return dataset, understood, used


def _labels(
    raw: RawTable, target: str, understood: CSVSummary
) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """The label of each row, the classes in order, and the rows that have one."""
    if target not in raw.columns:
        raise RequestError(
            f"{raw.name}: no column '{target}' for --target: the columns are "
            f"{join_names(list(raw.columns))}.{did_you_mean(target, raw.columns)}"
        )
    y = _canonical_labels(raw.columns[target])
    kept = np.array([i for i, label in enumerate(y) if label.lower() not in MISSING], np.int64)
    if len(kept) < len(y):
        understood.dropped["no class"] = len(y) - len(kept)
    if not len(kept):
        raise RequestError(f"{raw.name}: target '{target}' has no class in any of {len(y)} rows")
    distinct = {y[i] for i in kept if raw.train[i]}
    foreign = next((i for i in kept if y[i] not in distinct), None)
    if foreign is not None:
        raise RequestError(
            f"{raw.where[foreign]}: class '{y[foreign]}' is in no training row: expected one of "
            f"{join_names(sorted(distinct))}"
        )
    numeric = all(is_number(label) for label in distinct)
    if not numeric and len(distinct) > max(20, len(kept) / 2):
        raise RequestError(
            f"{raw.name}: target '{target}' holds {len(distinct)} distinct values in {len(kept)} "
            "rows: expected classes with several rows each: name another column with --target"
        )
    whole = numeric and all(float(label).is_integer() for label in distinct)
    if numeric and len(distinct) > 20 and (not whole or len(distinct) > len(kept) / 2):
        raise RequestError(
            f"{raw.name}: target '{target}' holds {len(distinct)} distinct numbers in {len(kept)} "
            "rows: expected classes: bin it first, or name another column with --target"
        )
    order: Callable[[str], tuple[float, str]] = lambda c: (float(c) if numeric else 0, c)  # noqa: E731
    classes = sorted(distinct, key=order)
    folded = Counter(c.casefold() for c in classes)
    alike = [c for c in classes if folded[c.casefold()] > 1]
    if alike:
        understood.remarks.append(
            f"classes that differ in case alone are kept apart: {join_names(alike)}"
        )
    return y, classes, kept


def _canonical_labels(cells: list[str]) -> list[str]:
    """One spelling a number where all labels are numbers (1, 1.0, 01); one line a word."""
    there = {c for c in cells if c.lower() not in MISSING}
    if all(is_number(c) for c in there):
        spelt = {c: _spelling(float(c)) for c in there}
        return [spelt.get(c, c) for c in cells]
    return [short(c) for c in cells]


def _spelling(number: float) -> str:
    return str(int(number)) if number.is_integer() else repr(number)


def _check_classes(raw: RawTable, target: str, understood: CSVSummary) -> None:
    if len(understood.classes) < 2:
        what = (
            f"only class '{next(iter(understood.classes))}'" if understood.classes else "no class"
        )
        used = sum(understood.classes.values())
        raise RequestError(
            f"{raw.name}: target '{target}' has {what} in the {used} rows that can be used: "
            "expected at least 2 classes"
        )


def read_csv_files(
    files: Sequence[Path],
    targets: Sequence[str],
    split: tuple[Path | None, Path | None] = (None, None),
) -> list[tuple[TabularDataset, CSVSummary]]:
    """Reads what --csv, --target, --train-csv and --test-csv name.

    Args:
        files: each becomes a row of the table, named by its file name.
        targets: one for all, or one for each file in the order of the files.
        split: a training and a test file, read after the others.

    Raises:
        RequestError: every problem of every file, a line each.
    """
    train, test = split
    _check_options(files, targets, train, test)
    problems: list[str] = []
    found = []
    for_each = [targets[0]] * len(files) if len(targets) == 1 else targets[: len(files)]
    for path, target in zip(files, for_each, strict=True):
        try:
            found.append(read_csv(path, target))
        except RequestError as error:
            problems += error.lines
    if train and test:
        try:
            found.append(read_train_test_csv(train, test, targets[-1]))
        except RequestError as error:
            problems += error.lines
    if problems:
        raise RequestError(*problems)
    return found


def _check_options(
    files: Sequence[Path], targets: Sequence[str], train: Path | None, test: Path | None
) -> None:
    if bool(train) != bool(test):
        missing = "--test-csv" if train else "--train-csv"
        raise RequestError(f"{missing} is missing: a fixed split needs both files")
    number = len(files) + bool(train)
    if number and not targets:
        raise RequestError("--target is missing: name the column that holds the class")
    if targets and not number:
        raise RequestError("--target is given without --csv: name the file")
    if number and len(targets) not in (1, number):
        raise RequestError(
            f"--target is given {len(targets)} times for {number} files: give one for all, or one "
            "for each in their order"
        )
    twice = [name for name, count in Counter(p.name for p in files).items() if count > 1]
    if twice:
        raise RequestError(f"--csv: two files are named '{twice[0]}': rename one")
