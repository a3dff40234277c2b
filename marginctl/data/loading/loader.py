"""BatchLoader, the base of all loaders, and the loader of images in memory."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marginctl.data.images.in_memory import InMemoryImages, PixelSplit
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig
from marginctl.utils.seed import generator

PADDING = 4  # pixels on each side, for random crops

Batches = Iterator[tuple[Tensor, Tensor]]  # images x (B, C, H, W), labels y (B,)


@dataclass(frozen=True)
class TensorSplit:
    """Images and labels on a device: x (N, C, H, W) uint8, y (N,) int64."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


class BatchLoader(ABC):
    """Yields normalised batches: shuffled for training, in order for evaluation.

    Shuffling and augmentation are functions of a seed and of the place in training, so that a
    resumed training sees the same batches.

    Args:
        train, test: the splits.
        config: gives device and memory format of the batches.
        seed: of shuffling and augmentation.
        world: the processes that train together; each gets its part of every batch.
        moments: mean and standard deviation of each channel, for pixels in [0, 1].
    """

    def __init__(
        self,
        train: Sized,
        test: Sized,
        config: DeviceConfig,
        seed: int,
        world: World | None,
        moments: tuple[Sequence[float], Sequence[float]],
    ) -> None:
        self.train, self.test = train, test
        self._world, self._seed = world or World(), seed
        self._device, self._format = config.device, config.memory_format
        self._balanced_labels: NDArray[np.int64] | None = None
        self.set_normalization(*moments)

    def set_normalization(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Set the mean and standard deviation of each channel, for pixels in [0, 1]."""
        self.mean, self.std = tuple(mean), tuple(std)
        shape, device = (1, -1, 1, 1), self._device
        means = torch.tensor(self.mean, dtype=torch.float32, device=device).view(shape)
        stds = torch.tensor(self.std, dtype=torch.float32, device=device).view(shape)
        self._factor, self._shift = 1 / (255 * stds), -means / stds
        self._fill = (means * 255).round().to(torch.uint8)

    def balance_classes(self, labels: NDArray[np.int64] | None) -> None:
        """Sample classes uniformly from now on, or shuffle again.

        Each draw takes a class, then an image of it, uniformly and with replacement; an epoch has
        as many draws as there are training images. A class without images is never drawn.

        Args:
            labels: (N,) of the training images; None for each image once in random order.
        """
        self._balanced_labels = labels

    def batch_sizes(self, size: int) -> list[int]:
        """Return the sizes of an epoch's batches, over all processes.

        A last batch that would leave a process a single image, which has no variance for batch
        normalisation, is merged with the one before.
        """
        full, rest = divmod(len(self.train), size)
        sizes = [size] * full + ([rest] if rest else [])
        if len(sizes) > 1 and sizes[-1] < 2 * self._world.size and sizes[-1] < size:
            sizes[-2:] = [sizes[-2] + sizes[-1]]
        return sizes

    @abstractmethod
    def train_batches(self, epoch: int, size: int, first: int = 0) -> Batches:
        """Yield the batches of an epoch (from 0), from batch `first` on.

        Every process gets its own part of each batch, of nearly equal size.
        """

    @abstractmethod
    def test_batches(self, size: int) -> Batches:
        """Yield this process's part of the test images in order, at most `size` in a batch."""

    def first_test_image(self) -> Tensor:
        """Return this process's first test image, as a network sees it: uint8 pixels (C, H, W)."""
        x, _ = next(iter(self.test_batches(1)))
        return ((x - self._shift) / self._factor)[0].round().clamp(0, 255).to(torch.uint8).cpu()

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of an epoch, shuffled or class-balanced; the same on every process."""
        if self._balanced_labels is None:
            return generator(self._seed, "order", epoch).permutation(len(self.train))
        stream = generator(self._seed, "balanced order", epoch)
        by_class = np.argsort(self._balanced_labels, kind="stable")
        _, starts, counts = np.unique(
            self._balanced_labels[by_class], return_index=True, return_counts=True
        )
        drawn = stream.integers(len(counts), size=len(by_class))
        rows: NDArray[np.int64] = by_class[starts[drawn] + stream.integers(counts[drawn])]
        return rows

    def _process_slice(self, count: int) -> slice:
        """Return this process's part of `count` rows."""
        world = self._world
        first, last = (count * (world.rank + i) // world.size for i in (0, 1))
        return slice(first, last)

    def _normalized(self, x: Tensor) -> Tensor:
        x = x.to(torch.float32, memory_format=self._format)
        return x.mul_(self._factor).add_(self._shift)


class InMemoryLoader(BatchLoader):
    """Batches of images in memory; random draws are functions of (seed, epoch, batch).

    Args:
        images: stored on the device as uint8.
        augment: `none`, `flip`, `random-crop`, `random-crop-flip` or `reflect-crop-flip`.
        config, seed, world: as in `BatchLoader`.
    """

    train: TensorSplit
    test: TensorSplit

    def __init__(
        self,
        images: InMemoryImages,
        config: DeviceConfig,
        seed: int,
        augment: str,
        world: World | None = None,
    ) -> None:
        self._augment = augment
        train, test = (_tensor_split(split, config.device) for split in (images.train, images.test))
        super().__init__(train, test, config, seed, world, (images.mean, images.std))

    def train_batches(self, epoch: int, size: int, first: int = 0) -> Batches:
        order = torch.as_tensor(self._order(epoch), device=self._device)
        sizes = self.batch_sizes(size)
        draws = None if self._augment == "none" else self._augmentation_draws(epoch, sizes)
        for number, rows in enumerate(torch.split(order, sizes)):
            if number < first:
                continue
            part = self._process_slice(len(rows))
            x = self.train.x.index_select(0, rows[part])
            if draws is not None:
                x = self._augmented(x, draws[number][:, part])
            yield self._normalized(x), self.train.y.index_select(0, rows[part])

    def test_batches(self, size: int) -> Batches:
        part = self._process_slice(len(self.test))
        x_batches, y_batches = (torch.split(t[part], size) for t in (self.test.x, self.test.y))
        for x, y in zip(x_batches, y_batches, strict=True):
            yield self._normalized(x), y

    def _augmentation_draws(self, epoch: int, sizes: Sequence[int]) -> Sequence[Tensor]:
        """Return the random numbers of an epoch's batches: offsets and flips (3, B) of each.

        They are for the whole batch of all processes. An epoch's numbers are copied to the device
        at once: each copy waits for it.
        """
        draws = []
        for number, count in enumerate(sizes):
            stream = generator(self._seed, "augment", epoch, number)
            offsets = stream.integers(2 * PADDING + 1, size=(2, count))
            draws.append(np.vstack([offsets, stream.random(count) < 0.5]))
        together = torch.as_tensor(np.concatenate(draws, axis=1), device=self._device)
        return torch.split(together, list(sizes), dim=1)

    def _augmented(self, x: Tensor, draws: Tensor) -> Tensor:
        """Return images cropped and flipped by `draws`, (3, B) row and column offsets and flips."""
        count, channels, height, width = x.shape
        offsets = draws[:2] if self._augment != "flip" else torch.full_like(draws[:2], PADDING)
        rows = offsets[0][:, None] + torch.arange(height, device=self._device)
        columns = offsets[1][:, None] + torch.arange(width, device=self._device)
        if self._augment != "random-crop":
            columns = torch.where(draws[2, :, None].bool(), columns.flip(1), columns)
        if self._augment == "reflect-crop-flip":
            padded = x
            rows, columns = _reflect(rows - PADDING, height), _reflect(columns - PADDING, width)
        else:
            padded = self._fill.expand(
                count, channels, height + 2 * PADDING, width + 2 * PADDING
            ).clone()
            padded[:, :, PADDING:-PADDING, PADDING:-PADDING] = x
        every = torch.arange(count, device=self._device)[:, None, None]
        # indexed dimensions come first: (B, H, W, C)
        return padded.permute(0, 2, 3, 1)[every, rows[:, :, None], columns[:, None]].permute(
            0, 3, 1, 2
        )


def _reflect(index: Tensor, size: int) -> Tensor:
    """Return positions outside of 0 .. size - 1 as those that mirror them at the border pixels."""
    return size - 1 - (size - 1 - index.abs()).abs()


def _tensor_split(split: PixelSplit, device: torch.device) -> TensorSplit:
    images = torch.as_tensor(split.x).permute(0, 3, 1, 2)  # channels last in memory
    return TensorSplit(images.to(device), torch.as_tensor(split.y).to(device))
