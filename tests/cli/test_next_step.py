"""The command that usually follows: printed where a person reads it, nowhere else."""

import os
import subprocess
import sys

import pytest

pty = pytest.importorskip("pty")


def on_a_terminal(folder, *arguments):
    """Return the lines that a command prints on a terminal."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "marginctl", *arguments]
    environment = os.environ | {"TERM": "dumb", "COLUMNS": "100"}
    process = subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, cwd=folder, env=environment
    )
    os.close(child)
    output = b""
    while True:
        try:
            block = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        output += block
    os.close(parent)
    assert process.wait(timeout=60) == 0, output.decode()
    return output.decode().splitlines()


SMALL = ("--data", "digits", "--model", "mlp:width=8", "--epochs", "1", "--seed", "0")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("recipes", "copy", "arcgrad/table1", "my own.yaml"), "recipes validate 'my own.yaml'"),
        (("train", *SMALL, "--dry-run"), f"train {' '.join(SMALL)}"),
        (("train", *SMALL, "--set", "data.subset_size=60"), "report runs/digits-mlp-width-8"),
        (
            ("uci-cv", "--dataset", "iris", "--objective", "soft", "--folds", "2", "--repeats=1"),
            "report runs/arcgrad/table1",
        ),
    ],
)
def test_on_a_terminal(tmp_path, arguments, expected):
    assert on_a_terminal(tmp_path, *arguments)[-1] == f"next: marginctl {expected}"


def test_not_in_a_pipe(marginctl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = marginctl("recipes", "copy", "arcgrad/table1", "mine.yaml")
    assert (ran.status, ran.out, ran.err) == (0, "mine.yaml\n", "")
