"""Attempt a trial in this process: take its lock, and load or compute its result."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
