"""CSV files of the user as data sets for cross-validation."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marginctl.data.tabular.csv_file import RawTable, is_number, read_table
from marginctl.data.tabular.csv_summary import CSVSummary, join_names
from marginctl.data.tabular.dataset import Column, TabularDataset
from marginctl.data.tabular.features import MISSING, extract_features
from marginctl.errors import RequestError
from marginctl.utils.text import did_you_mean, shorten


def read_csv(path: Path, target: str) -> tuple[TabularDataset, CSVSummary]:
    """Return a CSV file as a data set, and a summary of what is used of it.

    Separators, decimal commas, missing values, categories, dates and ids are recognised. A row
    with a missing value is dropped; a column with mostly missing values is not used.

    Args:
        path: the file; the first line names the columns.
        target: the column of the class.

    Raises:
        RequestError: the file is no table for classification.
    """
    return _build_dataset(read_table(path), target)[:2]


def read_train_test_csv(train: Path, test: Path, target: str) -> tuple[TabularDataset, CSVSummary]:
    """Return a training and a test file with the same columns as a data set with a test split.

    Types, categories and classes come from the training file.

    Raises:
        RequestError: as `read_csv`, or the files do not match.
    """
    first, second = read_table(train), read_table(test)
    if set(first.columns) != set(second.columns):
        different = sorted(set(first.columns) ^ set(second.columns))
        raise RequestError(
            f"{test}: other columns than {train}: only one of them has '{different[0]}'"
        )
    if test.samefile(train):
        raise RequestError(f"{test}: the training and the test file are the same")
    joined = RawTable(
        name=f"{first.name}+{second.name}",
        separator=first.separator,
        columns={c: cells + second.columns[c] for c, cells in first.columns.items()},
        locations=first.locations + second.locations,
        row_numbers=np.concatenate([first.row_numbers, second.row_numbers]),
        train=np.arange(first.rows + second.rows) < first.rows,
        blank=first.blank + second.blank,
    )
    dataset, summary, used = _build_dataset(joined, target)
    test_rows = np.flatnonzero(~joined.train[used])
    if not 0 < len(test_rows) < dataset.num_rows:
        split = "training" if len(test_rows) else "test"
        raise RequestError(
            f"{joined.name}: no {split} row can be used: each one has no class or a missing value"
        )
    summary.notes.append(f"{len(test_rows)} of the used rows are test rows")
    return replace(dataset, fixed_test=test_rows), summary


def _build_dataset(
    raw: RawTable, target: str
) -> tuple[TabularDataset, CSVSummary, NDArray[np.int64]]:
    """Return the data set, its summary, and the rows of the table that it uses."""
    summary = CSVSummary(raw.name, raw.separator, raw.rows + raw.blank)
    if raw.blank:
        summary.dropped["no value at all"] = raw.blank
    y, classes, labelled = _labels(raw, target, summary)
    x, columns, complete = extract_features(raw, target, labelled, summary)
    used = labelled[complete]
    if len(used) < len(labelled):
        summary.dropped["a missing value"] = len(labelled) - len(used)
    labels = [y[i] for i in used]
    counts = Counter(labels)
    classes = [c for c in classes if c in counts]
    summary.classes = {c: counts[c] for c in classes}
    _check_classes(raw, target, summary)
    index = {c: i for i, c in enumerate(classes)}
    codes = np.array([index[label] for label in labels], np.int64)
    dataset = TabularDataset(
        raw.name,
        x[complete],
        codes,
        tuple(classes),
        tuple(Column(name) for name in columns),
        row_numbers=raw.row_numbers[used],
    )
    return dataset, summary, used


def _labels(
    raw: RawTable, target: str, summary: CSVSummary
) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """Return the label of each row, the classes in order, and the rows that have a label."""
    if target not in raw.columns:
        raise RequestError(
            f"{raw.name}: no column '{target}' for --target: the columns are "
            f"{join_names(list(raw.columns))}.{did_you_mean(target, raw.columns)}"
        )
    y = _canonical_labels(raw.columns[target])
    labelled = np.array([i for i, label in enumerate(y) if label.lower() not in MISSING], np.int64)
    if len(labelled) < len(y):
        summary.dropped["no class"] = len(y) - len(labelled)
    if not len(labelled):
        raise RequestError(f"{raw.name}: target '{target}' has no class in any of {len(y)} rows")
    distinct = {y[i] for i in labelled if raw.train[i]}
    unknown = next((i for i in labelled if y[i] not in distinct), None)
    if unknown is not None:
        raise RequestError(
            f"{raw.locations[unknown]}: class '{y[unknown]}' occurs in no training row: expected "
            f"one of {join_names(sorted(distinct))}"
        )
    numeric = all(is_number(label) for label in distinct)
    if not numeric and len(distinct) > max(20, len(labelled) / 2):
        raise RequestError(
            f"{raw.name}: target '{target}' has {len(distinct)} distinct values in {len(labelled)} "
            "rows: expected classes with several rows each: name another column with --target"
        )
    integers = numeric and all(float(label).is_integer() for label in distinct)
    if numeric and len(distinct) > 20 and (not integers or len(distinct) > len(labelled) / 2):
        raise RequestError(
            f"{raw.name}: target '{target}' has {len(distinct)} distinct numbers in "
            f"{len(labelled)} rows: expected classes: bin it first, or name another "
            "column with --target"
        )
    order: Callable[[str], tuple[float, str]] = lambda c: (float(c) if numeric else 0, c)  # noqa: E731
    classes = sorted(distinct, key=order)
    folded = Counter(c.casefold() for c in classes)
    similar = [c for c in classes if folded[c.casefold()] > 1]
    if similar:
        summary.notes.append(
            f"classes that differ only in case are distinct: {join_names(similar)}"
        )
    return y, classes, labelled


def _canonical_labels(cells: list[str]) -> list[str]:
    """Return labels as one line each; equal numbers (1, 1.0, 01) get one spelling."""
    present = {c for c in cells if c.lower() not in MISSING}
    if all(is_number(c) for c in present):
        spellings = {c: _spelling(float(c)) for c in present}
        return [spellings.get(c, c) for c in cells]
    return [shorten(c) for c in cells]


def _spelling(number: float) -> str:
    return str(int(number)) if number.is_integer() else repr(number)


def _check_classes(raw: RawTable, target: str, summary: CSVSummary) -> None:
    if len(summary.classes) < 2:
        names = [f"only class '{name}'" for name in summary.classes]
        used = sum(summary.classes.values())
        raise RequestError(
            f"{raw.name}: target '{target}' has {names[0] if names else 'no class'} in the {used} "
            "rows that can be used: expected at least 2 classes"
        )


def read_csv_files(
    files: Sequence[Path],
    targets: Sequence[str],
    split: tuple[Path | None, Path | None] = (None, None),
) -> list[tuple[TabularDataset, CSVSummary]]:
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
    file_targets = [targets[0]] * len(files) if len(targets) == 1 else targets[: len(files)]
    for path, target in zip(files, file_targets, strict=True):
        try:
            datasets.append(read_csv(path, target))
        except RequestError as error:
            problems += error.lines
    if train and test:
        try:
            datasets.append(read_train_test_csv(train, test, targets[-1]))
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
