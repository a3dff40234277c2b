"""Kills a real command at a moment and runs it again: later commands plug in here.

undisturbed = Command([...]).run(store_a)
resumed = Command([...]).kill(store_b, after=1.5).run(store_b)
assert records(store_a) == records(store_b)
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True)
class Command:
    """A marginctl command line that takes `--out`."""

    arguments: list[str]

    def line(self, out: Path) -> list[str]:
        return [sys.executable, "-m", "marginctl", *self.arguments, "--out", str(out)]

    def run(self, out: Path) -> subprocess.CompletedProcess[str]:
        """Runs it to its end."""
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
    """Waits until a store has so many results; the process must still be at work."""
    deadline = time.monotonic() + 120
    while len(list(out.rglob("result.json"))) < number:
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def wait_until_gone(group: int) -> None:
    """Waits until no process of the group is left, ten seconds at most."""
    deadline = time.monotonic() + 10
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < deadline, "workers outlived their parent"
        time.sleep(0.05)


def records(out: Path) -> dict[str, Any]:
    """What a store holds: each trial's result and metrics, without what may differ."""
    found = {}
    for path in sorted(out.rglob("result.json")):
        result = json.loads(path.read_text())
        result.pop("timing")
        result.pop("sha256")
        run = json.loads((path.parent / "run.json").read_text())
        run.pop("timing")
        lines = [json.loads(s) for s in (path.parent / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            line.pop("timing", None)
        found[path.parent.name] = (run, result, lines)
    return found
