"""The loader of images on disk, and the choice of a loader."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from marginctl.data.images.image_sets import ImageDataset
from marginctl.data.images.on_disk import FileSplit, OnDiskImages
from marginctl.data.loading.loader import Batches, BatchLoader, InMemoryLoader
from marginctl.data.loading.transforms import ImageTransform, compose
from marginctl.data.loading.workers import Batch, DecodedImages, Decoder
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig

MAX_TEST_BATCH = 100  # images of full resolution, whatever batch of small ones is requested


class OnDiskLoader(BatchLoader):
    """Batches of images on disk; each training process decodes its own part.

    Random draws are functions of (seed, epoch, image), so that a batch depends neither on the
    number of decoding processes nor on resuming. The arguments are those of `InMemoryLoader`, and
    `augment` is as in `ImageTransform`.
    """

    train: FileSplit
    test: FileSplit

    def __init__(
        self,
        images: OnDiskImages,
        config: DeviceConfig,
        seed: int,
        augment: str,
        world: World | None = None,
    ) -> None:
        size, resizing = images.image_size, images.resizing
        # import torchvision before workers fork, so that they need not
        compose(size, augment, resizing)
        self._train_decoder, self._test_decoder = (
            Decoder(DecodedImages(split, images.root, transform), config.device)
            for split, transform in (
                (images.train, ImageTransform(size, augment, seed, resizing=resizing)),
                (images.test, ImageTransform(size, "none", seed, resizing=resizing)),
            )
        )
        moments = images.mean, images.std
        super().__init__(images.train, images.test, config, seed, world, moments)

    def train_batches(self, epoch: int, size: int, first: int = 0) -> Batches:
        draws = _number_draws(self._order(epoch), len(self.train))
        batches = np.split(draws, np.cumsum(self.batch_sizes(size))[:-1])[first:]
        parts = [batch[self._process_slice(len(batch))] for batch in batches]
        return self._load(self._train_decoder.batches(epoch, parts))

    def test_batches(self, size: int) -> Batches:
        rows = np.arange(len(self.test))[self._process_slice(len(self.test))]
        step = min(size, MAX_TEST_BATCH)
        batches = [rows[start : start + step] for start in range(0, len(rows), step)]
        return self._load(self._test_decoder.batches(0, batches))

    def _load(self, batches: Iterator[Batch]) -> Batches:
        std = torch.tensor(self.std, dtype=torch.float32, device=self._device)
        for x, colour_shift, y in batches:
            shift = (colour_shift.to(self._device, non_blocking=True) / std)[:, :, None, None]
            on_device = x.to(self._device, non_blocking=True)
            yield self._normalized(on_device).add_(shift), y.to(self._device, non_blocking=True)


def _number_draws(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return rows as draws: repetition k of row r is r + k count, as `DecodedImages` says."""
    by_row = np.argsort(rows, kind="stable")
    _, starts, times = np.unique(rows[by_row], return_index=True, return_counts=True)
    repetition = np.empty_like(rows)
    repetition[by_row] = np.arange(len(rows)) - np.repeat(starts, times)
    return rows + count * repetition


def make_loader(
    images: ImageDataset, config: DeviceConfig, seed: int, augment: str, world: World | None = None
) -> BatchLoader:
    if isinstance(images, OnDiskImages):
        return OnDiskLoader(images, config, seed, augment, world)
    return InMemoryLoader(images, config, seed, augment, world)
