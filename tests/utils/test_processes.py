"""Objects that worker processes share, and processes that follow their parent."""

import os
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from marginctl.utils.processes import SharedObject, start_worker


def load_and_write(shared, pipe):
    """The code of a worker: write to a shared array, and send what another load finds."""
    first = shared.load()
    first["pixels"][0, 0] = 9
    pipe.send((first, shared.load()["pixels"][0, 0], first["pixels"].base is None))


def test_arrays_are_mapped_and_private():
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    value = {"pixels": pixels, "labels": np.arange(5), "none": np.zeros((0, 7)), "name": "digits"}
    parent, end = get_context("spawn").Pipe()
    process = start_worker(f"{__name__}:load_and_write", SharedObject(value), end)
    end.close()
    loaded, untouched, is_copy = parent.recv()
    process.join()
    assert (process.exitcode, is_copy) == (0, False)
    assert (pixels[0, 0], untouched, loaded["pixels"][0, 0]) == (0, 0, 9)
    assert np.array_equal(loaded["pixels"].ravel()[1:], pixels.ravel()[1:])
    assert np.array_equal(loaded["labels"], value["labels"])
    assert (loaded["none"].shape, loaded["name"]) == ((0, 7), "digits")


def stay(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_ends_with_a_parent_that_is_killed(tmp_path):
    path = tmp_path / "pid"
    code = (
        "import os, signal, time\n"
        "from pathlib import Path\n"
        "from marginctl.utils.processes import start_worker\n"
        f"start_worker('{__name__}:stay', {str(path)!r})\n"
        f"while not Path({str(path)!r}).exists(): time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=False)
    deadline = time.monotonic() + 1
    stat = Path(f"/proc/{path.read_text()}/stat")
    while stat.exists() and stat.read_text().rpartition(") ")[2][0] not in "ZX":
        assert time.monotonic() < deadline
        time.sleep(0.01)
