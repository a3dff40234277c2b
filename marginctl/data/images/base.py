"""What training needs to know of a set of images for classification."""

from collections.abc import Mapping
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray


class LabelledImages(Protocol):
    """What training needs to know of images for classification, wherever their pixels are.

    Attributes:
        name: the name they are asked for by.
        train_y, test_y: (N,) int64 classes, 0 .. num_classes - 1.
        classes: the class names, in the order of their numbers.
        num_classes: how many there are.
        channels, pixels: the shape of an image; `pixels` is the length of a side.
        identity: what the digests are of, in words.
        part_digests, digest: of each part, and of all.
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
    def pixels(self) -> int: ...
    @property
    def identity(self) -> str: ...
    @property
    def part_digests(self) -> Mapping[str, str]: ...
    @property
    def digest(self) -> str: ...
    @property
    def mean(self) -> tuple[float, ...]: ...
    @property
    def std(self) -> tuple[float, ...]: ...

    def keeping(self, rows: NDArray[np.int64]) -> Self:
        """The same with these training images alone, in this order."""

    def relabelled(self, y: NDArray[np.int64]) -> Self:
        """The same with other training labels."""
