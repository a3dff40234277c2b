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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from marginctl.cli import run as run_command


def start(
    arguments: Sequence[object],
    environment: Mapping[str, str] | None = None,
    command: Callable[[list[str]], int] = run_command,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start a marginctl command in a process forked from this one; return it.

    The fork has imported everything: it saves seconds, and a signal hits the work and not the
    import of torch.

    Args:
        environment: variables beside those of this process.
        options: of `Popen`.
    """
    import torch._dynamo  # noqa: F401 - torch.optim needs it, and every fork would import it again

    open_before = set(os.listdir("/proc/self/fd"))

    def run() -> None:
        status = 70
        try:
            for name in set(os.listdir("/proc/self/fd")) - open_before:
                with contextlib.suppress(OSError):
                    os.close(int(name))  # among them the pipe by which Popen waits for an exec
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            os.environ |= environment or {}
            status = command([str(a) for a in arguments])
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)

    return subprocess.Popen(["marginctl"], preexec_fn=run, restore_signals=False, **options)


@dataclass(frozen=True)
class Command:
    """A marginctl command line that takes `--out`."""

    arguments: list[str]

    def line(self, out: Path) -> list[str]:
        return [sys.executable, "-m", "marginctl", *self.arguments, "--out", str(out)]

    def start(self, out: Path, **options: Any) -> subprocess.Popen[Any]:
        """Start it in a process group of its own; its stdout and stderr are pipes."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
        return start([*self.arguments, "--out", out], **pipes | options)

    def run(self, out: Path) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        process = self.start(out, text=True)
        stdout, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr
        return subprocess.CompletedProcess(self.arguments, 0, stdout, stderr)

    def kill(self, out: Path, *, when_done: int, extra: float = 0.0) -> Self:
        """Kills it with SIGKILL once `when_done` trials have a result, and `extra` seconds later.

        Its worker processes must then leave by themselves within seconds.
        """
        process = self.start(out)
        wait_for_results(out, when_done, process)
        time.sleep(extra)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
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
