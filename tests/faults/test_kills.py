"""Commands killed during each write and at random moments: a short form of `tests.faults.kills`."""

import itertools
import os
import signal

import pytest

from tests.faults import kills
from tests.faults.scenarios import SCENARIOS

pytest.importorskip("fcntl")


FEW = ["--set", "data.subset_size=60"]


def fsync_that_kills(number):
    """Return an fsync that kills its process at the given call."""
    real, count = os.fsync, itertools.count(1)

    def fsync(handle):
        if next(count) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        real(handle)

    return fsync


def prepare(folder, name, more):
    """Return a scenario, a short command line of it, and the outputs of an undisturbed run."""
    scenario = SCENARIOS[name]
    (folder / "inputs").mkdir()
    for arguments in scenario.prepare(folder / "inputs"):
        kills.run_to_end(arguments, folder)
    line = scenario.arguments(folder / "inputs")
    if name == "transfer":  # probes alone are faster
        left_out = line.index("fine-tune") - 1
        assert line[left_out + 2] == "--epochs"
        del line[left_out : left_out + 4]
    line = [*line, *more]
    (folder / "whole").mkdir()
    kills.run_to_end(line, folder / "whole")
    return scenario, line, kills.collect_outputs(scenario, folder / "whole")


SHORT = pytest.mark.parametrize(
    ("name", "more"),
    [
        ("calibrate", ["--repeats", "1", "--bootstrap", "0"]),
        ("transfer", ["--seeds", "1", "--set", "probe.l2_penalties=[0.1]", *FEW]),
    ],
)


@SHORT
def test_killed_during_each_write(tmp_path, monkeypatch, name, more):
    """A file is complete or absent; the next write removes the temporary file of a killed one."""
    scenario, line, expected = prepare(tmp_path, name, more)
    half = 0
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fsync_that_kills(number))
            status = kills.wait_for_exit(kills.start_forked(line, folder), 60)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        half += len(list(folder.rglob(".tmp-*")))
        with kills.outputs_stay_intact(scenario, folder, expected):
            kills.run_to_end(line, folder)
        assert kills.leftovers(folder) == []
        assert kills.collect_outputs(scenario, folder) == expected
    assert number > 4
    assert half >= 2


@SHORT
def test_two_commands_at_once(tmp_path, name, more):
    """Both commands end as a single one does, though they write the same files."""
    scenario, line, expected = prepare(tmp_path, name, more)
    both = [kills.start_forked(line, tmp_path) for _ in range(2)]
    assert [kills.wait_for_exit(process, 120) for process in both] == [0, 0]
    assert kills.collect_outputs(scenario, tmp_path) == expected
    assert kills.leftovers(tmp_path) == []


def test_killed_at_random_moments(tmp_path):
    summary = kills.kill_repeatedly(SCENARIOS["calibrate"], tmp_path, 2, 0, lambda line: None)
    assert summary.problems == []
    assert (summary.kills, summary.identical) == (2, summary.runs)
