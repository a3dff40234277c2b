"""The type of each column of a table, and its values as numbers or categories."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from marginctl.data.names import look_alikes
from marginctl.data.tabular.numbers import CODE_DIGITS, Numbers, parse_numbers
from marginctl.utils.text import shorten

ColumnType = Literal["numeric", "categorical", "boolean", "date", "id", "text", "constant"]
# Missing in a column of numbers; values elsewhere, with a remark.
NA_WORDS = {
    *("na", "n/a", "n.a.", "#n/a", "#na", "<na>", "nan", "null", "none", "nil", "missing"),
    *("?", "-", "--", ".", "#value!", "#div/0!"),
}
MAY_MEAN_MISSING = NA_WORDS | {
    *("unknown", "undefined", "not available", "not applicable", "0000-00-00")
}
ODD_FRACTION = 0.1  # a column of numbers, or of dates, may hold this fraction of other texts
# A larger part may be at most this many different words, which mean missing in some language, if
# the column has at least this many different numbers.
ODD_WORDS, MANY_NUMBERS = 2, 10
TEXT_FRACTION = 0.5  # a column with more distinct values than this fraction of its rows is text
MAX_MAGNITUDE = 1e30
# Numbers that may stand for a missing value, if they are far outside the others (our choice).
SENTINELS = (-9.0, -99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0)
BOOLEANS = ({"true", "false"}, {"yes", "no"}, {"y", "n"}, {"t", "f"}, {"on", "off"})
ID_NAME = re.compile(r"(.*[_\- ])?(id|uuid|guid|index|key|row|no|nr)|unnamed.*", re.IGNORECASE)
GROUP_NAME = re.compile(
    r"(.*[_\- ])?(patients?|subjects?|persons?|people|participants?|users?|customers?|clients?|"
    r"animals?|donors?|speakers?|writers?|families|family|households?|sites?|groups?|cases?)"
    r"([_\- ]?(id|uuid|key|no|nr|number|code|name))?",
    re.IGNORECASE,
)
_MONTHS = (
    "january february march april may june july august september october november december "
    "januar jänner februar märz mai juni juli oktober dezember janvier février mars avril juin "
    "juillet août septembre octobre novembre décembre enero febrero marzo abril mayo junio "
    "julio agosto septiembre octubre noviembre diciembre gennaio febbraio aprile maggio giugno "
    "luglio settembre ottobre dicembre janeiro fevereiro março maio junho julho setembro "
    "outubro novembro dezembro januari februari maart mei augustus mrt"
)
_SHORT_MONTHS = {month[:length] for month in _MONTHS.split() for length in (3, 4)}
_MONTH = rf"(?:{'|'.join([*_MONTHS.split(), *sorted(_SHORT_MONTHS)])})\.?"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_NUMBER_OF_MONTH = r"(?:0?[1-9]|1[0-2])"
_YEAR = r"(?:\d{4}|\d{2})"
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\s?(?:[ap]\.?m\.?)?\s?(?:z|utc|gmt|[-+]\d{2}:?\d{2})?"
_DATES = (
    *(rf"\d{{4}}{s}\s?{_NUMBER_OF_MONTH}{s}\s?{_DAY}\.?" for s in ("-", "/", r"\.", "_", " ")),
    rf"\d{{4}}年{_NUMBER_OF_MONTH}月{_DAY}日|\d{{8}}t\d{{4,6}}z?",
    *(rf"{_DAY}{s}\s?{_NUMBER_OF_MONTH}{s}\s?{_YEAR}" for s in ("-", "/", r"\.")),
    *(rf"{_NUMBER_OF_MONTH}{s}{_DAY}{s}{_YEAR}" for s in ("-", "/")),
    rf"\d{{4}}[-/]{_NUMBER_OF_MONTH}|{_NUMBER_OF_MONTH}[-/]\d{{4}}",
    rf"{_MONTH}\s{_DAY}(?:st|nd|rd|th)?,?\s{_YEAR}",
    rf"{_DAY}(?:st|nd|rd|th)?[-. /]\s?(?:de\s)?{_MONTH}[-, /]*(?:de\s)?{_YEAR}",
    rf"{_MONTH}\s{{1,2}}{_DAY}\s{_TIME}\s{_YEAR}",
    rf"{_MONTH}[-, ]\s?{_YEAR}",
    r"\d{4}-?w\d{2}(?:-?\d)?|kw\s?\d{1,2}[/ ]\d{4}|\d{4}[- ]?q[1-4]|q[1-4][- /]\d{4}",
)
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)\w{0,6}\.?,?\s)?"
DATE = re.compile(rf"{_WEEKDAY}(?:{'|'.join(_DATES)})(?:,?[t :]\s?{_TIME})?|{_TIME}", re.IGNORECASE)
COMPACT_DATE = re.compile(r"(19|20)\d{2}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(\d{4}(\d{2})?)?")


@dataclass(frozen=True)
class ReadColumn:
    name: str
    type: ColumnType  # what its values are
    used: bool  # whether it is a feature
    missing: int  # the number of missing values
    # the distinct values of a categorical or boolean column, in order
    categories: tuple[str, ...] = ()
    # (n,) numbers, or indices of categories; NaN where missing; None if not used
    values: NDArray[np.float64] | None = None
    remarks: tuple[str, ...] = ()
    # texts of a column of numbers that count as missing, such as `?`, and their number
    words: Counter[str] = field(default_factory=Counter)


def look_like_groups(frame: pd.DataFrame) -> list[str]:
    """Return a remark on each column whose values may name the person or object of several rows.

    Its name is that of an identifier or of persons, and its values repeat: they are at most two
    thirds of the rows, and at least a fiftieth of them and ten.
    """
    remarks = []
    for name in frame:
        if not (GROUP_NAME.fullmatch(name) or ID_NAME.fullmatch(name)):
            continue
        counts = Counter(filter(None, frame[name].astype(str)))
        repeated = sum(n for n in counts.values() if n > 1)
        if max(10, len(frame) / 50) <= len(counts) <= len(frame) * 2 / 3:
            remarks.append(
                f"column '{name}' has {len(counts)} values that repeat in {repeated} of "
                f"{len(frame)} rows and may name persons or objects: --groups {name} keeps their "
                "rows in one fold"
            )
    return remarks


def read_column(
    name: str, cells: list[str] | NDArray[np.float64], train: NDArray[np.bool_], mark: str
) -> ReadColumn:
    """Return the type and the values of a column.

    Args:
        cells: (n,) stripped texts, empty where a value is missing; or finite numbers.
        train: (n,) the training rows: these alone decide the type and the categories.
        mark: the table's decimal mark.
    """
    if not isinstance(cells, list):
        return _numeric_column(name, Numbers(cells), train, Counter(), [])
    numbers = parse_numbers(cells, mark)
    codes = _are_codes(cells)
    plain = bool((np.abs(numbers.values) < MAX_MAGNITUDE).all()) and not codes
    if plain and not _merges(cells, numbers.values):  # most columns: nothing is missing or odd
        return _numeric_column(name, numbers, train, Counter(), [])
    filled = [cell for cell, is_train in zip(cells, train, strict=True) if cell and is_train]
    missing = cells.count("")
    if not filled:
        return ReadColumn(name, "constant", False, missing, remarks=("it has no value",))
    dates = [cell for cell in filled if cell.lower() not in MAY_MEAN_MISSING]
    if dates and np.mean([bool(DATE.fullmatch(cell)) for cell in dates]) >= 1 - ODD_FRACTION:
        return ReadColumn(name, "date", False, missing + len(filled) - len(dates))
    present, texts, words = _present_cells(cells)
    if present[train].any() and not codes:
        read = parse_numbers(texts, mark)
        odd = ~(np.abs(read.values) < MAX_MAGNITUDE)
        odd_fraction = odd[train[present]].mean()
        are_words = (
            odd_fraction <= 0.5
            and len({text for text, is_odd in zip(texts, odd, strict=True) if is_odd}) <= ODD_WORDS
            and len(np.unique(read.values[~odd])) >= MANY_NUMBERS
        )
        if (odd_fraction <= ODD_FRACTION or are_words) and not _merges(texts, read.values):
            values = np.full(len(cells), np.nan)
            values[present] = np.where(odd, np.nan, read.values)
            unread = [text for text, is_odd in zip(texts, odd, strict=True) if is_odd]
            return _numeric_column(name, Numbers(values, read.remark), train, words, unread)
    return _text_column(name, cells, missing, filled)


def _are_codes(cells: Sequence[str]) -> bool:
    """Return whether whole numbers of one length, some with a leading zero, fill a column."""
    length = len(next(filter(None, cells), ""))
    return (
        length >= CODE_DIGITS
        and all(len(cell) == length and cell.isdecimal() for cell in cells if cell)
        and any(cell.startswith("0") for cell in cells)
    )


def _present_cells(cells: Sequence[str]) -> tuple[NDArray[np.bool_], list[str], Counter[str]]:
    """Return (n,) where a column of numbers has a value, these, and its words for missing ones."""
    absent = {cell for cell in set(cells) if not cell or cell.lower() in NA_WORDS}
    present = np.array([cell not in absent for cell in cells], bool)
    texts = [cell for cell in cells if cell not in absent]
    return present, texts, Counter(cell for cell in cells if cell and cell in absent)


def read_new_numbers(cells: Sequence[str], mark: str) -> tuple[NDArray[np.float64], list[str]]:
    """Return the values of a column that is known to hold numbers, and remarks.

    Args:
        cells: (n,) stripped texts; empty ones, words for missing and others are NaN.
        mark: the table's decimal mark.
    """
    present, texts, _ = _present_cells(cells)
    read = parse_numbers(texts, mark)
    odd = ~(np.abs(read.values) < MAX_MAGNITUDE)
    values = np.full(len(cells), np.nan)
    values[present] = np.where(odd, np.nan, read.values)
    unread = [text for text, is_odd in zip(texts, odd, strict=True) if is_odd]
    return values, [remark for remark in (read.remark, _unread_remark(unread)) if remark]


def _unread_remark(unread: Sequence[str]) -> str:
    if not unread:
        return ""
    examples = ", ".join(f"'{shorten(text)}'" for text in dict.fromkeys(unread[:3]))
    return f"{examples}: no number up to 1e30, read as missing ({len(unread)} in all)"


def read_new_categories(
    cells: Sequence[str], categories: Sequence[str]
) -> tuple[NDArray[np.float64], list[str]]:
    """Return (n,) indices of known categories, NaN where a cell has none of them, and remarks."""
    if set(categories) in BOOLEANS:
        cells = [cell.casefold() for cell in cells]
    values = _category_indices(cells, categories)
    unknown = Counter(c for c, v in zip(cells, values, strict=True) if c and np.isnan(v))
    if not unknown:
        return values, []
    shown = ", ".join(f"'{shorten(cell)}'" for cell in list(unknown)[:5])
    return values, [f"{shown}: not in the training table, read as missing ({unknown.total()})"]


def _category_indices(cells: Sequence[str], categories: Sequence[str]) -> NDArray[np.float64]:
    index = {category: float(i) for i, category in enumerate(categories)}
    return np.array([index.get(cell, np.nan) for cell in cells])


def _numeric_column(
    name: str, numbers: Numbers, train: NDArray[np.bool_], words: Counter[str], unread: list[str]
) -> ReadColumn:
    """Return a column of numbers; `words` and `unread` are its texts that count as missing."""
    values = numbers.values
    present = values[~np.isnan(values)]
    missing = len(values) - len(present)
    remarks = [numbers.remark] if numbers.remark else []
    if unread:
        remarks.append(_unread_remark(unread))
    remarks += _sentinel_remarks(present)
    kind: ColumnType = "numeric"
    integers = (present % 1 == 0).all()
    if integers and all(COMPACT_DATE.fullmatch(f"{number:.0f}") for number in present):
        kind = "date"
    elif _is_id(name, values[train & ~np.isnan(values)]):
        kind = "id"
    elif not missing and np.ptp(values[train]) == 0:
        kind = "constant"
    used = kind == "numeric"
    return ReadColumn(
        name, kind, used, missing, (), values if used else None, tuple(remarks), words
    )


def _sentinel_remarks(numbers: NDArray[np.float64]) -> list[str]:
    """Return a remark on a number that may mean missing: the only negative one, or a huge one."""
    ends = (numbers.min(), numbers.max())
    for value in (number for number in SENTINELS if number in ends):
        others = numbers[numbers != value]
        if len(others) and (others.min() >= 0 if value < 0 else others.max() < value / 5):
            count = int((numbers == value).sum())
            return [
                f"'{value:g}' read as a number, though it may mean missing ({count}): leave a cell "
                "empty where its value is missing"
            ]
    return []


def _merges(texts: Sequence[str], numbers: NDArray[np.float64]) -> bool:
    """Return whether different whole numbers or codes become one, such as 1E2 and 100.

    Numbers of more than 15 digits do, and codes with an E where no number has decimals.
    """
    finite = numbers[np.isfinite(numbers)]
    codes = (finite % 1 == 0).all() and "e" in "".join(texts).lower()
    if not codes and not (np.abs(finite) >= 2**53).any():
        return False
    spelled: dict[float, str] = {}
    for text, number in zip(texts, numbers, strict=True):
        if np.isfinite(number) and number % 1 == 0:
            canonical = text.lstrip("+0").removesuffix(".0").upper()
            if spelled.setdefault(float(number), canonical) != canonical:
                return True
    return False


def _is_id(name: str, numbers: NDArray[np.float64]) -> bool:
    """Return whether a column has distinct integers that count up, or whose name suggests an id."""
    if len(numbers) < 10 or len(np.unique(numbers)) < len(numbers) or (numbers % 1).any():
        return False
    steps = np.diff(numbers)  # rows without a class leave gaps
    counts_up = (steps > 0).all() and (steps == 1).mean() > 0.5
    return bool(counts_up or ID_NAME.fullmatch(name))


def _text_column(name: str, cells: list[str], missing: int, filled: list[str]) -> ReadColumn:
    folded = {cell.casefold() for cell in filled}
    boolean = len(folded) == 2 and any(folded == pair for pair in BOOLEANS)
    if boolean:
        cells = [cell.casefold() for cell in cells]
        filled = [cell.casefold() for cell in filled]
    counts = Counter(filled)
    if len(counts) == 1 and not missing:
        return ReadColumn(name, "constant", False, missing)
    if len(counts) > max(2, TEXT_FRACTION * len(filled)):
        distinct = len(counts) == len(filled) >= 10
        codes = all(" " not in cell and re.search(r"\d", cell) for cell in filled)
        if distinct and (codes or ID_NAME.fullmatch(name)):
            return ReadColumn(name, "id", False, missing)
        example = f"{len(counts)} different values, such as '{shorten(filled[0])}'"
        return ReadColumn(name, "text", False, missing, remarks=(example,))
    categories = tuple(sorted(counts))
    values = _category_indices(cells, categories)
    remarks = look_alikes("values", counts)
    if _are_codes(cells):
        code = next(cell for cell in filled if cell.startswith("0"))
        remarks.append(f"read as codes, not as numbers, for leading zeros such as '{code}'")
    unknown = Counter(cell for cell in cells if cell and cell not in counts)
    if unknown:
        shown = ", ".join(f"'{shorten(cell)}'" for cell in list(unknown)[:5])
        remarks.append(f"{shown}: only in test rows ({unknown.total()}), read as missing")
    kind: ColumnType = "boolean" if boolean else "categorical"
    return ReadColumn(name, kind, True, missing, categories, values, tuple(remarks))
