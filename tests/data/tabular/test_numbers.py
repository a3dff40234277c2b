"""Numbers as people write them: which mark is which."""

import pytest

from marginctl.data.tabular.numbers import parse_numbers


@pytest.mark.parametrize(
    ("common", "grouped", "value"),
    [
        ("3.50", "1,204.50", 1204.5),
        ("3,50", "1.204,50", 1204.5),
        ("35", "1'204", 1204),
        ("35,5", "1 204,5", 1204.5),
        ("35.5", "12\u2019204.5", 12204.5),
        ("0,5 €", "1\xa0204,25 €", 1204.25),
        ("EUR 12", "EUR 1 204", 1204),
        ("£12.10", "£1,001.10", 1001.1),
        ("12 %", "1,204,000.5 %", 1204000.5),
    ],
)
def test_a_few_numbers_above_a_thousand(common, grouped, value):
    """One in thirty has a separator, which is no reason to count it as missing."""
    read = parse_numbers([common] * 29 + [grouped], "")
    assert read.values[-1] == value
    assert len(set(read.values[:-1])) == 1


@pytest.mark.parametrize("below", ["-244", "\u2212244", "+244", "- 244"])
def test_points_between_thousands_beside_a_sign(below):
    """The decimal mark of the table is the comma."""
    assert parse_numbers([below, "12", "1.086"] * 10, ",").values[2] == 1086


@pytest.mark.parametrize("odd", ["abc", "1.2.3", "n.d.", "12-13"])
def test_an_odd_text_among_plain_numbers_stays_unread(odd):
    read = parse_numbers(["3.5"] * 29 + [odd], "")
    assert read.values[:-1].tolist() == [3.5] * 29
    assert read.values[-1] != read.values[-1]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("-$1,204.50", -1204.5), ("$-12.50", -12.5), ("($12.50)", -12.5), ("- $12.50", -12.5)),
        *(("1.204,50-", -1204.5), ("12-", -12), ("HK$12.50", 12.5), ("Rs. 1,204.50", 1204.5)),
        *(("₪12.50", 12.5), ("12.50 ₫", 12.5), ("SGD 12.50", 12.5), ("Rp 12", 12), ("12 TL", 12)),
        *(("Fr. 12.50", 12.5), ("12¢", 12), ("12％", 12), ("%12", 12)),
    ],
)
def test_signs_and_currencies(text, value):
    assert parse_numbers([text] * 20, "").values.tolist() == [value] * 20
