"""Signals to all processes of a training that decodes: none speaks; the same bits in the end."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from tests.faults.harness import Command, records, wait_until_gone

# on one core no process decodes
ONE_CORE = "import os, runpy; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
ONE_CORE += "runpy.run_module('marginctl', run_name='__main__')"

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="one core decodes without other processes",
)


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    stream = np.random.default_rng(0)
    for part, count in (("train", 40), ("val", 4)):
        for i in range(count):
            path = root / part / "ab"[i % 2] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(stream.integers(0, 256, (40, 60, 3), np.uint8)).save(path)
    return Command(
        [
            *("train", "--data", f"folder:{root}", "--model", "mlp:width=8", "--device", "cpu"),
            *("--set", "data.load=stream", "--set", "data.augment=imagenet", "--epochs", "3"),
            *("--set", "data.image_size=32", "--set", "train.batch_size=2", "--json"),
            *("--checkpoint-minutes", "0"),
        ]
    )


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    command.run(out)
    return records(out)


def started(command, out):
    """A process in a group of its own, once it has a checkpoint."""
    process = command.start(out)
    deadline = time.monotonic() + 120
    while not list(out.rglob("step-*.pt")):
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return process


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_a_signal_to_the_whole_group(command, undisturbed, tmp_path, number, status):
    process = started(command, tmp_path)
    os.killpg(process.pid, number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == status
    wait_until_gone(process.pid)
    said = [line for line in stderr.decode().splitlines() if line.startswith("error: ")]
    assert len(said) == 1
    assert "has a checkpoint at step" in said[0]
    assert "Traceback" not in stderr.decode()
    line = command.line(tmp_path)
    assert line[:3] == [sys.executable, "-m", "marginctl"]
    again = [sys.executable, "-c", ONE_CORE, *line[3:]]
    ran = subprocess.run(again, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert "resuming from step" in ran.stderr
    assert records(tmp_path) == undisturbed


def test_a_kill_leaves_no_process(command, tmp_path):
    process = started(command, tmp_path)
    process.kill()
    process.communicate(timeout=60)
    wait_until_gone(process.pid)
