"""What a training will take: a few steps are timed, and multiplied."""

import contextlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from marginctl.data.images.base import ImageDataset
from marginctl.experiments.training_trial import Trial
from marginctl.metrics.long_tail import class_groups
from marginctl.objectives.parts import with_scale_value
from marginctl.recipe.image_recipe import MAX_DIAGNOSED
from marginctl.training.resource_errors import is_out_of_memory
from marginctl.training.trainer import DivergedError, Trainer
from marginctl.utils.device import synchronize, world_size
from marginctl.utils.precision import device_config_for

if TYPE_CHECKING:
    from marginctl.experiments.training_session import Session

BUDGET = 30.0  # seconds of timing in all
FEW = 16  # images of the first steps that are timed
WHOLE = 2.0  # seconds: where a step of a whole batch promises less, whole batches are timed
ENOUGH = 0.5  # seconds of timed steps, two steps at least
WARM = 2  # steps that are not timed
LONG = 1000  # steps of an epoch that is not trained to its end
FORWARD = 1 / 3  # of a step: the way back takes about twice as long


@dataclass(frozen=True)
class Work:
    """What the time of a step depends on.

    Objectives cost little beside a backbone: the first one stands for all.

    Attributes:
        images: channels, and the length of a side.
        frozen: whether the classifier alone is trained, in a second stage.
        decoded: the digest of the files, where they are decoded while the network trains.
    """

    model: str
    images: tuple[int, int]
    classes: int
    batch_size: int
    grad_accum_steps: int
    frozen: bool
    augment: str
    optimizer: str
    precision: str
    decoded: str | None


@dataclass(frozen=True)
class Timed:
    """How long a step takes.

    Attributes:
        seconds: of a step of a whole batch; None where `reason` says why it was not timed.
        steps: how many were timed.
        images: in each of them; with fewer than the batch, the step is longer in proportion.
    """

    seconds: float | None
    steps: int = 0
    images: int = 0
    reason: str | None = None


class _EnoughError(Exception):
    """Enough steps are timed."""


def plan(session: "Session", budget: float = BUDGET) -> dict[str, Any]:
    """What is to be trained and about how long it takes: the document of `train --dry-run`.

    A few steps of every kind of work are timed, on the trials' own images and with the first of
    their objectives. Evaluation counts as a third of a step for as many images, those that
    `train.reference_run` and `train.gradient_norm_samples` look at among them, and once for
    foreign images and
    those of pairs. A trial with a checkpoint counts as a whole, a finished one not at all; what is
    left out is said under `not_counted`.

    Args:
        session: whose trials they are.
        budget: seconds of timing; what is not timed within them has no estimate. The first steps
            of a kind of work that has been begun are done to their end.

    Returns:
        A JSON document; `seconds` are of the trials whose work was timed.
    """
    ends = time.monotonic() + budget
    todo, known = session.unfinished(), dict[Work, Timed]()
    rows = []
    for trial in todo:
        images, steps = session.images[trial.data], session.steps(trial)
        work = _work(trial, images, session.device)
        if work not in known:
            over = Timed(None, reason=f"beyond the {budget:g} s for timing")
            late = time.monotonic() >= ends
            known[work] = over if late else _timed(trial, images, session.device, ends)
        timed = known[work]
        rows.append(
            {
                "trial": str(trial),
                "epochs": trial.recipe.train.epochs,
                "steps": steps,
                "seconds": _whole(trial, images, steps, timed.seconds),
                "timed_steps": timed.steps,
                "timed_images": timed.images,
                "reason": timed.reason,
            }
        )
    return {
        "trials": len(session.trials),
        "done": len(session.trials) - len(todo),
        "to_do": len(todo),
        "device": session.device,
        "folder": str(session.folder),
        "seconds": sum(row["seconds"] or 0.0 for row in rows),
        "not_timed": sum(row["seconds"] is None for row in rows),
        "tails": [tail for images in session.images.values() for tail in _tail(images)],
        "rows": rows,
        "not_counted": _not_counted(todo),
    }


def _not_counted(todo: Sequence[Trial]) -> list[str]:
    """What the estimate leaves out, the last two where there is such a trial."""
    recipes = [trial.recipe for trial in todo]
    maps = any(r.data.augment == "none" and r.trainable_blocks != "1-4" for r in recipes)
    return [
        *("start-up", "reading the data", "checkpoints", "bootstrap intervals"),
        *["what a kept frozen part saves"] * maps,
        *["what train.compile saves"] * any(r.train.compile for r in recipes),
    ]


def _tail(images: ImageDataset) -> list[dict[str, Any]]:
    """The training images of each class, where they are so uneven that results say `shots`."""
    counts = np.bincount(images.train_y, minlength=images.num_classes)
    groups = {name: len(classes) for name, classes in class_groups(counts).items()}
    if sum(number > 0 for number in groups.values()) < 2:
        return []
    whole = {"data": images.name, "images": len(images.train_y), "groups": groups}
    return [whole | {"counts": counts.tolist()}]


def _work(trial: Trial, images: ImageDataset, device: str) -> Work:
    recipe = trial.recipe
    return Work(
        recipe.model,
        (images.channels, images.image_size),
        images.num_classes,
        recipe.train.batch_size,
        recipe.train.grad_accum_steps,
        recipe.retrains_classifier,
        recipe.data.augment,
        recipe.optim.optimizer,
        device_config_for(device, recipe.train.precision).precision,
        trial.data if recipe.data.streamed else None,
    )


def _whole(trial: Trial, images: ImageDataset, steps: int, step: float | None) -> float | None:
    """Seconds of a trial: its steps and its evaluations."""
    if step is None:
        return None
    train = trial.recipe.train
    evaluations = -(-train.epochs // train.evaluate_every)
    images_of_train = len(images.train_y)
    batch = min(train.batch_size, images_of_train)
    looked_at = min(MAX_DIAGNOSED, images_of_train) if train.reference_run is not None else 0
    way_back = min(
        train.gradient_norm_samples, images_of_train
    )  # a whole step each, but for the optimiser
    forward = len(images.test_y) + looked_at + way_back / FORWARD
    at_end = sum(len(own.images.test_y) for own in trial.foreign)
    at_end += sum(len(own.files) for own in trial.pairs)
    return step * (steps + FORWARD * (evaluations * forward + at_end) / batch)


def _timed(trial: Trial, images: ImageDataset, device: str, ends: float) -> Timed:
    """Times a few images; and whole batches where these are fast, and the time is not up."""
    # each process of several has its part of a batch
    whole = -(-min(trial.recipe.train.batch_size, len(images.train_y)) // world_size())
    few = min(whole, FEW)
    try:
        times = _times(trial, images, device, few)
        # a step takes longer than its images do, so few of them promise too much for a small model
        if few < whole and min(times) * whole / few < WHOLE and time.monotonic() < ends:
            times, few = _times(trial, images, device, whole), whole
        return Timed(statistics.fmean(times) * whole / few, len(times), few)
    except DivergedError as error:
        return Timed(None, reason=str(error))
    except (RuntimeError, MemoryError, ValueError) as error:
        if is_out_of_memory(error):
            return Timed(None, reason=f"{device} has no memory for {whole} images")
        if "more than 1 value per channel" not in str(error):
            raise
        return Timed(None, reason="batch normalisation needs 2 images or more")


def _times(trial: Trial, images: ImageDataset, device: str, size: int) -> list[float]:
    """Seconds of some steps of `size` images.

    Raises:
        DivergedError: the loss is not finite.
    """
    train = trial.recipe.train
    changed = {"batch_size": size, "epochs": 100_000, "compile": False, "sync_batch_norm": False}
    if size <= FEW:
        changed["grad_accum_steps"] = 1  # a few images are a part of a batch
    recipe = trial.recipe.model_copy(update={"train": train.model_copy(update=changed)})
    # of files a long epoch, of which no more is decoded than is timed: to start decoding is no step
    number = LONG if recipe.data.streamed else 2
    some = images.select(np.arange(number * size) % len(images.train_y))
    device_config = device_config_for(device, train.precision)
    spec = with_scale_value(trial.spec, 1.0)  # a scale that is not known yet: any takes as long
    trainer = Trainer(recipe, spec, some, trial.seed, device_config)
    times: list[float] = []
    before = time.perf_counter()

    def after_step() -> None:
        nonlocal before
        synchronize(device)
        now = time.perf_counter()
        times.append(now - before)
        before = now
        if len(times) >= WARM + 2 and sum(times[WARM:]) >= ENOUGH:
            raise _EnoughError

    with contextlib.suppress(_EnoughError):
        while True:
            trainer.run_epoch(after_step)
    return times[WARM:]
