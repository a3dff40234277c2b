"""Images that stay in their files and are decoded batch by batch: what is known of them."""

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from marginctl.errors import RequestError

# Of ImageNet's training images, as torchvision publishes them. That the other streamed sets are
# normalised by them too is ours: to compute their own would decode them all.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, eq=False)
class FileSplit:
    """The files of one part, in the order of their paths.

    Attributes:
        paths: (N,) relative to the set's folder, or absolute where they were listed so; as bytes,
            which the processes that decode share.
        sizes: (N,) bytes of each file.
        y: (N,) int64 classes.
    """

    paths: NDArray[np.bytes_]
    sizes: NDArray[np.int64]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)

    def path(self, row: int) -> str:
        return os.fsdecode(bytes(self.paths[row]))

    def digest(self) -> str:
        """SHA-256 of the sorted (path, size in bytes, label); the files are not read."""
        content = hashlib.sha256()
        rows = zip(self.paths.tolist(), self.sizes.tolist(), self.y.tolist(), strict=True)
        for path, size, label in sorted(rows):
            content.update(b"%s\0%d\0%d\n" % (path, size, label))
        return content.hexdigest()


@dataclass(frozen=True, eq=False)
class OnDiskImages:
    """Images for classification in files of any size, with their own test part.

    What identifies them is the list of their files - relative path, size in bytes and label - with
    the class names and the side that they are scaled to; NOT the content of the files, which would
    take reading them all: a file that is changed and keeps its size is not noticed.

    Attributes:
        name: the name they are asked for by.
        root: the folder that relative paths begin in.
        image_size: the side of the images that a network is given.
        classes: the class names, in the order of their numbers.
        train, test: the files; the training part is empty where only the test part was asked for.
    """

    name: str
    root: Path
    image_size: int
    classes: tuple[str, ...]
    train: FileSplit
    test: FileSplit

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
    def channels(self) -> int:
        return 3

    @property
    def mean(self) -> tuple[float, ...]:
        """ImageNet's, of every set."""
        return IMAGENET_MEAN

    @property
    def std(self) -> tuple[float, ...]:
        return IMAGENET_STD

    @property
    def digest_description(self) -> str:
        """What the digest is of, in words."""
        return "paths, sizes and labels of the files, class names and side; not the files' content"

    @cached_property
    def split_digests(self) -> Mapping[str, str]:
        """Of each part, as `FilePart.digest` says."""
        return {"train": self.train.digest(), "test": self.test.digest()}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what identifies them."""
        parts = self.split_digests
        content = repr(("files", self.image_size, self.classes, parts["train"], parts["test"]))
        return hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The same with these training images alone, in this order."""
        part = self.train
        return replace(self, train=FileSplit(part.paths[rows], part.sizes[rows], part.y[rows]))

    def train_as_test(self) -> Self:
        """Return the data set with its training images as test part, in order and unaugmented."""
        return replace(self, test=self.train)

    def with_labels(self, y: NDArray[np.int64]) -> Self:
        """The same with other training labels."""
        return replace(self, train=replace(self.train, y=y))


def make_file_split(name: str, root: Path, rows: Iterable[tuple[str, int]]) -> FileSplit:
    """A part from its (path, label) rows; every file is looked for, and none is read.

    Raises:
        RequestError: a file is missing, empty or no file.
    """
    paths, sizes, labels, problems = [], [], [], []
    for path, label in sorted(rows):
        whole = os.path.join(root, path)
        try:
            about = os.stat(whole)  # once: there may be millions, on a slow disk
            size = about.st_size if stat.S_ISREG(about.st_mode) else -1
        except (OSError, ValueError):  # ValueError: a zero byte in a name
            size = -1
        if size < 1:
            problems.append(f"{whole}{' is empty' if size == 0 else ''}")
        paths.append(os.fsencode(path))
        sizes.append(size)
        labels.append(label)
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise RequestError(
            f"data set '{name}': no image file {problems[0]}{more}, of {len(paths)} that are "
            "listed: put them there, or take them off the list"
        )
    return FileSplit(
        np.array(paths, np.bytes_), np.array(sizes, np.int64), np.array(labels, np.int64)
    )
