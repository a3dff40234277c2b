"""Foreign images brought to the side and the channels of a network, and what it makes of them."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from marginctl.data.images.base import ImageDataset
from marginctl.data.images.ood_sets import OODDataset
from marginctl.data.loading.batches import BatchLoader
from marginctl.data.loading.streaming import make_loader
from marginctl.training.epoch_metrics import OODPredictions
from marginctl.training.trainer import Trainer
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig

LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue: ITU-R BT.601


def predict_ood(
    trainer: Trainer, foreign: Sequence[OODDataset], own: ImageDataset, world: World | None
) -> list[OODPredictions]:
    """What a network makes of foreign images; every process has a part in it.

    Args:
        trainer: the network.
        foreign: the images.
        own: the images that it was made for.
        world: the processes that train it together.
    """
    shape, moments = (own.channels, own.image_size), (trainer.batches.mean, trainer.batches.std)
    whole = trainer.recipe.data.augment == "flip"
    batches = [
        AdaptedBatches(one.images, shape, moments, trainer.device_config, world, whole=whole)
        for one in foreign
    ]
    return [
        OODPredictions(
            *(one.images.name, one.group, one.digest, trainer.predict(batches=given, part=None))
        )
        for one, given in zip(foreign, batches, strict=True)
    ]


class AdaptedBatches(BatchLoader):
    """Batches of foreign images as a network takes them, normalised as its own are.

    Grey ones are repeated in each channel of a colour network; of colour ones a grey network is
    given the luminance of ITU-R BT.601. The side is scaled bilinearly, antialiased where it becomes
    smaller. Nothing is rounded to whole pixel values.

    Args:
        images: of which the test part is taken.
        shape: channels and side of the images that the network was made for.
        moments: mean and standard deviation of each of these channels, of 0 to 1.
        device_config: the device and the memory format.
        world: the processes that each have a part.
        whole: whether images in files are given as whole squares, as `Prepared` has it.
    """

    def __init__(
        self,
        images: ImageDataset,
        shape: tuple[int, int],
        moments: tuple[Sequence[float], Sequence[float]],
        device_config: DeviceConfig,
        world: World | None,
        *,
        whole: bool,
    ) -> None:
        device, world = device_config.device, world or World()
        super().__init__(
            *((), images.test_y, device, 0),
            channels_last=device_config.channels_last,
            world=world,
            moments=moments,
        )
        self._channels, self._pixels = shape
        augment = "flip" if whole else "none"
        self._raw = make_loader(images, device, 0, augment, channels_last=False, world=world)
        self._raw.set_normalization(
            [0.0] * images.channels, [1 / 255] * images.channels
        )  # 0 to 255

    def train_batches(
        self, epoch: int, size: int, first: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """None: they are not trained on."""
        return iter(())

    def test_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in self._raw.test_batches(size):
            yield self._normalized(adapt_images(x, self._channels, self._pixels)), y


def adapt_images(x: Tensor, channels: int, pixels: int) -> Tensor:
    """Images (N, c, H, W) of float32 with other channels, 1 or 3, and another side.

    Returns:
        (N, channels, pixels, pixels); x itself where it is of that shape.
    """
    if x.shape[1] > channels:
        x = (x * torch.tensor(LUMINANCE, device=x.device).view(1, -1, 1, 1)).sum(1, keepdim=True)
    if x.shape[1] < channels:
        x = x.expand(-1, channels, -1, -1)
    if tuple(x.shape[2:]) == (pixels, pixels):
        return x
    return functional.interpolate(
        x, (pixels, pixels), mode="bilinear", antialias=True, align_corners=False
    )
