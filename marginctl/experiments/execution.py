"""Runs the trials of a call of `train`, `cosify` or `transfer`; what is done is not done again."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from marginctl.experiments.records import TrainingResult, parse_training_info
from marginctl.experiments.training_session import At, Session
from marginctl.experiments.training_trial import Trial, needs, scale_of
from marginctl.objectives.parts import scale_source
from marginctl.runs.data_changes import changed_data_note
from marginctl.runs.run_dir import RunDir, SavedResult
from marginctl.runs.safe_read import CorruptFileError, read_text

if TYPE_CHECKING:
    from marginctl.experiments.run_trial import Keeping, Stop
    from marginctl.utils.distributed import World


@dataclass
class Outcome:
    """What became of the trials."""

    records: dict[Trial, TrainingResult] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def run(
    session: Session,
    listener: Any,
    *,
    keep: int,
    minutes: float,
    on_done: Callable[[Trial, TrainingResult], None],
) -> Outcome:
    """Runs the trials, one after the other; what is done is not done again.

    A trial that another process is at work on is left to it while there are others to do. At the
    end its result is waited for; if that process goes without one, the trial is done here.

    Raises:
        StoppedRunError: a signal came; the trial at work has a checkpoint.
        ResourceError: there is no memory for a trial, or no compiler.
        StorageError: the folder cannot be written.
    """
    from marginctl.experiments.run_trial import Keeping, Stop
    from marginctl.utils.distributed import process_group

    with process_group(session.device) as world, Stop().listening() as stop:
        todo = session.unfinished() if world.is_main_process else []
        if todo:
            session.write_recipe()
            known = (session.about(t) for t in todo if scale_source(t.spec) is None)
            changed = changed_data_note(session.folder, known)
            if changed is not None:
                listener.message(changed)
        call = _Call(session, listener, world, stop, Keeping(minutes, keep), on_done)
        left, waited = session.trials, False
        while left:
            held: list[Trial] = []  # others are at work on them, or on what they need
            for trial in left:
                if any(needs(trial, other) for other in held) or call.is_held(trial):
                    held.append(trial)
            if len(held) == len(left):
                _wait(held, world, stop, None if waited else listener)
                waited = True
            left = held
    records = call.outcome.records
    call.outcome.records = {t: records[t] for t in session.trials if t in records}
    return call.outcome


class _Call:
    """The trials of one call, one by one."""

    def __init__(
        self,
        session: Session,
        listener: Any,
        world: "World",
        stop: "Stop",
        keeping: "Keeping",
        on_done: Callable[[Trial, TrainingResult], None],
    ) -> None:
        self.outcome = Outcome()
        self._session, self._listener, self._on_done = session, listener, on_done
        self._world, self._stop, self._keeping = world, stop, keeping
        self._befores: dict[str, dict[str, Any]] = {}
        self._met: set[Trial] = set()  # at which others were at work

    def is_held(self, planned: Trial) -> bool:
        """Does a trial, or finds it done; True, and nothing else, where another process has it."""
        world = self._world
        trial = self._completed(planned)
        if trial is None:
            return False
        folder = self._session.folder_of(trial)
        if world.broadcast_object(not folder.try_lock() if world.is_main_process else None):
            if world.is_main_process and planned not in self._met:
                self._listener.message(f"{trial}: another process is at work on it ({folder.path})")
            self._met.add(planned)
            return True
        try:
            record = self._done(trial, folder)
        finally:
            if world.is_main_process:
                folder.unlock()
        if record is not None:  # else the first process has it
            self.outcome.records[planned] = record
            self._on_done(trial, record)
            if record.diverged:
                self.outcome.failed.append(f"{trial}: diverged: {record.diverged}")
        return False

    def _completed(self, trial: Trial) -> Trial | None:
        """The trial with what an earlier one gives it; None, and why, where that gave nothing."""
        records, world, lacking = self.outcome.records, self._world, None
        if scale_source(trial.spec) is not None:
            scale = world.broadcast_object(
                scale_of(trial, records) if world.is_main_process else None
            )
            if scale is None:
                lacking = (
                    "the trial that it takes its scale from has no kappa* for this setting and seed"
                )
            else:
                trial = replace(trial, scale=scale)
        if trial.first is not None:
            first = records.get(trial.first)
            there = first is not None and first.diverged is None
            if not world.broadcast_object(there if world.is_main_process else None):
                lacking = "its first stage has no network"
        if lacking is None:
            return trial
        self.outcome.failed.append(f"{trial}: not trained: {lacking}")
        return None

    def _done(self, trial: Trial, folder: RunDir) -> TrainingResult | None:
        """The record of a trial whose folder's lock is held; of several processes the first's."""
        from marginctl.training import resource_errors
        from marginctl.utils.precision import device_config_for

        session, world = self._session, self._world
        found: SavedResult[TrainingResult] = world.broadcast_object(
            session.find(trial) if world.is_main_process else None
        )
        if found.problem and world.is_main_process:
            self._listener.message(found.problem)
        device_config = device_config_for(session.device, trial.recipe.train.precision)
        about = {"precision": device_config.precision, "processes": world.size}
        if found.result is not None:
            if world.is_main_process:
                return _told_anew(session, trial, folder, found, about)
            return found.result
        if trial.first is not None:
            trial = replace(trial, start=_network_of(session, trial.first))
        if world.is_main_process:
            folder.start(session.about(trial) | about)
        with resource_errors.one_line_errors(trial, trial.recipe.train, session.device):
            at = At(device_config, self._keeping, self._stop, self._listener, world, self._befores)
            return session.compute(trial, folder, at)


def _network_of(session: Session, first: Trial) -> Any:
    """The network of a first stage, from its folder.

    Raises:
        RequestError: it has no whole checkpoint any more.
    """
    from marginctl.experiments import source_model

    return replace(source_model.read(str(session.folder_of(first).path)), written=first.id)


def _wait(held: list[Trial], world: "World", stop: "Stop", listener: Any | None) -> None:
    """Waits a moment for the other processes; the first time the listener hears it.

    Raises:
        StoppedRunError: a signal came.
    """
    from marginctl.experiments.run_trial import StoppedRunError

    said = f"other processes are at work on {len(held)} of the trials"
    if listener is not None and world.is_main_process:
        listener.message(f"{said}: waiting for their results; what they leave is done here")
    asked = world.all_reduce_max(stop.asked)
    if asked is not None:
        raise StoppedRunError(asked, f"stopped: {said}: the same command again reads their results")
    time.sleep(1.0)


def _told_anew(
    session: Session,
    trial: Trial,
    folder: RunDir,
    found: SavedResult[TrainingResult],
    about: dict[str, Any],
) -> TrainingResult:
    """The record of a finished trial as this call's grid has it, and a run.json beside it."""
    assert found.result is not None
    own = {"row": trial.row, "setting": dict(trial.setting)}
    path = folder.path / "run.json"
    try:
        there = found.run_json_intact and parse_training_info(read_text(path)) is not None
    except CorruptFileError:
        there = False
    if not there:
        folder.start(session.about(trial) | about)
    result = found.result
    if there and (result.row, result.setting) == (trial.row, dict(trial.setting)):
        return result
    return folder.write_result(result.model_copy(update=own))
