"""ImageDataset: what training and evaluation use of a data set of images."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from marginctl.errors import RequestError
from marginctl.utils.text import shorten


class ImageDataset(Protocol):
    """Images for classification, in memory or on disk.

    Attributes:
        name: the image set's name.
        train_y, test_y: (N,) int64 labels, 0 .. num_classes - 1.
        classes: the class names, by label.
        num_classes: the number of classes.
        channels: image channels.
        image_size: image height and width in pixels.
        digest_description: what the digests cover, in words.
        split_digests, digest: SHA-256 of each split, and of the data set.
        mean, std: normalisation of each channel, for pixels in [0, 1].
    """

    @property
    def name(self) -> str: ...
    @property
    def train_y(self) -> NDArray[np.int64]: ...
    @property
    def test_y(self) -> NDArray[np.int64]: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def num_classes(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def image_size(self) -> int: ...
    @property
    def digest_description(self) -> str: ...
    @property
    def split_digests(self) -> Mapping[str, str]: ...
    @property
    def digest(self) -> str: ...
    @property
    def mean(self) -> tuple[float, ...]: ...
    @property
    def std(self) -> tuple[float, ...]: ...

    def select(self, rows: NDArray[np.int64]) -> Self:
        """Return the data set with only these training images, in this order."""

    def train_as_test(self) -> Self:
        """Return the data set with its training images as test split, in order and unaugmented."""

    def with_labels(self, y: NDArray[np.int64]) -> Self:
        """Return the data set with other training labels."""

    def with_classes(self, classes: Sequence[str]) -> Self:
        """Return the data set with labels that number `classes`, matched by name.

        Raises:
            RequestError: as `class_numbers`.
        """


def class_numbers(name: str, names: Sequence[str], classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the number in `classes` of each class of an image set, matched by name.

    Args:
        name: the image set's name, for messages.
        names: its classes.
        classes: of a network.

    Raises:
        RequestError: a class of the image set is not among them.
    """
    numbers = {unicodedata.normalize("NFC", c): i for i, c in enumerate(classes)}
    unknown = next((c for c in names if unicodedata.normalize("NFC", c) not in numbers), None)
    if unknown is not None:
        raise RequestError(
            f"data set '{name}': class '{shorten(unknown)}' is none of the {len(classes)} classes "
            f"of the network ({shorten(', '.join(classes))}): rename it, or remove it"
        )
    return np.array([numbers[unicodedata.normalize("NFC", c)] for c in names], np.int64)
