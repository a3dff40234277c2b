"""SIGKILL at random moments of real commands, and the same command again: what is left to see.

python -m tests.faults.kills --kills 200 --out kills.json
python -m tests.faults.kills --kills 20 --command transfer --command report --out kills.json

A run is one store, killed several times at moments between 5 and 95 % of what the command takes
undisturbed, and run to its end. Its results must equal those of a store that nobody disturbed in
all but `timing`; nothing finished is computed again, no line of metrics is there twice, no
temporary file is left, every lock is free, and an output file is whole or absent at any time.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock
import torch._dynamo  # noqa: F401 - torch.optim needs it, and every fork would import it again

from marginctl.cli import run as run_command
from marginctl.runs.run_dir import checked_document, versions
from tests.faults.harness import records, wait_until_gone
from tests.faults.scenarios import SCENARIOS, Scenario

MOST = 4  # kills of a run
PATIENCE = 10  # problems of a command
MOMENTS = (0.05, 0.95)  # of the undisturbed seconds


@dataclass
class Tally:
    """What came out of a command's kills."""

    command: str
    undisturbed_seconds: float
    kills: int = 0
    runs: int = 0
    identical: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {k: round(v, 1) if isinstance(v, float) else v for k, v in vars(self).items()}


def finished(out: Path) -> dict[str, int]:
    """The results of a store, with their times; one that is not whole fails."""
    found = {}
    for path in out.rglob("result.json"):
        checked_document(path.read_text())
        found[str(path.relative_to(out))] = path.stat().st_mtime_ns
    return found


def content(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """All that a run leaves which two runs have in common."""
    found: dict[str, Any] = {"records": records(folder / "out")}
    for pattern in scenario.files:
        for path in sorted(folder.glob(pattern)):
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def where(a: Any, b: Any) -> str:
    """The path of the first difference of two documents."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [k for k in {**a, **b} if a.get(k) != b.get(k)]
        return f"/{keys[0]}{where(a.get(keys[0]), b.get(keys[0]))}"
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        rows = [i for i in range(len(a)) if a[i] != b[i]]
        return f"/{rows[0]}{where(a[rows[0]], b[rows[0]])}"
    return f": {str(a)[:60]} and {str(b)[:60]}"


def left_over(folder: Path) -> list[str]:
    """What should not be there when a command has ended."""
    said = [f"left: {path.name}" for path in folder.rglob(".tmp-*")]
    for lock in folder.rglob("*.lock"):
        try:
            with filelock.FileLock(lock, timeout=0):
                pass
        except filelock.Timeout:
            said.append(f"locked: {lock}")
    for path in folder.rglob("metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        epochs = [line["epoch"] for line in lines if "epoch" in line]
        if len(set(epochs)) != len(epochs) or len({json.dumps(x) for x in lines}) != len(lines):
            said.append(f"done twice: {path}")
    return said


def forked(arguments: list[str], folder: Path) -> int:
    """Starts a command in a process of its own, with `folder` as its current one; its id.

    Forked from one that has imported all: what is killed is work, and not the import of torch.
    """
    process = os.fork()
    if process:
        return process
    status = 70
    try:
        os.setsid()
        os.chdir(folder)
        for name, stream in (("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        status = run_command(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def ended(process: int, within: float) -> int | None:
    """The exit status of a process, None where it is still at work after so many seconds."""
    deadline = time.monotonic() + within
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)


def kill(line: list[str], after: float, folder: Path) -> float | None:
    """Starts a command and kills it; where it was faster, the seconds that it took."""
    began = time.monotonic()
    process = forked(line, folder)
    status = ended(process, after)
    if status is None:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        wait_until_gone(process, 60)
        return None
    assert status == 0, f"exit {status}: {(folder / 'stderr').read_text()}"
    return time.monotonic() - began


def run(line: list[str], folder: Path) -> str:
    """Runs a command to its end; its stdout.

    Raises:
        AssertionError: it failed.
    """
    assert kill(line, 600, folder) is not None, "does not end"
    return (folder / "stdout").read_text()


@contextlib.contextmanager
def whole_outputs(scenario: Scenario, folder: Path, expected: dict[str, Any]) -> Iterator[None]:
    """After a kill, no named output is half there, and no result that was there is written anew."""
    before = finished(folder / "out")
    yield
    after = finished(folder / "out")
    again = [name for name, when in before.items() if after.get(name) != when]
    assert not again, f"computed again: {again}"
    for pattern in scenario.outputs:
        for path in folder.glob(pattern):
            assert path.read_bytes() == expected[path.name], f"half written: {path.name}"


def killed_and_resumed(
    scenario: Scenario,
    folder: Path,
    line: list[str],
    tally: Tally,
    moments: list[float],
    expected: tuple[dict[str, Any], str],
) -> list[str]:
    """One run, killed at each moment that comes before its end: what is wrong."""
    for i, moment in enumerate(moments):
        with whole_outputs(scenario, folder, expected[0]):
            took = kill(line, tally.undisturbed_seconds * moment, folder)
        if took is not None:
            if i == 0:  # the machine was busier when it was measured
                tally.undisturbed_seconds = took
            break
        tally.kills += 1
    with whole_outputs(scenario, folder, expected[0]):
        printed = run(line, folder)
    problems = left_over(folder)
    found = content(scenario, folder)
    for name in sorted(expected[0].keys() | found.keys()):
        if expected[0].get(name) != found.get(name):
            problems.append(f"differs: {name}{where(expected[0].get(name), found.get(name))}")
    if scenario.printed(printed) != expected[1]:
        problems.append("differs: what is printed")
    if tally.runs == 1:  # and nothing is left to do
        with whole_outputs(scenario, folder, expected[0]):
            run(line, folder)
    return problems


def tried(
    scenario: Scenario, folder: Path, kills: int, seed: int, say: Callable[[str], None]
) -> Tally:
    """A command, undisturbed once and then killed at least so many times."""
    inputs = folder / "inputs"
    inputs.mkdir(parents=True)
    for arguments in scenario.prepare(inputs):
        run(arguments, inputs)
    line = scenario.arguments(inputs)
    (folder / "undisturbed").mkdir()
    began = time.monotonic()
    printed = scenario.printed(run(line, folder / "undisturbed"))
    tally = Tally(scenario.name, time.monotonic() - began)
    expected = content(scenario, folder / "undisturbed"), printed
    assert expected[0]["records"] or len(expected[0]) > 1, "nothing was written"
    chance = random.Random(f"{seed}/{scenario.name}")
    began = time.monotonic()
    while tally.kills < kills and len(tally.problems) < PATIENCE:
        own = folder / str(tally.runs)
        own.mkdir()
        most = min(chance.randint(1, MOST), kills - tally.kills)
        moments = [chance.uniform(*MOMENTS) for _ in range(most)]
        tally.runs += 1
        try:
            problems = killed_and_resumed(scenario, own, line, tally, moments, expected)
        except AssertionError as error:
            problems = [str(error)]
        tally.identical += not problems
        tally.problems += [f"run {tally.runs}: {problem}" for problem in problems]
        tally.seconds = time.monotonic() - began
        say(f"{scenario.name}: {tally.kills} kills, {tally.identical} of {tally.runs} identical")
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of all commands together")
    parser.add_argument("--command", action="append", choices=[*SCENARIOS], help="repeatable")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file")
    asked = parser.parse_args()
    names = asked.command or [*SCENARIOS]
    share = -(-asked.kills // len(names))
    tallies = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="kills-", dir=asked.out.parent) as folder:
            tallies.append(tried(SCENARIOS[name], Path(folder).resolve(), share, asked.seed, print))
        document = {
            "schema": 1,
            "moments": MOMENTS,
            "seed": asked.seed,
            "versions": versions(),
            "commands": [tally.as_json() for tally in tallies],
        }
        asked.out.write_text(json.dumps(document, indent=1) + "\n")
    raise SystemExit(any(tally.problems for tally in tallies))


if __name__ == "__main__":
    main()
