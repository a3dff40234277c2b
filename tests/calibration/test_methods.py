"""Which methods there are and which are fitted where none is named."""

import pytest
import typer

from marginctl.calibration.methods import METHODS, chosen
from marginctl.cli import app
from marginctl.errors import RequestError


def test_all_that_suit():
    methods, skipped = chosen([], 100)
    assert [m.name for m in methods] == list(METHODS)
    assert skipped == []
    methods, skipped = chosen([], 1000)
    assert [m.name for m in methods] == [name for name in METHODS if name != "matrix"]
    assert skipped[0]["method"] == "matrix"
    assert "1001000 parameters for 1000 classes" in skipped[0]["reason"]
    methods, skipped = chosen(["matrix", "none", "matrix"], 1000)
    assert ([m.name for m in methods], skipped) == (["matrix", "none"], [])


def test_a_name_that_is_none():
    with pytest.raises(
        RequestError, match="--method temprature: expected one of none, temper"
    ) as e:
        chosen(["temprature"], 3)
    assert "Did you mean 'temperature'?" in str(e.value)


def test_the_help_names_every_method():
    command = typer.main.get_command(app).commands["calibrate"]
    (option,) = (p for p in command.params if p.name == "method")
    words = option.help.split(" (")[0].replace(" or ", ", ").split(", ")
    assert words == list(METHODS)
