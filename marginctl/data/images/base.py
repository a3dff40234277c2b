"""ImageDataset: what training and evaluation use of a data set of images."""

from collections.abc import Mapping
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray


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
