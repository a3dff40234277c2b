"""Attempts of trials: in this process, or in worker processes side by side."""

import contextlib
import os
import signal
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from marginctl.errors import MarginctlError
from marginctl.experiments.estimate import estimate_training
from marginctl.experiments.records import TrainingResult, parse_training_info
from marginctl.experiments.run_trial import Callback, CheckpointPolicy, Signals, TrialContext
from marginctl.experiments.source_model import load_source_model
from marginctl.experiments.training_session import Session
from marginctl.experiments.training_trial import Trial
from marginctl.runs.run_dir import RunDir, SavedResult
from marginctl.runs.safe_read import CorruptFileError, read_text
from marginctl.training.resource_errors import one_line_errors
from marginctl.utils.device import torch_threads, usable_cores, world_size
from marginctl.utils.distributed import World
from marginctl.utils.precision import device_config_for
from marginctl.utils.processes import SharedObject, start_worker

STEP_INTERVAL = 0.2  # seconds between two reported steps of a trial


@dataclass(frozen=True)
class Locked:
    """Another process holds the lock of a run directory."""

    path: Path


@dataclass(frozen=True)
class Attempts:
    """Attempts trials of a session in this process, one at a time."""

    session: Session
    device: str
    checkpoints: CheckpointPolicy
    signals: Signals
    callback: Callback
    world: World = field(default_factory=World)

    def attempt(self, trial: Trial) -> TrainingResult | Locked | None:
        """Return the result of a trial; None on all processes of torchrun but the main one.

        Raises:
            StoppedRunError: a signal came.
        """
        world, run_dir = self.world, self.session.run_dir(trial)
        if not world.from_main(run_dir.try_lock):
            return Locked(run_dir.path)
        try:
            return self._attempt_locked(trial, run_dir)
        finally:
            if world.is_main_process:
                run_dir.unlock()

    def _attempt_locked(self, trial: Trial, run_dir: RunDir) -> TrainingResult | None:
        session, world = self.session, self.world
        saved = world.from_main(lambda: session.load_result(trial))
        if saved.problem and world.is_main_process:
            self.callback.message(saved.problem)
        device_config = device_config_for(self.device, trial.recipe.train.precision)
        environment = {"precision": device_config.precision, "processes": world.size}
        if saved.result is not None:
            if world.is_main_process:
                return _update_saved(session, trial, run_dir, saved, environment)
            result: TrainingResult = saved.result
            return result
        if trial.first_stage is not None:
            model = load_source_model(str(session.run_dir(trial.first_stage).path))
            trial = replace(trial, source_model=replace(model, path=trial.first_stage.id))
        if world.is_main_process:
            run_dir.start(session.run_info(trial) | environment)
        context = TrialContext(device_config, self.checkpoints, self.signals, self.callback, world)
        with (
            one_line_errors(trial, trial.recipe.train, self.device),
            torch_threads(trial_threads(session) if session.runs_in_workers(trial) else None),
        ):
            return session.run_trial(trial, run_dir, context)


def trial_threads(session: Session) -> int | None:
    """Return the torch threads of each trial on the CPU; None leaves them as they are.

    The last bits of a result depend on them. So they follow from all trials of the session,
    whatever the number of workers and of unfinished trials.
    """
    trials = sum(map(session.runs_in_workers, session.trials))
    if session.device != "cpu" or trials < 2 or world_size() > 1:
        return None
    return None if "OMP_NUM_THREADS" in os.environ else max(1, usable_cores() // trials)


def _update_saved(
    session: Session,
    trial: Trial,
    run_dir: RunDir,
    saved: SavedResult[TrainingResult],
    environment: dict[str, Any],
) -> TrainingResult:
    """Return a saved result with the row of this command's grid, and restore a corrupt run.json."""
    result = saved.result
    assert result is not None
    try:
        text = read_text(run_dir.path / "run.json")
        intact = saved.run_json_intact and parse_training_info(text) is not None
    except CorruptFileError:
        intact = False
    if not intact:
        info = session.run_info(trial) | environment
        if result.chosen is not None:
            info["chosen_objective"] = result.chosen.rpartition(", lr=")[0]
        run_dir.start(info)
    setting = dict(trial.setting)
    if intact and (result.row, result.setting) == (trial.row, setting):
        return result
    return run_dir.write_result(result.model_copy(update={"row": trial.row, "setting": setting}))


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
    return [device] if device != "cuda" else [f"cuda:{i}" for i in range(torch.cuda.device_count())]


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
