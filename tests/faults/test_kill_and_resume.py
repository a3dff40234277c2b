"""SIGKILL at some moment, the same command again: the same numbers, nothing done twice."""

import json
import os
import signal
import time

import pytest

from tests.faults.harness import Command, records, wait_for_results, wait_until_gone

ARGUMENTS = [
    *("uci-cv", "--dataset", "iris", "--repeats", "3", "--set", "protocol.epochs=25", "--json"),
    *("--objective", "soft", "--objective", "adacos", "--objective", "center"),
    *("--objective", "arcgrad:scale=5"),
]
ALONE = Command([*ARGUMENTS, "--workers", "1"])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """One store filled without a kill, and what the command printed."""
    out = tmp_path_factory.mktemp("undisturbed")
    ran = ALONE.run(out)
    return records(out), numbers(ran.stdout)


def numbers(stdout):
    document = json.loads(stdout)
    for cell in document["cells"]:
        del cell["seconds"]
    return document


@pytest.mark.parametrize(
    ("workers", "when_done", "extra"),
    [
        (2, 1, 0.02),
        pytest.param(1, 2, 0.05, marks=pytest.mark.slow),
        pytest.param(1, 1, 0.0, marks=pytest.mark.slow),
        pytest.param(2, 3, 0.0, marks=pytest.mark.slow),
    ],
)
def test_a_killed_and_resumed_run_equals_an_undisturbed_one(
    tmp_path, undisturbed, workers, when_done, extra
):
    command = Command([*ARGUMENTS, "--workers", str(workers)])
    command.kill(tmp_path, when_done=when_done, extra=extra)
    done = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("result.json")}
    assert when_done <= len(done) <= 4
    ran = ALONE.run(tmp_path)
    assert (records(tmp_path), numbers(ran.stdout)) == undisturbed
    assert all(path.stat().st_mtime_ns == time for path, time in done.items())
    assert not list(tmp_path.rglob(".tmp-*"))


SEARCH = """
paper: arcgrad
table: I
task: uci-cv
datasets: [iris, balance-scale]
objectives: [soft, adacos, "arcgrad:scale=5"]
search:
  protocol: {lr: [1e-3, 1e-2, 3e-2], weight_decay: [0.0, 5e-4], epochs: [15]}
  rounds: [{repeats: 1, keep: 2}, {repeats: 2, keep: 1}]
"""


@pytest.mark.slow
def test_a_killed_search_resumes(tmp_path):
    """Six settings side by side: killed while their results are written, and in the last round."""
    recipe = tmp_path / "near.yaml"
    recipe.write_text(SEARCH)
    command = Command(["uci-cv", "--search", str(recipe), "--json", "--workers", "2"])
    command.run(tmp_path / "undisturbed")
    command.kill(tmp_path / "killed", when_done=2)
    command.kill(tmp_path / "killed", when_done=37)
    command.run(tmp_path / "killed")
    assert records(tmp_path / "killed") == records(tmp_path / "undisturbed")


@pytest.mark.parametrize(
    ("signals", "status"),
    [
        pytest.param([signal.SIGINT], 130, id="one Ctrl-C"),
        pytest.param([signal.SIGTERM], 143, id="SIGTERM", marks=pytest.mark.slow),
        pytest.param([signal.SIGINT] * 3, 130, id="three Ctrl-C", marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_stops_at_once_and_the_run_resumes(tmp_path, undisturbed, signals, status):
    """To the whole process group, as a terminal sends it; no worker and no traceback is left."""
    command = Command([*ARGUMENTS, "--workers", "2"])
    process = command.start(tmp_path)
    wait_for_results(tmp_path, 1, process)
    for number in signals:
        os.killpg(process.pid, number)
        time.sleep(0.05)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == status
    assert stdout == b""
    assert b"Traceback" not in stderr
    wait_until_gone(process.pid)
    ran = ALONE.run(tmp_path)
    assert (records(tmp_path), numbers(ran.stdout)) == undisturbed


def test_two_processes_share_one_runs_folder(tmp_path, undisturbed):
    """Started together: each trial is computed once, and both print the same table."""
    both = [ALONE.start(tmp_path, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    for stdout, _ in outputs:
        assert numbers(stdout) == undisturbed[1]
    assert records(tmp_path) == undisturbed[0]
