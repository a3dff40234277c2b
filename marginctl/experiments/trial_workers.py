"""Worker processes that run trials side by side."""

import contextlib
import os
import signal
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from typing import Any

import torch

from marginctl.errors import MarginctlError
from marginctl.experiments.attempt import Attempts, Locked, trial_threads
from marginctl.experiments.estimate import estimate_training
from marginctl.experiments.records import TrainingResult
from marginctl.experiments.run_trial import Callback, CheckpointPolicy
from marginctl.experiments.training_session import Session
from marginctl.experiments.training_trial import Trial
from marginctl.utils.device import usable_cores, world_size
from marginctl.utils.processes import SharedObject, start_worker

STEP_INTERVAL = 0.2  # seconds between two reported steps of a trial


@dataclass(frozen=True)
class Died:
    """The process of a trial has died."""

    exit_code: int

    @property
    def reason(self) -> str:
        """`SIGKILL`, or `exit status 1`."""
        if self.exit_code < 0:
            return signal.Signals(-self.exit_code).name
        return f"exit status {self.exit_code}"


SHORT_SECONDS = 15.0  # of all trials: two workers take about half as long to start
TIMING_SECONDS = 1.0  # for the estimate

TrialOutcome = TrainingResult | Locked | Died | Exception


def worker_count(session: Session, pending: Sequence[Trial], requested: int | None) -> int:
    """Return the number of worker processes; 0 where the trials run in this process.

    Args:
        pending: the unfinished trials.
        requested: the value of `--workers`; None for one per core or GPU, if the trials take longer
            than workers take to start.
    """
    if world_size() > 1:
        return 0
    automatic = requested is None
    if requested is None:
        requested = len(_devices(session.device))
        if session.device == "cpu":
            threads = trial_threads(session) or torch.get_num_threads()
            requested = usable_cores() // threads
    count = min(requested, sum(map(session.runs_in_workers, pending)))
    if count > 1 and automatic:
        estimate = estimate_training(session, TIMING_SECONDS, with_operations=False)
        if not estimate["not_timed"] and estimate["seconds"] < SHORT_SECONDS:
            return 0
    return count if count > 1 else 0


def _devices(device: str) -> list[str]:
    if device != "cuda":
        return [device]
    return [f"cuda:{i}" for i in range(torch.cuda.device_count())]


class WorkerPool:
    """Runs trials of a session in worker processes.

    Args:
        callback: gets what the trials report.
        workers: the number of processes. They share the GPUs, where the device is `cuda`.
    """

    def __init__(
        self, session: Session, checkpoints: CheckpointPolicy, callback: Callback, workers: int
    ) -> None:
        self._session, self._callback, self._count = session, callback, workers
        self._devices = _devices(session.device)
        self._stop = get_context("spawn").RawValue("i", 0)  # the signal that stops all trials
        self._shared = SharedObject((session, checkpoints))
        self._workers: list[_Worker] = []

    @property
    def running(self) -> list[Trial]:
        return [worker.trial for worker in self._workers if worker.trial is not None]

    @property
    def is_full(self) -> bool:
        return len(self.running) == self._count

    def submit(self, planned: Trial, trial: Trial) -> None:
        """Start a trial: `planned` with the scale that it takes from another one."""
        self._workers = [w for w in self._workers if w.trial is not None or w.process.is_alive()]
        idle = next((w for w in self._workers if w.trial is None), None)
        if idle is None:
            used = {w.number for w in self._workers}
            number = next(i for i in range(self._count) if i not in used)
            device = self._devices[number % len(self._devices)]
            idle = _Worker(number, self._shared, self._stop, device, self._count)
            self._workers.append(idle)
        idle.trial = planned
        with contextlib.suppress(OSError):  # it has just died, which `wait` reports
            idle.pipe.send((self._session.trials.index(planned), trial.scale))

    def wait(self, seconds: float) -> list[tuple[Trial, TrialOutcome]]:
        """Forward reports until trials end, at most for some seconds; return how these ended."""
        deadline, ended = time.monotonic() + seconds, list[tuple[Trial, TrialOutcome]]()
        while not ended and (left := deadline - time.monotonic()) > 0:
            busy = [worker for worker in self._workers if worker.trial is not None]
            connection.wait([worker.pipe for worker in busy], left)
            for worker in busy:
                trial, outcome = worker.trial, worker.receive(self._callback)
                if trial is not None and outcome is not None:
                    ended.append((trial, outcome))
        return ended

    def stop(self, number: int) -> None:
        """Let all trials write a checkpoint and end."""
        self._stop.value = number

    def close(self) -> None:
        """End the idle workers in order, and kill the others."""
        for worker in self._workers:
            worker.close()
        for worker in self._workers:
            worker.process.join()


class _Worker:
    """A worker process, as its parent sees it."""

    def __init__(
        self, number: int, shared: SharedObject, stop: Any, device: str, workers: int
    ) -> None:
        self.number = number
        self.trial: Trial | None = None
        self.pipe, end = get_context("spawn").Pipe()
        self.process = start_worker(f"{__name__}:work", end, shared, stop, device, workers)
        end.close()

    def receive(self, callback: Callback) -> TrialOutcome | None:
        """Forward what has arrived; return how the trial ended, None if it still runs."""
        trial, is_alive = self.trial, self.process.is_alive()
        try:
            while trial is not None and self.pipe.poll():
                report, arguments = self.pipe.recv()
                if report == "end":
                    self.trial = None
                    outcome: TrialOutcome = arguments
                    return outcome
                if report in ("step", "epoch"):
                    arguments = (trial, *arguments)
                getattr(callback, report)(*arguments)
        except (EOFError, OSError):  # cut off
            self.process.join()
            is_alive = False
        if is_alive:
            return None
        self.trial = None
        return Died(self.process.exitcode or 0)

    def close(self) -> None:
        if self.trial is not None:
            self.process.kill()
        self.pipe.close()


class _Reports:
    """The callback of a worker, which sends everything to the parent, and steps now and then."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._last: tuple[str | None, int] = (None, 0)  # candidate and step
        self._sent = 0.0

    def message(self, text: str) -> None:
        self._pipe.send(("message", (text,)))

    def note(self, text: str) -> None:
        self._pipe.send(("note", (text,)))

    def step(self, trial: Trial, step: int, total: int, candidate: str | None = None) -> None:
        is_first = self._last != (candidate, step - 1)
        self._last = candidate, step
        now = time.monotonic()
        if is_first or step == total or now - self._sent > STEP_INTERVAL:
            self._sent = now
            self._pipe.send(("step", (step, total, candidate)))

    def epoch(self, trial: Trial, line: dict[str, Any]) -> None:
        self._pipe.send(("epoch", (line,)))


@dataclass
class _StopSignal:
    """The signal that the parent received."""

    shared: Any  # its number, or 0

    @property
    def received(self) -> int | None:
        return self.shared.value or None


def work(pipe: Connection, shared: Any, stop: Any, device: str, workers: int) -> None:
    """Run the trials whose numbers arrive, until the pipe closes; the code of a worker."""
    os.environ["LOCAL_WORLD_SIZE"] = str(workers)  # that share the cores, as those of torchrun
    session, checkpoints = shared.load()
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    attempts = Attempts(session, device, checkpoints, _StopSignal(stop), _Reports(pipe))
    while True:
        try:
            number, scale = pipe.recv()
        except EOFError:
            return
        trial = session.trials[number]
        try:
            outcome: Any = attempts.attempt(trial if scale is None else replace(trial, scale=scale))
        except Exception as error:
            if not isinstance(error, MarginctlError | OSError):  # an unexpected error
                error.add_note(traceback.format_exc())
            outcome = error
        pipe.send(("end", outcome))
