"""A data set in memory."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table for classification.

    Attributes:
        name: the name it is asked for by.
        x: (n, d) float64 features, all finite.
        y: (n,) int64 classes, 0 .. C - 1.
        classes: the C class names, in the order of their numbers.
        columns: the d feature names.
    """

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.int64]
    classes: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def num_rows(self) -> int:
        return len(self.y)

    @property
    def num_features(self) -> int:
        return int(self.x.shape[1])

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the parsed content: the same rows give the same digest from any file."""
        content = hashlib.sha256(repr((self.x.shape, self.classes)).encode())
        content.update(np.ascontiguousarray(self.x, "<f8").tobytes())
        content.update(np.ascontiguousarray(self.y, "<i8").tobytes())
        return content.hexdigest()
