"""A short run of the fuzz: every kind of input, a fixed seed."""

import pytest

from tests.fuzz.known import silent_differences
from tests.fuzz.session import KINDS, cases, fuzz

pytestmark = pytest.mark.smoke


def test_wrong_input_is_one_clear_line_and_exit_2(tmp_path):
    outcome = fuzz(20, list(cases(150, list(KINDS))), tmp_path)
    assert [(f.kind, f.number, f.arguments, f.changes, f.wrong) for f in outcome.failures] == []
    assert set(outcome.cases) == set(KINDS)
    refused = sum(n for status, n in outcome.statuses.items() if status.endswith(" 2"))
    assert 50 < refused < 130  # both what is wrong and what is fine was tried


def test_a_defect_is_found_and_shrunk(tmp_path, monkeypatch):
    from marginctl.data.tabular import cells

    def careless(text):
        raise KeyError(text)

    monkeypatch.setattr(cells, "_separator", careless)
    said = []
    outcome = fuzz(0, [("tables", 0)], tmp_path, said.append)
    (failure,) = outcome.failures
    assert failure.wrong[0].startswith("traceback: KeyError")
    assert failure.changes == []  # no change of the file is needed
    assert (tmp_path / "tables-0" / "a.csv").is_file()
    assert said[0].startswith("tables 0: traceback: KeyError")


@pytest.mark.parametrize("cases", [150, pytest.param(5000, marks=pytest.mark.slow)])
def test_what_is_read_is_what_was_written(tmp_path, cases):
    """Rows, classes, types, values, duplicates; damaged files are refused or read."""
    assert list(silent_differences(1, cases, tmp_path)) == []
