"""A user's own CSV file: read, understood, and reported on before anything is trained."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marginctl.data.csv_file import RawTable, is_number, parse
from marginctl.data.dataset import Dataset
from marginctl.errors import RequestError
from marginctl.text import did_you_mean, short

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none", "nil", "-", "."})
MOST_CATEGORIES = 50
MOSTLY = 0.9  # a column with this share of numbers is meant to be numeric
DATE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}.*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?|"
    r"\d{1,2}:\d{2}(:\d{2})?"
)
ID_NAME = re.compile(r"(.*[_\- ])?(id|uuid|index|key|row|no|nr)|unnamed.*|", re.IGNORECASE)
DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?|[-+]?\d+")


@dataclass
class Understood:
    """What was made of a file: shown before training.

    Attributes:
        rows: data rows in the file.
        dropped: how many of them were left out, by reason.
        numeric, categorical: names of the columns that are used; a category has its values.
        ignored: names of the columns that are not, each with the reason.
        classes: rows of each class, of those that are used.
    """

    name: str
    separator: str
    rows: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    numeric: list[str] = field(default_factory=list)
    categorical: dict[str, list[str]] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)
    decimal_commas: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        separator = {"\t": "tab", ";": "semicolon", ",": "comma", "|": "bar"}[self.separator]
        used = self.rows - sum(self.dropped.values())
        dropped = "".join(f", {n} dropped ({why})" for why, n in self.dropped.items())
        lines = [f"{self.name}: {self.rows} rows, {separator}-separated: {used} used{dropped}"]
        classes = ", ".join(f"{c} ({n})" for c, n in self.classes.items())
        lines.append(f"  {len(self.classes)} classes: {classes}")
        if self.numeric:
            lines.append(f"  {len(self.numeric)} numeric columns: {_some(self.numeric)}")
        if self.categorical:
            shown = [f"{c} ({len(v)} values)" for c, v in self.categorical.items()]
            lines.append(f"  {len(shown)} categories, one-hot: {_some(shown)}")
        if self.ignored:
            shown = [f"{c} ({why})" for c, why in self.ignored.items()]
            lines.append(f"  {len(shown)} columns not used: {_some(shown)}")
        if self.decimal_commas:
            lines.append(f"  commas read as decimal points in: {_some(self.decimal_commas)}")
        return lines + [f"  {remark}" for remark in self.remarks]


def _some(names: list[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def read(path: Path, target: str) -> tuple[Dataset, Understood]:
    """Reads a CSV file for cross-validation.

    Separators, decimal commas, missing values, categories, dates and ids are recognised. A row
    with a missing value is dropped, a column that is mostly missing is not used.

    Args:
        path: the file; the first line names the columns.
        target: the column that holds the class.

    Raises:
        RequestError: one line that says what is wrong with the file and what to do.
    """
    return _understand(parse(path), target)[:2]


def read_split(train: Path, test: Path, target: str) -> tuple[Dataset, Understood]:
    """Reads a training and a test file with the same columns; the test rows stay test rows.

    Types, categories and classes come from the training file.

    Raises:
        RequestError: as `read`, or the files do not fit together.
    """
    first, second = parse(train), parse(test)
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


def _understand(raw: RawTable, target: str) -> tuple[Dataset, Understood, NDArray[np.int64]]:
    """The data set, what was understood, and which rows are used."""
    understood = Understood(raw.name, raw.separator, raw.rows + raw.blank)
    if raw.blank:
        understood.dropped["no value at all"] = raw.blank
    y, classes, kept = _labels(raw, target, understood)
    x, columns, complete = _features(raw, target, kept, understood)
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
    dataset = Dataset(
        raw.name, x[complete], codes, tuple(classes), tuple(columns), row_numbers=raw.numbers[used]
    )
    return dataset, understood, used


def _labels(
    raw: RawTable, target: str, understood: Understood
) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """The label of each row, the classes in order, and the rows that have one."""
    if target not in raw.columns:
        raise RequestError(
            f"{raw.name}: no column '{target}' for --target: the columns are "
            f"{_some(list(raw.columns))}.{did_you_mean(target, raw.columns)}"
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
            f"{_some(sorted(distinct))}"
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
            f"classes that differ in case alone are kept apart: {_some(alike)}"
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


def _check_classes(raw: RawTable, target: str, understood: Understood) -> None:
    if len(understood.classes) < 2:
        what = (
            f"only class '{next(iter(understood.classes))}'" if understood.classes else "no class"
        )
        used = sum(understood.classes.values())
        raise RequestError(
            f"{raw.name}: target '{target}' has {what} in the {used} rows that can be used: "
            "expected at least 2 classes"
        )


def _features(
    raw: RawTable, target: str, kept: NDArray[np.int64], understood: Understood
) -> tuple[NDArray[np.float64], list[str], NDArray[np.bool_]]:
    """Features of the kept rows, their names, and which of these rows are complete."""
    parts: list[NDArray[np.float64]] = []
    names: list[str] = []
    complete, train = np.ones(len(kept), bool), raw.train[kept]
    for column, cells in raw.columns.items():
        if column == target:
            continue
        values = [cells[i] for i in kept]
        missing = np.array([v.lower() in MISSING for v in values], bool)
        present = [values[i] for i in np.flatnonzero(~missing & train)]
        reason = _why_ignored(column, present, int(train.sum()))
        if reason:
            understood.ignored[column] = reason
            continue
        numbers = _numbers(raw, column, values, missing, kept, understood)
        if numbers is not None:
            if _is_id(column, numbers[~missing & train]):
                understood.ignored[column] = "an id"
                continue
            understood.numeric.append(column)
            names.append(column)
            parts.append(numbers[:, None])
        else:
            categories = sorted(set(present))
            if len(categories) > min(MOST_CATEGORIES, max(2, len(present) // 2)):
                understood.ignored[column] = f"text, {len(categories)} distinct values"
                continue
            understood.categorical[column] = categories
            unknown = sorted(
                {v for v, m in zip(values, missing, strict=True) if not m} - set(present)
            )
            if unknown:
                understood.remarks.append(
                    f"column '{column}': {_some(unknown)} in test rows alone: no category"
                )
            one_column = len(categories) == 2 and not unknown
            shown = categories[1:] if one_column else categories
            names += [f"{column}={c}" for c in shown]
            parts.append(np.array([[v == c for c in shown] for v in values], np.float64))
        complete &= ~missing
    if not parts:
        ignored = ", ".join(f"{c} ({why})" for c, why in understood.ignored.items()) or "none"
        raise RequestError(f"{raw.name}: no column can be used as a feature: {ignored}")
    return np.concatenate(parts, axis=1), names, complete


def _why_ignored(column: str, present: list[str], rows: int) -> str | None:
    if not present:
        return "empty"
    if len(present) < rows / 2:
        return f"{rows - len(present)} of {rows} missing"
    if len(set(present)) == 1:
        return "constant"
    if all(DATE.fullmatch(v) for v in present):
        return "dates"
    return None


def _is_id(column: str, numbers: NDArray[np.float64]) -> bool:
    """Distinct whole numbers that count up by one, or any distinct ones in a column named so."""
    if len(numbers) < 10 or len(np.unique(numbers)) < len(numbers) or (numbers % 1).any():
        return False
    counts_up = (np.diff(numbers) == 1).all()
    return bool(counts_up or ID_NAME.fullmatch(column))


def _numbers(
    raw: RawTable,
    column: str,
    values: list[str],
    missing: NDArray[np.bool_],
    kept: NDArray[np.int64],
    understood: Understood,
) -> NDArray[np.float64] | None:
    """The column as numbers (NaN where missing), or None where it holds words.

    Raises:
        RequestError: numbers with a few words among them, or infinite ones.
    """
    texts = ["nan" if m else v for v, m in zip(values, missing, strict=True)]
    train = raw.train[kept]
    if raw.separator != ",":
        present = [texts[i] for i in np.flatnonzero(~missing & train)]
        if all(DECIMAL_COMMA.fullmatch(t) for t in present) and any("," in t for t in present):
            texts = [t.replace(",", ".") for t in texts]
            understood.decimal_commas.append(column)
    try:
        numbers = np.array(texts, np.float64)
    except ValueError:
        words = [i for i, t in enumerate(texts) if not is_number(t)]
        if sum(train[i] for i in words) > (1 - MOSTLY) * train.sum():
            return None
        first = words[0]
        raise RequestError(
            f"{raw.where[kept[first]]}: column '{column}' holds '{short(values[first])}' among "
            f"numbers ({len(words)} such rows): correct it, or leave it empty where it is missing"
        ) from None
    large = np.flatnonzero(~missing & ~(np.abs(numbers) < 1e30))
    if len(large):
        first = large[0]
        raise RequestError(
            f"{raw.where[kept[first]]}: column '{column}' holds '{short(values[first])}': "
            "expected numbers below 1e30"
        )
    return numbers


def read_all(
    files: Sequence[Path],
    targets: Sequence[str],
    split: tuple[Path | None, Path | None] = (None, None),
) -> list[tuple[Dataset, Understood]]:
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
            found.append(read(path, target))
        except RequestError as error:
            problems += error.lines
    if train and test:
        try:
            found.append(read_split(train, test, targets[-1]))
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
