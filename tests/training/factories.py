"""Factories of images, recipes and trainers for tests."""

import numpy as np
import torch

from marginctl.data.images.in_memory import InMemoryImages, PixelSplit
from marginctl.objectives.parsing import parse
from marginctl.recipe.train import TrainRecipe
from marginctl.training.trainer import Trainer
from marginctl.utils.precision import DeviceConfig

CPU = DeviceConfig(torch.device("cpu"), "fp32", channels_last=True)


def images(n=50, tests=21, pixels=8, channels=1, classes=3, seed=0):
    """Noise with a bright corner for each class, in rows of NHWC."""
    stream = np.random.default_rng(seed)

    def part(count):
        y = stream.integers(classes, size=count)
        y[:classes] = np.arange(classes)
        x = stream.integers(0, 120, size=(count, pixels, pixels, channels)).astype(np.uint8)
        for row, label in enumerate(y):
            x[row, label * 2 : label * 2 + 2, :3] += 120
        return PixelSplit(x, y=y.astype(np.int64))

    names = tuple(f"class{c}" for c in range(classes))
    return InMemoryImages("made", names, part(n), part(tests))


def recipe(**changes):
    """A short training of a small network."""
    sections = {
        "data": {"name": "digits"},
        "optim": {"lr": 0.05},
        "train": {"epochs": 3, "batch_size": 8, "precision": "fp32"},
    }
    for key, value in changes.items():
        sections[key] = {**sections[key], **value} if key in sections else value
    return TrainRecipe.model_validate(
        {"task": "train", "model": "mnist-cnn:feature_dim=8", **sections}
    )


def trainer(objective="arcgrad", seed=0, of=None, device_config=CPU, **changes):
    return Trainer(recipe(**changes), parse(objective).spec, of or images(), seed, device_config)


def run(trained, until=None):
    """Train to the end, or until a step; return the metrics of the finished epochs."""

    class EnoughError(Exception):
        pass

    def after_step():
        if trained.step == until:
            raise EnoughError

    records = []
    try:
        while trained.step < trained.total_steps:
            records.append(trained.run_epoch(after_step))
    except EnoughError:
        pass
    return records
