"""Runs one trial in its folder: resumes, keeps checkpoints, stops when asked, writes a result."""

import contextlib
import json
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, Protocol, cast

from marginctl.data.images.base import ImageDataset
from marginctl.errors import MarginctlError, RequestError
from marginctl.experiments.records import MetricsLog, TrainingResult, training_result
from marginctl.experiments.reference_losses import reference_losses
from marginctl.experiments.training_trial import Trial
from marginctl.runs.run_dir import NUMERIC_PACKAGES, RunDir, versions
from marginctl.training import checkpoint
from marginctl.training.diagnostics import Diagnostics
from marginctl.training.epoch_metrics import (
    accuracy_record,
    evaluation_record,
    example_record,
    objective_record,
)
from marginctl.training.ood_evaluation import predict_ood
from marginctl.training.pair_evaluation import verify_pairs
from marginctl.training.trainer import MISMATCH_ERRORS, DivergedError, Predictions, Trainer
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig


class Listener(Protocol):
    """What hears of a trial's progress."""

    def message(self, text: str) -> None: ...

    def step(self, trial: Trial, step: int, total: int) -> None: ...

    def epoch(self, trial: Trial, line: dict[str, Any]) -> None: ...


class StoppedRunError(MarginctlError):
    """A signal came: the run stopped between two steps, with a checkpoint."""

    def __init__(self, number: int, line: str) -> None:
        super().__init__(line)
        self.exit_status = 128 + number


@dataclass
class Stop:
    """Whether a signal has asked to stop, and which."""

    asked: int | None = None
    _before: dict[int, Any] = field(default_factory=dict)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = number
        for again, handler in self._before.items():  # the second one stops now
            signal.signal(again, handler)

    @contextlib.contextmanager
    def listening(self) -> Iterator["Stop"]:
        """The first SIGINT or SIGTERM is kept for the loop; the second one acts as before."""
        with contextlib.suppress(ValueError):  # not the main thread
            for asked in (signal.SIGINT, signal.SIGTERM):
                self._before[asked] = signal.signal(asked, self._ask)
        try:
            yield self
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)


@dataclass(frozen=True)
class Keeping:
    """How often checkpoints are written, and how many of them stay."""

    minutes: float = 5.0
    number: int = 1


def run_trial(
    trial: Trial,
    images: ImageDataset,
    folder: RunDir,
    device_config: DeviceConfig,
    keeping: Keeping,
    stop: Stop,
    listener: Listener,
    world: World,
    more: Mapping[str, Any] | None = None,
) -> TrainingResult | None:
    """Trains a trial from where it stands; its record. Call it with the folder's lock held.

    `more` is what its result has beside what training makes.

    Of several processes the first one reads and writes, and has the record; the others have None.

    Raises:
        StoppedRunError: a signal came; the checkpoint is written.
        StorageError: the folder cannot be written; what was there is unharmed.
    """
    trainer = Trainer(trial.recipe, trial.spec, images, trial.seed, device_config, world)
    if trial.start is not None:
        trainer.load_backbone(trial.start.backbone, trial.start.moments)
    state, problems = world.broadcast_object(
        _resumed(trial, folder) if world.is_main_process else None
    )
    for problem in problems if world.is_main_process else ():
        listener.message(problem)
    if state is not None:
        try:
            trainer.load_state_dict(state)
        except MISMATCH_ERRORS as error:
            said = str(error).splitlines()[0]
            raise RequestError(
                f"{folder.path}: its checkpoint does not fit this trial ({said}): run it as it was "
                "run, or remove that folder"
            ) from None
    if state is not None and world.is_main_process:
        listener.message(f"{trial}: goes on after step {trainer.step} of {trainer.total_steps}")
    trainer.cache_frozen_features()
    losses = None
    if trial.reference is not None:
        losses = partial(reference_losses, trial.reference, device=device_config.device)
    diagnostics = Diagnostics(trainer, images, world, losses)
    lines = json.loads(state["metrics"]) if state is not None else []
    metrics = MetricsLog(folder.path / "metrics.jsonl", lines) if world.is_main_process else None
    best = world.broadcast_object(
        max((_top1(line) for line in metrics.lines), default=-1.0) if metrics else None
    )
    saved = time.monotonic()

    def save(kind: str = checkpoint.LAST, number: int = keeping.number) -> None:
        nonlocal saved
        state = trainer.state_dict()
        if metrics:
            more = {"trial": trial.id, "metrics": json.dumps(metrics.lines)}
            checkpoint.save(folder.path, kind, trainer.step, state | more, number)
        saved = time.monotonic() if kind == checkpoint.LAST else saved

    def asked() -> int | None:
        """A signal's number, 0 where a checkpoint is due, else None: one question to all."""
        late = time.monotonic() - saved >= 60 * keeping.minutes
        return world.all_reduce_max(stop.asked if stop.asked is not None else 0 if late else None)

    def after_step() -> None:
        listener.step(trial, trainer.step, trainer.total_steps)
        at_end = trainer.at_epoch_end
        if at_end:
            return
        number = asked()
        if number is not None:
            save()
        if number:
            raise StoppedRunError(number, _stopped(number, trial, trainer))

    diverged, tested = None, None
    while trainer.step < trainer.total_steps:
        started, tested = time.perf_counter(), None
        try:
            train = trainer.run_epoch(after_step)
            trained = time.perf_counter() - started
            line: dict[str, Any] = {"epoch": trainer.epoch, "lr": trainer.last_lr, "train": train}
            every = trial.recipe.train.evaluate_every
            if trainer.epoch % every == 0 or trainer.step == trainer.total_steps:
                tested = trainer.predict()
                line["test"] = accuracy_record(tested)
                line["objective"] = objective_record(trainer.objective, tested)
                first = metrics is not None and not any("test" in of for of in metrics.lines)
                if first or trainer.step == trainer.total_steps:
                    example = example_record(trainer.objective, tested)
                    line |= {} if example is None else {"example": example}
                line |= diagnostics.record(trainer)
            trainer.check_finite()
        except DivergedError as error:
            diverged = str(error)
            if world.is_main_process:
                listener.message(f"{trial}: diverged: {error}")
            break
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise RequestError(
                f"{trial}: batch normalisation needs more than one value a channel: "
                f"train.batch_size = {trial.recipe.train.batch_size}, expected at least 2"
            ) from None
        line["timing"] = {"seconds": time.perf_counter() - started, "train_seconds": trained}
        if metrics:
            metrics.append(line)
            listener.epoch(trial, line)
        if _top1(line) > best:
            best = _top1(line)
            save(checkpoint.BEST, 1)
        number = asked()
        if trainer.step == trainer.total_steps or number is not None:
            save()
        if number and trainer.step < trainer.total_steps:
            raise StoppedRunError(number, _stopped(number, trial, trainer))
    if tested is None and not diverged:  # resumed after the last epoch
        tested = trainer.predict()
    others = [] if diverged else predict_ood(trainer, trial.foreign, images, world)
    pairs = [] if diverged else verify_pairs(trainer, trial.pairs, images, world)
    if metrics is None:
        return None
    evaluation = None
    if not diverged:
        own = cast(Predictions, tested)
        evaluation = evaluation_record(
            trainer.objective, own, images.classes, images.train_y, others
        )
        evaluation |= {"verification": [one.record() for one in pairs]} if pairs else {}
    digest = None if diverged else trainer.weights_digest()
    result = training_result(trial, metrics.lines, evaluation, digest, diverged, more or {})
    return folder.write_result(result)


def _resumed(trial: Trial, folder: RunDir) -> tuple[dict[str, Any] | None, list[str]]:
    """The state to go on from, unless other versions have written it; and what there is to say."""
    found, problems = checkpoint.load_latest(folder.path, trial=trial.id)
    if found is None:
        return None, [
            *problems,
            f"{trial}: no checkpoint is left: trained anew",
        ] if problems else []
    _, state = found
    then, now = state["versions"], versions()
    for package in NUMERIC_PACKAGES:
        if then.get(package) != now[package]:
            checkpoint.remove_all(folder.path)
            said = f"{package} {then.get(package)}, this is {now[package]}"
            return None, [*problems, f"{trial}: its checkpoint is from {said}: trained anew"]
    return state, problems


def _top1(line: dict[str, Any]) -> float:
    test = line.get("test")
    return -1.0 if test is None else float(test["top1"])


def _stopped(number: int, trial: Trial, trainer: Trainer) -> str:
    word = "interrupted" if number == signal.SIGINT else "terminated"
    return (
        f"{word}: {trial} has a checkpoint at step {trainer.step} of {trainer.total_steps}: "
        "the same command again resumes"
    )
