"""Fixtures: the command in this process, the data folder, and one torch thread a worker."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marginctl.cli import run as run_command

# Two test workers with two threads each would be slower than with one.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@dataclass(frozen=True)
class Ran:
    """What a command did: exit status, stdout, stderr."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def marginctl(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command line in this process, and its trials too unless `--workers` is given."""

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        line = [str(a) for a in arguments]
        if line[0] in ("train", "cosify", "transfer") and "--workers" not in line:
            line += ["--workers", "1"]
        status = run_command(line)
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """stdout and stderr count as a terminal."""
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True)
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks a host other than this machine."""
    from marginctl.data import fetch

    monkeypatch.setattr(fetch, "_resolves", lambda host, seconds: host == "127.0.0.1")


@pytest.fixture(autouse=True)
def _no_width_of_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest-xdist sets COLUMNS in its workers, which a pipe honors."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _no_data_of_the_user(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """No test sees the user's cache; the data folder is seen by those that ask for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    if "data_dir" not in request.fixturenames:
        monkeypatch.delenv("MARGINCTL_DATA", raising=False)


@pytest.fixture
def data_dir() -> Path:
    """The folder with the original UCI files; the test is skipped where there is none."""
    folder = os.environ.get("MARGINCTL_DATA")
    if not folder:
        pytest.skip("MARGINCTL_DATA is not set: the original UCI files are needed")
    return Path(folder)


@pytest.fixture
def quick() -> list[str]:
    """Options for a run of seconds: 2 repeats of 3 folds, 3 epochs, in this process."""
    return ["--folds", "3", "--repeats", "2", "--set", "protocol.epochs=3", "--workers", "1"]
