"""`marginctl bench --device D`: how fast networks train there, and two rows of a table."""

import platform
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from marginctl.bench.gpu_peaks import peak_of
from marginctl.bench.throughput import pace
from marginctl.data.images.in_memory import InMemoryImages
from marginctl.experiments.execution import Outcome
from marginctl.experiments.execution import run as run_trials
from marginctl.experiments.training_session import Session
from marginctl.objectives.parsing import parse
from marginctl.recipe import TrainRecipe
from marginctl.runs.run_dir import versions
from marginctl.training.trainer import Trainer
from marginctl.utils.device import usable_cores
from marginctl.utils.precision import DeviceConfig, device_config_for

RECIPE = "large-margin/table2"
MODELS = ("layer13", "resnet18")
OBJECTIVES = ("soft:bias=true", "lm-softmax:bias=true")

TIMING = 1 / 4  # of all the time: what is left is for the table
MARGIN = 1.1  # a training also writes records and checkpoints


def run(
    *,
    device: str,
    epochs: int,
    seeds: int,
    samples: int | None,
    models: Iterable[str] = MODELS,
    timed_epochs: int,
    minutes: float,
    data_dir: Path | None,
    out: Path,
    progress: Any,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Times epochs on CIFAR-100 and trains softmax and lm-softmax as Table 2 does.

    Args:
        device: a torch device.
        epochs, seeds: of the table's rows.
        samples: training images, or None for all 50,000.
        models: the backbones that are timed; the table's own is timed with them.
        timed_epochs: how many of each at most.
        minutes: a quarter of them is for timing, where a part of an epoch stands for one that takes
            too long; and no further network of the table is begun where it would end later.
        data_dir: where CIFAR-100 is; None for the default.
        out: the run store of the table's rows: the same command again resumes.
        progress: hears of it.

    Returns:
        A JSON document: of each network seconds an epoch and an evaluation, images a second, and
        the share of the card's peak; how many networks of the table there was no time for, and how
        many minutes are needed where there was not enough for a single one. And the results of the
        table.

    Raises:
        RequestError: CIFAR-100 is not there.
        StoppedRunError: a signal came; the same command again resumes.
    """
    began = time.monotonic()
    session = Session.open(
        RECIPE,
        overrides=[] if samples is None else [f"data.subset_size={samples}"],
        options={
            "objectives": ("--objective", list(OBJECTIVES)),
            "train.epochs": ("--epochs", epochs),
            "seeds": ("--seeds", list(range(seeds))),
        },
        data_dir=data_dir,
        out=out,
        device=device,
    )
    (images,) = session.images.values()
    assert isinstance(images, InMemoryImages)  # the recipe's set lies in memory
    device_config = device_config_for(device, session.recipe.train.precision)
    chosen = [
        TrainRecipe.model_validate(session.recipe.model_dump() | {"model": model})
        for model in (*models, session.recipe.model)
    ]
    recipes = {recipe.model: recipe for recipe in chosen}  # each once, however written
    opened = time.monotonic() - began
    speeds = {}
    for model, own in recipes.items():
        found = speed(
            own, images, device_config, timed_epochs, TIMING * 60 * minutes / len(recipes)
        )
        progress.message(
            f"{model}: {found['seconds_an_epoch']['median']:.2f} s an epoch, "
            f"{found['images_a_second']:.0f} images a second"
        )
        speeds[model] = found
    pace_of_it = speeds[session.recipe.model]
    evaluations = -(-epochs // session.recipe.train.evaluate_every)
    a_network = MARGIN * (
        epochs * pace_of_it["seconds_an_epoch"]["median"]
        + evaluations * pace_of_it["seconds_an_evaluation"]
    )
    needed = time.monotonic() - began + a_network
    enough = None
    if needed > 60 * minutes:  # with more minutes more is timed
        enough = max(needed, (opened + a_network) / (1 - TIMING)) / 60
    outcome, left_out = _trained(session, progress, began + 60 * minutes, a_network)
    document = {
        "schema": 1,
        "command": "bench networks",
        "device": device,
        "card": card(device_config),
        "precision": device_config.precision,
        "images": len(images.train_y),
        "networks": list(speeds.values()),
        "table": {
            "paper": session.recipe.paper,
            "table": session.recipe.table,
            "epochs": epochs,
            "left_out": left_out,
            "seconds_a_network": a_network,
            "minutes_needed": enough,
        },
        "failed": outcome.failed,
        "seconds": time.monotonic() - began,
        "machine": {"cores": usable_cores(), "architecture": platform.machine()},
        "versions": versions(),
    }
    return document, list(outcome.records.values())


def _trained(session: Session, progress: Any, ends: float, seconds: float) -> tuple[Outcome, int]:
    """Trains the trials, one by one, that end in time; and how many do not.

    Args:
        ends: on the monotonic clock.
        seconds: that a trial is thought to take; the longest one so far corrects it.
    """
    todo, outcome, left_out = set(session.unfinished()), Outcome(), 0
    for trial in session.trials:
        started = time.monotonic()
        if trial in todo and started + seconds > ends:
            left_out += 1
            continue
        alone = replace(session, trials=[trial])
        found = run_trials(alone, progress, keep=1, minutes=5, on_done=progress.done)
        outcome.records |= found.records
        outcome.failed += found.failed
        seconds = max(seconds, time.monotonic() - started)
    return outcome, left_out


def speed(
    recipe: TrainRecipe,
    images: InMemoryImages,
    device_config: DeviceConfig,
    epochs: int,
    seconds: float,
) -> dict[str, Any]:
    """Trains some epochs, or a part of one, and says how long an epoch takes.

    Args:
        recipe: of one trial.
        images: what it trains on.
        device_config: device and precision.
        epochs: that are timed at most.
        seconds: for the timing; beyond them only the least that says anything is timed.

    Returns:
        Seconds an epoch (median, lowest, highest; where `epochs` is 0 they are scaled from the
        `steps` that were timed), seconds an evaluation (scaled where not all test images were
        `evaluated`), images a second in training, floating-point operations of an image's step (2
        for a product and its sum), and the share of the card's peak, or null with the reason.
    """
    trainer = Trainer(recipe, parse(OBJECTIVES[0]).spec, images, 0, device_config)
    operations = _operations(trainer)
    found = pace(trainer, device_config, epochs, seconds)
    a_second = len(images.train_y) / found.epoch
    share, reason = _share(operations * a_second, device_config)
    return {
        "model": recipe.model,
        "seconds_an_epoch": {
            "median": found.epoch,
            "low": min(found.epochs) if found.whole else None,
            "high": max(found.epochs) if found.whole else None,
        },
        "epochs": found.whole,
        "steps": found.steps,
        "steps_an_epoch": len(trainer.sizes),
        "seconds_an_evaluation": found.evaluation,
        "evaluated": found.tested,
        "test_images": len(images.test_y),
        "images_a_second": a_second,
        "operations_an_image": operations,
        "share_of_peak": share,
        "reason": reason,
    }


def _operations(trainer: Trainer) -> float:
    """Of the products of a training step, forward and backward, for an image."""
    trainer.model.eval()  # as many, and no statistic of batch normalisation moves
    x, _ = next(iter(trainer.batches.test_batches(2)))
    with FlopCounterMode(display=False) as counter:
        trainer.features(x).sum().backward()  # type: ignore[no-untyped-call]
    trainer.optimizer.zero_grad(set_to_none=True)
    return float(counter.get_total_flops()) / len(x)


def _share(a_second: float, device_config: DeviceConfig) -> tuple[float | None, str | None]:
    name = card(device_config)
    if device_config.device.type != "cuda":
        return None, f"{name}: no published peak is held"
    if device_config.precision != "bf16":
        return None, f"{device_config.precision}: the peaks that are held are bf16's"
    peak, reason = peak_of(name)
    return (a_second / (1e12 * peak) if peak else None), reason


def card(device_config: DeviceConfig) -> str:
    """What a device calls itself; of a CPU its cores."""
    if device_config.device.type == "cuda":
        return torch.cuda.get_device_name(device_config.device)
    return f"{device_config.device.type}, {usable_cores()} cores"
