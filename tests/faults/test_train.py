"""SIGKILL, SIGTERM and Ctrl-C at some moment of a training: the same bits in the end."""

import random
import signal
import subprocess
import time

import pytest

from tests.faults.harness import Command, records, wait_until_gone

COMMAND = Command(
    [
        *("train", "--data", "digits", "--model", "mnist-cnn:feature_dim=16", "--device", "cpu"),
        *("--objective", "adacos", "--epochs", "12", "--checkpoint-minutes", "0.001"),
        *("--set", "data.augment=crop", "--json"),
    ]
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    COMMAND.run(out)
    return records(out)


def started(out, *more):
    """A process, once it has written its first checkpoint."""
    process = subprocess.Popen(
        [*COMMAND.line(out), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
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
        time.sleep(chance.uniform(0, 0.6))
        process.kill()
        process.wait()
    assert not list(tmp_path.rglob("result.json"))
    ran = COMMAND.run(tmp_path)
    assert "goes on after step" in ran.stderr
    assert records(tmp_path) == undisturbed
    assert not list(tmp_path.rglob(".tmp-*"))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_checkpoint_and_its_status(tmp_path, undisturbed, number, status):
    process = started(tmp_path)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == status
    assert "has a checkpoint at step" in stderr.decode()
    assert "the same command again resumes" in stderr.decode()
    assert "Traceback" not in stderr.decode()
    COMMAND.run(tmp_path)
    assert records(tmp_path) == undisturbed


def test_a_second_process_says_that_the_trial_is_taken(tmp_path):
    process = started(tmp_path, "--epochs", "100000")
    line = [*COMMAND.line(tmp_path), "--epochs", "100000"]
    second = subprocess.run(line, capture_output=True, text=True, timeout=60)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert second.returncode == 1
    assert "another process is at work on it" in second.stderr
    assert process.returncode == 143
    wait_until_gone(process.pid)
