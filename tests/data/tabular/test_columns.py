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
