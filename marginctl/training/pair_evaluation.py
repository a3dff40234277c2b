"""What a network makes of pairs of images: each image is embedded once, however many pairs have it.

The paper tests face networks so, on identities that they were not trained on: class weights play
no part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marginctl.data.images.base import ImageDataset
from marginctl.data.images.on_disk import FileSplit, OnDiskImages, make_file_split
from marginctl.data.images.pairs import VerificationPairs
from marginctl.errors import DecodeError, RequestError
from marginctl.metrics.verification import cosine_similarities, verification_metrics
from marginctl.recipe import ImageRecipe
from marginctl.training.ood_evaluation import AdaptedBatches
from marginctl.training.trainer import Trainer
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig

AT_ONCE = 100  # images


@dataclass(frozen=True)
class PairSimilarities:
    """Pairs by a network.

    Attributes:
        pairs: them.
        scores: (N,) the cosine of the two embeddings of each.
        length: of an embedding.
    """

    pairs: VerificationPairs
    scores: NDArray[np.float64]
    length: int

    def record(self) -> dict[str, Any]:
        """What `evaluation.verification` finds, with the list's name and its images."""
        return {
            "name": self.pairs.name,
            "digest": self.pairs.digest,
            "images": len(self.pairs.files),
            "folds_from": self.pairs.folds_from,
            **verification_metrics(self.scores, self.pairs.same, self.pairs.folds),
        }


def verify_pairs(
    trainer: Trainer, lists: Sequence[VerificationPairs], own: ImageDataset, world: World
) -> list[PairSimilarities]:
    """Pairs by a network in training; every process embeds its part of the images.

    Args:
        trainer: the network.
        lists: of pairs.
        own: the images that it was made for.
        world: the processes that train it together.

    Raises:
        RequestError: an image that cannot be decoded.
    """
    trainer.model.eval()
    shape, moments = (own.channels, own.image_size), (trainer.batches.mean, trainer.batches.std)
    return pair_similarities(
        trainer.features, lists, trainer.recipe, shape, moments, trainer.device_config, world
    )


def pair_similarities(
    features: Callable[[Tensor], Tensor],
    lists: Sequence[VerificationPairs],
    recipe: ImageRecipe,
    shape: tuple[int, int],
    moments: tuple[Sequence[float], Sequence[float]],
    device_config: DeviceConfig,
    world: World,
    *,
    flip: bool = False,
) -> list[PairSimilarities]:
    """Embeds the images of lists of pairs.

    They are prepared as the network's own test images are: whole squares where these are held in
    memory or mirrored alone, else the middle of a larger one; grey ones for a colour network and
    the other way round as foreign images are.

    Args:
        features: (B, C, H, W) -> (B, d) of a network in evaluation mode.
        lists: of pairs.
        recipe: by which it was trained.
        shape: channels and side of the images that it was made for.
        moments: mean and standard deviation of each of these channels, of 0 to 1.
        device_config: the device, and the arithmetic of the network.
        world: the processes that each have a part.
        flip: whether an embedding is the sum of that of the image and that of its mirror image.

    Raises:
        RequestError: an image that cannot be decoded.
    """
    if not lists:
        return []
    whole = not recipe.data.streamed or recipe.data.augment == "flip"
    images = _files(lists, shape[1])
    batches = AdaptedBatches(images, shape, moments, device_config, world, whole=whole)
    try:
        embeddings = _embedded(features, batches, flip=flip)
    except DecodeError as error:
        raise RequestError(_where(str(error), lists)) from None
    (gathered,) = zip(*world.all_gather([embeddings]), strict=True)
    vectors = torch.cat(gathered).double().numpy()
    rows = {images.test.path(row): row for row in range(len(images.test))}
    found = []
    for pairs in lists:
        own = vectors[[rows[str(file.absolute())] for file in pairs.files]]
        scores = cosine_similarities(*(own[pairs.rows[:, side]] for side in (0, 1)))
        found.append(PairSimilarities(pairs, scores, vectors.shape[1]))
    return found


def _files(lists: Sequence[VerificationPairs], pixels: int) -> OnDiskImages:
    """The images as the test part of a set without classes, by their absolute paths."""
    paths = {str(file.absolute()) for pairs in lists for file in pairs.files}
    name, root = "the pairs", Path.cwd()
    nothing = np.array([], np.int64)
    train = FileSplit(np.array([], np.bytes_), nothing, nothing)
    return OnDiskImages(
        name, root, pixels, (), train, make_file_split(name, root, [(p, 0) for p in paths])
    )


@torch.no_grad()
def _embedded(
    features: Callable[[Tensor], Tensor], batches: AdaptedBatches, *, flip: bool
) -> Tensor:
    """(M, d) on the CPU, of this process's images in their order."""
    parts = []
    for x, _ in batches.test_batches(AT_ONCE):
        own = features(x)
        parts.append((own + features(x.flip(-1)) if flip else own).float().cpu())
    return torch.cat(parts)


def _where(said: str, lists: Sequence[VerificationPairs]) -> str:
    """An error of an image that cannot be decoded, with the first line that has it."""
    for pairs in lists:
        for row, file in enumerate(pairs.files):
            if said.startswith(f"{file.absolute()}: "):
                said = said.removesuffix(", or take it out of the set")
                line = pairs.first_line(row)
                return f"{pairs.file}:{line}: {said}, or take its pairs off the list"
    return said
