"""`tests.faults.kills` in short: SIGKILL within every write of a command, and at random moments."""

import itertools
import os
import signal

import pytest

from tests.faults import kills
from tests.faults.scenarios import SCENARIOS

pytest.importorskip("fcntl")


FEW = ["--set", "data.subset_size=60"]


def dies_at(number):
    """An fsync at which a process is killed when it is its nth."""
    real, count = os.fsync, itertools.count(1)

    def fsync(handle):
        if next(count) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        real(handle)

    return fsync


def begun(folder, name, more):
    """A scenario, a short command line of it, and what that leaves undisturbed."""
    scenario = SCENARIOS[name]
    (folder / "inputs").mkdir()
    for arguments in scenario.prepare(folder / "inputs"):
        kills.run(arguments, folder)
    line = scenario.arguments(folder / "inputs")
    line = [*[a for i, a in enumerate(line) if "fine-tune" not in line[i : i + 2]], *more]
    (folder / "whole").mkdir()
    kills.run(line, folder / "whole")
    return scenario, line, kills.content(scenario, folder / "whole")


SHORT = pytest.mark.parametrize(
    ("name", "more"),
    [
        ("calibrate", ["--repeats", "1", "--bootstrap", "0"]),
        ("transfer", ["--seeds", "1", "--set", "probe.l2_penalties=[0.1]", *FEW]),
    ],
)


@SHORT
def test_killed_during_each_write(tmp_path, monkeypatch, name, more):
    """A file is whole or absent, and what the killed write has left is gone with the next one."""
    scenario, line, expected = begun(tmp_path, name, more)
    half = 0
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", dies_at(number))
            status = kills.ended(kills.forked(line, folder), 60)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        half += len(list(folder.rglob(".tmp-*")))
        with kills.whole_outputs(scenario, folder, expected):
            kills.run(line, folder)
        assert kills.left_over(folder) == []
        assert kills.content(scenario, folder) == expected
    assert number > 4
    assert half >= 2


@SHORT
def test_two_commands_at_once(tmp_path, name, more):
    """On one map file, or on one trial and one store of features: both end as one alone does."""
    scenario, line, expected = begun(tmp_path, name, more)
    both = [kills.forked(line, tmp_path) for _ in range(2)]
    assert [kills.ended(process, 120) for process in both] == [0, 0]
    assert kills.content(scenario, tmp_path) == expected
    assert kills.left_over(tmp_path) == []


def test_killed_at_random_moments(tmp_path):
    tally = kills.tried(SCENARIOS["calibrate"], tmp_path, 2, 0, lambda line: None)
    assert tally.problems == []
    assert (tally.kills, tally.identical) == (2, tally.runs)
