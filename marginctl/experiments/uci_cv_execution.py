"""Run cross-validation trials on an executor: save each finished one, skip and resume."""

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
from marginctl.experiments.uci_cv_trial import CVTrial
from marginctl.runs.atomic_io import csv_text, write_arrays, write_atomically
from marginctl.runs.run_dir import (
    DIGEST_KEYS,
    NETWORKS,
    PREDICTIONS,
    RunDir,
    changed_data_note,
    file_digest,
)


class Callback(Protocol):
    """What is called during a cross-validation."""

    def message(self, text: str) -> None: ...

    def done(self, record: CVResult, *, reused: bool) -> None: ...

    def progress(self, cost: float) -> None:
        """`cost`: of all networks that have been trained since `CVExecution.run` began."""


@dataclass
class Outcome:
    """The results of the finished trials, and a line for each failed one."""

    results: dict[CVTrial, CVResult] = field(default_factory=dict)
    failed: dict[CVTrial, str] = field(default_factory=dict)


@dataclass
class _Group:
    """Trials that share their stacks, each with its locked run directory; mostly a single one."""

    trials: list[tuple[CVTrial, RunDir]]
    stacks: list[Any]  # the results of the trained stacks
    remaining: int
    error: BaseException | None = None

    def unlock(self) -> None:
        for _, run_dir in self.trials:
            run_dir.unlock()


def _exit_on_next_signal() -> None:
    """Let a second Ctrl-C or SIGTERM exit at once; the workers leave with their parent."""
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        signal.signal(signal.SIGTERM, lambda *_: os._exit(143))


@dataclass
class CVExecution:
    """Trains trials of a cross-validation on an executor, and saves each finished one.

    Attributes:
        files: that a trial must have besides its result: PREDICTIONS, NETWORKS.
    """

    folder: Path
    device: str
    callback: Callback
    recipe: dict[str, Any]
    files: frozenset[str]
    executor: StackExecutor = field(init=False)
    outcome: Outcome = field(default_factory=Outcome)
    futures: dict[Future[Any], tuple[_Group, int]] = field(default_factory=dict)
    locked: list[CVTrial] = field(default_factory=list)  # by other processes

    def run(
        self, trials: list[CVTrial], workers: int, cluster: StackExecutor | None = None
    ) -> Outcome:
        """Train the trials that have no result in the folder yet.

        Trials run in their order. A trial that another process holds is left to it, and its result
        is read once it exists.

        Args:
            workers: processes, one thread each; 1 trains in this process.
            cluster: trains in place of processes of this call, and stays open.

        Raises:
            MarginctlError: the workers are lost.
        """
        pending = deque(_groups([trial for trial in trials if not self.load(trial)]))
        if not pending:
            return self.outcome
        infos = (self.run_info(trial) for group in pending for trial in group)
        if (note := changed_data_note(self.folder, infos)) is not None:
            self.callback.message(note)
        workers = max(1, min(workers, sum(len(group[0].stacks) for group in pending)))
        self.executor = executor = cluster or (
            SerialExecutor(self.callback.progress) if workers == 1 else ProcessExecutor(workers)
        )
        finished, before = False, executor.completed_cost()  # a cluster's is that of its lifetime
        try:
            while pending or self.futures or self.locked:
                while pending and len(self.futures) < executor.capacity():
                    self.start(pending.popleft())
                if self.futures:
                    ready, _ = wait(self.futures, timeout=0.2, return_when=FIRST_COMPLETED)
                    for future in ready:
                        self.collect(future)
                elif self.locked:
                    time.sleep(0.2)
                    waiting, self.locked = self.locked, []
                    for shared in _groups(waiting):  # takes their results, or starts those left
                        self.start(shared, announce=False)
                self.callback.progress(executor.completed_cost() - before)
            finished = True
        finally:
            if not finished:
                _exit_on_next_signal()
                executor.cancel()
            if cluster is None:
                executor.shutdown()
            for group, _ in self.futures.values():
                group.unlock()
        return self.outcome

    def load(self, trial: CVTrial) -> bool:
        """Take a saved result; return False, with the reason as a message, if it is unusable."""
        saved = RunDir(self.folder / trial.id).load_result(CVResult, trial.files(self.files))
        if saved.problem:
            self.callback.message(saved.problem)
        if saved.result is None or not saved.run_json_intact:
            return False
        self._add(trial, saved.result, reused=True)
        return True

    def run_info(self, trial: CVTrial) -> dict[str, Any]:
        """Return the content of a trial's run.json."""
        # a search runs trials of many protocols under one recipe
        recipe = {**self.recipe, "protocol": trial.protocol.model_dump()}
        info = {"trial": trial.id, **trial.identity, "device": self.device, "recipe": recipe}
        summary = trial.dataset.summary
        return info if summary is None else {**info, "data_summary": summary.as_json()}

    def start(self, trials: list[CVTrial], *, announce: bool = True) -> None:
        """Submit the stacks that these trials share."""
        stacks = trials[0].stacks
        group = _Group([], [None] * len(stacks), len(stacks))
        with contextlib.ExitStack() as locked:
            locked.callback(group.unlock)
            for trial in trials:
                run_dir = self._open(trial, announce=announce)
                if run_dir is not None:
                    group.trials.append((trial, run_dir))
            locked.pop_all()
        for i, stack in enumerate(stacks if group.trials else []):
            future = self.executor.submit(stack, self.device, trials[0].files(self.files))
            self.futures[future] = (group, i)

    def _open(self, trial: CVTrial, *, announce: bool) -> RunDir | None:
        """Return the locked run directory, None if another process holds or has finished it."""
        run_dir = RunDir(self.folder / trial.id)
        if not run_dir.try_lock():
            if announce:
                text = f"{trial}: locked by another process: waiting for its result"
                self.callback.message(text)
            self.locked.append(trial)
            return None
        with contextlib.ExitStack() as locked:
            locked.callback(run_dir.unlock)
            # another process may have finished it since
            saved = run_dir.load_result(CVResult, trial.files(self.files))
            if saved.result is None or not saved.run_json_intact:
                run_dir.start(self.run_info(trial))
            if saved.result is None:
                locked.pop_all()
                return run_dir
            result = saved.result if saved.run_json_intact else run_dir.write_result(saved.result)
        self._add(trial, result, reused=True)
        return None

    def collect(self, future: Future[Any]) -> None:
        """Take a trained stack; save its trials once all their stacks are trained."""
        group, i = self.futures.pop(future)
        group.remaining -= 1
        error = future.exception()
        fatal = self.executor.fatal_error(error) if error is not None else None
        if fatal is not None:
            group.unlock()
            raise fatal from None
        if error is not None:
            group.error = error
        else:
            group.stacks[i] = future.result()
        if group.remaining:
            return
        try:
            for trial, run_dir in group.trials:
                if group.error is not None:
                    self._fail(trial, run_dir, group.error)
                else:
                    self._save(trial, run_dir, group)
        finally:
            group.unlock()

    def _save(self, trial: CVTrial, run_dir: RunDir, group: _Group) -> None:
        choices = [choice for stack in group.stacks for choice in stack.choices]
        results = [trial.select_result(stack.result) for stack in group.stacks]
        metrics, document = trial.record(results, choices)
        digests = self._write_files(trial, run_dir.path, group)
        result = CVResult.model_validate({**document, **digests})
        self._add(trial, run_dir.finish(metrics, result), reused=False)

    def _write_files(self, trial: CVTrial, folder: Path, group: _Group) -> dict[str, str | None]:
        """Write the requested files; return their digests for the result."""
        assert not (self.files and trial.batched_with), (
            "a stack's files would be those of all its variants"
        )
        if PREDICTIONS in self.files:
            rows = [row for stack in group.stacks for row in stack.predictions]
            write_atomically(folder / PREDICTIONS, csv_text(trial.prediction_rows(rows)))
        if NETWORKS in trial.files(self.files):
            names = group.stacks[0].arrays
            arrays = {name: [stack.arrays[name] for stack in group.stacks] for name in names}
            write_arrays(folder / NETWORKS, arrays)
        return {DIGEST_KEYS[name]: file_digest(folder / name) for name in trial.files(self.files)}

    def _add(self, trial: CVTrial, result: CVResult, *, reused: bool) -> None:
        self.outcome.results[trial] = result
        self.callback.done(result, reused=reused)

    def _fail(self, trial: CVTrial, run_dir: RunDir, error: BaseException) -> None:
        path = run_dir.path / "error.txt"
        write_atomically(path, "".join(traceback.format_exception(error)))
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        self.outcome.failed[trial] = f"{trial}: {reason} (see {path})"


def _groups(trials: list[CVTrial]) -> list[list[CVTrial]]:
    """Return the trials grouped by their stacks, in the order of the first of each."""
    groups: dict[Hashable, list[CVTrial]] = {}
    for trial in trials:
        groups.setdefault(trial.stack_key, []).append(trial)
    return list(groups.values())
