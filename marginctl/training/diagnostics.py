"""Training images that are looked at again at every evaluated epoch, and what is recorded of them.

Which ones they are depends on the images alone: all objectives and seeds are seen on the same.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.data.images.base import ImageDataset
from marginctl.data.images.in_memory import InMemoryImages
from marginctl.data.images.on_disk import OnDiskImages
from marginctl.data.loading.batches import BatchLoader
from marginctl.data.loading.streaming import make_loader
from marginctl.experiments.training_trial import Trial
from marginctl.recipe.image_recipe import MAX_DIAGNOSED
from marginctl.training import input_gradient
from marginctl.training.sample_difficulty import DifficultyGroups
from marginctl.training.trainer import Trainer
from marginctl.utils.distributed import World
from marginctl.utils.seed import generator

SEED = 0


class Diagnostics:
    """The records of a trial on training images, as its recipe asks for them.

    Args:
        trial: `train.reference_run` and `train.gradient_norm_samples` of its recipe say what is
            recorded.
        images: that it trains on.
        trainer: of the trial, with the normalisation that it has.
        world: the processes that train together.

    Raises:
        RequestError: the reference has no whole checkpoint, or another network in it.
    """

    def __init__(self, trial: Trial, images: ImageDataset, trainer: Trainer, world: World) -> None:
        self._world = world
        self._curriculum: tuple[DifficultyGroups, BatchLoader] | None = None
        self._lipschitz: BatchLoader | None = None
        if trial.reference is not None:
            own = as_test_images(images, chosen(len(images.train_y), MAX_DIAGNOSED, "curriculum"))
            groups, device = trial.recipe.train.difficulty_groups, trainer.device_config.device
            curriculum = DifficultyGroups(trial.reference, own, device, groups)
            self._curriculum = curriculum, _batches(own, trainer, world)
        if trial.recipe.train.gradient_norm_samples:
            rows = chosen(
                len(images.train_y), trial.recipe.train.gradient_norm_samples, "lipschitz"
            )
            self._lipschitz = _batches(as_test_images(images, rows), trainer, world)

    def record(self, trainer: Trainer) -> dict[str, Any]:
        """What a line of metrics.jsonl gets, `seed` of the choice of images beside it.

        Raises:
            DivergedError: a weight or a feature is not finite.
        """
        found: dict[str, Any] = {}
        if self._curriculum is not None:
            curriculum, batches = self._curriculum
            tested = trainer.predict(batches=batches, part="training")
            found["sample_difficulty"] = curriculum.record(trainer.objective, tested) | {
                "seed": SEED
            }
        if self._lipschitz is not None:
            record = input_gradient.record(trainer, self._lipschitz, self._world)
            found[input_gradient.NAME] = record | {"seed": SEED}
        return found


def chosen(count: int, most: int, purpose: str) -> NDArray[np.int64]:
    """At most so many of `count` rows, in their order, by a fixed seed of its own."""
    drawn = generator(SEED, "watched", purpose).permutation(count)
    return np.sort(drawn[:most])


def as_test_images(images: ImageDataset, rows: NDArray[np.int64]) -> ImageDataset:
    """These training images as a test part: in order, without augmentation."""
    own = images.select(rows)
    if isinstance(own, OnDiskImages):
        return replace(own, test=own.train)
    assert isinstance(own, InMemoryImages)
    return replace(own, test_x=own.train_x, test_y=own.train_y)


def _batches(images: ImageDataset, trainer: Trainer, world: World) -> BatchLoader:
    """Their batches, normalised as the trainer's own are."""
    device_config = trainer.device_config
    made = make_loader(
        images,
        device_config.device,
        0,
        "none",
        channels_last=device_config.channels_last,
        world=world,
    )
    made.set_normalization(trainer.batches.mean, trainer.batches.std)
    return made
