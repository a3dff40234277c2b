"""`marginctl bench --device D`: how fast networks train there, and two rows of a table."""

import platform
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from marginctl.data.images import Images
from marginctl.devices import usable_cores
from marginctl.objectives.names import parse
from marginctl.recipe import TrainRecipe
from marginctl.runs.store import versions
from marginctl.training.loop import Setup, Trainer, setup
from marginctl.training.session import Session
from marginctl.training.session import run as run_trials

RECIPE = "large-margin/table2"
MODELS = ("layer13", "resnet18")
OBJECTIVES = ("soft:bias=true", "lm-softmax:bias=true")

# Dense bf16 products with float32 sums, in TFLOP/s, from the makers' data sheets; the V100 and the
# T4 have fp16 alone, so that their bf16 share says nothing: they are left out.
PEAK = {
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "A100": 312.0,
    "L40S": 362.0,
    "L4": 121.0,
    "A10": 125.0,
    "RTX 4090": 165.0,
    "RTX 3090": 71.0,
}


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
        models: the backbones that are timed.
        timed_epochs: how many of each, after one that is not.
        minutes: no further network is begun where it would end later than this.
        data_dir: where CIFAR-100 is; None for the default.
        out: the run store of the table's rows: the same command again resumes.
        progress: hears of it.

    Returns:
        A JSON document: of each network seconds an epoch, images a second, and the share of the
        card's peak; how many networks of the table there was no time for. And the table's results.

    Raises:
        RequestError: CIFAR-100 is not there.
        StoppedRunError: a signal came; the same command again resumes.
    """
    began = time.monotonic()
    session = Session.open(
        RECIPE,
        overrides=[] if samples is None else [f"data.samples={samples}"],
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
    assert isinstance(images, Images)  # the recipe's set lies in memory
    how = setup(device, session.recipe.train.precision)
    speeds = []
    for model in models:
        document = session.recipe.model_dump() | {"model": model}
        found = speed(TrainRecipe.model_validate(document), images, how, timed_epochs)
        progress.message(
            f"{model}: {found['seconds_an_epoch']['median']:.2f} s an epoch, "
            f"{found['images_a_second']:.0f} images a second"
        )
        speeds.append(found)
    paces = [s["seconds_an_epoch"]["median"] for s in speeds if s["model"] == session.recipe.model]
    left = 60 * minutes - (time.monotonic() - began)
    todo = session.unfinished()
    fits = max(0, int(left // (epochs * paces[0]))) if paces else len(todo)
    kept = set(session.trials) - set(todo[fits:])
    chosen = Session(
        *(session.name, session.recipe, [t for t in session.trials if t in kept]),
        *(session.images, session.folder, session.device),
    )
    outcome = run_trials(chosen, progress, keep=1, minutes=5, on_done=progress.done)
    document = {
        "schema": 1,
        "command": "bench networks",
        "device": device,
        "card": _card(how),
        "precision": how.precision,
        "images": len(images.train_y),
        "networks": speeds,
        "table": {
            "paper": session.recipe.paper,
            "table": session.recipe.table,
            "epochs": epochs,
            "left_out": len(session.trials) - len(kept),
        },
        "failed": outcome.failed,
        "seconds": time.monotonic() - began,
        "machine": {"cores": usable_cores(), "architecture": platform.machine()},
        "versions": versions(),
    }
    return document, list(outcome.records.values())


def speed(recipe: TrainRecipe, images: Images, how: Setup, epochs: int) -> dict[str, Any]:
    """Trains some epochs and says how long they took.

    Args:
        recipe: of one trial.
        images: what it trains on.
        how: device and precision.
        epochs: that are timed, after one that is not.

    Returns:
        Seconds an epoch (median, lowest, highest), images a second, floating-point operations of
        an image's step (2 for a product and its sum), and the share of the card's peak, or null
        with the reason.
    """
    trainer = Trainer(recipe, parse(OBJECTIVES[0]).spec, images, 0, how)
    operations = _operations(trainer)
    times = []
    for number in range(epochs + 1):
        _wait(how)
        started = time.perf_counter()
        trainer.step = 0
        trainer.run_epoch(lambda: None)
        _wait(how)
        if number:  # the first one warms up
            times.append(time.perf_counter() - started)
    seconds = statistics.median(times)
    a_second = len(images.train_y) / seconds
    share, reason = _share(operations * a_second, how)
    return {
        "model": recipe.model,
        "seconds_an_epoch": {"median": seconds, "low": min(times), "high": max(times)},
        "epochs": epochs,
        "images_a_second": a_second,
        "operations_an_image": operations,
        "share_of_peak": share,
        "reason": reason,
    }


def _operations(trainer: Trainer) -> float:
    """Of the products of a training step, forward and backward, for an image."""
    x, _ = next(iter(trainer.batches.test_batches(2)))
    with FlopCounterMode(display=False) as counter:
        trainer.features(x).sum().backward()  # type: ignore[no-untyped-call]
    trainer.optimizer.zero_grad(set_to_none=True)
    return float(counter.get_total_flops()) / len(x)


def _share(a_second: float, how: Setup) -> tuple[float | None, str | None]:
    card = _card(how)
    if how.device.type != "cuda":
        return None, f"{card}: no published peak is held"
    if how.precision != "bf16":
        return None, f"{how.precision}: the peaks that are held are bf16's"
    peak = next((p for name, p in PEAK.items() if name in card), None)
    if peak is None:
        return None, f"{card}: no published peak is held"
    return a_second / (1e12 * peak), None


def _card(how: Setup) -> str:
    if how.device.type == "cuda":
        return torch.cuda.get_device_name(how.device)
    return f"{how.device.type}, {usable_cores()} cores"


def _wait(how: Setup) -> None:
    if how.device.type == "cuda":
        torch.cuda.synchronize(how.device)
