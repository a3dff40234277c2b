"""Features from the columns of a CSV file: numbers, categories, and ignored columns."""

import re

import numpy as np
from numpy.typing import NDArray

from marginctl.data.tabular.csv_file import RawTable, is_number
from marginctl.data.tabular.csv_summary import CSVSummary, join_names
from marginctl.errors import RequestError
from marginctl.utils.text import shorten

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none", "nil", "-", "."})
MAX_CATEGORIES = 50
NUMERIC_FRACTION = 0.9  # a column with this fraction of numbers is meant to be numeric
DATE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}.*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?|"
    r"\d{1,2}:\d{2}(:\d{2})?"
)
ID_NAME = re.compile(r"(.*[_\- ])?(id|uuid|index|key|row|no|nr)|unnamed.*|", re.IGNORECASE)
DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?|[-+]?\d+")


def extract_features(
    raw: RawTable, target: str, rows: NDArray[np.int64], summary: CSVSummary
) -> tuple[NDArray[np.float64], list[str], NDArray[np.bool_]]:
    """Return the features of the rows that have a class.

    Args:
        raw: the table.
        target: the column of the class.
        rows: (n,) the rows that have a class.
        summary: gets the use of each column.

    Returns:
        (n, d) values with NaN for missing ones, the d names, and (n,) whether a row is complete.

    Raises:
        RequestError: a numeric column contains text or infinite values, or no column can be used.
    """
    parts: list[NDArray[np.float64]] = []
    names: list[str] = []
    complete, train = np.ones(len(rows), bool), raw.train[rows]
    for column, cells in raw.columns.items():
        if column == target:
            continue
        values = [cells[i] for i in rows]
        missing = np.array([v.lower() in MISSING for v in values], bool)
        present = [values[i] for i in np.flatnonzero(~missing & train)]
        reason = _reason_to_ignore(present, int(train.sum()))
        if reason:
            summary.ignored[column] = reason
            continue
        numbers = _numbers(raw, column, values, missing, rows, summary)
        if numbers is not None:
            if _is_id(column, numbers[~missing & train]):
                summary.ignored[column] = "an id"
                continue
            summary.numeric.append(column)
            names.append(column)
            parts.append(numbers[:, None])
        else:
            categories = sorted(set(present))
            if len(categories) > min(MAX_CATEGORIES, max(2, len(present) // 2)):
                example = shorten(present[0])  # perhaps formatted numbers, such as 1,204 or 12 %
                summary.ignored[column] = f"text, {len(categories)} values such as {example!r}"
                continue
            summary.categorical[column] = categories
            unknown = sorted(
                {v for v, m in zip(values, missing, strict=True) if not m} - set(present)
            )
            if unknown:
                summary.notes.append(
                    f"column '{column}': {join_names(unknown)} only in test rows: no category"
                )
            binary = len(categories) == 2 and not unknown
            encoded = categories[1:] if binary else categories
            names += [f"{column}={c}" for c in encoded]
            parts.append(np.array([[v == c for c in encoded] for v in values], np.float64))
        complete &= ~missing
    if not parts:
        ignored = join_names([f"{c} ({reason})" for c, reason in summary.ignored.items()]) or "none"
        raise RequestError(f"{raw.name}: no column can be used as a feature: {ignored}")
    return np.concatenate(parts, axis=1), names, complete


def _reason_to_ignore(present: list[str], count: int) -> str | None:
    if not present:
        return "empty"
    if len(present) < count / 2:
        return f"{count - len(present)} of {count} missing"
    if len(set(present)) == 1:
        return "constant"
    if all(DATE.fullmatch(v) for v in present):
        return "dates"
    return None


def _is_id(column: str, numbers: NDArray[np.float64]) -> bool:
    """Return whether a column has distinct integers that count up, or whose name suggests an id."""
    if len(numbers) < 10 or len(np.unique(numbers)) < len(numbers) or (numbers % 1).any():
        return False
    counts_up = (np.diff(numbers) == 1).all()
    return bool(counts_up or ID_NAME.fullmatch(column))


def _numbers(
    raw: RawTable,
    column: str,
    values: list[str],
    missing: NDArray[np.bool_],
    rows: NDArray[np.int64],
    summary: CSVSummary,
) -> NDArray[np.float64] | None:
    """Return the column as numbers, NaN where missing; None for a column of text.

    Raises:
        RequestError: numbers with a few texts among them, or infinite numbers.
    """
    texts = ["nan" if m else v for v, m in zip(values, missing, strict=True)]
    train = raw.train[rows]
    if raw.separator != ",":
        present = [texts[i] for i in np.flatnonzero(~missing & train)]
        if all(DECIMAL_COMMA.fullmatch(t) for t in present) and any("," in t for t in present):
            texts = [t.replace(",", ".") for t in texts]
            summary.decimal_commas.append(column)
    try:
        numbers = np.array(texts, np.float64)
    except ValueError:
        words = [i for i, t in enumerate(texts) if not is_number(t)]
        if sum(train[i] for i in words) > (1 - NUMERIC_FRACTION) * train.sum():
            return None
        first = words[0]
        raise RequestError(
            f"{raw.locations[rows[first]]}: column '{column}' contains '{shorten(values[first])}' "
            f"among numbers ({len(words)} such rows): correct it, or leave missing values empty"
        ) from None
    large = np.flatnonzero(~missing & ~(np.abs(numbers) < 1e30))
    if len(large):
        first = large[0]
        raise RequestError(
            f"{raw.locations[rows[first]]}: column '{column}' contains '{shorten(values[first])}': "
            "expected numbers below 1e30"
        )
    return numbers
