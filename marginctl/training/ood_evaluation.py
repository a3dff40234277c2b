"""Predictions for OOD images and for pairs, adapted to a network's channels and image size."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from marginctl.data.images.image_sets import ImageDataset, OODDataset
from marginctl.data.images.on_disk import FileSplit, OnDiskImages, make_file_split
from marginctl.data.images.pairs import VerificationPairs
from marginctl.data.images.resizing import CENTER, SQUARE, Resizing
from marginctl.data.loading.loader import BatchLoader
from marginctl.data.loading.on_disk_loader import make_loader
from marginctl.errors import DecodeError, RequestError
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.detection import OODOutputs
from marginctl.metrics.verification import cosine_similarities, verification_metrics
from marginctl.recipe.image_recipe import ImageRecipe
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
    batches, data = trainer.batches, trainer.recipe.data
    resizing = SQUARE if data.augment == "flip" else data.resizing or CENTER
    return InputFormat(images.channels, images.image_size, batches.mean, batches.std, resizing)


def files_to_test(name: str, root: Path, files: Iterable[str], image_size: int) -> OnDiskImages:
    """Return image files below a folder as the test part of a data set without classes."""
    empty = np.array([], np.int64)
    train = FileSplit(np.array([], np.bytes_), empty, empty)
    test = make_file_split(name, root, [(file, 0) for file in files])
    return OnDiskImages(name, root, image_size, (), train, test)


def predict_ood(
    trainer: Trainer, ood_sets: Sequence[OODDataset], images: ImageDataset, world: World | None
) -> list[OODOutputs]:
    """Return the predictions of a network for OOD data sets; every process takes part."""
    input_format = input_format_of(trainer, images)
    return [
        OODOutputs(
            ood_set.images.name,
            ood_set.group,
            ood_set.digest,
            trainer.predict(
                batches=AdaptedLoader(ood_set.images, input_format, trainer.device_config, world),
                split=None,
            ).outputs,
        )
        for ood_set in ood_sets
    ]


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
        device, world = device_config.device, world or World()
        super().__init__(
            (),
            images.test_y,
            device,
            seed=0,
            channels_last=device_config.channels_last,
            world=world,
            moments=(input_format.mean, input_format.std),
        )
        self._input_format = input_format
        config = replace(device_config, channels_last=False)
        if isinstance(images, OnDiskImages):
            images = replace(images, resizing=input_format.resizing)
        self._raw = make_loader(images, config, 0, "none", world)
        # the raw loader gives pixel values from 0 to 255
        self._raw.set_normalization([0.0] * images.channels, [1 / 255] * images.channels)

    def train_batches(
        self, epoch: int, size: int, first: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Return no batch: nothing is trained on these images."""
        return iter(())

    def test_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
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


BATCH_SIZE = 100


@dataclass(frozen=True)
class PairSimilarities:
    """The cosine similarities of a list of pairs."""

    pairs: VerificationPairs
    scores: FloatArray  # (N,) cosines of the two embeddings of each pair
    embedding_dim: int

    def record(self) -> dict[str, Any]:
        """Return the verification metrics, with the name of the list and its images."""
        return {
            "name": self.pairs.name,
            "digest": self.pairs.digest,
            "images": len(self.pairs.files),
            "folds_from": self.pairs.folds_from,
            **verification_metrics(self.scores, self.pairs.same, self.pairs.folds),
        }


def verify_pairs(
    trainer: Trainer, lists: Sequence[VerificationPairs], images: ImageDataset, world: World
) -> list[PairSimilarities]:
    """Return the similarities of pairs under a network in training; every process takes part."""
    trainer.model.eval()
    input_format = input_format_of(trainer, images)
    return pair_similarities(
        trainer.features, lists, trainer.recipe, input_format, trainer.device_config, world
    )


def pair_similarities(
    features: Callable[[Tensor], Tensor],
    lists: Sequence[VerificationPairs],
    recipe: ImageRecipe,
    input_format: InputFormat,
    device_config: DeviceConfig,
    world: World,
    *,
    flip: bool = False,
) -> list[PairSimilarities]:
    """Return the similarities of lists of pairs.

    Each image is embedded once, however many pairs contain it. The temperature paper tests face
    recognition so, on identities without training images: class weights are not used.

    Images are prepared like the network's own test images: scaled from their largest centered
    square where these are in memory or only flipped, else cropped from the center.

    Args:
        features: (B, C, H, W) -> (B, d) of a network in evaluation mode.
        flip: whether an embedding is the sum over an image and its horizontal flip.
    """
    if not lists:
        return []
    input_format = replace(input_format, resizing=recipe.data.test_resizing)
    paths = {str(file.absolute()) for pairs in lists for file in pairs.files}
    images = files_to_test("the pairs", Path.cwd(), paths, input_format.image_size)
    batches = AdaptedLoader(images, input_format, device_config, world)
    try:
        local = _embed(features, batches, flip=flip)
    except DecodeError as error:
        raise RequestError(_with_line(str(error), lists)) from None
    embeddings = world.all_gather_rows(local).double().numpy()
    rows = {images.test.path(row): row for row in range(len(images.test))}
    similarities = []
    for pairs in lists:
        listed = embeddings[[rows[str(file.absolute())] for file in pairs.files]]
        scores = cosine_similarities(listed[pairs.rows[:, 0]], listed[pairs.rows[:, 1]])
        similarities.append(PairSimilarities(pairs, scores, embeddings.shape[1]))
    return similarities


@torch.no_grad()
def _embed(features: Callable[[Tensor], Tensor], batches: AdaptedLoader, *, flip: bool) -> Tensor:
    """Return (M, d) embeddings of this process's images on the CPU, in their order."""
    embeddings = []
    for x, _ in batches.test_batches(BATCH_SIZE):
        embedding = features(x)
        if flip:
            embedding = embedding + features(x.flip(-1))
        embeddings.append(embedding.float().cpu())
    return torch.cat(embeddings)


def _with_line(message: str, lists: Sequence[VerificationPairs]) -> str:
    """Return the message of an image that cannot be decoded, with its first line in a list."""
    for pairs in lists:
        for row, file in enumerate(pairs.files):
            if message.startswith(f"{file.absolute()}: "):
                problem = message.removesuffix(", or remove it from the data set")
                line = pairs.first_line(row)
                return f"{pairs.file}:{line}: {problem}, or remove its pairs from the list"
    return message
