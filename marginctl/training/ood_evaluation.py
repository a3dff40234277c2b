"""Predictions for OOD images, adapted to a network's channels and image size."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from marginctl.data.images.image_sets import ImageDataset, OODDataset
from marginctl.data.images.on_disk import OnDiskImages, make_file_split
from marginctl.data.images.resizing import CENTER, Resizing
from marginctl.data.loading.loader import Batches, BatchLoader
from marginctl.data.loading.on_disk_loader import make_loader
from marginctl.metrics.detection import OODOutputs
from marginctl.training.trainer import Trainer
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig

LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue: ITU-R BT.601


@dataclass(frozen=True)
class InputFormat:
    """The images that a network was trained on.

    Attributes:
        mean, std: of each channel, of pixels in [0, 1].
        resizing: of images in files.
    """

    channels: int
    image_size: int
    mean: Sequence[float]
    std: Sequence[float]
    resizing: Resizing = CENTER


def input_format_of(trainer: Trainer, images: ImageDataset) -> InputFormat:
    """Return the input format of a network that is trained on these images."""
    batches, resizing = trainer.batches, trainer.recipe.data.test_resizing
    return InputFormat(images.channels, images.image_size, batches.mean, batches.std, resizing)


def files_to_test(name: str, root: Path, files: Iterable[str], image_size: int) -> OnDiskImages:
    """Return image files below a folder as the test part of a data set without classes."""
    test = make_file_split(name, root, [(file, 0) for file in files])
    train = test.select(slice(0))
    return OnDiskImages(name, (), train, test, root=root, image_size=image_size)


def predict_ood(
    trainer: Trainer, ood_sets: Sequence[OODDataset], images: ImageDataset, world: World | None
) -> list[OODOutputs]:
    """Return the predictions of a network for OOD data sets; every process takes part."""
    input_format, outputs = input_format_of(trainer, images), []
    for ood_set in ood_sets:
        name, group = ood_set.images.name, ood_set.group
        batches = AdaptedLoader(ood_set.images, input_format, trainer.device_config, world)
        predictions = trainer.predict(batches=batches, split=None)
        outputs.append(OODOutputs(name, group, ood_set.digest, predictions.outputs))
    return outputs


class AdaptedLoader(BatchLoader):
    """Batches of other images in the input format of a network, normalized as its own images.

    Gray images are repeated in each channel of a color network; a gray network gets the luminance
    (ITU-R BT.601) of color images. Images are resized bilinearly, with antialiasing where they
    shrink. Nothing is rounded to whole pixel values.
    """

    def __init__(
        self,
        images: ImageDataset,
        input_format: InputFormat,
        device_config: DeviceConfig,
        world: World | None,
    ) -> None:
        moments = input_format.mean, input_format.std
        super().__init__((), images.test_y, device_config, 0, world, moments)
        self._input_format = input_format
        config = replace(device_config, channels_last=False)
        if isinstance(images, OnDiskImages):
            images = replace(images, resizing=input_format.resizing)
        self._raw = make_loader(images, config, 0, "none", world)
        # the raw loader gives pixel values from 0 to 255
        self._raw.set_normalization([0.0] * images.channels, [1 / 255] * images.channels)

    def train_batches(self, epoch: int, size: int, first: int = 0) -> Batches:
        """Return no batch: nothing is trained on these images."""
        return iter(())

    def test_batches(self, size: int) -> Batches:
        channels, image_size = self._input_format.channels, self._input_format.image_size
        for x, y in self._raw.test_batches(size):
            yield self._normalized(adapt_images(x, channels, image_size)), y


def adapt_images(x: Tensor, channels: int, image_size: int) -> Tensor:
    """Return float32 images (N, c, H, W) as (N, channels, image_size, image_size).

    `channels` is 1 or 3. Images that have this shape are returned unchanged.
    """
    if x.shape[1] > channels:
        x = (x * torch.tensor(LUMINANCE, device=x.device).view(1, -1, 1, 1)).sum(1, keepdim=True)
    if x.shape[1] < channels:
        x = x.expand(-1, channels, -1, -1)
    if tuple(x.shape[2:]) == (image_size, image_size):
        return x
    return functional.interpolate(
        x, (image_size, image_size), mode="bilinear", antialias=True, align_corners=False
    )
