"""Numbers as people write them: which mark is which."""

import numpy as np
import pytest

from marginctl.data.tabular.custom import (
    read_table,
)
from marginctl.data.tabular.numbers import parse_numbers
from tests.data.tabular.tables import PLAIN, summary_of, types


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


def test_decimal_commas(write):
    text = PLAIN.replace(",", ";").replace(".", ",")
    data = read_table(write(text), "class")
    assert np.array_equal(data.x, read_table(write(PLAIN), "class").x)
    assert "column 'a': commas read as decimal points" in data.summary.remarks


NUMBERS = {  # how 1204.5, 990 and 12480 are written in a file with this separator
    "plain": (",", ["1204.5", "990", "12480"], [1204.5, 990, 12480]),
    "comma groups": (",", ['"1,204.5"', "990", '"12,480"'], [1204.5, 990, 12480]),
    "comma groups, whole": (",", ['"1,204"', "990", '"12,480"'], [1204, 990, 12480]),
    "comma groups, tab": ("\t", ["1,204", "990", "12,480"], [1204, 990, 12480]),
    "comma groups, millions": (";", ["1,204,000", "990", "12,480"], [1204000, 990, 12480]),
    "comma groups, bar": ("|", ["1,204", "-990", "-12,480"], [1204, -990, -12480]),
    "point groups": (";", ["1.204,5", "990", "12.480"], [1204.5, 990, 12480]),
    "point groups, whole": (";", ["1.204", "990", "12.480"], [1204, 990, 12480]),
    "point groups, millions": (",", ["1.204.000", "990", "12.480"], [1204000, 990, 12480]),
    "blank groups": (";", ["1 204,5", "990", "12 480"], [1204.5, 990, 12480]),
    "narrow blank groups": (",", ["1\u202f204", "990", "12\u202f480"], [1204, 990, 12480]),
    "apostrophe groups": (",", ["1'204.5", "990", "12'480"], [1204.5, 990, 12480]),
    "decimal commas": (";", ["1204,5", "990", "0,25"], [1204.5, 990, 0.25]),
    "three decimals": (",", ["0.717", "1.342", "0.235"], [0.717, 1.342, 0.235]),
    "three decimals, commas": (";", ["0,717", "1,342", "0,235"], [0.717, 1.342, 0.235]),
    "percent": (",", ["63%", "5%", "12.5%"], [63, 5, 12.5]),
    "percent after a blank": (";", ["63 %", "5 %", "12,5 %"], [63, 5, 12.5]),
    "dollars": (",", ["$63", "$5", "$12.50"], [63, 5, 12.5]),
    "dollars in groups": (",", ['"$1,204"', "$5", '"$12,480"'], [1204, 5, 12480]),
    "euros": (";", ["1.204,50 €", "5,00 €", "12,50 €"], [1204.5, 5, 12.5]),
    "currency codes": (",", ["USD 63", "USD 5", "USD 12.50"], [63, 5, 12.5]),
    "minus sign": (",", ["\u22121.5", "2", "\u22123"], [-1.5, 2, -3]),
    "accounts": (",", ['"(1,204)"', "990", '"(12,480)"'], [-1204, 990, -12480]),
    "Indian groups": (";", ["12,34,567", "990", "12,480"], [1234567, 990, 12480]),
    "few above a thousand": (";", [*["3,50"] * 28, "12,25", "1.204,50"], [3.5, 3.5, 3.5]),
    "few with commas": ("|", [*["3.50"] * 28, "12.25", "1,204.50"], [3.5, 3.5, 3.5]),
    "exponents": (",", ["1e-3", "2.5E+2", "7"], [0.001, 250, 7]),
}


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_as_people_write_them(write, form):
    separator, texts, expected = NUMBERS[form]
    rows = [[texts[i % len(texts)], str(i % 7), "xy"[i % 2]] for i in range(30)]
    text = "".join(separator.join(row) + "\n" for row in [["a", "b", "class"], *rows])
    data = read_table(write(text), "class")
    assert types(data.summary) == {"a": "numeric", "b": "numeric"}
    assert data.x[:3, 0].tolist() == pytest.approx(expected, rel=1e-12)
    assert not np.isnan(data.x).any()
    unusual = form not in ("plain", "three decimals", "exponents", "minus sign")
    assert any(r.startswith("column 'a'") for r in data.summary.remarks) == unusual


def test_the_tables_decimal_mark_decides_an_ambiguous_column(write):
    rows = "".join(f"1.{i * 7 % 900 + 100};{i},5;{'xy'[i % 2]}\n" for i in range(140))
    data = read_table(write("people;share;class\n" + rows), "class")
    assert data.x[0].tolist() == [1100, 0.5]
    rows = "".join(f'"1,{i * 7 % 900 + 100}",{i}.5,{"xy"[i % 2]}\n' for i in range(140))
    data = read_table(write("people,share,class\n" + rows), "class")
    assert data.x[0].tolist() == [1100, 0.5]


@pytest.mark.parametrize("text", ["3-", "(4)"])
def test_a_negative_number_as_in_accounts_is_named(write, text):
    rows = "".join(f"{[text, 1, 2][i % 3]},{i % 7},{'xy'[i % 2]}\n" for i in range(30))
    remarks = summary_of(write("a,b,class\n" + rows)).remarks
    assert f"column 'a': '{text}' read as a negative number, as in accounts" in remarks


def test_an_ambiguous_column_is_named(write):
    rows = "".join(f"{i}.{i + 2}0,{i % 7},{'xy'[i % 2]}\n" for i in range(10, 50))
    summary = summary_of(write("a,b,class\n" + rows))
    assert "column 'a': 10.120 read with a decimal point, not as 10120" in summary.remarks


COLUMNS = {  # values of two columns in turn, and what the first one means
    "a decimal point in the other column": (["990", "1.040", "850"], ["2.5", "0.75"], 1.04),
    "a decimal point in short": (["12", "1.125", "7"], ["3.5", "10.25", "0.5"], 1.125),
    "no decimal mark elsewhere": (["990", "1.040", "850"], ["2", "7", "3"], 1040),
    "codes beside decimals": (["100", "1E2", "2.5"], ["2", "7"], 100),
    "many digits": (["0.1", "0.12345678901234567891", "2.5"], ["2"], 0.12345678901234567891),
    "many digits, small": (["0.1", "6.9294956446009195e-15", "2"], ["2"], 6.9294956446009195e-15),
}


@pytest.mark.parametrize("case", COLUMNS)
@pytest.mark.parametrize("empty", [False, True])
def test_a_number_is_the_same_with_quotes_and_without(write, case, empty):
    """Tables without a quote or an empty cell are read by pandas, others by Python's reader."""
    first, second, value = COLUMNS[case]
    rows = [[first[i % len(first)], second[i % len(second)], "xy"[i % 2]] for i in range(60)] + [
        ["", "", "x"]
    ] * empty
    plain, quoted = (
        read_table(write("a,b,class\n" + "".join(
            ",".join(f"{quote}{cell}{quote}" for cell in row) + "\n" for row in rows
        )), "class")
        for quote in ("", '"')
    )  # fmt: skip
    assert plain.x[1, 0] == quoted.x[1, 0] == value
    assert np.array_equal(plain.x, quoted.x, equal_nan=True)
    assert types(plain.summary) == types(quoted.summary)


@pytest.mark.parametrize("above", [150, 199, 200, 900])
@pytest.mark.parametrize(("text", "value"), [("1.040", 1040), ("12.480", 12480)])
def test_a_thousand_far_below_the_first_rows(write, above, text, value):
    """Until there, no number has a point."""
    cells = [str(i * 7 % 990) for i in range(above)] + [text, "990", text]
    rows = "".join(f"{cell};{i % 7},5;{'xy'[i % 2]}\n" for i, cell in enumerate(cells))
    assert read_table(write("a;b;class\n" + rows), "class").x[above, 0] == value
