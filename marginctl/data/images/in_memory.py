"""Image data sets in memory: read from the files of their own distributions, and checked."""

import gzip
import hashlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from marginctl.data.images import folders
from marginctl.data.images.known_sets import DIGIT_NAMES, IMAGE_SETS, ImageSet, Layout
from marginctl.data.images.readers import READERS
from marginctl.data.images.registry import FOLDER_PREFIX, check_image_set_name, loading_modes
from marginctl.data.tabular.uci import DATA_DIR_VARIABLE, MissingDataError
from marginctl.errors import RequestError
from marginctl.utils.seed import generator

DIGITS_TEST_ROWS = 360

# Mean and standard deviation for each colour, where the papers give them: the CIFAR protocol of
# Large Margin in Softmax. The rest is computed from the training images.
PUBLISHED_MEAN = {"cifar-100": (0.5071, 0.4867, 0.4408)}
PUBLISHED_STD = {"cifar-10": (0.2023, 0.1994, 0.2010), "cifar-100": (0.2675, 0.2565, 0.2761)}


@dataclass(frozen=True, eq=False)
class InMemoryImages:
    """Square images for classification, with their own test part.

    Attributes:
        name: the name they are asked for by.
        train_x, test_x: (N, H, W, C) uint8 pixels.
        train_y, test_y: (N,) int64 classes, 0 .. num_classes - 1.
        classes: the class names, in the order of their numbers.
    """

    name: str
    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    classes: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def channels(self) -> int:
        return int(self.train_x.shape[3])

    @property
    def image_size(self) -> int:
        """The length of a side."""
        return int(self.train_x.shape[1])

    @property
    def digest_description(self) -> str:
        """What the digest is of, in words."""
        return "pixels, labels and class names"

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The same with these training images alone, in this order."""
        return replace(self, train_x=self.train_x[rows], train_y=self.train_y[rows])

    def train_as_test(self) -> Self:
        """Return the data set with its training images as test part, in order and unaugmented."""
        return replace(self, test_x=self.train_x, test_y=self.train_y)

    def with_labels(self, y: NDArray[np.int64]) -> Self:
        """The same with other training labels."""
        return replace(self, train_y=y)

    @cached_property
    def split_digests(self) -> Mapping[str, str]:
        """SHA-256 of the shape, pixels and labels of each part."""
        return {
            "train": split_digest(self.train_x, self.train_y),
            "test": split_digest(self.test_x, self.test_y),
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content: the same images give the same digest from any files."""
        parts = self.split_digests
        content = repr((self.classes, parts["train"], parts["test"]))
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean of each channel, of pixels in [0, 1]: published, or of the training images."""
        return PUBLISHED_MEAN.get(self.name) or self._moments[0]

    @property
    def std(self) -> tuple[float, ...]:
        """The standard deviation of each channel, like `mean`; 1 where the pixels are all alike."""
        return PUBLISHED_STD.get(self.name) or self._moments[1]

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """From the exact count of each pixel value, so that no rounding depends on the order."""
        if not len(self.train_x):  # the test part alone: to be normalised as others are
            return (0.0,) * self.channels, (1.0,) * self.channels
        counts = np.zeros((self.channels, 256), np.int64)
        for start in range(0, len(self.train_x), 1000):  # bincount takes 8 bytes a pixel
            block = self.train_x[start : start + 1000]
            for channel in range(self.channels):
                counts[channel] += np.bincount(block[..., channel].ravel(), minlength=256)
        shares = counts / counts.sum(1, keepdims=True)
        values = np.arange(256) / 255
        mean = shares @ values
        std = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(1))
        alike = (counts > 0).sum(1) == 1
        return tuple(mean.tolist()), tuple(np.where(alike, 1.0, std).tolist())


def split_digest(x: NDArray[np.uint8], y: NDArray[np.int64]) -> str:
    """SHA-256 of one part's shape, pixels and labels."""
    content = hashlib.sha256(repr(x.shape).encode())
    content.update(np.ascontiguousarray(x).reshape(-1).data)
    content.update(np.ascontiguousarray(y, "<i8").tobytes())
    return content.hexdigest()


def find_in_memory(name: str, data_dir: Path) -> Path | None:
    """The folder in which a named set's files lie; None for what is built in.

    Raises:
        DataMissingError: files are not there.
    """
    if name == "digits":
        return None
    layout, _ = _find(name, IMAGE_SETS[name], data_dir)
    return data_dir / layout.folder


def load_in_memory(
    name: str,
    data_dir: Path,
    pixels: int = 64,
    *,
    test_share: float | None = None,
    test_only: bool = False,
) -> InMemoryImages:
    """Reads an image set from the data folder; `digits` comes with scikit-learn.

    Args:
        name: one of `image_sets()`; a relative PATH of `folder:PATH` that is not there is looked
            for in `data_dir`.
        pixels: the side to which the images of a folder are scaled; other sets have their own.
        test_share: of the images of each class in a folder without parts (see `list_image_folder`).
        test_only: whether the training part is left empty; what it lacks then does not matter.

    Raises:
        DataMissingError: files are not there.
        RequestError: an unknown name or one whose images stay in their files, or files that are
            damaged or not the original ones.
    """
    check_image_set_name(name)
    if "memory" not in loading_modes(name):
        raise RequestError(f"data set '{name}': is too large for memory: load it as a stream")
    if name == "digits":
        digits = _digits()
        return digits.select(np.arange(0)) if test_only else digits
    if name.startswith(FOLDER_PREFIX):
        if pixels < 1:
            raise RequestError(f"pixels = {pixels}: expected 1 or more")
        root = folders.resolve_path(name.removeprefix(FOLDER_PREFIX), data_dir)
        train, test, classes = folders.decode_image_folder(
            name, root, pixels, test_share=test_share, test_only=test_only
        )
        return InMemoryImages(name, *train, *test, classes)
    kind = IMAGE_SETS[name]
    layout, paths = _find(name, kind, data_dir, test_only=test_only)
    for path in paths:
        _check_md5(path, layout.md5.get(path.name))
    split = 0 if test_only else len(layout.train)
    read = None if test_only else READERS[layout.format](paths[:split], kind.rows[0])
    test = READERS[layout.format](paths[split:], kind.rows[1])
    train = read or (test[0][:0], test[1][:0])
    images = InMemoryImages(name, *train, *test, kind.classes)
    _check(images, kind, data_dir / layout.folder, ("test",) if test_only else ("train", "test"))
    return images


def stratified_order(y: NDArray[np.int64], stream: np.random.Generator) -> NDArray[np.int64]:
    """All row numbers in a random order whose every beginning holds the classes in proportion.

    The r-th drawn row of a class of n (r = 0, 1, ...) stands at (r + 1/2)/n, which apportions as
    Sainte-Lague does; but the first of each class stand before all others.

    Returns:
        (n,) row numbers.
    """
    order = stream.permutation(len(y))
    drawn = y[order]
    counts = np.bincount(y)
    by_class = np.argsort(drawn, kind="stable")
    rank = np.empty(len(y), np.int64)
    rank[by_class] = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = np.where(rank == 0, 0.0, (rank + 0.5) / counts[drawn])
    return order[np.lexsort((drawn, place))]


def _digits() -> InMemoryImages:
    """scikit-learn's 8 x 8 digits, split into 1,437 training and 360 test images.

    The data come without a split: this one is ours, stratified, and always the same. The file is
    read by its path: importing the library takes over a second.
    """
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.submodule_search_locations
    path = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    x = np.rint(table[:, :64] * 255 / 16).astype(np.uint8).reshape(-1, 8, 8, 1)
    y = table[:, 64].astype(np.int64)
    order = stratified_order(y, generator(0, "digits", "split"))
    test, train = np.sort(order[:DIGITS_TEST_ROWS]), np.sort(order[DIGITS_TEST_ROWS:])
    return InMemoryImages("digits", x[train], y[train], x[test], y[test], DIGIT_NAMES)


def _find(
    name: str, kind: ImageSet, data_dir: Path, *, test_only: bool = False
) -> tuple[Layout, list[Path]]:
    """The first layout that is all there, with its files; else says what the nearest one lacks."""
    lacking = []
    for layout in kind.layouts:
        names = layout.test if test_only else (*layout.train, *layout.test)
        paths = [data_dir / layout.folder / file for file in names]
        paths = [p if os.path.isfile(p) or p.suffix != ".gz" else p.with_suffix("") for p in paths]
        absent = [file for file, p in zip(names, paths, strict=True) if not os.path.isfile(p)]
        if not absent:
            return layout, paths
        lacking.append(absent)
    nearest = min(range(len(lacking)), key=lambda i: len(lacking[i]))
    instead = "".join(
        f", or all of {', '.join(layout.test if test_only else (*layout.train, *layout.test))} in "
        f"{data_dir / layout.folder}"
        for i, layout in enumerate(kind.layouts)
        if i != nearest
    )
    raise MissingDataError(
        f"data set '{name}': no {', '.join(lacking[nearest])} in "
        f"{data_dir / kind.layouts[nearest].folder}: put the original files there{instead}, "
        f"or name the data folder with --data-dir or {DATA_DIR_VARIABLE}"
    )


def _check_md5(path: Path, expected: str | None) -> None:
    if expected is None:
        return
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False))
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None
    if found.hexdigest() != expected:
        raise RequestError(
            f"{path}: MD5 {found.hexdigest()} ({path.stat().st_size} bytes), expected {expected}: "
            "the file is damaged or is another one: fetch it again"
        )


def _check(images: InMemoryImages, kind: ImageSet, folder: Path, read: Sequence[str]) -> None:
    """Compares the parts that were read with what is known of the set."""
    parts = {"train": images.train_y, "test": images.test_y}
    for (part, y), rows in zip(parts.items(), kind.rows, strict=True):
        if part not in read:
            continue
        at = f"data set '{images.name}': {part} part in {folder}"
        if len(y) != rows:
            raise RequestError(f"{at}: {len(y)} images, expected {rows}: fetch it again")
        outside = y[(y < 0) | (y >= images.num_classes)]
        if len(outside):
            raise RequestError(
                f"{at}: label {outside[0]}, expected 0 .. {images.num_classes - 1}: fetch it again"
            )
        if images.split_digests[part] != kind.split_digests.get(part, images.split_digests[part]):
            raise RequestError(
                f"{at}: its content has another digest than the original: fetch it again"
            )
