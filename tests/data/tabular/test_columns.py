"""The types of columns: identifiers, and numbers with odd texts among them."""

import numpy as np
import pytest

from marginctl.data.tabular.columns import read_column


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
