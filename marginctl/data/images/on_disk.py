"""Image data sets on disk: files that are decoded batch by batch."""

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from marginctl.data.images.base import Images, Split
from marginctl.data.images.resizing import CENTER, Resizing
from marginctl.errors import RequestError

# Of ImageNet's training images, as torchvision publishes them. Their use for other sets on disk is
# our choice: their own would take decoding all images.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, eq=False)
class FileSplit(Split):
    """The files of one split, ordered by path."""

    # (N,) relative to the set's folder, or absolute; as bytes, which decoding processes can share
    paths: NDArray[np.bytes_]
    sizes: NDArray[np.int64]  # (N,) file sizes in bytes

    def path(self, row: int) -> str:
        return os.fsdecode(bytes(self.paths[row]))

    def digest(self) -> str:
        """Return the SHA-256 of the sorted (path, size in bytes, label), without reading files."""
        content = hashlib.sha256()
        rows = zip(self.paths.tolist(), self.sizes.tolist(), self.y.tolist(), strict=True)
        for path, size, label in sorted(rows):
            content.update(b"%s\0%d\0%d\n" % (path, size, label))
        return content.hexdigest()


@dataclass(frozen=True, eq=False, kw_only=True)
class OnDiskImages(Images[FileSplit]):
    """Images for classification in files of any resolution, with a test split.

    The digest covers the list of files (relative path, size in bytes and label), the class names
    and the image size, but not the content of the files, which would take reading them all: a file
    that changes and keeps its size is not noticed.
    """

    root: Path  # the folder of relative paths
    image_size: int  # height and width of the images that a network gets
    resizing: Resizing = CENTER  # of images that are not augmented

    channels: ClassVar[int] = 3
    mean: ClassVar[tuple[float, ...]] = IMAGENET_MEAN
    std: ClassVar[tuple[float, ...]] = IMAGENET_STD
    digest_description: ClassVar[str] = (
        "paths, sizes and labels of files, class names, image size; not the files' content"
    )

    @cached_property
    def digest(self) -> str:
        splits = self.split_digests
        more = self.group_digest()
        if self.resizing != CENTER:
            more += (repr(self.resizing),)
        content = repr(("files", self.image_size, self.classes, *splits.values(), *more))
        return hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()


def make_file_split(name: str, root: Path, rows: Iterable[tuple[str, int]]) -> FileSplit:
    """Return a split from paths and labels; every file is looked up, and none is read.

    Raises:
        RequestError: a file is missing, empty or no regular file.
    """
    paths, sizes, labels, problems = [], [], [], []
    for path, label in sorted(rows):
        file = os.path.join(root, path)
        try:
            status = os.stat(file)  # once: there may be millions, on a slow disk
            size = status.st_size if stat.S_ISREG(status.st_mode) else -1
        except (OSError, ValueError):  # ValueError: a zero byte in a name
            size = -1
        if size < 1:
            problems.append(f"{file}{' is empty' if size == 0 else ''}")
        paths.append(os.fsencode(path))
        sizes.append(size)
        labels.append(label)
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise RequestError(
            f"data set '{name}': no image file {problems[0]}{more}, of {len(paths)} listed files: "
            "add them, or remove them from the list"
        )
    y = np.array(labels, np.int64)
    return FileSplit(np.array(paths, np.bytes_), np.array(sizes, np.int64), y=y)
