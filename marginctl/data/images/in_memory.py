"""Image data sets in memory: decoded files, named sets from their original files, and checks."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from marginctl.data.images import registry
from marginctl.data.images.base import Images, Split
from marginctl.data.images.content import decoding_problem, skipped_files
from marginctl.data.images.folders import centre_square, open_rgb
from marginctl.data.images.listing import Listing
from marginctl.data.images.readers import ArraySplit
from marginctl.data.paths import MissingDataError, readable
from marginctl.errors import RequestError
from marginctl.utils.registry import import_object

MAX_DECODED_BYTES = 2 * 2**30


@dataclass(frozen=True, eq=False)
class PixelSplit(Split):
    x: NDArray[np.uint8]  # (N, H, W, C) pixels

    def digest(self) -> str:
        """Return the SHA-256 of the shape, pixels and labels."""
        content = hashlib.sha256(repr(self.x.shape).encode())
        content.update(np.ascontiguousarray(self.x).reshape(-1).data)
        content.update(np.ascontiguousarray(self.y, "<i8").tobytes())
        return content.hexdigest()


@dataclass(frozen=True, eq=False)
class InMemoryImages(Images[PixelSplit]):
    """Square images for classification, with a test split."""

    digest_description: ClassVar[str] = "pixels, labels and class names"

    @property
    def channels(self) -> int:
        return int(self.train.x.shape[3])

    @property
    def image_size(self) -> int:
        return int(self.train.x.shape[1])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content: the same images from other files have the same digest."""
        content = repr((self.classes, *self.split_digests.values(), *self.group_digest()))
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of each channel, for pixels in [0, 1]: published, or of the training images."""
        entry = registry.IMAGE_SETS.get(self.name)
        return (entry and entry.mean) or self._moments[0]

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of each channel, like `mean`; 1 where all pixels are equal."""
        entry = registry.IMAGE_SETS.get(self.name)
        return (entry and entry.std) or self._moments[1]

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation from pixel counts: exact, whatever the order of images."""
        if not len(self.train.x):  # only a test split, which is normalised by other moments
            return (0.0,) * self.channels, (1.0,) * self.channels
        counts = np.zeros((self.channels, 256), np.int64)
        for start in range(0, len(self.train.x), 1000):  # bincount needs 8 bytes for a pixel
            block = self.train.x[start : start + 1000]
            for channel in range(self.channels):
                counts[channel] += np.bincount(block[..., channel].ravel(), minlength=256)
        frequencies = counts / counts.sum(1, keepdims=True)
        values = np.arange(256) / 255
        mean = frequencies @ values
        std = np.sqrt((frequencies * (values - mean[:, None]) ** 2).sum(1))
        constant = (counts > 0).sum(1) == 1
        return tuple(mean.tolist()), tuple(np.where(constant, 1.0, std).tolist())


def decode_parts(name: str, root: Path, listing: Listing, image_size: int) -> dict[str, PixelSplit]:
    """Return the images of each part of a listing, by the names of `Listing.parts`.

    Each image is rotated by its EXIF tag and converted to RGB; its largest centred square is
    resized (bilinear, antialiased), which equals resizing the short side and cropping.

    Raises:
        RequestError: the images are too large for memory, or files cannot be decoded.
    """
    parts = listing.parts
    count = sum(map(len, parts.values()))
    size = count * image_size * image_size * 3
    if size > MAX_DECODED_BYTES:
        raise RequestError(
            f"data set '{name}': {count} images of {image_size} x {image_size} pixels need "
            f"{size / 2**30:.1f} GiB, at most {MAX_DECODED_BYTES / 2**30:.0f}: reduce "
            "data.image_size, or set data.load = stream"
        )
    problems: dict[str, list[str]] = {}
    decoded = {}
    for part, rows in parts.items():
        x = np.zeros((len(rows), image_size, image_size, 3), np.uint8)
        for i, (path, _) in enumerate(rows):
            file = os.path.join(root, path)
            try:
                x[i] = np.asarray(centre_square(open_rgb(file), image_size), np.uint8)
            except Exception as error:  # a corrupt image can make the decoders raise anything
                problems.setdefault(decoding_problem(file, error), []).append(path)
        decoded[part] = PixelSplit(x, y=np.array([label for _, label in rows], np.int64))
    if problems:
        raise RequestError(*(skipped.line(name) for skipped in skipped_files(problems)))
    return decoded


def find_in_memory(name: str, data_dir: Path) -> Path | None:
    """Return the folder of a named image set's files; None where a dependency contains them.

    Raises:
        MissingDataError: files are missing.
    """
    entry = registry.IMAGE_SETS.find(name)
    if entry.embedded:
        return None
    layout, _ = _find_layout(name, entry, data_dir)
    return data_dir / layout.folder


def load_original_files(name: str, data_dir: Path, *, test_only: bool = False) -> InMemoryImages:
    """Return a named image set, read from its original files; MD5 digests are checked first.

    Raises:
        MissingDataError: files are missing.
        RequestError: files are corrupt or not the original ones.
    """
    entry, owner = registry.IMAGE_SETS[name], f"image set '{name}'"
    parts = ("test",) if test_only else ("train", "test")
    arrays: dict[str, ArraySplit]
    if entry.embedded:
        folder = None
        arrays = dict(zip(("train", "test"), import_object(entry.embedded, owner)(), strict=True))
    else:
        layout, paths = _find_layout(name, entry, data_dir, test_only=test_only)
        folder = data_dir / layout.folder
        for path in paths:
            if path.name in layout.md5:
                _check_md5(path, layout.md5[path.name])
        reader: Callable[[Sequence[Path], int], ArraySplit] = import_object(layout.reader, owner)
        first = len(paths) - len(layout.test)  # of the test part
        files = {"train": paths[:first], "test": paths[first:]}
        arrays = {part: reader(files[part], entry.part_sizes[part]) for part in parts}
    splits = {part: PixelSplit(arrays[part][0], y=arrays[part][1]) for part in parts}
    test = splits["test"]
    assert not isinstance(entry.classes, int)
    images = InMemoryImages(name, entry.classes, splits.get("train", test.select(slice(0))), test)
    _check_splits(images, entry, folder, parts)
    return images


def _find_layout(
    name: str, entry: registry.ImageSet, data_dir: Path, *, test_only: bool = False
) -> tuple[registry.Layout, list[Path]]:
    """Return the first complete layout and its files; the error names the most complete one."""
    incomplete = []
    for layout in entry.layouts:
        names = layout.test if test_only else (*layout.train, *layout.test)
        folder = data_dir / layout.folder
        paths = [folder / file for file in names]
        paths = [p if os.path.isfile(p) or p.suffix != ".gz" else p.with_suffix("") for p in paths]
        absent = [file for file, p in zip(names, paths, strict=True) if not os.path.isfile(p)]
        if not absent:
            return layout, paths
        incomplete.append((absent, f"all of {', '.join(names)} in {folder}", folder))
    nearest = min(incomplete, key=lambda layout: len(layout[0]))
    absent, _, folder = nearest
    alternatives = "".join(f", or {files}" for _, files, _ in incomplete if files != nearest[1])
    raise MissingDataError(
        f"data set '{name}': no {', '.join(absent)} in {folder}: "
        f"{registry.how_to_get(name, entry, alternatives)}"
    )


def _check_md5(path: Path, expected: str) -> None:
    with readable(path), path.open("rb") as file:
        digest = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False))
    if digest.hexdigest() != expected:
        raise RequestError(
            f"{path}: MD5 {digest.hexdigest()} ({path.stat().st_size} bytes), expected {expected}: "
            "the file is corrupt or another one: download it again"
        )


def _check_splits(
    images: InMemoryImages, entry: registry.ImageSet, folder: Path | None, splits: Sequence[str]
) -> None:
    """Check the number of images, the labels and the digest of the splits that were read."""
    for split in splits:
        y, count = getattr(images, split).y, entry.part_sizes[split]
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
