"""Runs the trials of a call of `train`, `cosify` or `transfer`; what is done is not done again."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from marginctl.objectives.spec import from_run
from marginctl.runs.changed import note_on_changed_data
from marginctl.runs.reading import DamageError, read_text
from marginctl.runs.store import Found, TrialFolder, parse_run
from marginctl.training.record import is_run
from marginctl.training.session import At, Session
from marginctl.training.trial import Trial, needs, scale_of

if TYPE_CHECKING:
    from marginctl.training.distribution import World
    from marginctl.training.run import Stop


@dataclass
class Outcome:
    """What became of the trials."""

    records: dict[Trial, dict[str, Any]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def run(
    session: Session,
    listener: Any,
    *,
    keep: int,
    minutes: float,
    on_done: Callable[[Trial, dict[str, Any]], None],
) -> Outcome:
    """Runs the trials, one after the other; what is done is not done again.

    A trial that another process is at work on is left to it while there are others to do. At the
    end its result is waited for; if that process goes without one, the trial is done here.

    Raises:
        StoppedRunError: a signal came; the trial at work has a checkpoint.
        LackError: there is no memory for a trial, or no compiler.
        StoreError: the folder cannot be written.
    """
    from marginctl.training import lacks
    from marginctl.training.distribution import joined
    from marginctl.training.run import Keeping, Stop
    from marginctl.training.setup import setup

    outcome, befores = Outcome(), dict[str, dict[str, Any]]()
    with joined(session.device) as world, Stop().listening() as stop:
        todo = session.unfinished() if world.first else []
        if todo:
            session.write_recipe()
            known = (session.about(t) for t in todo if from_run(t.spec) is None)
            changed = note_on_changed_data(session.folder, known)
            if changed is not None:
                listener.message(changed)
        left, met, waits = session.trials, set[Trial](), False
        while left:
            held: list[Trial] = []  # others are at work on them, or on what they need
            for planned in left:
                if any(needs(planned, other) for other in held):
                    held.append(planned)
                    continue
                trial = planned
                if from_run(planned.spec) is not None:
                    scale = scale_of(planned, outcome.records) if world.first else None
                    scale = world.from_first(scale)
                    if scale is None:
                        outcome.failed.append(
                            f"{planned}: not trained: the trial that it takes its scale from has "
                            "no kappa* for this setting and seed"
                        )
                        continue
                    trial = replace(planned, scale=scale)
                first = outcome.records.get(planned.first) if planned.first is not None else None
                done = planned.first is None or (first is not None and first["diverged"] is None)
                if not world.from_first(done if world.first else None):
                    outcome.failed.append(f"{planned}: not trained: its first stage has no network")
                    continue
                folder = session.folder_of(trial)
                if world.from_first(not folder.try_lock() if world.first else None):
                    if world.first and planned not in met:
                        listener.message(
                            f"{trial}: another process is at work on it ({folder.path})"
                        )
                    met.add(planned)
                    held.append(planned)
                    continue
                try:
                    found = world.from_first(session.find(trial) if world.first else None)
                    if found.reason and world.first:
                        listener.message(found.reason)
                    record = found.result
                    how = setup(session.device, trial.recipe.train.precision)
                    about = {"precision": how.precision, "processes": world.size}
                    if record is not None and world.first:
                        record = _told_anew(session, trial, folder, found, about)
                    if record is None:
                        if trial.first is not None:
                            trial = replace(trial, start=_network_of(session, trial.first))
                        if world.first:
                            folder.begin(session.about(trial) | about)
                        with lacks.named(trial, trial.recipe.train, session.device):
                            at = At(how, Keeping(minutes, keep), stop, listener, world, befores)
                            record = session.compute(trial, folder, at)
                finally:
                    if world.first:
                        folder.unlock()
                if record is None:  # the first process has it
                    continue
                outcome.records[planned] = record
                on_done(trial, record)
                if record["diverged"]:
                    outcome.failed.append(f"{trial}: diverged: {record['diverged']}")
            if len(held) == len(left):
                _wait(held, world, stop, listener if not waits else None)
                waits = True
            left = held
    in_order = [trial for trial in session.trials if trial in outcome.records]
    outcome.records = {trial: outcome.records[trial] for trial in in_order}
    return outcome


def _network_of(session: Session, first: Trial) -> Any:
    """The network of a first stage, from its folder.

    Raises:
        RequestError: it has no whole checkpoint any more.
    """
    from marginctl.training import start

    return replace(start.read(str(session.folder_of(first).path)), written=first.id)


def _wait(held: list[Trial], world: "World", stop: "Stop", listener: Any | None) -> None:
    """Waits a moment for the other processes; the first time the listener hears it.

    Raises:
        StoppedRunError: a signal came.
    """
    from marginctl.training.run import StoppedRunError

    said = f"other processes are at work on {len(held)} of the trials"
    if listener is not None and world.first:
        listener.message(f"{said}: waiting for their results; what they leave is done here")
    asked = world.any(stop.asked)
    if asked is not None:
        raise StoppedRunError(asked, f"stopped: {said}: the same command again reads their results")
    time.sleep(1.0)


def _told_anew(
    session: Session,
    trial: Trial,
    folder: TrialFolder,
    found: Found,
    about: dict[str, Any],
) -> dict[str, Any]:
    """The record of a finished trial as this call's grid has it, and a run.json beside it."""
    assert found.result is not None
    own = {"row": trial.row, "setting": dict(trial.setting)}
    path = folder.path / "run.json"
    try:
        there = found.whole and parse_run(read_text(path), (is_run,)) is not None
    except DamageError:
        there = False
    if not there:
        folder.begin(session.about(trial) | about)
    if there and own.items() <= found.result.items():
        return found.result
    return folder.told_anew(found.result | own)
