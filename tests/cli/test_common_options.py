"""Options that several commands share, in every command that has them."""

import pytest
import typer

from marginctl.cli import app


def commands_with(option):
    """The words of every command that has an option."""

    def walk(command, path):
        if any(option in p.opts for p in command.params):
            yield path
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, [*path, name])

    return list(walk(typer.main.get_command(app), []))


def test_these_commands_have_a_store():
    found = commands_with("--out")
    assert ["train"] in found
    assert ["uci-cv"] in found


@pytest.mark.parametrize("option", ["--out", "--data-dir"])
@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_not_the_current_folder(marginctl, tmp_path, monkeypatch, option, name):
    """As `--out "$STORE"` gives it where that is not set."""
    monkeypatch.chdir(tmp_path)
    for words in commands_with(option):
        ran = marginctl(*words, option, name)
        assert (ran.status, ran.out) == (2, ""), words
        assert ran.err == (
            f"error: Invalid value for '{option}': {name!r}: expected a folder (the current one "
            "is '.')\n"
        ), words
    assert not list(tmp_path.iterdir())


def test_the_current_folder_has_a_name(marginctl, tmp_path, monkeypatch, quick):
    monkeypatch.chdir(tmp_path)
    assert marginctl("uci-cv", "--dataset", "iris", "--dry-run", "--out", ".").status == 0


@pytest.mark.parametrize("written", ["fast", "-1", "nan", "inf", "", "9" * 400])
def test_a_number_is_named_where_it_is_none(marginctl, written):
    ran = marginctl("train", f"--checkpoint-minutes={written}")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"error: Invalid value for '--checkpoint-minutes': '{written[:50]}")
    assert ran.err.endswith("': expected a number of at least 0\n")
