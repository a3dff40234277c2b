"""The columns of a user's own file as features: numbers, categories, and what is left out."""

import re

import numpy as np
from numpy.typing import NDArray

from marginctl.data.tabular.csv_file import RawTable, is_number
from marginctl.data.tabular.summary import CSVSummary, join_names
from marginctl.errors import RequestError
from marginctl.utils.text import short

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none", "nil", "-", "."})
MOST_CATEGORIES = 50
MOSTLY = 0.9  # a column with this share of numbers is meant to be numeric
DATE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}.*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?|"
    r"\d{1,2}:\d{2}(:\d{2})?"
)
ID_NAME = re.compile(r"(.*[_\- ])?(id|uuid|index|key|row|no|nr)|unnamed.*|", re.IGNORECASE)
DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?|[-+]?\d+")


def extract_features(
    raw: RawTable, target: str, kept: NDArray[np.int64], understood: CSVSummary
) -> tuple[NDArray[np.float64], list[str], NDArray[np.bool_]]:
    """Features of the rows that have a class.

    Args:
        raw: the file.
        target: the column of the class, which is no feature.
        kept: (n,) numbers of the rows that have a class.
        understood: what is made of each column is added to it.

    Returns:
        (n, d) values, NaN where one is missing, the d names, and (n,) which rows are complete.

    Raises:
        RequestError: a column of numbers holds words or infinite ones, or no column is left.
    """
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
                like = short(present[0])  # numbers as a spreadsheet shows them, 1,204 or 12 %?
                understood.ignored[column] = f"text, {len(categories)} values such as {like!r}"
                continue
            understood.categorical[column] = categories
            unknown = sorted(
                {v for v, m in zip(values, missing, strict=True) if not m} - set(present)
            )
            if unknown:
                understood.remarks.append(
                    f"column '{column}': {join_names(unknown)} in test rows alone: no category"
                )
            one_column = len(categories) == 2 and not unknown
            shown = categories[1:] if one_column else categories
            names += [f"{column}={c}" for c in shown]
            parts.append(np.array([[v == c for c in shown] for v in values], np.float64))
        complete &= ~missing
    if not parts:
        ignored = join_names([f"{c} ({why})" for c, why in understood.ignored.items()]) or "none"
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
    understood: CSVSummary,
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
