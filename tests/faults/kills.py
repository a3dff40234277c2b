"""Kill real commands at random moments, run them again, and compare with an undisturbed run.

python -m tests.faults.kills --kills 200 --out kills.json
python -m tests.faults.kills --kills 20 --command transfer --command report --out kills.json

A run is killed several times, at moments between 5 and 95 % of the command's undisturbed duration,
and then run to its end. Its results must equal those of an undisturbed run, except for `timing`.
No finished trial is recomputed, no line of metrics is duplicated, no temporary file remains, every
lock is free, and an output file is complete or absent at any time.
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

MAX_KILLS_PER_RUN = 4  # kills of a run
MAX_PROBLEMS = 10  # problems of a command
MOMENTS = (0.05, 0.95)  # of the undisturbed seconds


@dataclass
class KillSummary:
    """The results of killing one command."""

    command: str
    undisturbed_seconds: float
    kills: int = 0
    runs: int = 0
    identical: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {k: round(v, 1) if isinstance(v, float) else v for k, v in vars(self).items()}


def result_times(out: Path) -> dict[str, int]:
    """Return the modification time of each result of a runs folder; check that each is valid."""
    found = {}
    for path in out.rglob("result.json"):
        checked_document(path.read_text())
        found[str(path.relative_to(out))] = path.stat().st_mtime_ns
    return found


def collect_outputs(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """Return the outputs of a run that two runs have in common."""
    found: dict[str, Any] = {"records": records(folder / "out")}
    for pattern in scenario.files:
        for path in sorted(folder.glob(pattern)):
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def first_difference(a: Any, b: Any) -> str:
    """Return the path and the values of the first difference of two documents."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [k for k in {**a, **b} if a.get(k) != b.get(k)]
        return f"/{keys[0]}{first_difference(a.get(keys[0]), b.get(keys[0]))}"
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        rows = [i for i in range(len(a)) if a[i] != b[i]]
        return f"/{rows[0]}{first_difference(a[rows[0]], b[rows[0]])}"
    return f": {str(a)[:60]} and {str(b)[:60]}"


def leftovers(folder: Path) -> list[str]:
    """Return a message for each file or lock that should not remain after a command."""
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


def start_forked(arguments: list[str], folder: Path) -> int:
    """Start a command in a new process with `folder` as working directory; return its id.

    It is forked from a process that has imported everything, so that a kill hits the work and not
    the import of torch.
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


def wait_for_exit(process: int, within: float) -> int | None:
    """Return the exit status of a process, None where it still runs after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)


def run_and_kill(line: list[str], after: float, folder: Path) -> float | None:
    """Start a command and kill it; return its duration if it ended before, else None."""
    began = time.monotonic()
    process = start_forked(line, folder)
    status = wait_for_exit(process, after)
    if status is None:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        wait_until_gone(process, 60)
        return None
    assert status == 0, f"exit {status}: {(folder / 'stderr').read_text()}"
    return time.monotonic() - began


def run_to_end(line: list[str], folder: Path) -> str:
    """Run a command to its end; return its stdout.

    Raises:
        AssertionError: it failed.
    """
    assert run_and_kill(line, 600, folder) is not None, "does not end"
    return (folder / "stdout").read_text()


@contextlib.contextmanager
def outputs_stay_intact(
    scenario: Scenario, folder: Path, expected: dict[str, Any]
) -> Iterator[None]:
    """Check that a kill leaves named outputs complete or absent, and finished results untouched."""
    before = result_times(folder / "out")
    yield
    after = result_times(folder / "out")
    again = [name for name, when in before.items() if after.get(name) != when]
    assert not again, f"computed again: {again}"
    for pattern in scenario.outputs:
        for path in folder.glob(pattern):
            assert path.read_bytes() == expected[path.name], f"half written: {path.name}"


def kill_and_resume(
    scenario: Scenario,
    folder: Path,
    line: list[str],
    summary: KillSummary,
    moments: list[float],
    expected: tuple[dict[str, Any], str],
) -> list[str]:
    """Kill one run at each moment, run it to its end, and return its problems."""
    for i, moment in enumerate(moments):
        with outputs_stay_intact(scenario, folder, expected[0]):
            took = run_and_kill(line, summary.undisturbed_seconds * moment, folder)
        if took is not None:
            if i == 0:  # the machine was busier when it was measured
                summary.undisturbed_seconds = took
            break
        summary.kills += 1
    with outputs_stay_intact(scenario, folder, expected[0]):
        printed = run_to_end(line, folder)
    problems = leftovers(folder)
    found = collect_outputs(scenario, folder)
    for name in sorted(expected[0].keys() | found.keys()):
        if expected[0].get(name) != found.get(name):
            problems.append(
                f"differs: {name}{first_difference(expected[0].get(name), found.get(name))}"
            )
    if scenario.printed(printed) != expected[1]:
        problems.append("differs: what is printed")
    if summary.runs == 1:  # and nothing is left to do
        with outputs_stay_intact(scenario, folder, expected[0]):
            run_to_end(line, folder)
    return problems


def kill_repeatedly(
    scenario: Scenario, folder: Path, kills: int, seed: int, say: Callable[[str], None]
) -> KillSummary:
    """Run a command undisturbed once, then kill it at least `kills` times; return the summary."""
    inputs = folder / "inputs"
    inputs.mkdir(parents=True)
    for arguments in scenario.prepare(inputs):
        run_to_end(arguments, inputs)
    line = scenario.arguments(inputs)
    (folder / "undisturbed").mkdir()
    began = time.monotonic()
    printed = scenario.printed(run_to_end(line, folder / "undisturbed"))
    summary = KillSummary(scenario.name, time.monotonic() - began)
    expected = collect_outputs(scenario, folder / "undisturbed"), printed
    assert expected[0]["records"] or len(expected[0]) > 1, "nothing was written"
    chance = random.Random(f"{seed}/{scenario.name}")
    began = time.monotonic()
    while summary.kills < kills and len(summary.problems) < MAX_PROBLEMS:
        own = folder / str(summary.runs)
        own.mkdir()
        most = min(chance.randint(1, MAX_KILLS_PER_RUN), kills - summary.kills)
        moments = [chance.uniform(*MOMENTS) for _ in range(most)]
        summary.runs += 1
        try:
            problems = kill_and_resume(scenario, own, line, summary, moments, expected)
        except AssertionError as error:
            problems = [str(error)]
        summary.identical += not problems
        summary.problems += [f"run {summary.runs}: {problem}" for problem in problems]
        summary.seconds = time.monotonic() - began
        say(
            f"{scenario.name}: {summary.kills} kills, {summary.identical} of {summary.runs} "
            "identical"
        )
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of all commands together")
    parser.add_argument("--command", action="append", choices=[*SCENARIOS], help="repeatable")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file")
    args = parser.parse_args()
    names = args.command or [*SCENARIOS]
    share = -(-args.kills // len(names))
    summaries = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="kills-", dir=args.out.parent) as folder:
            summaries.append(
                kill_repeatedly(SCENARIOS[name], Path(folder).resolve(), share, args.seed, print)
            )
        document = {
            "schema": 1,
            "moments": MOMENTS,
            "seed": args.seed,
            "versions": versions(),
            "commands": [summary.as_json() for summary in summaries],
        }
        args.out.write_text(json.dumps(document, indent=1) + "\n")
    raise SystemExit(any(summary.problems for summary in summaries))


if __name__ == "__main__":
    main()
