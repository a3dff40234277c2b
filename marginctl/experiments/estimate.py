"""Estimates for --dry-run: a few steps are timed and multiplied."""

import statistics
import time
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from marginctl.data.images.image_sets import ImageDataset
from marginctl.experiments.checks import fitted_images
from marginctl.experiments.training_session import FORWARD_SHARE, Session
from marginctl.experiments.training_trial import Trial
from marginctl.experiments.transfer_session import TransferSession, TransferTrial
from marginctl.experiments.tuned_trial import tuning_cost
from marginctl.metrics.long_tail import class_groups
from marginctl.models.stages import forward_operations
from marginctl.objectives.parts import with_scale_value
from marginctl.recipe.image_recipe import MAX_DIAGNOSED
from marginctl.training.resource_errors import is_out_of_memory
from marginctl.training.trainer import DivergedError, Trainer
from marginctl.transfer import cached_features
from marginctl.utils.device import synchronize, world_size
from marginctl.utils.precision import device_config_for

BUDGET = 30.0  # seconds of timing in all
FEW_IMAGES = 16  # of the first timed steps
FULL_BATCH_SECONDS = 2.0  # full batches are timed if they are expected to be faster
MIN_SECONDS = 0.5  # of timed steps, two steps at least
WARM_UP_STEPS = 2
STREAMED_STEPS = 1000  # of a streamed epoch, of which only the timed ones are decoded


@dataclass(frozen=True)
class StepTime:
    """How long a step takes."""

    seconds: float | None  # of a step of a full batch; None if `reason` says why it was not timed
    steps: int = 0
    images: int = 0  # in each of them; the time of fewer than a batch is scaled
    reason: str | None = None


def estimate_training(
    session: Session, budget: float = BUDGET, *, with_operations: bool = True
) -> dict[str, Any]:
    """Estimate the time of a session's unfinished trials: the document of `train --dry-run`.

    A few steps of every workload are timed, on the trials' own images and with the first of their
    objectives. The candidates of tuning are counted with their trial. Evaluation counts as a third
    of a step for as many images: the test images or the validation part, those of diagnostics, and
    once those of OOD sets and pairs. A trial with a checkpoint counts as a whole. What the estimate
    excludes is listed under `not_counted`.

    Args:
        budget: seconds of timing in all.
        with_operations: whether floating-point operations are counted, too; 0 if not.
    """
    deadline = time.monotonic() + budget
    pending, times = session.unfinished(), dict[Hashable, StepTime]()
    rows = []
    for trial in pending:
        images = session.images[trial.data]
        steps = session.steps(trial)
        workload = _workload(trial, images, session.device)
        if workload not in times:
            if time.monotonic() >= deadline:
                times[workload] = StepTime(None, reason=f"beyond the {budget:g} s for timing")
            else:
                times[workload] = _time_step(trial, images, session.device, deadline)
        step = times[workload]
        full_steps = _equivalent_steps(trial, images, steps)
        shape = (images.channels, images.image_size)
        passes = full_steps * min(trial.recipe.train.batch_size, len(images.train_y))
        forward = forward_operations(trial.recipe.model, *shape)[0] if with_operations else 0
        rows.append(
            {
                "trial": str(trial),
                "epochs": trial.recipe.train.epochs,
                "steps": steps,
                "seconds": None if step.seconds is None else step.seconds * full_steps,
                "operations": passes * forward / FORWARD_SHARE,
                "timed_steps": step.steps,
                "timed_images": step.images,
                "reason": step.reason,
            }
        )
    excluded = ["start-up", "reading the data", "checkpoints", "bootstrap intervals"]
    recipes = [trial.recipe for trial in pending]
    if any(r.data.augment == "none" and r.trainable_blocks != "1-4" for r in recipes):
        excluded.append("what cached features of frozen blocks save")
    if any(r.train.compile for r in recipes):
        excluded.append("what train.compile saves")
    return {
        "trials": len(session.trials),
        "done": len(session.trials) - len(pending),
        "to_do": len(pending),
        "device": session.device,
        "folder": str(session.folder),
        "seconds": sum(row["seconds"] or 0.0 for row in rows),
        "operations": sum(row["operations"] for row in rows),
        "not_timed": sum(row["seconds"] is None for row in rows),
        "tails": [tail for images in session.images.values() for tail in _long_tail(images)],
        "rows": rows,
        "not_counted": excluded,
    }


def estimate_transfer(session: TransferSession) -> dict[str, Any]:
    """Estimate the time of a session's unfinished trials: the document of `transfer --dry-run`.

    The time of a probe is that of its features, unless they are cached: a few images are timed.
    Features of one network and image set are extracted once. The fit is not counted.
    """
    trials = [t for t in session.trials if isinstance(t, TransferTrial)]
    probes = [t for t in trials if t.is_probe]
    document = estimate_training(replace(session, trials=[t for t in trials if not t.is_probe]))
    device_config = device_config_for(session.device, "fp32")
    extracted: set[tuple[str, str]] = set()
    pending = [t for t in probes if session.load_result(t).result is None]
    for trial in pending:
        images, key = session.images[trial.data], (trial.source.weights, trial.data)
        count = len(images.train_y) + len(images.test_y)
        if images.has_validation:
            count += len(images.validation_as_test().test_y)
        cached = key in extracted or not cached_features.missing_batches(
            trial.source, images, session.runs_folder, device_config
        )
        seconds = 0.0
        if not cached:
            seconds = count * cached_features.seconds_per_image(trial.source, images, device_config)
        extracted.add(key)
        shape = (images.channels, images.image_size)
        operations = 0 if cached else count * forward_operations(trial.source.model, *shape)[0]
        row = {"trial": str(trial), "images": count, "features_kept": cached, "seconds": seconds}
        document["rows"].append(row | {"operations": operations})
        document["seconds"] += seconds
        document["operations"] += operations
    exclusions = document["not_counted"]
    return document | {
        "trials": len(trials),
        "done": document["done"] + len(probes) - len(pending),
        "to_do": document["to_do"] + len(pending),
        "not_counted": [*exclusions, "the fit of a probe"] if pending else exclusions,
    }


def _long_tail(images: ImageDataset) -> list[dict[str, Any]]:
    """Return the training images of each class, if results have the accuracy of class groups."""
    counts = np.bincount(images.train_y, minlength=images.num_classes)
    groups = {name: len(classes) for name, classes in class_groups(counts).items()}
    if sum(number > 0 for number in groups.values()) < 2:
        return []
    return [
        {
            "data": images.name,
            "images": len(images.train_y),
            "groups": groups,
            "counts": counts.tolist(),
        }
    ]


def _workload(trial: Trial, images: ImageDataset, device: str) -> Hashable:
    """Return what the time of a step depends on.

    Objectives cost little compared with a backbone: the first one represents all.
    """
    recipe = trial.recipe
    return (
        recipe.model,
        (images.channels, images.image_size, images.num_classes),
        (recipe.train.batch_size, recipe.train.grad_accum_steps, recipe.retrains_classifier),
        (recipe.data.augment, recipe.optim.optimizer),
        device_config_for(device, recipe.train.precision).precision,
        trial.data if recipe.data.streamed else None,  # decoded during the training
    )


def _equivalent_steps(trial: Trial, images: ImageDataset, steps: int) -> float:
    """Return the steps of a trial, and its evaluations as steps that would take as long."""
    train = trial.recipe.train
    evaluations = -(-train.epochs // train.evaluate_every)
    count = len(images.train_y)
    batch = min(train.batch_size, count)
    diagnosed = min(MAX_DIAGNOSED, count) if train.reference_run is not None else 0
    with_gradient = min(train.gradient_norm_samples, count)  # a whole step without the update
    fitted = fitted_images(trial.recipe, images)
    validated = count - fitted
    if images.has_validation:
        validated = len(images.validation_as_test().test_y)
    evaluated = validated or len(images.test_y)
    forward = evaluated + diagnosed + with_gradient / FORWARD_SHARE
    at_end = len(images.test_y) if validated else 0
    at_end += validated * sum(candidates for candidates, *_ in tuning_cost(trial, fitted))
    at_end += sum(len(dataset.images.test_y) for dataset in trial.ood)
    at_end += sum(len(pairs.files) for pairs in trial.pairs)
    return steps + FORWARD_SHARE * (evaluations * forward + at_end) / batch


def _time_step(trial: Trial, images: ImageDataset, device: str, deadline: float) -> StepTime:
    """Time steps of a few images, and of full batches if these are fast and time remains."""
    # each process of several has its part of a batch
    full = -(-min(trial.recipe.train.batch_size, len(images.train_y)) // world_size())
    few = min(full, FEW_IMAGES)
    try:
        times = _step_seconds(trial, images, device, few)
        # a step takes longer than its images do: few images overestimate a small model
        fast = min(times) * full / few < FULL_BATCH_SECONDS
        if few < full and fast and time.monotonic() < deadline:
            times, few = _step_seconds(trial, images, device, full), full
        return StepTime(statistics.fmean(times) * full / few, len(times), few)
    except DivergedError as error:
        return StepTime(None, reason=str(error))
    except (RuntimeError, MemoryError, ValueError) as error:
        if is_out_of_memory(error):
            return StepTime(None, reason=f"{device} has no memory for {full} images")
        if "more than 1 value per channel" not in str(error):
            raise
        return StepTime(None, reason="batch normalisation needs 2 images or more")


def _step_seconds(trial: Trial, images: ImageDataset, device: str, size: int) -> list[float]:
    """Return the seconds of some steps of `size` images, after a warm-up."""
    train = trial.recipe.train
    changes = {"batch_size": size, "epochs": 100_000, "compile": False, "sync_batch_norm": False}
    changes["cuda_graphs"] = False  # their capture would be timed
    if size <= FEW_IMAGES:
        changes["grad_accum_steps"] = 1  # a few images are a part of a batch
    recipe = trial.recipe.model_copy(update={"train": train.model_copy(update=changes)})
    # a long streamed epoch: starting the decoders is no part of a step
    steps = STREAMED_STEPS if recipe.data.streamed else 2
    rows = np.arange(steps * size) % len(images.train_y)
    spec = with_scale_value(trial.spec, 1.0)  # any value of an unknown scale takes as long
    device_config = device_config_for(device, train.precision)
    trainer = Trainer(recipe, spec, images.select(rows), trial.seed, device_config)
    times: list[float] = []
    before = time.perf_counter()
    while True:
        for _ in trainer.steps():
            synchronize(device)
            now = time.perf_counter()
            times.append(now - before)
            before = now
            timed = times[WARM_UP_STEPS:]
            if len(timed) >= 2 and sum(timed) >= MIN_SECONDS:
                return timed
