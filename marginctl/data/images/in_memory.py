"""Image data sets in memory: loading from their original files, and checks."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Self, Unpack

import numpy as np
from numpy.typing import NDArray

from marginctl.data.images.content import decoding_problem, skipped_files
from marginctl.data.images.folders import PartOptions, centre_square, open_rgb
from marginctl.data.images.listing import Listing, list_image_set
from marginctl.data.images.readers import ArraySplit
from marginctl.data.images.registry import (
    IMAGE_SETS,
    ImageSet,
    Layout,
    check_image_set_name,
    how_to_get,
    loading_modes,
)
from marginctl.data.names import class_numbers
from marginctl.data.paths import MissingDataError, readable
from marginctl.errors import RequestError
from marginctl.utils.registry import import_object

MAX_DECODED_BYTES = 2 * 2**30


@dataclass(frozen=True, eq=False)
class InMemoryImages:
    """Square images for classification, with a test split."""

    name: str
    train_x: NDArray[np.uint8]  # (N, H, W, C) pixels
    train_y: NDArray[np.int64]  # (N,) labels, 0 .. num_classes - 1
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    classes: tuple[str, ...]  # the class names, by label
    val_x: NDArray[np.uint8] | None = None  # None if the set has no validation part
    val_y: NDArray[np.int64] | None = None
    # (N,) group of each training image; None if they are independent
    groups: NDArray[np.int64] | None = None

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def channels(self) -> int:
        return int(self.train_x.shape[3])

    @property
    def image_size(self) -> int:
        return int(self.train_x.shape[1])

    @property
    def digest_description(self) -> str:
        return "pixels, labels and class names"

    def select(self, rows: NDArray[np.int64]) -> Self:
        """Return the data set with only these training images, in this order."""
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, train_x=self.train_x[rows], train_y=self.train_y[rows], groups=groups)

    @property
    def has_validation(self) -> bool:
        return self.val_y is not None

    def validation_as_test(self) -> Self:
        """Return the data set with its validation part as test split."""
        assert self.val_x is not None
        assert self.val_y is not None
        return replace(self, test_x=self.val_x, test_y=self.val_y, val_x=None, val_y=None)

    def hold_out(self, fit: NDArray[np.int64], validation: NDArray[np.int64]) -> Self:
        """Return the data set of some training images, with others of them as test split."""
        x, y = self.train_x[validation], self.train_y[validation]
        return replace(self.select(fit), test_x=x, test_y=y)

    def train_as_test(self) -> Self:
        """Return the data set with its training images as test split, in order and unaugmented."""
        return replace(self, test_x=self.train_x, test_y=self.train_y)

    def with_labels(self, y: NDArray[np.int64]) -> Self:
        """Return the data set with other training labels."""
        return replace(self, train_y=y)

    def with_classes(self, classes: Sequence[str]) -> Self:
        """Return the data set with labels that number `classes`, matched by name."""
        numbers = class_numbers(self.name, self.classes, classes)
        return replace(
            self,
            classes=tuple(classes),
            train_y=numbers[self.train_y],
            test_y=numbers[self.test_y],
            val_y=None if self.val_y is None else numbers[self.val_y],
        )

    @cached_property
    def split_digests(self) -> Mapping[str, str]:
        """SHA-256 of the shape, pixels and labels of each split."""
        digests = {
            "train": split_digest(self.train_x, self.train_y),
            "test": split_digest(self.test_x, self.test_y),
        }
        if self.val_x is not None and self.val_y is not None:
            digests["val"] = split_digest(self.val_x, self.val_y)
        return digests

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content: the same images from other files have the same digest."""
        content = repr((self.classes, *self.split_digests.values(), *group_digest(self.groups)))
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of each channel, for pixels in [0, 1]: published, or of the training images."""
        entry = IMAGE_SETS.get(self.name)
        return (entry and entry.mean) or self._moments[0]

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of each channel, like `mean`; 1 where all pixels are equal."""
        entry = IMAGE_SETS.get(self.name)
        return (entry and entry.std) or self._moments[1]

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation from pixel counts: exact, whatever the order of images."""
        if not len(self.train_x):  # only a test split, which is normalised by other moments
            return (0.0,) * self.channels, (1.0,) * self.channels
        counts = np.zeros((self.channels, 256), np.int64)
        for start in range(0, len(self.train_x), 1000):  # bincount needs 8 bytes for a pixel
            block = self.train_x[start : start + 1000]
            for channel in range(self.channels):
                counts[channel] += np.bincount(block[..., channel].ravel(), minlength=256)
        frequencies = counts / counts.sum(1, keepdims=True)
        values = np.arange(256) / 255
        mean = frequencies @ values
        std = np.sqrt((frequencies * (values - mean[:, None]) ** 2).sum(1))
        constant = (counts > 0).sum(1) == 1
        return tuple(mean.tolist()), tuple(np.where(constant, 1.0, std).tolist())


def _decode(name: str, root: Path, listing: Listing, image_size: int) -> list[ArraySplit]:
    """Return the images of each part: training, test and, if there is one, validation.

    Each image is rotated by its EXIF tag and converted to RGB; its largest centred square is
    resized (bilinear, antialiased), which equals resizing the short side and cropping.

    Raises:
        RequestError: too many pixels, or files that are no images.
    """
    parts = [rows for rows in (listing.train, listing.test, listing.val) if rows is not None]
    count = sum(map(len, parts))
    size = count * image_size * image_size * 3
    if size > MAX_DECODED_BYTES:
        raise RequestError(
            f"data set '{name}': {count} images of {image_size} x {image_size} pixels need "
            f"{size / 2**30:.1f} GiB, at most {MAX_DECODED_BYTES / 2**30:.0f}: reduce "
            "data.image_size, or set data.load = stream"
        )
    problems: dict[str, list[str]] = {}
    decoded = []
    for rows in parts:
        x = np.zeros((len(rows), image_size, image_size, 3), np.uint8)
        for i, (path, _) in enumerate(rows):
            file = os.path.join(root, path)
            try:
                x[i] = np.asarray(centre_square(open_rgb(file), image_size), np.uint8)
            except Exception as error:  # a corrupt image can make the decoders raise anything
                problems.setdefault(decoding_problem(file, error), []).append(path)
        decoded.append((x, np.array([label for _, label in rows], np.int64)))
    if problems:
        raise RequestError(*(skipped.line(name) for skipped in skipped_files(problems)))
    return decoded


def group_digest(groups: NDArray[np.int64] | None) -> tuple[str, ...]:
    """Return the SHA-256 of the groups of images; nothing without groups."""
    if groups is None:
        return ()
    return (hashlib.sha256(np.ascontiguousarray(groups, "<i8").tobytes()).hexdigest(),)


def split_digest(x: NDArray[np.uint8], y: NDArray[np.int64]) -> str:
    """Return the SHA-256 of a split's shape, pixels and labels."""
    content = hashlib.sha256(repr(x.shape).encode())
    content.update(np.ascontiguousarray(x).reshape(-1).data)
    content.update(np.ascontiguousarray(y, "<i8").tobytes())
    return content.hexdigest()


def find_in_memory(name: str, data_dir: Path) -> Path | None:
    """Return the folder of a named image set's files; None where a dependency contains them.

    Raises:
        MissingDataError: files are missing.
    """
    entry = IMAGE_SETS.find(name)
    if entry.embedded:
        return None
    layout, _ = _find_layout(name, entry, data_dir)
    return data_dir / layout.folder


def load_in_memory(
    name: str, data_dir: Path, image_size: int = 64, **options: Unpack[PartOptions]
) -> InMemoryImages:
    """Return an image set, read from the data folder.

    Args:
        name: an image set's name, or `folder:PATH`.
        image_size: height and width of the images of a folder; other sets have their own.
        test_fraction, groups: test split of a folder without splits; see `list_image_folder`.
        test_only: whether the training split is left empty and its files are not needed.

    Raises:
        MissingDataError: files are missing.
        RequestError: an unknown name, a set that is too large for memory, or files that are corrupt
            or not the original ones.
    """
    check_image_set_name(name)
    modes = loading_modes(name)
    if "memory" not in modes:
        raise RequestError(f"data set '{name}': is too large for memory: use data.load = stream")
    if "stream" in modes:
        if image_size < 1:
            raise RequestError(f"data.image_size = {image_size}: expected 1 or more")
        root, listing = list_image_set(name, data_dir, **options)
        train, test, *val = _decode(name, root, listing, image_size)
        images = InMemoryImages(name, *train, *test, listing.classes, *(val[0] if val else ()))
        groups = options.get("groups")
        files = [path for path, _ in listing.train]
        return images if groups is None else replace(images, groups=groups.numbers(files))
    entry, test_only = IMAGE_SETS[name], options.get("test_only", False)
    if entry.embedded:
        train, test = import_object(entry.embedded, f"image set '{name}'")()
        folder = None
    else:
        train, test, folder = _read_splits(name, entry, data_dir, test_only=test_only)
    if test_only:
        train = (test[0][:0], test[1][:0])
    assert not isinstance(entry.classes, int)
    images = InMemoryImages(name, *train, *test, entry.classes)
    _check_splits(images, entry, folder, ("test",) if test_only else ("train", "test"))
    return images


def _read_splits(
    name: str, entry: ImageSet, data_dir: Path, *, test_only: bool
) -> tuple[ArraySplit, ArraySplit, Path]:
    """Return the training and the test split, and their folder; MD5 digests are checked first."""
    layout, paths = _find_layout(name, entry, data_dir, test_only=test_only)
    for path in paths:
        _check_md5(path, layout.md5.get(path.name))
    reader: Callable[[Sequence[Path], int], ArraySplit]
    reader = import_object(layout.reader, f"image set '{name}'")
    split = 0 if test_only else len(layout.train)
    train = None if test_only else reader(paths[:split], entry.num_images[0])
    test = reader(paths[split:], entry.num_images[1])
    return train or test, test, data_dir / layout.folder


def _find_layout(
    name: str, entry: ImageSet, data_dir: Path, *, test_only: bool = False
) -> tuple[Layout, list[Path]]:
    """Return the first complete layout and its files; the error names the most complete one."""
    needed = [
        layout.test if test_only else (*layout.train, *layout.test) for layout in entry.layouts
    ]
    missing = []
    for layout, names in zip(entry.layouts, needed, strict=True):
        paths = [data_dir / layout.folder / file for file in names]
        paths = [p if os.path.isfile(p) or p.suffix != ".gz" else p.with_suffix("") for p in paths]
        absent = [file for file, p in zip(names, paths, strict=True) if not os.path.isfile(p)]
        if not absent:
            return layout, paths
        missing.append(absent)
    nearest = min(range(len(missing)), key=lambda i: len(missing[i]))
    alternatives = "".join(
        f", or all of {', '.join(names)} in {data_dir / layout.folder}"
        for i, (layout, names) in enumerate(zip(entry.layouts, needed, strict=True))
        if i != nearest
    )
    raise MissingDataError(
        f"data set '{name}': no {', '.join(missing[nearest])} in "
        f"{data_dir / entry.layouts[nearest].folder}: {how_to_get(name, entry, alternatives)}"
    )


def _check_md5(path: Path, expected: str | None) -> None:
    if expected is None:
        return
    with readable(path), path.open("rb") as file:
        digest = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False))
    if digest.hexdigest() != expected:
        raise RequestError(
            f"{path}: MD5 {digest.hexdigest()} ({path.stat().st_size} bytes), expected {expected}: "
            "the file is corrupt or another one: download it again"
        )


def _check_splits(
    images: InMemoryImages, entry: ImageSet, folder: Path | None, splits: Sequence[str]
) -> None:
    """Check the number of images, the labels and the digest of the splits that were read."""
    labels = {"train": images.train_y, "test": images.test_y}
    for (split, y), count in zip(labels.items(), entry.num_images, strict=True):
        if split not in splits:
            continue
        where = f"data set '{images.name}': {split} split{f' in {folder}' if folder else ''}"
        if len(y) != count:
            raise RequestError(f"{where}: {len(y)} images, expected {count}: download it again")
        outside = y[(y < 0) | (y >= images.num_classes)]
        if len(outside):
            raise RequestError(
                f"{where}: label {outside[0]}, expected 0 .. {images.num_classes - 1}: download it "
                "again"
            )
        if images.split_digests[split] != entry.digests.get(split, images.split_digests[split]):
            raise RequestError(
                f"{where}: its content differs from the original (SHA-256): download it again"
            )
