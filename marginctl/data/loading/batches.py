"""Batches of images that live on the device, augmented there."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marginctl.data.images.in_memory import InMemoryImages
from marginctl.utils.distributed import World
from marginctl.utils.seed import generator

PADDING = 4  # pixels on each side, for random crops


@dataclass(frozen=True)
class TensorSplit:
    """Images and labels on a device: x (N, C, H, W) uint8, y (N,) int64."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


class BatchLoader(ABC):
    """Gives normalised batches: those of an epoch in its own order, or the test images in order.

    Everything random is a function of a seed and of the place in the training, so that training
    goes on after a kill as if nothing had happened.

    Args:
        train, test: the parts.
        device: where the batches come.
        seed: of orders and augmentation.
        channels_last: the memory format of the batches.
        world: the processes that train together: each has its part of every batch.
        moments: mean and standard deviation of each channel, of 0 to 1.
    """

    def __init__(
        self,
        train: Sized,
        test: Sized,
        device: torch.device,
        seed: int,
        *,
        channels_last: bool,
        world: World | None,
        moments: tuple[Sequence[float], Sequence[float]],
    ) -> None:
        self.train, self.test = train, test
        self._world = world or World()
        self._seed, self._device = seed, device
        self._classes: NDArray[np.int64] | None = None
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        self.set_normalization(*moments)

    def set_normalization(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Sets what is subtracted from each channel, of 0 to 1, and what it is divided by."""
        self.mean, self.std = tuple(mean), tuple(std)
        shape, device = (1, -1, 1, 1), self._device
        means = torch.tensor(self.mean, dtype=torch.float32, device=device).view(shape)
        stds = torch.tensor(self.std, dtype=torch.float32, device=device).view(shape)
        self._factor, self._shift = 1 / (255 * stds), -means / stds
        self._fill = (means * 255).round().to(torch.uint8)

    def balance_classes(self, classes: NDArray[np.int64] | None) -> None:
        """From here on an epoch draws a class at random and then an image of it, again and again.

        Both with equal chances and with replacement; as many draws as there are training images. A
        class without images is never drawn.

        Args:
            classes: (N,) of the training images; None for every image once an epoch, in random
                order, as it is at first.
        """
        self._classes = classes

    def batch_sizes(self, size: int) -> list[int]:
        """The batches of an epoch, over all processes.

        A last one that would leave a process with a single image, which has no variance for batch
        normalisation, joins the one before.
        """
        whole, rest = divmod(len(self.train), size)
        sizes = [size] * whole + [rest] * (rest > 0)
        if len(sizes) > 1 and sizes[-1] < 2 * self._world.size and sizes[-1] < size:
            sizes[-2:] = [sizes[-2] + sizes[-1]]
        return sizes

    @abstractmethod
    def train_batches(
        self, epoch: int, size: int, first: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch (from 0), from batch `first` on: x (B, C, H, W), y (B,).

        Of each batch, every process has its own part, of nearly equal size.
        """

    @abstractmethod
    def test_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the test images, each once, in order; `size` at most in one."""

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """The rows of an epoch: each once, or drawn by class; the same on every process."""
        if self._classes is None:
            return generator(self._seed, "order", epoch).permutation(len(self.train))
        stream = generator(self._seed, "balanced order", epoch)
        by_class = np.argsort(self._classes, kind="stable")
        _, starts, counts = np.unique(
            self._classes[by_class], return_index=True, return_counts=True
        )
        drawn = stream.integers(len(counts), size=len(by_class))
        rows: NDArray[np.int64] = by_class[starts[drawn] + stream.integers(counts[drawn])]
        return rows

    def _own(self, count: int) -> slice:
        """This process's part of so many rows."""
        world = self._world
        first, last = (count * (world.rank + i) // world.size for i in (0, 1))
        return slice(first, last)

    def _normalized(self, x: Tensor) -> Tensor:
        x = x.to(torch.float32, memory_format=self._format)
        return x.mul_(self._factor).add_(self._shift)


class InMemoryLoader(BatchLoader):
    """Batches of images in memory; what is drawn is a function of (seed, epoch, batch).

    Args:
        images: the data.
        device: where they are kept, as uint8.
        seed: of orders and augmentation.
        augment: `none`, `flip`, `random-crop` or `random-crop-flip`.
        channels_last: the memory format of the batches.
        world: the processes that train together: each has its part of every batch.
    """

    train: TensorSplit
    test: TensorSplit

    def __init__(
        self,
        images: InMemoryImages,
        device: torch.device,
        seed: int,
        augment: str,
        *,
        channels_last: bool,
        world: World | None = None,
    ) -> None:
        self._augment = augment
        super().__init__(
            _split(images.train_x, images.train_y, device),
            _split(images.test_x, images.test_y, device),
            *(device, seed),
            channels_last=channels_last,
            world=world,
            moments=(images.mean, images.std),
        )

    def train_batches(
        self, epoch: int, size: int, first: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.as_tensor(self._order(epoch), device=self._device)
        for number, rows in enumerate(torch.split(order, self.batch_sizes(size))):
            if number < first:
                continue
            own = self._own(len(rows))
            x = self.train.x.index_select(0, rows[own])
            if self._augment != "none":
                x = self._augmented(x, epoch, number, len(rows), own)
            yield self._normalized(x), self.train.y.index_select(0, rows[own])

    def test_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        own = self._own(len(self.test))
        parts = (torch.split(whole[own], size) for whole in (self.test.x, self.test.y))
        for x, y in zip(*parts, strict=True):
            yield self._normalized(x), y

    def _augmented(self, x: Tensor, epoch: int, number: int, whole: int, own: slice) -> Tensor:
        """Each image cropped at random from its surroundings of the mean colour, and mirrored.

        `flip` mirrors alone.

        What is drawn is drawn for the whole batch of all processes; `own` is the part of this one.
        """
        count, channels, height, width = x.shape
        stream = generator(self._seed, "augment", epoch, number)
        padded = self._fill.expand(
            count, channels, height + 2 * PADDING, width + 2 * PADDING
        ).clone()
        padded[:, :, PADDING:-PADDING, PADDING:-PADDING] = x
        offsets = torch.as_tensor(
            stream.integers(2 * PADDING + 1, size=(2, whole))[:, own], device=self._device
        )
        if self._augment == "flip":
            offsets = torch.full_like(offsets, PADDING)
        rows = offsets[0][:, None] + torch.arange(height, device=self._device)
        columns = offsets[1][:, None] + torch.arange(width, device=self._device)
        if self._augment != "random-crop":
            mirrored = torch.as_tensor(stream.random(whole)[own] < 0.5, device=self._device)
            columns = torch.where(mirrored[:, None], columns.flip(1), columns)
        every = torch.arange(count, device=self._device)[:, None, None]
        # indexed dimensions come first: (B, H, W, C)
        return padded.permute(0, 2, 3, 1)[every, rows[:, :, None], columns[:, None]].permute(
            0, 3, 1, 2
        )


def _split(x: object, y: object, device: torch.device) -> TensorSplit:
    images = torch.as_tensor(x).permute(0, 3, 1, 2)  # as channels-last in memory
    return TensorSplit(images.to(device), torch.as_tensor(y).to(device))
