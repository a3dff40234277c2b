"""Benchmark `train`: the training loop against a bare torch loop, and against a DataLoader."""

import itertools
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import nn

from marginctl.bench.timing import Context, Count, Result, Settings, interleave, ratios
from marginctl.data.images.in_memory import InMemoryImages, PixelSplit
from marginctl.data.loading.loader import PADDING
from marginctl.models.factory import check_image_shape, create_backbone
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parsing import parse_preset
from marginctl.recipe.train import TrainRecipe
from marginctl.training.trainer import Trainer
from marginctl.utils.device import usable_cores
from marginctl.utils.precision import DeviceConfig, device_config_for

CLASSES, IMAGE_SIZE = 100, 32  # of CIFAR-100; the images are noise, whose content costs nothing
OURS, BARE = "marginctl", "bare torch loop"


class TrainSettings(Settings):
    rounds: Count = 20
    model: str = "layer13:width=0.25"
    batch_size: Annotated[int, Field(ge=2)] = 128
    steps: Count = 10  # per epoch
    data_loader: bool = True  # whether the loop with a DataLoader is timed, too


SETTINGS = TrainSettings
SUITE = {"rounds": 5}
QUICK = {"rounds": 2, "batch_size": 16, "steps": 2}


def run(settings: TrainSettings, context: Context) -> Result:
    """Time epochs of a few steps with the same network, batches and precision."""
    check_image_shape(ModelSpec.parse(settings.model), 3, IMAGE_SIZE)
    device, rounds, steps = context.device, settings.rounds, settings.steps
    device_config = device_config_for(device, "auto")
    recipe = noise_recipe(settings.model, epochs=10 * (rounds + 2), batch_size=settings.batch_size)
    images = noise_images(steps * settings.batch_size)
    trainer = Trainer(recipe, parse_preset("soft").spec, images, 0, device_config)
    bare, with_loader = BareLoop(trainer, device_config), BareLoop(trainer, device_config)
    epoch = itertools.count(1)
    workers = 0 if usable_cores() < 2 else 2
    loader = data_loader(images, settings.batch_size, workers)
    loader_name = f"DataLoader, {workers} workers"
    sides: dict[str, Callable[[], object]] = {
        OURS: lambda: trainer.run_epoch(lambda: None),
        BARE: lambda: bare.epoch(trainer.batches.train_batches(next(epoch), settings.batch_size)),
    }
    if settings.data_loader:
        sides[loader_name] = lambda: with_loader.epoch(iter(loader))
    seconds = interleave(sides, rounds, device=device, report=context.report)
    milliseconds = {side: [1000 * s / steps for s in taken] for side, taken in seconds.items()}
    extra = [a - b for a, b in zip(milliseconds[OURS], milliseconds[BARE], strict=True)]
    percent = [100 * e / b for e, b in zip(extra, milliseconds[BARE], strict=True)]
    result = Result("train", settings.model_dump(), device)
    result.notes.append(f"precision: {device_config.precision}")
    result.add("step", milliseconds[OURS], "ms")
    result.add("overhead per step", extra, "ms", BARE)
    result.add("overhead", percent, "%", BARE)
    for side in list(sides)[1:]:
        result.add(side, ratios(seconds, side, OURS), "x", OURS)
    return result


def noise_recipe(model: str, **train: Any) -> TrainRecipe:
    """Return a recipe for images of noise with these settings of its section `train`."""
    sections = {"data": {"augment": "random-crop-flip"}, "optim": {"lr": 0.01}, "train": train}
    return TrainRecipe.model_validate({"task": "train", "model": model, **sections})


def noise_images(count: int) -> InMemoryImages:
    """Return images of noise in CIFAR-100's shape."""
    stream = np.random.default_rng(0)
    x = stream.integers(0, 256, size=(count, IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)
    y = stream.integers(0, CLASSES, size=count)
    names = tuple(map(str, range(CLASSES)))
    test = PixelSplit(x[:CLASSES], y=np.arange(CLASSES))
    return InMemoryImages("noise", names, PixelSplit(x, y=y), test)


class BareLoop:
    """The same network, batches and steps in as few lines of torch as possible."""

    def __init__(self, trainer: Trainer, device_config: DeviceConfig) -> None:
        self._device_config, device = device_config, device_config.device
        self._model = create_backbone(trainer.recipe.model, 3, IMAGE_SIZE).to(device)
        self._model.to(memory_format=device_config.memory_format)
        self._head = nn.Linear(self._model.feature_dim, CLASSES, bias=False).to(device)
        parameters = [*self._model.parameters(), *self._head.parameters()]
        self._optimizer = torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=5e-4)

    def epoch(self, batches: Iterator[Any]) -> None:
        self._model.train()
        device = self._device_config.device
        for x, y in batches:
            self._optimizer.zero_grad(set_to_none=True)
            x, y = x.to(device), y.to(device)
            x = x.contiguous(memory_format=self._device_config.memory_format)
            with self._device_config.autocast():
                features = self._model(x)
            nn.functional.cross_entropy(self._head(features.float()), y).backward()  # type: ignore[no-untyped-call,unused-ignore]
            self._optimizer.step()


def data_loader(images: InMemoryImages, batch_size: int, workers: int) -> Any:
    """Return the usual loader: PIL images, torchvision's transforms, a DataLoader."""
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    from torchvision import transforms

    transform = transforms.Compose(
        [
            transforms.RandomCrop(IMAGE_SIZE, padding=PADDING),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(images.mean, images.std),
        ]
    )

    class PilImages(Dataset[Any]):
        def __len__(self) -> int:
            return len(images.train_y)

        def __getitem__(self, i: int) -> tuple[Any, int]:
            return transform(Image.fromarray(images.train.x[i])), int(images.train_y[i])

    return DataLoader(
        PilImages(),
        batch_size=batch_size,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
