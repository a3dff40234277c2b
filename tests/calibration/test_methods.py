"""The methods, and those that are fitted by default."""

import pytest
import typer

from marginctl.calibration.methods import METHODS, select_methods
from marginctl.cli import app
from marginctl.errors import RequestError


def test_methods_that_suit_the_number_of_classes():
    methods, skipped = select_methods([], 100)
    assert list(methods) == list(METHODS)
    assert skipped == []
    methods, skipped = select_methods([], 1000)
    assert list(methods) == [name for name in METHODS if name != "matrix"]
    assert skipped[0]["method"] == "matrix"
    assert "1001000 parameters for 1000 classes" in skipped[0]["reason"]
    methods, skipped = select_methods(["matrix", "none", "matrix"], 1000)
    assert (list(methods), skipped) == (["matrix", "none"], [])


def test_an_unknown_name():
    with pytest.raises(
        RequestError, match=r"unknown calibration method .temprature.: expected one of none, temper"
    ) as e:
        select_methods(["temprature"], 3)
    assert "Did you mean 'temperature'?" in str(e.value)


def test_the_help_names_every_method():
    command = typer.main.get_command(app).commands["calibrate"]
    (option,) = (p for p in command.params if p.name == "method")
    words = option.help.split(" (")[0].replace(" or ", ", ").split(", ")
    assert words == list(METHODS)
