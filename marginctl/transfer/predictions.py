"""The predictions of a transferred network for each test image, as rows of a CSV file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marginctl.data.images import folders
from marginctl.data.images.base import ImageDataset
from marginctl.data.images.on_disk import OnDiskImages
from marginctl.data.images.registry import FOLDER_PREFIX
from marginctl.data.paths import resolve_path
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.scoring_rules import softmax
from marginctl.recipe.image_data import ImageData

HEADER = ("image", "label", "predicted", "probability")


def prediction_rows(
    data: ImageData, images: ImageDataset, data_dir: Path, logits: FloatArray
) -> Iterator[tuple[Any, ...]]:
    """Yield a header and a row per test image: name, label, prediction and its probability."""
    yield HEADER
    names, classes = _test_image_names(data, images, data_dir), images.classes
    probabilities = softmax(logits)
    predictions = probabilities.argmax(1)
    for i, (name, label, predicted) in enumerate(
        zip(names, images.test_y, predictions, strict=True)
    ):
        yield name, classes[label], classes[predicted], f"{probabilities[i, predicted]:.6f}"


def _test_image_names(data: ImageData, images: ImageDataset, data_dir: Path) -> list[str]:
    """Return the file of each test image, relative to its data set; else its number."""
    if isinstance(images, OnDiskImages):
        return [images.test.path(row) for row in range(len(images.test))]
    if data.name.startswith(FOLDER_PREFIX):
        root = resolve_path(data.name.removeprefix(FOLDER_PREFIX), data_dir)
        _, test = folders.list_image_folder(data.name, root, test_fraction=data.test_fraction)
        return [path for files in test.values() for path in files]
    return [str(i) for i in range(len(images.test_y))]
