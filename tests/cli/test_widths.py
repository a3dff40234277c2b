"""Tables at 60, 80 and 120 columns, to the letter; no number and no short name is ever broken.

`python -m tests.cli.test_widths` writes the files anew; read the difference before it is committed.
"""

import contextlib
import io
import os
import tempfile
from pathlib import Path

import pytest

from marginctl.cli import run
from tests.reports.test_golden import store_in

GOLDEN = Path(__file__).with_name("widths")
WIDTHS = (60, 80, 120)
LISTS = {
    "recipes": ("recipes", "list", "--paper", "arcgrad"),
    "objectives": ("objectives", "list"),
}
ALSO = {
    "keys": ("recipes", "keys", "train"),
    "claims": ("report", "--claims", "--paper", "temperature"),
    "doctor": ("doctor", "-v"),
    "data": ("data", "list", "--data-dir", "nowhere"),
    "plan": ("uci-cv", "--dry-run"),
}
COMMANDS = LISTS | {"report": ("report", "store")}


def printed(name, width, folder):
    """Return what a command prints in a pipe of this width, or of none."""
    variables = {} if width is None else {"COLUMNS": str(width)}
    out, here = io.StringIO(), Path.cwd()
    others = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            os.environ.clear()
            os.environ.update(others | variables)
            assert run(list((COMMANDS | ALSO)[name])) == 0
    finally:
        os.chdir(here)
    return out.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("widths")
    store_in(made)
    return made


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_to_the_letter(name, width, folder):
    assert printed(name, width, folder) == (GOLDEN / f"{name}-{width}.txt").read_text("utf-8")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS | ALSO)
def test_lines_fit_and_words_stay_whole(name, width, folder):
    """Only a name that is longer than the columns of names is divided, after a hyphen or slash."""
    text = printed(name, width, folder)
    assert max(map(len, text.splitlines())) <= width
    words = {word.removesuffix(":") for word in text.split()} | set(text.split())
    heading, *unfolded = printed(name, None, folder).split()  # paragraphs do not show the first
    broken = {word for word in unfolded if word not in {*words, heading}}
    rules = {word for word in broken if set(word) == {"─"}}
    assert {word for word in broken - rules if len(word) <= 21 or word[:1].isdigit()} == set()


def write():
    with tempfile.TemporaryDirectory() as folder:
        store_in(Path(folder))
        GOLDEN.mkdir(exist_ok=True)
        for name in COMMANDS:
            for width in WIDTHS:
                text = printed(name, width, Path(folder))
                (GOLDEN / f"{name}-{width}.txt").write_text(text, "utf-8")


if __name__ == "__main__":
    write()
