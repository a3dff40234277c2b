"""Texts of messages."""

import pytest

from marginctl.utils.text import did_you_mean


@pytest.mark.parametrize(
    ("word", "known"),
    [
        ("digits ", "digits"),
        ("cafe\u0301", "caf\u00e9"),
        ("iris\u00a0", "iris"),
        ("\uff41bcd", "abcd"),
    ],
)
def test_names_that_print_alike_are_told_apart(word, known):
    advice = f" Did you mean '{known}'?"
    assert did_you_mean(word, [known, "other"]) == (
        f"{advice} They differ in blanks or in the Unicode form."
    )
    assert did_you_mean(f"{known}s", [known]) == advice
    assert did_you_mean("nothing near", [known]) == ""
