"""Runs the trials of a call of `train`, `cosify` or `transfer`; what is done is not done again."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from marginctl.objectives.spec import from_run
from marginctl.runs.reading import DamageError, read_text
from marginctl.runs.store import TrialFolder, parse_run
from marginctl.training.record import is_run
from marginctl.training.session import At, Session
from marginctl.training.trial import Trial, scale_of


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
        if world.first and session.unfinished():
            session.write_recipe()
        for planned in session.trials:
            trial = planned
            if from_run(planned.spec) is not None:
                scale = scale_of(planned, outcome.records) if world.first else None
                scale = world.from_first(scale)
                if scale is None:
                    outcome.failed.append(
                        f"{planned}: not trained: the trial that it takes its scale from has no "
                        "kappa* for this setting and seed"
                    )
                    continue
                trial = replace(planned, scale=scale)
            folder = session.folder_of(trial)
            if world.from_first(not folder.try_lock() if world.first else None):
                outcome.failed.append(
                    f"{trial}: another process is at work on it ({folder.path}): wait for it, or "
                    "name another store with --out"
                )
                continue
            try:
                found = world.from_first(session.find(trial) if world.first else None)
                if found.reason and world.first:
                    listener.message(found.reason)
                record = found.result
                how = setup(session.device, trial.recipe.train.precision)
                about = {"precision": how.precision, "processes": world.size}
                if record is not None and world.first:
                    record = _told_anew(session, trial, folder, record, about)
                if record is None:
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
    return outcome


def _told_anew(
    session: Session,
    trial: Trial,
    folder: TrialFolder,
    record: dict[str, Any],
    about: dict[str, Any],
) -> dict[str, Any]:
    """The record of a finished trial as this call's grid has it, and a run.json beside it."""
    own = {"row": trial.row, "setting": dict(trial.setting)}
    path = folder.path / "run.json"
    try:
        there = parse_run(read_text(path), (is_run,)) is not None
    except DamageError:
        there = False
    if not there:
        folder.begin(session.about(trial) | about)
    if own.items() <= record.items():
        return record
    kept = {k: v for k, v in record.items() if k not in ("schema", "versions")}
    return folder.finish_appended(kept | own)
