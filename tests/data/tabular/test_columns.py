"""The types of columns: identifiers, dates, categories, and numbers with odd texts among them."""

import numpy as np
import pytest

from marginctl.data.tabular.columns import read_column
from marginctl.data.tabular.custom import (
    read_table,
)
from tests.data.tabular.tables import PLAIN, column, summary_of, types


def read(name, cells):
    return read_column(name, cells, np.ones(len(cells), bool), "")


@pytest.mark.parametrize("removed", [[], [0], [3, 4, 30], list(range(5, 40, 4))])
def test_an_index_with_gaps_is_an_id(removed):
    """Rows without a class are not read, so that the index does not count up by one."""
    cells = [str(i) for i in range(1, 41) if i - 1 not in removed]
    assert read("number", cells).type == "id"


@pytest.mark.parametrize("step", [3, 7, 100])
def test_increasing_numbers_with_large_steps_are_numbers(step):
    assert read("year", [str(1900 + step * i) for i in range(40)]).type == "numeric"


@pytest.mark.parametrize("first", ["00042", "90210"])
def test_whole_numbers_with_leading_zeros_are_codes(write, first):
    """Also where the first rows have none, and the column could be read as numbers."""
    codes = [first] + ["90210"] * 400 + ["00042", "10001"] * 30
    rows = [f"{code},{i % 7},{'ab'[i % 2]}" for i, code in enumerate(codes)]
    summary = summary_of(write("\n".join(["zip,count,class", *rows])))
    assert [c.type for c in summary.columns] == ["categorical", "numeric"]
    assert summary.columns[0].categories == ("00042", "10001", "90210")
    assert any("column 'zip': read as codes" in r and "'00042'" in r for r in summary.remarks)


@pytest.mark.parametrize("cells", [["01", "02", "12"], ["0042", "123", "7"], ["0.25", "1.50"]])
def test_padded_numbers_of_few_digits_or_several_lengths_are_numbers(cells):
    assert read("month", cells * 12).type == "numeric"


@pytest.mark.parametrize(
    ("value", "others"), [("-999", ["20", "51"]), ("999", ["3", "17"]), ("-9", ["0", "1.5"])]
)
def test_a_number_that_may_mean_missing_is_named(value, others):
    column = read("x", [*others, value, *others] * 6)
    assert column.missing == 0
    assert [
        f"'{value}' read as a number, though it may mean missing (6)" in r for r in column.remarks
    ] == [True]


@pytest.mark.parametrize("cells", [["-9", "-3", "4"], ["999", "998", "3"], ["999"], ["-1", "1"]])
def test_other_numbers_do_not_mean_missing(cells):
    assert read("x", cells * 12).remarks == ()


@pytest.mark.parametrize("cell", ["EUR 12", "EUR 1 204", "1e3", "2.5e-3"])
def test_an_odd_text_among_numbers_with_a_letter_e(cell):
    column = read("price", [cell, "3", "4"] * 10 + ["see below"])
    assert (column.type, column.missing) == ("numeric", 1)
    assert any("'see below'" in remark for remark in column.remarks)


def test_codes_that_would_become_one_number_stay_texts():
    column = read("plate", ["1E2", "100", "1E3"] * 10)
    assert (column.type, column.categories) == ("categorical", ("100", "1E2", "1E3"))
    assert read("plate", ["1E2", "100", ""] * 10).missing == 10


@pytest.mark.parametrize("word", ["k.A.", "#NV", "\\N", "sin dato", "—", "<0.05", "n/d"])
@pytest.mark.parametrize("every", [3, 4, 5])
def test_a_word_of_any_language_among_many_numbers_is_missing(word, every):
    cells = [word if i % every == 0 else f"{i % 13}.5" for i in range(60)]
    column = read("ratio", cells)
    assert (column.type, column.missing) == ("numeric", cells.count(word))
    assert any(word in remark for remark in column.remarks)
    assert read("grade", ["1", "2", "3", word] * 15).type == "categorical"  # few numbers: codes


@pytest.mark.parametrize(
    "date",
    [
        *("{:02}/Apr/2021:09:38:00 +0000", "{}/Sep/2021", "202104{:02}T093000", "2021年4月{}日"),
        *("2021. 04. {:02}.", "2021_04_{:02}", "2021 04 {:02}", "Mon Apr {:02} 09:38:00 2021"),
        *("{} février 2021", "{} de enero de 2021", "{} ottobre 2021", "{} de março de 2021"),
        *("{} augustus 2021", "KW {}/2021"),
    ],
)
@pytest.mark.parametrize("missing", ["", "NA", "unknown", "-", "0000-00-00"])
def test_dates_of_other_programs_and_languages(date, missing):
    cells = [missing if i % 5 == 0 else date.format(i % 18 + 1) for i in range(60)]
    column = read("when", cells)
    assert (column.type, column.missing) == ("date", 12)


@pytest.mark.parametrize("word", ["marker {}", "general {}", "setting {}", "decision {}"])
def test_a_word_that_begins_as_a_month_is_no_date(word):
    assert read("kind", [word.format(i % 5 + 10) for i in range(60)]).type == "categorical"


@pytest.mark.parametrize("large", ["1e300", "1e30", "-2.5e200", "1" + "0" * 60])
@pytest.mark.parametrize("share", [2, 10])
def test_numbers_too_large_to_be_scaled_are_no_numbers(large, share):
    cells = ["1.5", *[large] * share] * 4
    column = read("x", cells)
    assert (column.type, column.categories) == ("categorical", tuple(sorted({"1.5", large})))
    assert read("x", [large, large + "0"] * 20).type == "categorical"


NA = ["NA", "N/A", "#N/A", "NaN", "null", "?", ""]


@pytest.mark.parametrize("word", NA)
@pytest.mark.parametrize("share", [0.05, 0.2, 0.8])
def test_words_in_a_numeric_column_are_missing(write, word, share):
    count = int(40 * share)
    rows = "".join(f"{word if i < count else i / 8},{i % 7},{'xy'[i % 2]}\n" for i in range(40))
    data = read_table(write("a,b,class\n" + rows), "class")
    assert np.isnan(data.x[:, 0]).sum() == count
    assert data.x[count:, 0].tolist() == [i / 8 for i in range(count, 40)]
    assert column(data.summary, "a").missing == count
    assert data.summary.rows_used == 40
    assert any("missing" in remark for remark in data.summary.remarks)


def test_categories_dates_ids_constants_and_texts_are_recognised(write):
    header = "id,when,color,sure,same,note,size,class\n"
    rows = "".join(
        f"{i + 100},2026-01-{i % 28 + 1:02d},{('red', 'green', 'blue')[i % 3]},{'ny'[i % 2]},7,"
        f"text {i},{i % 11},{i % 2 + 1}\n"
        for i in range(40)
    )
    data = read_table(write(header + rows), "class")
    assert types(data.summary) == {
        "id": "id",
        "when": "date",
        "color": "categorical",
        "sure": "boolean",
        "same": "constant",
        "note": "text",
        "size": "numeric",
    }
    assert [c.name for c in data.columns] == ["color", "sure", "size"]
    assert data.columns[0].categories == ("blue", "green", "red")
    assert data.x[1].tolist() == [1, 1, 1]
    assert data.classes == ("1", "2")


def test_many_categories_are_used(write):
    rows = "".join(f"{i % 9},land{i * i % 61},{'xy'[i % 2]}\n" for i in range(300))
    summary = summary_of(write("n,country,class\n" + rows))
    assert column(summary, "country").type == "categorical"
    assert len(column(summary, "country").categories) == 31


def test_a_shuffled_index_without_a_name_is_not_a_feature(write):
    order = np.random.default_rng(0).permutation(30)
    rows = "".join(f"{i},{i * 7 % 11},{'xy'[int(i > 14)]}\n" for i in order)
    assert types(summary_of(write(",a,class\n" + rows)))["unnamed column 1"] == "id"


DATES = [
    *("2021/01/04", "2021-1-4", "04-01-2021", "04.01.2021", "4.1.21", "01/04/2021", "1/4/21"),
    *("Jan 04, 2021", "January 4 2021", "4 January 2021", "04-Jan-21", "4. Januar 2021"),
    *("20210104", "2021-01", "2021/01", "01/2021", "Jan 2021", "2021-W01", "2021-Q1"),
    *("2021-01-04T09:30:00Z", "2021-01-04 09:30:00+01:00", "04.01.2021 09:30", "09:30:15"),
    *("Mon, 04 Jan 2021 09:30:00 GMT", "1/4/2021 9:30 PM", "2021-01-04 09:30:00.123"),
]


@pytest.mark.parametrize("date", DATES)
def test_dates(write, date):
    dates = [date, date.replace("01", "02", 1) if "01" in date else date.replace("4", "5", 1)]
    rows = "".join(f'"{dates[i % 2]}",{i % 7},{"xy"[i % 2]}\n' for i in range(20))
    assert types(summary_of(write("d,b,class\n" + rows)))["d"] == "date"


@pytest.mark.parametrize("text", ["12.5", "2021.5", "1-2", "10/12", "may", "555-1234", "1:2", "24"])
def test_what_is_no_date(write, text):
    texts = [text, text.replace("1", "3").replace("2", "5").replace("may", "june")]
    rows = "".join(f"{texts[i % 2]},{i % 7},{'xy'[i % 2]}\n" for i in range(20))
    assert types(summary_of(write("d,b,class\n" + rows)))["d"] in ("numeric", "categorical")


@pytest.mark.parametrize(
    "texts",
    [
        ("1E2", "100"),
        ("123e4", "1230e3"),
        ("1_1", "11"),
        ("6221888200042590280", "6221888200042590281"),
    ],
)
def test_codes_are_not_merged_as_numbers(write, texts):
    rows = "".join(f"{i * 7 % 11},{texts[i // 3 % 2]},{'xy'[i % 2]}\n" for i in range(60))
    assert column(summary_of(write("a,code,class\n" + rows)), "code").categories == tuple(
        sorted(texts)
    )


def test_a_column_of_truth_values_in_any_case(write):
    words = ["No", "no", "Yes", "yes", "YES "]
    rows = "".join(f"{i * 7 % 11},{words[i % 5]},{'xy'[i % 2]}\n" for i in range(60))
    hot = column(summary_of(write("a,hot,class\n" + rows)), "hot")
    assert (hot.type, hot.categories) == ("boolean", ("no", "yes"))


@pytest.mark.parametrize("word", ["oops", "inf", "1e300", "--5"])
def test_odd_words_among_numbers_are_named_and_missing(write, word):
    data = read_table(write(PLAIN.replace("1.5,3,y", f"{word},3,y")), "class")
    assert np.isnan(data.x[3, 0])
    assert (
        f"column 'a': '{word}': no number up to 1e30, read as missing (1 in all)"
        in data.summary.remarks
    )


def test_an_index_beside_rows_without_a_class_is_an_id(write):
    rows = "".join(f"{i},{i * 7 % 11},{('x', 'y', '')[i % 7 % 3]}\n" for i in range(60))
    assert types(summary_of(write("count,a,class\n" + rows)))["count"] == "id"


def test_odd_texts_beside_currencies(write):
    rows = "".join(f"EUR {i * 7 % 50},{i % 7},{'xy'[i % 2]}\n" for i in range(50)).replace(
        "EUR 13,", "free,"
    )
    data = read_table(write("price,b,class\n" + rows), "class")
    assert np.isnan(data.x[9, 0])
    assert data.x[10, 0] == 20
