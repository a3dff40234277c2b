"""What commands print at 60, 80 and 120 columns, to the letter; no short cell is ever broken.

`python -m tests.cli.test_widths` writes the files anew; read the difference before it is committed.
"""

import contextlib
import io
import os
import re
import tempfile
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest

from marginctl import doctor
from marginctl.cli import run
from marginctl.doctor import Finding
from marginctl.experiments import evaluate
from tests.reports.stores import TRAIN, UCI, change_result, trial
from tests.reports.test_golden import store_in, train_result

EVALUATE = evaluate.evaluate
GOLDEN = Path(__file__).with_name("widths")
WIDTHS = (60, 80, 120)
SMALL = ("--data", "digits", "--device", "cpu", "--set", "data.subset_size=100", "--epochs", "1")
NETWORK = ("train", *SMALL, "--model", "mnist-cnn:feature_dim=8", "--objective", "soft")
NETWORK += ("--no-tune", "--set", "train.batch_size=50", "--out", "start")
SOURCE = ("--from", "start")
METHODS = ("--method", "probe", "--method", "fine-tune")
# The second run of a command prints the results that the first one has kept.
AGAIN = {
    "train": (*TRAIN, "--out", "store"),
    "uci-cv": (*UCI, "--out", "store"),
    "cosify": ("cosify", *SOURCE, *SMALL, "--blocks", "4", "--blocks", "3-4", "--out", "cosified"),
    "transfer": ("transfer", *SOURCE, *SMALL, *METHODS, "--out", "transferred"),
}
COMMANDS = AGAIN | {
    "recipes": ("recipes", "list", "--paper", "arcgrad"),
    "objectives": ("objectives", "list"),
    "report": ("report", "store"),
    "eval": ("eval", "start/network", "--device", "cpu"),
    "doctor": ("doctor",),
}
ALSO = {
    "keys": ("recipes", "keys", "train"),
    "claims": ("report", "--claims", "--paper", "temperature"),
    "doctor here": ("doctor",),
    "doctor -v": ("doctor", "-v"),
    "data": ("data", "list", "--data-dir", "nowhere"),
    "plan": ("uci-cv", "--dry-run"),
}
# of a machine with a fault: what `doctor` finds differs between machines
FINDINGS = [
    Finding("marginctl", "ok", "0.1.0 on Python 3.11.7, Linux x86_64"),
    Finding("packages", "problem", "scipy 1.9.0, expected >=1.10", "pip install 'scipy>=1.10'"),
    Finding("packages", "ok", "25 as required"),
    Finding(
        "device",
        "note",
        "cpu (PyTorch is built for CUDA 13.0 but finds no GPU)",
        "enough for uci-cv, report and recipes with -cpu or smoke in their names",
    ),
    Finding("threads", "ok", "2 cores, PyTorch uses 2"),
    Finding("runs folder", "ok", "runs: 23.6 GiB free, created on first use"),
    Finding("image sets", "note", "3 of 35", "marginctl data fetch NAME"),
]


def printed(name, width, folder):
    """Return what a command prints in a pipe of this width, or of none."""
    variables = {} if width is None else {"COLUMNS": str(width)}
    out, here = io.StringIO(), Path.cwd()
    others = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    os.chdir(folder)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(io.StringIO()),
            mock.patch.object(evaluate, "evaluate", lambda *a: fixed(EVALUATE(*a))),
            mock.patch.object(doctor, "examine", return_value=FINDINGS)
            if name == "doctor"
            else contextlib.nullcontext(),
        ):
            os.environ.clear()
            os.environ.update(others | variables)
            assert run(list((COMMANDS | ALSO)[name])) == (name == "doctor")
    finally:
        os.chdir(here)
    return out.getvalue()


def fixed(value):
    """Return a document with the same numbers on all machines."""
    if isinstance(value, dict):
        return {key: fixed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [fixed(one) for one in value]
    if isinstance(value, str):
        return re.sub("[0-9a-f]{16}", "0" * 16, value)  # a digest of weights
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return 12 if isinstance(value, int) else 0.5


def make_in(folder):
    """Runs of every task whose numbers this file sets."""
    store_in(folder)
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        assert run([*NETWORK, "--quiet"]) == 0
        trial(Path("start"), "digits").rename("start/network")
        for name in ("cosify", "transfer"):
            assert run([*AGAIN[name], "--quiet"]) == 0
    baseline = {"top1": 61.5, "interval": [52.0, 70.25], "kappa": 4.5, "detection": None}
    changes = {f"baseline__{key}": value for key, value in baseline.items()}
    for top1, start in ((81.25, "cosified"), (97.5, "transferred")):
        for i, path in enumerate(sorted((folder / start).rglob("result.json"))):
            train_result(path.parent, top1 + i)
            change_result(path.parent, **(changes if start == "cosified" else {}), state=None)
    # which images are right differs between machines
    for path in [*folder.rglob("digits-*/result.json"), *folder.rglob("t2-*/result.json")]:
        change_result(path.parent, correct=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("widths")
    make_in(made)
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
    lines = printed(name, None, folder).splitlines()
    # paragraphs do not show the heading of the first column
    headings = {a.split()[0] for a, b in pairwise(lines) if b.startswith("─") and a.strip()}
    broken = {word for word in " ".join(lines).split() if word not in words | headings}
    rules = {word for word in broken if set(word) == {"─"}}
    assert {word for word in broken - rules if len(word) <= 21 or word[:1].isdigit()} == set()


def write():
    with tempfile.TemporaryDirectory() as folder:
        make_in(Path(folder))
        GOLDEN.mkdir(exist_ok=True)
        for name in COMMANDS:
            for width in WIDTHS:
                text = printed(name, width, Path(folder))
                (GOLDEN / f"{name}-{width}.txt").write_text(text, "utf-8")


if __name__ == "__main__":
    write()
