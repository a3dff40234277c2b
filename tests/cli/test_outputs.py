"""Options that name an output: what they must not overwrite, and what is printed before."""

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from marginctl.errors import StorageError
from marginctl.reports.figures import style
from marginctl.runs import atomic_io


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Outputs with an awkward name, a recipe with a grid, and a run directory, as the folder."""
    monkeypatch.chdir(tmp_path)
    stream = np.random.default_rng(0)
    np.savez(
        "logits_$lr=1e-3_$bs.npz", logits=stream.normal(size=(40, 3)), labels=np.arange(40) % 3
    )
    Path("grid.yaml").write_text("task: uci-cv\ndatasets: [iris]\nobjectives: [soft]\n")
    Path("run/checkpoints").mkdir(parents=True)
    for name in ("run.json", "result.json", "metrics.jsonl", "checkpoints/last.pt", "old.png"):
        Path("run", name).write_text("{}")
    Path("pairs.txt").write_text("")
    return tmp_path


OUTPUTS = "logits_$lr=1e-3_$bs.npz"
COMMANDS = {
    "calibrate --save": ("calibrate", OUTPUTS, "--method", "none", "--save", "run/run.json"),
    "calibrate --figure": ("calibrate", OUTPUTS, "--figure", "run/old.png"),
    "eval --figure": ("eval", "run", "--figure", "run/old.png"),
    "eval --predictions": ("eval", "run", "--pairs", "pairs.txt", "--predictions", "run/run.json"),
    "uci-cv --predictions": ("uci-cv", "--dataset", "iris", "--predictions", "run/result.json"),
    "uci-cv --save-model": (
        *("uci-cv", "--dataset", "iris", "--objective", "soft"),
        *("--save-model", "run/result.json"),
    ),
    "predict --output": ("predict", "model", "new.csv", "--output", "run/result.json"),
    "transfer --predictions": ("transfer", "--from", "run", "--predictions", "run/metrics.jsonl"),
    "report --output": ("report", ".", "--output", "run/result.json"),
    "report --figure": ("report", ".", "--figure", "run/old.png"),
    "report --figures": ("report", ".", "--figures", "run"),
    "objectives --plot": ("objectives", "show", "soft", "--plot", "run/old.png"),
    "recipes copy": ("recipes", "copy", "arcgrad/table1", "run/run.json", "--force"),
}

FOLDERS = ("report --figures",)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_output_overwrites_a_file_of_a_run(marginctl, files, name):
    ran = marginctl(*COMMANDS[name])
    assert ran.status == 2
    assert "lies in a run directory, whose files it could overwrite" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""
    assert {path.read_text() for path in Path("run").rglob("*.*")} == {"{}"}


@pytest.mark.parametrize("name", [n for n in COMMANDS if n not in FOLDERS])
def test_no_output_overwrites_a_read_only_file(marginctl, files, name):
    target = Path("target.png" if "old.png" in COMMANDS[name][-1] else "target.json")
    target.write_text("old")
    target.chmod(0o444)
    ran = marginctl(*(target if str(a).startswith("run/") else a for a in COMMANDS[name]))
    assert ran.status == 2
    assert f"{target}: is read-only" in ran.err
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("old", 0o444)


def refuse_to_write(*_args):
    raise StorageError("a.png: the disk is full")


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("calibrate", OUTPUTS, "--method", "none", "--figure", "a.png"), "accuracy %"),
        (("calibrate", OUTPUTS, "--method", "none", "--figure", "a.png", "--json"), '"methods"'),
        (("objectives", "show", "soft", "--plot", "a.png"), "loss of a sample"),
        (("objectives", "show", "soft", "--plot", "a.png", "--json"), '"formula"'),
    ],
)
def test_numbers_are_printed_before_anything_is_drawn(
    marginctl, files, monkeypatch, arguments, printed
):
    monkeypatch.setattr(style, "write_output", refuse_to_write)
    ran = marginctl(*arguments)
    assert ran.status == 1
    assert printed in ran.out
    assert "a.png: the disk is full" in ran.err


@pytest.mark.parametrize(
    "backend", ["module://matplotlib_inline.backend_inline", "nonsense", "TkAgg"]
)
def test_the_backend_of_a_notebook_does_not_matter(marginctl, files, monkeypatch, backend):
    monkeypatch.setenv("MPLBACKEND", backend)
    for name in ("$lr_$x", "_first", "a\\b", "\U0001f600"):
        shutil.copy(OUTPUTS, f"{name}.npz")
        ran = marginctl(
            *("calibrate", f"{name}.npz", "--method", "temperature", "--figure", f"{name}.svg"),
            *("--bootstrap", "0", "--repeats", "1"),
        )
        assert ran.status == 0, ran.err
        assert ran.err.splitlines()[-1] == f"wrote {name}.svg"
        assert "Warning" not in ran.err
    assert "MPLBACKEND" not in os.environ


def test_a_dash_is_stdout(marginctl, files):
    table = marginctl("report", "--list").out
    assert marginctl("report", "--list", "--output", "-").out == table
    for command in COMMANDS["calibrate --save"], COMMANDS["uci-cv --predictions"]:
        ran = marginctl(*command[:-1], "-")
        assert ran.status == 2
        assert "-: stdout has the results: name a file" in ran.err
    assert not Path("-").exists()


def test_a_recipe_is_copied_completely_or_not_at_all(marginctl, files, monkeypatch):
    def fsync(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(atomic_io.os, "fsync", fsync)
        ran = marginctl("recipes", "copy", "arcgrad/table1", "mine.yaml")
        assert ran.status == 1
        assert "mine.yaml: the disk is full" in ran.err
    assert sorted(os.listdir()) == sorted([OUTPUTS, "grid.yaml", "run", "pairs.txt"])
    assert marginctl("recipes", "copy", "arcgrad/table1", "mine.yaml").status == 0
    assert "exists already" in marginctl("recipes", "copy", "arcgrad/table1", "mine.yaml").err
