"""What training needs to know of a set of images for classification."""

from collections.abc import Mapping
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray


class ImageDataset(Protocol):
    """What training needs to know of images for classification, wherever their pixels are.

    Attributes:
        name: the name they are asked for by.
        train_y, test_y: (N,) int64 classes, 0 .. num_classes - 1.
        classes: the class names, in the order of their numbers.
        num_classes: how many there are.
        channels, image_size: the shape of an image; `image_size` is the length of a side.
        digest_description: what the digests are of, in words.
        split_digests, digest: of each part, and of all.
        mean, std: of each channel, of pixels in [0, 1].
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
        """The same with these training images alone, in this order."""

    def train_as_test(self) -> Self:
        """Return the data set with its training images as test part, in order and unaugmented."""

    def with_labels(self, y: NDArray[np.int64]) -> Self:
        """The same with other training labels."""
