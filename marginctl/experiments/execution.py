"""Run the trials of a session one after the other, and skip those that are finished."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from marginctl.experiments.records import TrainingResult, parse_training_info
from marginctl.experiments.run_trial import (
    CheckpointPolicy,
    SignalHandler,
    StoppedRunError,
    TrialContext,
)
from marginctl.experiments.source_model import load_source_model
from marginctl.experiments.training_session import Session
from marginctl.experiments.training_trial import Trial
from marginctl.objectives.parts import scale_source
from marginctl.runs.data_changes import changed_data_note
from marginctl.runs.run_dir import RunDir, SavedResult
from marginctl.runs.safe_read import CorruptFileError, read_text
from marginctl.training.resource_errors import one_line_errors
from marginctl.utils.distributed import World, process_group
from marginctl.utils.precision import device_config_for

OnDone = Callable[[Trial, TrainingResult], None]


@dataclass
class Outcome:
    """The results of the finished trials, and a line for each failed one."""

    results: dict[Trial, TrainingResult] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def run_trials(
    session: Session, callback: Any, checkpoints: CheckpointPolicy, on_done: OnDone
) -> Outcome:
    """Run the trials of a session; finished ones are skipped.

    A trial that another process holds is postponed while there are others to run. At the end its
    result is awaited; if that process leaves without one, the trial runs here.

    Raises:
        StoppedRunError: a signal came; the current trial has a checkpoint.
    """
    with (
        process_group(session.device, callback.message) as world,
        SignalHandler().installed() as signals,
    ):
        pending = session.unfinished() if world.is_main_process else []
        if pending:
            session.write_recipe()
            infos = (session.run_info(t) for t in pending if scale_source(t.spec) is None)
            note = changed_data_note(session.folder, infos)
            if note is not None:
                callback.message(note)
        queue = _Queue(session, callback, world, signals, checkpoints, on_done)
        remaining, waited = session.trials, False
        while remaining:
            postponed: list[Trial] = []  # held by others, or dependent on such a trial
            for trial in remaining:
                if any(trial.depends_on(other) for other in postponed) or not queue.run(trial):
                    postponed.append(trial)
            if len(postponed) == len(remaining):
                queue.wait(len(postponed), announce=not waited)
                waited = True
            remaining = postponed
    results = queue.outcome.results
    queue.outcome.results = {t: results[t] for t in session.trials if t in results}
    return queue.outcome


class _Queue:
    """The trials of one command, run one at a time."""

    def __init__(
        self,
        session: Session,
        callback: Any,
        world: World,
        signals: SignalHandler,
        checkpoints: CheckpointPolicy,
        on_done: OnDone,
    ) -> None:
        self.outcome = Outcome()
        self._session, self._callback, self._on_done = session, callback, on_done
        self._world, self._signals, self._checkpoints = world, signals, checkpoints
        self._announced: set[Trial] = set()  # whose lock another process held

    def run(self, planned: Trial) -> bool:
        """Run a trial or load its result; return False if another process holds it."""
        world = self._world
        trial = self._with_dependencies(planned)
        if trial is None:
            return True
        run_dir = self._session.run_dir(trial)
        if world.broadcast_object(not run_dir.try_lock() if world.is_main_process else None):
            if world.is_main_process and planned not in self._announced:
                self._callback.message(f"{trial}: locked by another process ({run_dir.path})")
            self._announced.add(planned)
            return False
        try:
            result = self._run_locked(trial, run_dir)
        finally:
            if world.is_main_process:
                run_dir.unlock()
        if result is not None:  # None on all processes but the main one
            self.outcome.results[planned] = result
            self._on_done(trial, result)
            if result.diverged:
                self.outcome.failed.append(f"{trial}: diverged: {result.diverged}")
        return True

    def wait(self, held: int, *, announce: bool) -> None:
        """Wait a moment for the processes that hold trials."""
        text = f"other processes hold {held} of the trials"
        if announce and self._world.is_main_process:
            self._callback.message(f"{text}: waiting for their results")
        received = self._world.all_reduce_max(self._signals.received)
        if received is not None:
            raise StoppedRunError(
                received, f"stopped: {text}: repeat the command to read their results"
            )
        time.sleep(1.0)

    def _with_dependencies(self, trial: Trial) -> Trial | None:
        """Return the trial with the scale it takes from another one; None if that one failed."""
        results, world, problem = self.outcome.results, self._world, None
        if scale_source(trial.spec) is not None:
            scale = world.broadcast_object(
                trial.resolve_scale(results) if world.is_main_process else None
            )
            if scale is None:
                problem = (
                    "the trial that it takes its scale from has no kappa* for this setting and seed"
                )
            else:
                trial = replace(trial, scale=scale)
        if trial.first_stage is not None:
            first = results.get(trial.first_stage)
            usable = first is not None and first.diverged is None
            if not world.broadcast_object(usable if world.is_main_process else None):
                problem = "its first stage has no network"
        if problem is None:
            return trial
        self.outcome.failed.append(f"{trial}: not trained: {problem}")
        return None

    def _run_locked(self, trial: Trial, run_dir: RunDir) -> TrainingResult | None:
        """Return the result of a trial whose run directory is locked; None on other processes."""
        session, world = self._session, self._world
        saved = world.broadcast_object(
            session.load_result(trial) if world.is_main_process else None
        )
        if saved.problem and world.is_main_process:
            self._callback.message(saved.problem)
        device_config = device_config_for(session.device, trial.recipe.train.precision)
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
        with one_line_errors(trial, trial.recipe.train, session.device):
            context = TrialContext(
                device_config, self._checkpoints, self._signals, self._callback, world
            )
            return session.run_trial(trial, run_dir, context)


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
        run_dir.start(session.run_info(trial) | environment | result.chosen_record)
    setting = dict(trial.setting)
    if intact and (result.row, result.setting) == (trial.row, setting):
        return result
    return run_dir.write_result(result.model_copy(update={"row": trial.row, "setting": setting}))
