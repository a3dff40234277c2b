"""Numbers as people write them: decimal commas, thousands separators, percent, currencies."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SIGN = r"[-+\u2212]?\s?"
_EXPONENT = r"([eE][-+]?\d+)?"
# 1,204 and 12,34,567 but not 0,204 and not 1204,5
_GROUPED = _SIGN + r"[1-9]\d{{0,2}}(?:{0}\d{{2,3}})*{0}\d{{3}}"
_CODES = (
    "USD|EUR|GBP|JPY|CHF|CNY|RMB|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|KRW|RUB|TRY|ZAR|"
    "SGD|HKD|TWD|ILS|THB|IDR|MYR|PHP|VND|AED|SAR|EGP|NGN|ARS|CLP|COP|UAH|RON|BGN|ISK"
)
_CURRENCY = rf"(?:[A-Z]{{0,2}}\$|[£¥฿¢\u20a0-\u20c0]|{_CODES}|kr\.?|zł|Kč|R[sp]\.?|S?Fr\.|TL)"
_MARK = rf"(?:[%‰％]|{_CURRENCY})"
SIGNS = re.compile(rf"^([-+\u2212]?)\s?(?:{_MARK}\s?)?(.*?)(?:\s?{_MARK})?$")
NEGATIVE = re.compile(r"^(?:\((.+)\)|(.*\d.*)-)$")  # (1,204) and 1,204- are -1,204 in accounts
MARKED = re.compile(_MARK)
_DIGIT = re.compile(r"\d").search
PLAIN = re.compile(_SIGN + r"(\d+\.?\d*|\.\d+)" + _EXPONENT)
DECIMAL_COMMA = re.compile(_SIGN + r"(\d+,?\d*|,\d+)" + _EXPONENT)
# Whole numbers of one length, from this one on, are codes if some begin with a zero (our choice).
CODE_DIGITS = 4
_BLANKS, POINT = "[ \u00a0\u202f\u2009'\u2019]", r"\."
STYLES = {
    "plain": PLAIN,
    "decimal commas": DECIMAL_COMMA,
    "grouped by commas": re.compile(rf"(?:{_GROUPED.format(',')}|{_SIGN}\d+)(\.\d*)?{_EXPONENT}"),
    "grouped by points": re.compile(rf"(?:{_GROUPED.format(POINT)}|{_SIGN}\d+)(,\d*)?{_EXPONENT}"),
    "grouped by blanks": re.compile(
        rf"(?:{_GROUPED.format(_BLANKS)}|{_SIGN}\d+)([.,]\d*)?{_EXPONENT}"
    ),
}
REMARKS = {
    "plain": "",
    "decimal commas": "commas read as decimal points",
    "grouped by commas": "commas read as thousands separators",
    "grouped by points": "points read as thousands separators, commas as decimal points",
    "grouped by blanks": "blanks or apostrophes read as thousands separators",
}
# Of one decimal mark only: 0,5 and 2,75 and 12,3456; the value 1,204 could be either.
CLEAR_COMMA = re.compile(_SIGN + r"(\d+,(\d{1,2}|\d{4,})|0,\d+|\d{1,3}(\.\d{3})+,\d+)")
CLEAR_POINT = re.compile(_SIGN + r"(\d+\.(\d{1,2}|\d{4,})|0\.\d+|\d{1,3}(,\d{3})+\.\d+)")


@dataclass(frozen=True)
class Numbers:
    values: NDArray[np.float64]  # (n,) numbers, NaN where a text is none
    remark: str = ""  # how they were read, where that is not the usual way; else empty


def decimal_mark(columns: Sequence[Sequence[str]]) -> str:
    """Return the decimal mark of a table: `,` or `.`, or nothing where that cannot be seen."""
    commas = points = 0
    for texts in columns:
        sample = [SIGNS.sub(r"\1\2", text) for text in texts[:50]]
        commas += sum(bool(CLEAR_COMMA.fullmatch(t)) for t in sample) > len(sample) / 2
        points += sum(bool(CLEAR_POINT.fullmatch(t)) for t in sample) > len(sample) / 2
    return "," if commas and not points else "." if points and not commas else ""


def parse_numbers(texts: Sequence[str], mark: str) -> Numbers:
    """Return the texts as numbers.

    Args:
        texts: (n,) stripped texts.
        mark: the table's decimal mark, or nothing where that is unknown.
    """
    plain = _to_numbers(texts)
    if np.isnan(plain).all() and not any(map(_DIGIT, texts[:50])):
        return Numbers(plain)
    if not np.isnan(plain).any() and not may_be_grouped(texts):
        return Numbers(plain)
    bare = [SIGNS.sub(r"\1\2", NEGATIVE.sub(r"-\1\2", text)).strip() for text in texts]
    marks = {sign for text in texts for sign in MARKED.findall(text)}
    remarks = []
    if marks and bare != list(texts):
        shown = ", ".join(sorted(marks)[:3])
        remarks.append(f"read as numbers without {shown}")
    if negative := next(filter(NEGATIVE.match, texts), None):
        remarks.append(f"'{negative}' read as a negative number, as in accounts")
    style, style_remark = _style(bare, mark)
    remarks += filter(None, [style_remark])
    if style == "grouped by points":
        bare = [text.replace(".", "").replace(",", ".") for text in bare]
    elif style == "grouped by commas":
        bare = [text.replace(",", "") for text in bare]
    elif style == "grouped by blanks":
        bare = [re.sub(r"[\s'\u2019]", "", text).replace(",", ".") for text in bare]
    elif style == "decimal commas":
        bare = [text.replace(",", ".") for text in bare]
    numbers = _to_numbers([text.replace("\u2212", "-").replace("- ", "-") for text in bare])
    return Numbers(numbers, "; ".join(remarks))


def to_number(text: str) -> float:
    """Return a plain text as a number; NaN where it is none, or has underscores."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _to_numbers(texts: Sequence[str]) -> NDArray[np.float64]:
    try:  # mostly there is nothing else, and this takes a third of the time
        numbers = np.array(list(map(float, texts)), np.float64)
        plain = not np.isnan(numbers).any() and "_" not in "".join(texts)
    except ValueError:
        plain = False
    return numbers if plain else np.array(list(map(to_number, texts)))


def may_be_grouped(texts: Sequence[str]) -> bool:
    """Return whether numbers such as 1.204 may have a point between thousands.

    Then every point stands before three digits, and no number of four digits has none.
    """
    grouped = re.compile(_GROUPED.format(POINT))
    seen = False
    for text in texts:
        if "." in text:
            if not grouped.fullmatch(text):
                return False
            seen = True
        elif len(text.lstrip("+-\u2212 ")) > 3:
            return False
    return seen


def _style(texts: Sequence[str], mark: str) -> tuple[str, str]:
    """Return the style that reads most of the texts, and a remark if it had to be guessed."""
    counts = {
        style: sum(bool(pattern.fullmatch(text)) for text in texts)
        for style, pattern in STYLES.items()
    }
    fitting = [style for style, count in counts.items() if count == max(counts.values())]
    integers = [text for text in texts if text.lstrip("+-\u2212").isdigit()]
    small = bool(integers) and all(len(text.lstrip("+-\u2212")) <= 3 for text in integers)
    if "plain" in fitting:
        plain = [text for text in texts if PLAIN.fullmatch(text)]
        if not may_be_grouped(plain):
            return "plain", ""
        pointed = [text for text in plain if "." in text]
        example, without = pointed[0], pointed[0].replace(".", "")
        if mark == "," or (mark != "." and small and len(pointed) > 1):
            return "grouped by points", f"{example} read as {without} (thousands)"
        return "plain", f"{example} read with a decimal point, not as {without}"
    if "decimal commas" in fitting and "grouped by commas" in fitting:
        example = next(text for text in texts if "," in text)
        if mark == "." or (mark != "," and small):
            return "grouped by commas", f"{example} read as {example.replace(',', '')} (thousands)"
        decimal = example.replace(",", ".")
        return "decimal commas", f"{example} read as {decimal}, not as thousands"
    return fitting[0], REMARKS[fitting[0]]
