"""SIGKILL, SIGTERM and Ctrl-C at some moment of a training: the same bits in the end."""

import json
import random
import signal
import time

import pytest

from tests.faults.harness import Command, records

COMMAND = Command(
    [
        *("train", "--data", "digits", "--model", "mnist-cnn:feature_dim=16", "--device", "cpu"),
        *("--objective", "adacos", "--epochs", "8", "--checkpoint-minutes", "0.001"),
        *("--set", "data.augment=random-crop", "--json"),
    ]
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    COMMAND.run(out)
    return records(out)


def started(out):
    """A process, once it has written its first checkpoint."""
    process = COMMAND.start(out)
    deadline = time.monotonic() + 120
    while not list(out.rglob("step-*.pt")):
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return process


def test_killed_twice_and_resumed_equals_undisturbed(tmp_path, undisturbed):
    chance = random.Random(5)
    for _ in range(2):
        process = started(tmp_path)
        time.sleep(chance.uniform(0, 0.3))
        process.kill()
        process.wait()
    assert not list(tmp_path.rglob("result.json"))
    ran = COMMAND.run(tmp_path)
    assert "resuming from step" in ran.stderr
    assert records(tmp_path) == undisturbed
    assert not list(tmp_path.rglob(".tmp-*"))


@pytest.mark.parametrize(
    ("number", "status"),
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGTERM, 143)],
)
def test_a_signal_leaves_a_checkpoint_and_its_status(tmp_path, undisturbed, number, status):
    process = started(tmp_path)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == status
    assert "has a checkpoint at step" in stderr.decode()
    assert "repeat the command to resume" in stderr.decode()
    assert "Traceback" not in stderr.decode()
    COMMAND.run(tmp_path)
    assert records(tmp_path) == undisturbed


def test_a_second_process_waits_and_runs_the_remaining_trials(tmp_path, undisturbed):
    """It has no other trial to do; the first one is stopped before its result is there."""
    process = started(tmp_path)
    process.send_signal(signal.SIGSTOP)  # its lock is held, and nothing more is done
    second = COMMAND.start(tmp_path, text=True)
    met, waits = second.stderr.readline(), second.stderr.readline()
    assert "locked by another process" in met
    assert "other processes hold 1 of the trials: waiting for their results" in waits
    assert second.poll() is None
    process.kill()
    process.wait()
    _, rest = second.communicate(timeout=60)
    assert second.returncode == 0
    assert "resuming from step" in rest
    assert records(tmp_path) == undisturbed


def test_a_waiting_process_is_stopped_by_a_signal(tmp_path):
    process = started(tmp_path)
    process.send_signal(signal.SIGSTOP)
    second = COMMAND.start(tmp_path, text=True)
    second.stderr.readline()
    second.stderr.readline()
    second.send_signal(signal.SIGTERM)
    _, rest = second.communicate(timeout=60)
    process.kill()
    process.wait()
    assert second.returncode == 143
    assert rest.count("\n") == 1
    assert "stopped: other processes hold 1 of the trials" in rest


def test_two_processes_share_a_grid(tmp_path):
    """Each trial is trained by one of them, both end well, and both print the whole table."""
    grid = ["train", "--data", "digits", "--model", "mlp:width=32", "--device", "cpu", "--json"]
    grid += ["--objective", "soft", "--objective", "cosface", "--seeds", "2", "--epochs", "10"]
    grid += ["--no-tune", "--workers", "1"]
    both = [Command(grid).start(tmp_path, text=True) for _ in range(2)]
    told = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert told[0][0] == told[1][0]
    assert len(json.loads(told[0][0])["cells"]) == 2
    # the last epoch of a trial is said once, by the process that trains it
    said = [line.split(" ", 1)[1] for _, err in told for line in err.splitlines()]
    last = [line.split(": epoch 10")[0] for line in said if ": epoch 10" in line]
    assert len(last) == len(set(last)) == 4
