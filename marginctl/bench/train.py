"""`marginctl bench train`: the training loop against a bare one, and against a DataLoader."""

import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from scipy.stats import binom
from torch import nn

from marginctl.data.images.in_memory import InMemoryImages
from marginctl.data.loading.batches import PADDING
from marginctl.models.backbone import create_backbone
from marginctl.models.registry import parse_model
from marginctl.objectives.parsing import parse
from marginctl.recipe import TrainRecipe
from marginctl.runs.run_dir import versions
from marginctl.training.trainer import Trainer
from marginctl.utils.device import synchronize, usable_cores
from marginctl.utils.precision import DeviceConfig, device_config_for

CLASSES, PIXELS = 100, 32  # of CIFAR-100; the images are noise, whose content costs nothing


def noise(count: int) -> InMemoryImages:
    """Images in CIFAR-100's shape."""
    stream = np.random.default_rng(0)
    x = stream.integers(0, 256, size=(count, PIXELS, PIXELS, 3), dtype=np.uint8)
    y = stream.integers(0, CLASSES, size=count)
    names = tuple(map(str, range(CLASSES)))
    return InMemoryImages("noise", x, y, x[:CLASSES], np.arange(CLASSES), names)


class Bare:
    """The same network, batches and steps in as few lines of torch as they take."""

    def __init__(self, trainer: Trainer, device_config: DeviceConfig) -> None:
        name, options = parse_model(trainer.recipe.model)
        self._model = create_backbone(name, options, 3, PIXELS).to(device_config.device)
        if device_config.channels_last:
            self._model.to(memory_format=torch.channels_last)
        self._head = nn.Linear(self._model.feature_dim, CLASSES, bias=False).to(
            device_config.device
        )
        parameters = [*self._model.parameters(), *self._head.parameters()]
        self._optimizer = torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=5e-4)
        self._device_config = device_config

    def epoch(self, batches: Iterator[Any]) -> None:
        self._model.train()
        device = self._device_config.device
        for x, y in batches:
            self._optimizer.zero_grad(set_to_none=True)
            x, y = x.to(device), y.to(device)
            if self._device_config.channels_last:
                x = x.contiguous(memory_format=torch.channels_last)
            with self._device_config.autocast():
                features = self._model(x)
            nn.functional.cross_entropy(self._head(features.float()), y).backward()  # type: ignore[no-untyped-call,unused-ignore]
            self._optimizer.step()


def loader(images: InMemoryImages, batch: int, workers: int) -> Any:
    """What is usual: PIL images, torchvision's transforms, a DataLoader."""
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    from torchvision import transforms

    transform = transforms.Compose(
        [
            transforms.RandomCrop(PIXELS, padding=PADDING),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(images.mean, images.std),
        ]
    )

    class Pictures(Dataset[Any]):
        def __len__(self) -> int:
            return len(images.train_y)

        def __getitem__(self, i: int) -> tuple[Any, int]:
            return transform(Image.fromarray(images.train_x[i])), int(images.train_y[i])

    return DataLoader(
        Pictures(),
        batch_size=batch,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def run(
    model: str,
    *,
    batch: int,
    steps: int,
    pairs: int,
    device: str,
    precision: str,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Times epochs of `steps` steps, one side after the other, in an order that changes.

    Args:
        model: a backbone.
        batch: images a step.
        steps: of an epoch.
        pairs: how often each side is timed, after one epoch that is not.
        device: a torch device.
        precision: as in a recipe.
        say: hears of each pair.

    Returns:
        A JSON document: seconds a step of each side, the overhead in milliseconds a step and as a
        share of the bare loop's, with 95 % intervals of the medians.

    Raises:
        RequestError: no such model, or one that does not take images of 32 pixels.
    """
    device_config = device_config_for(device, precision)
    recipe = TrainRecipe.model_validate(
        {
            "task": "train",
            "data": {"augment": "random-crop-flip"},
            "model": model,
            "optim": {"lr": 0.01},
            "train": {"epochs": 10 * (pairs + 2), "batch_size": batch},
        }
    )
    images = noise(steps * batch)
    trainer = Trainer(recipe, parse("soft").spec, images, 0, device_config)
    bare, loaded = Bare(trainer, device_config), Bare(trainer, device_config)
    number = 0

    def ours() -> None:
        trainer.run_epoch(lambda: None)

    def plain() -> None:
        nonlocal number
        number += 1
        bare.epoch(trainer.batches.train_batches(number, batch))

    workers = 0 if usable_cores() < 2 else 2
    pictures = loader(images, batch, workers)
    sides: dict[str, Callable[[], None]] = {
        "marginctl": ours,
        "bare torch loop": plain,
        f"DataLoader, {workers} workers": lambda: loaded.epoch(iter(pictures)),
    }
    times: dict[str, list[float]] = {side: [] for side in sides}
    for pair in range(pairs + 1):
        order = list(sides) if pair % 2 else list(reversed(sides))
        for side in order:
            started = time.perf_counter()
            sides[side]()
            synchronize(device)
            if pair:  # the first epoch warms up
                times[side].append((time.perf_counter() - started) / steps)
        if pair:
            shown = ", ".join(f"{side} {1000 * t[-1]:.1f} ms" for side, t in times.items())
            say(f"pair {pair} of {pairs}: {shown} a step")
    own, other = times["marginctl"], times["bare torch loop"]
    extra = [a - b for a, b in zip(own, other, strict=True)]
    return {
        "schema": 1,
        "command": "bench train",
        "model": model,
        "batch": batch,
        "steps": steps,
        "pairs": pairs,
        "device": device,
        "precision": device_config.precision,
        "seconds_a_step": times,
        "overhead_ms": median_interval([1000 * e for e in extra]),
        "overhead_percent": median_interval(
            [100 * e / b for e, b in zip(extra, other, strict=True)]
        ),
        "times_as_long": {
            side: median_interval([t / a for t, a in zip(values, own, strict=True)])
            for side, values in times.items()
            if side != "marginctl"
        },
        "machine": {"cores": usable_cores(), "architecture": platform.machine()},
        "versions": versions(),
    }


def median_interval(values: list[float]) -> dict[str, float]:
    """The median with an interval of at least 95 %, by order statistics; all values where few."""
    ordered, n = sorted(values), len(values)
    below = int(binom.ppf(0.025, n, 0.5))  # of n values, so many or fewer lie below the median
    k = max(below, 1) - 1
    return {"median": statistics.median(ordered), "low": ordered[k], "high": ordered[n - 1 - k]}
