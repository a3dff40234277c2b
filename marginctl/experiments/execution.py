"""Run the trials of a session, one after the other or in worker processes; skip finished ones."""

import contextlib
import signal
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from typing import Any

from marginctl.experiments.records import TrainingResult
from marginctl.experiments.run_trial import CheckpointPolicy, SignalHandler, StoppedRunError
from marginctl.experiments.training_session import Session
from marginctl.experiments.training_trial import Trial
from marginctl.experiments.trial_workers import (
    Attempts,
    Died,
    Locked,
    TrialOutcome,
    WorkerPool,
    worker_count,
)
from marginctl.objectives.parts import scale_source
from marginctl.runs.run_dir import changed_data_note
from marginctl.utils.distributed import process_group

OnDone = Callable[[Trial, TrainingResult | None], None]  # None if the trial's process has died
WAIT_SECONDS = 1.0  # before a trial that another process holds is tried again
SIGNAL_SECONDS = 0.1  # seconds between checks for a signal, while workers train


@dataclass
class Outcome:
    """The results of the finished trials, and a line for each failed one."""

    results: dict[Trial, TrainingResult] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def run_trials(
    session: Session,
    callback: Any,
    checkpoints: CheckpointPolicy,
    on_done: OnDone,
    workers: int | None = 1,
) -> Outcome:
    """Run the trials of a session; finished ones are skipped.

    A trial that another process holds is postponed while there are others to run. At the end its
    result is awaited; if that process leaves without one, the trial runs here.

    Args:
        workers: processes that run trials side by side; 1 for none but this one, and None for one
            per core or GPU.

    Raises:
        StoppedRunError: a signal came; the current trials have checkpoints.
    """
    with (
        process_group(session.device, callback.message) as world,
        SignalHandler().installed() as signals,
    ):
        pending = session.unfinished() if world.is_main_process else []
        if pending:
            session.write_recipe()
            infos = (session.run_info(t) for t in pending if scale_source(t.spec) is None)
            if (note := changed_data_note(session.folder, infos)) is not None:
                callback.message(note)
        attempts = Attempts(session, session.device, checkpoints, signals, callback, world)
        count = worker_count(session, pending, workers)
        if not count:
            return _Queue(attempts, on_done).run()
        callback.note(f"{count} trials run side by side")
        with contextlib.closing(WorkerPool(session, checkpoints, callback, count)) as pool:
            pooled = {trial for trial in pending if session.runs_in_workers(trial)}
            return _Queue(attempts, on_done, pool, pooled).run()


class _Queue:
    """The trials of one command; those in `pooled` run in the workers of the pool."""

    def __init__(
        self,
        attempts: Attempts,
        on_done: OnDone,
        pool: WorkerPool | None = None,
        pooled: Set[Trial] = frozenset(),
    ) -> None:
        self._session, self._attempts, self._on_done = attempts.session, attempts, on_done
        self._callback, self._world = attempts.callback, attempts.world
        self._pool, self._pooled = pool, pooled
        self._outcome = Outcome()
        self._remaining = list(self._session.trials)
        self._locked: list[Trial] = []  # by other processes
        self._announced: set[Trial] = set()  # of these
        self._failures: dict[Trial, str] = {}
        self._stopped: list[str] = []  # a line for each trial that was stopped
        self._error: Exception | None = None  # of a trial in a worker

    def run(self) -> Outcome:
        """Run every trial once those that it depends on have ended."""
        trials = self._session.trials
        needed = {trial: [o for o in trials if trial.depends_on(o)] for trial in trials}
        progress, waited = False, False
        while self._remaining or self._locked or self._running:
            open_trials = {*self._remaining, *self._locked, *self._running}
            ready = [t for t in self._remaining if open_trials.isdisjoint(needed[t])]
            # workers would wait for a parent that runs a trial itself: that comes first
            trial = next((t for t in ready if t not in self._pooled), None)
            if trial is None and self._pool is not None and not self._pool.is_full:
                trial = next(iter(ready), None)
            if trial is not None:
                self._remaining.remove(trial)
                progress = self._start(trial) or progress
                continue
            if self._pool is not None and self._running:
                for planned, outcome in self._pool.wait(SIGNAL_SECONDS):
                    progress = self._end(planned, outcome) or progress
                self._stop_on_request(self._pool)
            if self._locked and (progress or not self._running):  # try them again
                if not progress:
                    self._wait(announce=not waited)
                    waited = True
                self._remaining = [t for t in trials if t in {*self._remaining, *self._locked}]
                self._locked, progress = [], False
        results = self._outcome.results
        self._outcome.results = {t: results[t] for t in trials if t in results}
        self._outcome.failed = [f"{t}: {self._failures[t]}" for t in trials if t in self._failures]
        return self._outcome

    @property
    def _running(self) -> list[Trial]:
        return [] if self._pool is None else self._pool.running

    def _start(self, planned: Trial) -> bool:
        """Run a trial here, or start it in a worker; return whether it has ended."""
        trial = self._with_dependencies(planned)
        if trial is None:
            return True
        if self._pool is not None and planned in self._pooled:
            self._pool.submit(planned, trial)
            return False
        outcome = self._attempts.attempt(trial)
        return outcome is None or self._end(planned, outcome)

    def _end(self, trial: Trial, outcome: TrialOutcome) -> bool:
        """Take what came of a trial; return False if its lock is not free."""
        match outcome:
            case Locked():
                self._locked.append(trial)
                if self._world.is_main_process and trial not in self._announced:
                    text = f"{trial}: locked by another process ({outcome.path})"
                    self._callback.message(text)
                self._announced.add(trial)
                return False
            case Died():
                self._on_done(trial, None)
                self._failures[trial] = (
                    f"its worker process has died ({outcome.reason}), perhaps for lack of memory: "
                    "repeat the command to resume it, with fewer --workers"
                )
            case StoppedRunError():
                self._stopped += outcome.lines
            case Exception():
                self._error = self._error or outcome
            case _:
                self._outcome.results[trial] = outcome
                self._on_done(trial, outcome)
                if outcome.diverged:
                    self._failures[trial] = f"diverged: {outcome.diverged}"
        return True

    def _stop_on_request(self, pool: WorkerPool) -> None:
        """Stop all trials, with checkpoints, where a signal came or one of them raised an error."""
        received = self._attempts.signals.received
        if received is None and self._error is None:
            return
        pool.stop(received or signal.SIGTERM)
        while pool.running:
            for trial, outcome in pool.wait(SIGNAL_SECONDS):
                self._end(trial, outcome)
        if self._error is not None:
            raise self._error
        assert received is not None
        if self._stopped or self._remaining or self._locked:
            more = ["stopped: repeat the command to run the other trials"]
            raise StoppedRunError(received, *(self._stopped or more))

    def _wait(self, *, announce: bool) -> None:
        """Wait a moment for the processes that hold trials."""
        text = f"other processes hold {len(self._locked) + len(self._remaining)} of the trials"
        if announce and self._world.is_main_process:
            self._callback.message(f"{text}: waiting for their results")
        received = self._world.all_reduce_max(self._attempts.signals.received)
        if received is not None:
            raise StoppedRunError(
                received, f"stopped: {text}: repeat the command to read their results"
            )
        time.sleep(WAIT_SECONDS)

    def _with_dependencies(self, planned: Trial) -> Trial | None:
        """Return the trial with the scale it takes from another one; None if that one failed."""
        results, world, problem, trial = self._outcome.results, self._world, None, planned
        if scale_source(trial.spec) is not None:
            scale = world.from_main(lambda: planned.resolve_scale(results))
            if scale is None:
                problem = (
                    "the trial that it takes its scale from has no kappa* for this setting and seed"
                )
            else:
                trial = replace(trial, scale=scale)
        if trial.first_stage is not None:
            first = results.get(trial.first_stage)
            if not world.from_main(lambda: first is not None and first.diverged is None):
                problem = "its first stage has no network"
        if problem is None:
            return trial
        self._failures[planned] = f"not trained: {problem}"
        return None
