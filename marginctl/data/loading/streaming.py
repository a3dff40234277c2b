"""Batches of images that are decoded as they are needed, and the choice of where images live."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marginctl.data.images.base import ImageDataset
from marginctl.data.images.folders import centre_square
from marginctl.data.images.in_memory import InMemoryImages
from marginctl.data.images.on_disk import FileSplit, OnDiskImages
from marginctl.data.loading.batches import BatchLoader, InMemoryLoader
from marginctl.data.loading.workers import DecodedImages, decode_batches
from marginctl.utils.distributed import World
from marginctl.utils.seed import generator

if TYPE_CHECKING:
    from PIL.Image import Image

TEST_BATCH = 100  # images of full size at most, however many small ones would be taken at once

# Szegedy 2014 (Going Deeper with Convolutions, section 6): a part of 8 % to 100 % of the area, its
# width to its height between 3/4 and 4/3.
AREA = (0.08, 1.0)
SHAPE = (3 / 4, 4 / 3)

# Large Margin in Softmax on ImageNet: colour jitter 0.4, and lighting with a standard deviation of
# 0.1 along the principal components of ImageNet's colours (Krizhevsky 2012, which gives the method;
# the numbers are those in common use), of pixels in [0, 1].
JITTER = 0.4
LIGHTING = 0.1
COLOUR_VALUES = (0.2175, 0.0188, 0.0045)
COLOUR_VECTORS = (
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)


@dataclass(frozen=True)
class ImageTransform:
    """Cuts an image to a square of `pixels`, at random where it is augmented.

    `none` scales the shorter side to pixels x 256/224 and cuts the centre out; so are test images.
    `random-crop-flip` cuts at a random place of that and mirrors at random.
    `random-resized-crop-flip` scales a random
    part of random shape (Szegedy 2014) and mirrors at random, as is usual for ImageNet. `imagenet`
    changes colours and light too. `whole` is the largest centred square, scaled, as images in
    memory are; `flip` mirrors it at random: aligned faces lose nothing.

    What is drawn is a function of (seed, epoch, draw) alone, whichever process draws it; a draw is
    a row, as `DecodedImages` has it.
    """

    pixels: int
    augment: str = "none"
    seed: int = 0
    epoch: int = 0

    def __call__(self, image: "Image", draw: int) -> tuple[Tensor, Tensor]:
        """x (3, pixels, pixels) uint8, and the light (3,) to be added to it, of 0 to 1."""
        with torch.random.fork_rng(devices=[]):
            if self.augment not in ("none", "whole"):
                own = generator(self.seed, "augment image", self.epoch, draw)
                torch.default_generator.manual_seed(int(own.integers(2**63)))
            x = _transforms(self.pixels, self.augment)(image)
            light = _light() if self.augment == "imagenet" else torch.zeros(3)
        return x, light


@functools.cache
def _transforms(pixels: int, augment: str) -> Callable[["Image"], Tensor]:
    """Gives (3, pixels, pixels) uint8. torchvision takes seconds to import: where it is needed."""
    from torchvision.transforms import v2

    if augment in ("random-resized-crop-flip", "imagenet"):
        part = v2.RandomResizedCrop(pixels, AREA, SHAPE, antialias=True)
        colours = [v2.ColorJitter(JITTER, JITTER, JITTER)] if augment == "imagenet" else []
        steps = [part, v2.RandomHorizontalFlip(), *colours]
    elif augment in ("flip", "whole"):
        mirrored = [v2.RandomHorizontalFlip()] if augment == "flip" else []
        steps = [partial(centre_square, pixels=pixels), *mirrored]
    else:
        scaled = v2.Resize(round(pixels * 256 / 224), antialias=True)
        cut = v2.CenterCrop(pixels) if augment == "none" else v2.RandomCrop(pixels)
        mirrored = [v2.RandomHorizontalFlip()] if augment == "random-crop-flip" else []
        steps = [scaled, cut, *mirrored]
    composed: Callable[[Image], Tensor] = v2.Compose([*steps, v2.PILToTensor()])
    return composed


def _light() -> Tensor:
    """(3,) to be added to red, green and blue: sum_i a_i lambda_i p_i with a_i ~ N(0, 0.1^2)."""
    drawn = LIGHTING * torch.randn(3)
    return torch.tensor(COLOUR_VECTORS) @ (drawn * torch.tensor(COLOUR_VALUES))


class OnDiskLoader(BatchLoader):
    """Batches of images in files; each process decodes its own part alone.

    What is drawn is a function of (seed, epoch, image), so that neither the number of processes
    that decode nor a kill changes a batch.

    Args:
        images: the files.
        device: where the batches come.
        seed: of orders and augmentation.
        augment: as `ImageTransform` has it.
        channels_last: the memory format of the batches.
        world: the processes that train together: each has its part of every batch.
    """

    train: FileSplit
    test: FileSplit

    def __init__(
        self,
        images: OnDiskImages,
        device: torch.device,
        seed: int,
        augment: str,
        *,
        channels_last: bool,
        world: World | None = None,
    ) -> None:
        self._images, self._augment = images, augment
        super().__init__(
            *(images.train, images.test, device, seed),
            channels_last=channels_last,
            world=world,
            moments=(images.mean, images.std),
        )

    def train_batches(
        self, epoch: int, size: int, first: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        draws = _draws(self._order(epoch), len(self.train))
        parts = np.split(draws, np.cumsum(self.batch_sizes(size))[:-1])[first:]
        prepared = ImageTransform(self._images.image_size, self._augment, self._seed, epoch)
        return self._batches(self.train, [p[self._own(len(p))] for p in parts], prepared)

    def test_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        own = np.arange(len(self.test))[self._own(len(self.test))]
        most = min(size, TEST_BATCH)
        rows = [own[start : start + most] for start in range(0, len(own), most)]
        augment = "whole" if self._augment == "flip" else "none"
        return self._batches(self.test, rows, ImageTransform(self._images.image_size, augment))

    def _batches(
        self, part: FileSplit, rows: list[NDArray[np.int64]], prepared: ImageTransform
    ) -> Iterator[tuple[Tensor, Tensor]]:
        # here too: processes that are forked have the import, which takes seconds, with them
        _transforms(prepared.pixels, prepared.augment)
        std = torch.tensor(self.std, dtype=torch.float32, device=self._device)
        images = DecodedImages(part, self._images.root, prepared)
        for x, light, y in decode_batches(images, rows, self._device):
            shift = (light.to(self._device, non_blocking=True) / std)[:, :, None, None]
            moved = x.to(self._device, non_blocking=True)
            yield self._normalized(moved).add_(shift), y.to(self._device, non_blocking=True)


def _draws(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the draws of rows of `count` images; a row may occur several times."""
    by_row = np.argsort(rows, kind="stable")
    _, starts, times = np.unique(rows[by_row], return_index=True, return_counts=True)
    again = np.empty_like(rows)
    again[by_row] = np.arange(len(rows)) - np.repeat(starts, times)
    return rows + count * again


def make_loader(
    images: ImageDataset,
    device: torch.device,
    seed: int,
    augment: str,
    *,
    channels_last: bool,
    world: World,
) -> BatchLoader:
    """The batches of images in memory or in files, by their kind."""
    if isinstance(images, OnDiskImages):
        return OnDiskLoader(images, device, seed, augment, channels_last=channels_last, world=world)
    assert isinstance(images, InMemoryImages)
    return InMemoryLoader(images, device, seed, augment, channels_last=channels_last, world=world)
