"""Runs trials over worker processes, keeps each finished one, and resumes."""

import contextlib
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Hashable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from marginctl.crossval.executors import ProcessExecutor, SerialExecutor, StackExecutor
from marginctl.experiments.records import CVResult
from marginctl.experiments.uci_cv_trial import Trial
from marginctl.runs.atomic_io import write_arrays, write_atomically, write_csv
from marginctl.runs.data_changes import changed_data_note
from marginctl.runs.run_dir import DIGEST_KEYS, NETWORKS, PREDICTIONS, RunDir, file_digest


class Listener(Protocol):
    """What hears of progress."""

    def message(self, text: str) -> None: ...

    def done(self, record: CVResult, *, reused: bool) -> None: ...

    def progress(self, cost: float) -> None:
        """`cost`: of everything trained so far in this call."""


@dataclass
class _Running:
    """Trials that are trained in the same stacks, each with its locked folder; usually one."""

    trials: list[tuple[Trial, RunDir]]
    results: list[Any]
    left: int
    error: BaseException | None = None


@dataclass
class Outcome:
    """What became of the trials."""

    records: dict[Trial, CVResult] = field(default_factory=dict)
    failed: dict[Trial, str] = field(default_factory=dict)


def execute(
    trials: list[Trial],
    folder: Path,
    *,
    workers: int,
    device: str,
    listener: Listener,
    recipe: dict[str, Any],
    keep: frozenset[str] = frozenset(),
    cluster: StackExecutor | None = None,
) -> Outcome:
    """Computes the trials that have no result in `folder` yet.

    Trials are taken in their order; each is kept as soon as it is done. A trial that another
    process is at work on is left to it, and its result is read when it is there.

    Args:
        trials: see `expand`.
        folder: the recipe's folder in the run store.
        workers: processes, one thread each; 1 trains in this process.
        device: from `resolve_device`.
        listener: hears of every finished trial, of the progress and of messages.
        recipe: the resolved recipe, kept in each run.json.
        keep: files that a trial must have beside its result: PREDICTIONS, NETWORKS.
        cluster: an executor that replaces local processes.

    Raises:
        StorageError: the folder cannot be written.
        MarginctlError: the workers are lost.
    """
    run = _Run(folder, device, listener, recipe, keep)
    pending = deque(_together([t for t in trials if not run.reuse(t)]))
    if not pending:
        return run.outcome
    changed = changed_data_note(folder, (run.about(t) for ts in pending for t in ts))
    if changed is not None:
        listener.message(changed)
    workers = max(1, min(workers, sum(len(side_by_side[0].stacks) for side_by_side in pending)))
    executor: StackExecutor = cluster or (
        SerialExecutor(listener.progress) if workers == 1 else ProcessExecutor(workers)
    )
    run.executor = executor
    finished_normally = False
    try:
        while pending or run.futures or run.elsewhere:
            while pending and len(run.futures) < executor.capacity():
                run.start(pending.popleft())
            if run.futures:
                ready, _ = wait(run.futures, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in ready:
                    run.collect(future)
            elif run.elsewhere:
                time.sleep(0.2)
                run.look_elsewhere()
            listener.progress(executor.completed_cost())
        finished_normally = True
    finally:
        if not finished_normally:
            _leave_at_once_when_asked_again()
            executor.cancel()
        executor.shutdown()
        run.unlock_all()
    return run.outcome


def _leave_at_once_when_asked_again() -> None:
    """A second Ctrl-C or SIGTERM does not wait for the workers, which leave with their parent."""
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        signal.signal(signal.SIGTERM, lambda *_: os._exit(143))


class _Run:
    """The state of one call of `execute`."""

    def __init__(
        self,
        folder: Path,
        device: str,
        listener: Listener,
        recipe: dict[str, Any],
        keep: frozenset[str],
    ) -> None:
        self.folder, self.device, self.listener = folder, device, listener
        self.recipe, self.keep = recipe, keep
        self.executor: StackExecutor = SerialExecutor(listener.progress)
        self.outcome = Outcome()
        self.futures: dict[Future[Any], tuple[_Running, int]] = {}
        self.elsewhere: list[Trial] = []

    def reuse(self, trial: Trial, *, quietly: bool = False) -> bool:
        """Takes a result that is there; says why one that is there cannot be used."""
        found = RunDir(self.folder / trial.id).load_result(CVResult, self.keep)
        if found.problem and not quietly:
            self.listener.message(found.problem)
        if found.result is None or not found.run_json_intact:
            return False
        self._keep(trial, found.result, reused=True)
        return True

    def start(self, trials: list[Trial]) -> None:
        """Begin the training of trials that share their stacks."""
        stacks = trials[0].stacks
        running = _Running([], [None] * len(stacks), len(stacks))
        try:
            for trial in trials:
                folder = self._begin(trial)
                if folder is not None:
                    running.trials.append((trial, folder))
        except BaseException:
            _unlock(running)
            raise
        for i, stack in enumerate(stacks if running.trials else []):
            self.futures[self.executor.submit(stack, self.device, self.keep)] = (running, i)

    def about(self, trial: Trial) -> dict[str, Any]:
        """The content of a trial's run.json."""
        # a search runs trials of many protocols under one recipe
        own = {**self.recipe, "protocol": trial.protocol.model_dump()}
        return {"trial": trial.id, **trial.identity, "device": self.device, "recipe": own}

    def _begin(self, trial: Trial) -> RunDir | None:
        """The trial's locked folder, or None where another process has it or has finished it."""
        folder = RunDir(self.folder / trial.id)
        if not folder.try_lock():
            self.listener.message(
                f"{trial}: another process is at work on it: waiting for its result"
            )
            self.elsewhere.append(trial)
            return None
        try:
            found = folder.load_result(
                CVResult, self.keep
            )  # another process may have finished it since
            if found.result is None or not found.run_json_intact:
                folder.start(self.about(trial))
            if found.result is None:
                return folder
            record = found.result if found.run_json_intact else folder.write_result(found.result)
        except BaseException:
            folder.unlock()
            raise
        folder.unlock()
        self._keep(trial, record, reused=True)
        return None

    def collect(self, future: Future[Any]) -> None:
        running, i = self.futures.pop(future)
        running.left -= 1
        error = future.exception()
        lost = self.executor.fatal_error(error) if error is not None else None
        if lost is not None:
            _unlock(running)
            raise lost from None
        if error is not None:
            running.error = error
        else:
            running.results[i] = future.result()
        if running.left:
            return
        try:
            if running.error is not None:
                for trial, folder in running.trials:
                    self._fail(trial, folder, running.error)
            else:
                for trial, folder in running.trials:
                    chosen = [c for r in running.results for c in r.chosen or ()]
                    results = [trial.select_result(r.result) for r in running.results]
                    metrics, document = trial.record(results, chosen)
                    kept = self._write_kept(trial, folder.path, running)
                    self._keep(
                        trial,
                        folder.finish(metrics, CVResult.model_validate({**document, **kept})),
                        reused=False,
                    )
        finally:
            _unlock(running)

    def _write_kept(self, trial: Trial, path: Path, running: _Running) -> dict[str, str | None]:
        """Writes the files that were asked for; their digests, for the result."""
        assert not (self.keep and trial.batched_with), (
            "a stack's files would be those of all its variants"
        )
        if PREDICTIONS in self.keep:
            rows = [row for r in running.results for row in r.predictions]
            write_csv(path / PREDICTIONS, trial.prediction_rows(rows))
        if NETWORKS in self.keep:
            names = running.results[0].arrays
            stacked = {n: [r.arrays[n] for r in running.results] for n in names}
            write_arrays(path / NETWORKS, stacked)
        return {DIGEST_KEYS[name]: file_digest(path / name) for name in self.keep}

    def look_elsewhere(self) -> None:
        waiting, self.elsewhere = self.elsewhere, []
        free: list[Trial] = []
        for trial in waiting:
            if self.reuse(trial, quietly=True):
                continue
            folder = RunDir(self.folder / trial.id)
            if folder.try_lock():  # the other process is gone and left no result
                folder.unlock()
                free.append(trial)
            else:
                self.elsewhere.append(trial)
        for side_by_side in _together(free):
            self.start(side_by_side)

    def unlock_all(self) -> None:
        for running, _ in self.futures.values():
            _unlock(running)

    def _keep(self, trial: Trial, record: CVResult, *, reused: bool) -> None:
        self.outcome.records[trial] = record
        self.listener.done(record, reused=reused)

    def _fail(self, trial: Trial, folder: RunDir, error: BaseException) -> None:
        path = folder.path / "error.txt"
        write_atomically(path, "".join(traceback.format_exception(error)))
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        self.outcome.failed[trial] = f"{trial}: {reason} (see {path})"


def _together(trials: list[Trial]) -> list[list[Trial]]:
    """Group the trials that share their stacks, in the order of the first of each."""
    found: dict[Hashable, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.stack_key, []).append(trial)
    return list(found.values())


def _unlock(running: _Running) -> None:
    for _, folder in running.trials:
        folder.unlock()
