"""Helpers that kill a real command and run it again.

undisturbed = Command([...]).run(store_a)
resumed = Command([...]).kill(store_b, after=1.5).run(store_b)
assert records(store_a) == records(store_b)
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest


@dataclass(frozen=True)
class Command:
    """A marginctl command line that takes `--out`."""

    arguments: list[str]

    def line(self, out: Path) -> list[str]:
        return [sys.executable, "-m", "marginctl", *self.arguments, "--out", str(out)]

    def run(self, out: Path) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            self.line(out), capture_output=True, text=True, check=True, timeout=300
        )

    def kill(self, out: Path, *, when_done: int, extra: float = 0.0) -> Self:
        """Kills it with SIGKILL once `when_done` trials have a result, and `extra` seconds later.

        Its worker processes must then leave by themselves within seconds.
        """
        process = subprocess.Popen(
            self.line(out),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        wait_for_results(out, when_done, process)
        time.sleep(extra)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_until_gone(process.pid)
        return self


def wait_for_results(out: Path, number: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a runs folder has `number` results, while the process still runs."""
    deadline = time.monotonic() + 120
    while len(list(out.rglob("result.json"))) < number:
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def wait_until_gone(group: int, seconds: float = 10) -> None:
    """Wait until the process group is empty, at most `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < deadline, "workers outlived their parent"
        time.sleep(0.05)


def without_timing(value: Any) -> Any:
    """Return a document without the values that may differ between two equal runs."""
    if isinstance(value, dict):
        return {k: without_timing(v) for k, v in value.items() if k != "timing"}
    return [without_timing(v) for v in value] if isinstance(value, list) else value


def records(out: Path) -> dict[str, Any]:
    """Return run.json, result.json and metrics of each trial, without timing and checksum."""
    found = {}
    for path in sorted(out.rglob("result.json")):
        result = without_timing(json.loads(path.read_text()))
        del result["sha256"]
        run = without_timing(json.loads((path.parent / "run.json").read_text()))
        lines = (path.parent / "metrics.jsonl").read_text().splitlines()
        found[path.parent.name] = (run, result, [without_timing(json.loads(x)) for x in lines])
    return found


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Callable[[str], None]]:
    """Mount a small file system; yield a function that remounts it with other options."""
    folder.mkdir()

    def mount(*options: str) -> bool:
        line = ["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)]
        try:
            return subprocess.run(line, capture_output=True, check=False).returncode == 0
        except OSError:
            return False

    def again(options: str) -> None:
        assert mount("-o", f"remount,{options}")

    if not mount("-o", f"size={kilobytes}k"):
        pytest.skip("a file system cannot be mounted here")
    try:
        yield again
    finally:
        subprocess.run(["umount", str(folder)], check=True)
