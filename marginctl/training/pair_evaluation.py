"""Cosine similarities of image pairs under a network, for verification."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from marginctl.data.images.image_sets import ImageDataset
from marginctl.data.images.pairs import VerificationPairs
from marginctl.errors import DecodeError, RequestError
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.verification import cosine_similarities, verification_metrics
from marginctl.training.ood_evaluation import (
    AdaptedLoader,
    InputFormat,
    files_to_test,
    input_format_of,
)
from marginctl.training.trainer import Trainer
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig

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
    return pair_similarities(trainer.features, lists, input_format, trainer.device_config, world)


def pair_similarities(
    features: Callable[[Tensor], Tensor],
    lists: Sequence[VerificationPairs],
    input_format: InputFormat,
    device_config: DeviceConfig,
    world: World,
    *,
    flip: bool = False,
) -> list[PairSimilarities]:
    """Return the similarities of lists of pairs.

    Each image is embedded once, however many pairs contain it. The temperature paper tests face
    recognition so, on identities without training images: class weights are not used.

    Args:
        features: (B, C, H, W) -> (B, d) of a network in evaluation mode.
        input_format: of the network's own test images.
        flip: whether an embedding is the sum over an image and its horizontal flip.
    """
    if not lists:
        return []
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
