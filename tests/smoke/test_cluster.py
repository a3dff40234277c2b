"""uci-cv over a dask scheduler with real worker processes, some of which are killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import distributed
import pytest

from marginctl.crossval import dask_executor
from tests.faults.harness import records, wait_for_results

pytestmark = pytest.mark.smoke
ROOT = Path(__file__).parents[2]
COMMAND = [
    *("uci-cv", "--dataset", "iris", "--repeats", "2", "--set", "protocol.epochs=50"),
    *("--objective", "soft", "--objective", "center", "--objective", "arcgrad:scale=5"),
]


class Cluster:
    """A scheduler and its workers, each a process of its own."""

    def __init__(self, folder):
        self.folder, self.file = folder, folder / "scheduler.json"
        self.processes = []
        where = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self.scheduler = self.started("scheduler", *where)
        deadline = time.monotonic() + 60
        while not (self.file.exists() and self.file.read_text().endswith("}")):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def worker(self, *, threads=1):
        options = ("--no-nanny", "--no-dashboard", "--local-directory", self.folder)
        return self.started("worker", "--nthreads", threads, *options)

    def started(self, kind, *arguments):
        line = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--scheduler-file", self.file]
        self.processes.append(
            subprocess.Popen(
                [*line, *map(str, arguments)],
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                stderr=subprocess.DEVNULL,
            )
        )
        return self.processes[-1]

    @property
    def options(self):
        return ("--backend", "dask", "--scheduler", self.file)


@pytest.fixture
def made(tmp_path):
    """A cluster without workers, which ends with the test."""
    made = Cluster(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


def numbers(ran):
    document = ran.json
    for cell in document["cells"]:
        del cell["seconds"]
    return document


def when_done(out, number, act):
    """Calls `act` in a thread once so many trials have a result."""

    def wait():
        while len(list(out.rglob("result.json"))) < number:
            time.sleep(0.005)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


SEARCH = """
paper: arcgrad
table: I
task: uci-cv
datasets: [iris]
objectives: [soft]
protocol: {folds: 3, repeats: 1, epochs: 2}
search:
  protocol: {lr: [1e-3, 3e-2], hidden: [[4], [6]]}
  rounds: [{repeats: 1, keep: 1}, {repeats: 2, keep: 1}]
"""


def test_workers_the_call_and_the_scheduler_are_killed_one_after_the_other(
    marginctl, tmp_path, made
):
    first = made.worker()
    made.worker()
    planned = marginctl(*COMMAND, *made.options, "--dry-run", "--out", tmp_path / "far")
    assert planned.status == 0
    # a worker: its stacks are done again elsewhere, with the numbers of a run in this process
    thread = when_done(tmp_path / "far", 1, first.kill)
    far = marginctl(*COMMAND, *made.options, "--json", "--out", tmp_path / "far")
    thread.join()
    assert far.status == 0, far.err
    near = marginctl(*COMMAND, "--json", "--workers", "1", "--out", tmp_path / "near")
    assert numbers(far) == numbers(near)
    assert records(tmp_path / "far") == records(tmp_path / "near")
    # the rounds of a search, by the worker that is left
    path = tmp_path / "near.yaml"
    path.write_text(SEARCH)
    search = ("uci-cv", "--search", path, "--json", "--out")
    found = marginctl(*search, tmp_path / "search", *made.options)
    assert found.status == 0, found.err
    marginctl(*search, tmp_path / "search-near", "--workers", "1")
    assert records(tmp_path / "search") == records(tmp_path / "search-near")
    # the call, by Ctrl-C: the worker drops the stack that it was at
    longer = [*COMMAND, "--set", "protocol.epochs=150"]
    line = [sys.executable, "-m", "marginctl", *longer, *map(str, made.options), "--out"]
    process = subprocess.Popen(
        [*line, str(tmp_path / "left")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_for_results(tmp_path / "left", 1, process)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (130, b"")
    assert b"Traceback" not in stderr
    assert b"finished trials are kept" in stderr
    with distributed.Client(json.loads(made.file.read_text())["address"]) as client:
        deadline = time.monotonic() + 2
        while any(client.run(lambda dask_worker: dask_worker.state.executing_count).values()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    # the scheduler: one line, and what is finished is kept
    thread = when_done(tmp_path / "left", 2, made.scheduler.kill)
    gone = marginctl(*longer, *made.options, "--quiet", "--out", tmp_path / "left")
    thread.join()
    assert gone.status == 1
    assert gone.err.count("\n") == 1
    assert "lost the dask scheduler at " in gone.err
    done = {p: p.stat().st_mtime_ns for p in (tmp_path / "left").rglob("result.json")}
    assert len(done) == 2
    assert marginctl(*longer, "--workers", "1", "--out", tmp_path / "left").status == 0
    assert all(path.stat().st_mtime_ns == then for path, then in done.items())
    # all is there: no scheduler is asked
    assert marginctl(*longer, *made.options, "--out", tmp_path / "left").status == 0


def test_other_versions_and_threads_are_refused(marginctl, tmp_path, made, monkeypatch):
    made.worker(threads=2)
    command = (*COMMAND, *made.options, "--out", tmp_path / "runs", "--quiet")
    threads = marginctl(*command)
    assert threads.status == 2
    assert threads.err.count("\n") == 1
    assert "has 2 threads, expected 1: start its workers with --nthreads 1" in threads.err
    monkeypatch.setattr(dask_executor, "NUMERICS", dask_executor.NUMERICS + 1)
    other = marginctl(*command)
    assert other.status == 2
    assert other.err.count("\n") == 1
    assert (
        f"has numerics {dask_executor.NUMERICS - 1}, expected {dask_executor.NUMERICS}" in other.err
    )
    assert not list(tmp_path.rglob("result.json"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--backend", "dask"], "--scheduler is missing: name the address"),
        (["--scheduler", "tcp://h:1"], "requires --backend dask: add it"),
        (["--backend", "dask", "--scheduler", "tcp://h:1", "--workers", "2"], "leave it out"),
        (["--backend", "dask", "--scheduler", "tcp://127.0.0.1:9"], "no dask scheduler answers"),
        (["--backend", "dask", "--scheduler", "far://away"], "no dask scheduler answers there"),
        (["--backend", "dask", "--scheduler", "here:there"], "no dask scheduler answers there"),
        (["--backend", "dask", "--scheduler", __file__], "no dask scheduler answers there"),
    ],
)
def test_what_cannot_be_is_one_line(marginctl, tmp_path, monkeypatch, options, said):
    monkeypatch.setattr(dask_executor, "CONNECT_TIMEOUT", 0.5)
    ran = marginctl(*COMMAND, *options, "--out", tmp_path)
    assert ran.status == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1, ran.err
    assert said in ran.err
