"""What image sets in memory and on disk share: their splits, and the sets derived from them."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from marginctl.data.names import class_numbers


@dataclass(frozen=True, eq=False)
class Split(ABC):
    """The N images of one split; every field is an array of N rows."""

    y: NDArray[np.int64] = field(kw_only=True)  # (N,) labels, 0 .. num_classes - 1

    def __len__(self) -> int:
        return len(self.y)

    def select(self, rows: NDArray[np.int64] | slice) -> Self:
        """Return the split of these images, in this order."""
        return replace(self, **{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @abstractmethod
    def digest(self) -> str:
        """Return the SHA-256 of the images and their labels."""


S = TypeVar("S", bound=Split)


@dataclass(frozen=True, eq=False)
class Images(Generic[S]):
    """Images for classification, with a test split."""

    name: str
    classes: tuple[str, ...]  # the class names, by label
    train: S  # empty where only the test split was loaded
    test: S
    val: S | None = None  # None if the set has no validation part
    # (N,) group of each training image; None if they are independent
    groups: NDArray[np.int64] | None = None

    @property
    def train_y(self) -> NDArray[np.int64]:
        return self.train.y

    @property
    def test_y(self) -> NDArray[np.int64]:
        return self.test.y

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def has_validation(self) -> bool:
        return self.val is not None

    @cached_property
    def split_digests(self) -> Mapping[str, str]:
        """The digest of each split; see `Split.digest`."""
        parts = {"train": self.train, "test": self.test, "val": self.val}
        return {part: split.digest() for part, split in parts.items() if split is not None}

    def group_digest(self) -> tuple[str, ...]:
        """Return the SHA-256 of the groups of images; nothing without groups."""
        if self.groups is None:
            return ()
        return (hashlib.sha256(np.ascontiguousarray(self.groups, "<i8").tobytes()).hexdigest(),)

    def select(self, rows: NDArray[np.int64] | slice) -> Self:
        """Return the data set with only these training images, in this order."""
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, train=self.train.select(rows), groups=groups)

    def validation_as_test(self) -> Self:
        """Return the data set with its validation part as test split."""
        assert self.val is not None
        return replace(self, test=self.val, val=None)

    def hold_out(self, fit: NDArray[np.int64], validation: NDArray[np.int64]) -> Self:
        """Return the data set of some training images, with others of them as test split."""
        return replace(self.select(fit), test=self.train.select(validation))

    def train_as_test(self) -> Self:
        """Return the data set with its training images as test split, in order and unaugmented."""
        return replace(self, test=self.train)

    def with_labels(self, y: NDArray[np.int64]) -> Self:
        """Return the data set with other training labels."""
        return replace(self, train=replace(self.train, y=y))

    def with_classes(self, classes: Sequence[str]) -> Self:
        """Return the data set with labels that number `classes`, matched by name."""
        numbers = class_numbers(self.name, self.classes, classes)
        train, test = (replace(split, y=numbers[split.y]) for split in (self.train, self.test))
        val = None if self.val is None else replace(self.val, y=numbers[self.val.y])
        return replace(self, classes=tuple(classes), train=train, test=test, val=val)
