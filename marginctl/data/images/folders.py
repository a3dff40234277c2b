"""Folders of images with one sub-folder per class: listing and decoding."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from marginctl.data.images.readers import ArraySplit
from marginctl.data.paths import MissingDataError
from marginctl.errors import RequestError
from marginctl.utils.seed import generator

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_DECODED_BYTES = 2 * 2**30
MAX_LISTED_FILES = 5
IMAGE_SUFFIXES = frozenset(
    [".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"]
)
SPLIT_FOLDERS = ("val", "test", "train")  # the first one of val and test is the test split
_EXPECTED_FILES = f"expected files ending in {', '.join(sorted(IMAGE_SUFFIXES))}"

ClassFiles = dict[str, list[Path]]  # by class, both sorted by name


def find_test_folder(root: Path, *, test_only: bool = False) -> Path:
    """Return the folder of the test split: `val/`, or else `test/`.

    With `test_only`, it is the root itself where that has none of `val/`, `test/` and `train/`:
    OOD data sets and images to evaluate on often have no splits.
    """
    splits = [root / split for split in SPLIT_FOLDERS if os.path.isdir(root / split)]
    if test_only and not splits and os.path.isdir(root):
        return root
    return next((split for split in splits if split.name != "train"), root / "val")


def list_image_folder(
    name: str, root: Path, *, test_fraction: float | None = None, test_only: bool = False
) -> tuple[ClassFiles, ClassFiles]:
    """Return the training and the test files by class: `train/CLASS/*` and `val/CLASS/*`.

    Args:
        name: the image set's name, for messages.
        root: the folder.
        test_fraction: for a folder without splits (`CLASS/*`), the fraction of the images of each
            class that form the test split, always the same ones.
        test_only: whether `train/` is not needed; the classes may be in the root itself.

    Raises:
        MissingDataError: a folder is missing.
        RequestError: no classes or images, or a class without a training folder.
    """
    label, test_root = f"data set '{name}'", find_test_folder(root, test_only=test_only)
    if test_fraction is not None:
        return _split_image_folder(label, root, test_fraction)
    for folder in (test_root,) if test_only else (root / "train", test_root):
        if not os.path.isdir(folder):
            message = (
                f"{label}: no folder {folder}: expected {root}/train/CLASS/IMAGE and "
                f"{root}/val/CLASS/IMAGE (or test instead of val)"
            )
            if os.path.isdir(root) and not any(os.path.isdir(root / s) for s in SPLIT_FOLDERS):
                message += f"; to split {root}/CLASS/IMAGE, set data.test_fraction, such as 0.2"
            raise MissingDataError(message)
    train = {} if test_only else images_by_class(root / "train")
    test = images_by_class(test_root)
    if test_only:
        train = {c: [] for c in test}
    if not train:
        folder = test_root if test_only else root / "train"
        raise RequestError(f"{label}: no class folders in {folder}: make one for each class")
    empty = [] if test_only else [root / "train" / c for c, files in train.items() if not files]
    if not any(test.values()):
        empty.append(test_root)
    if empty:
        raise RequestError(f"{label}: no images in {empty[0]}: {_EXPECTED_FILES}")
    unknown = [c for c in test if c not in train]
    if unknown:
        raise RequestError(
            f"{label}: class '{unknown[0]}' in {test_root} is not in {root / 'train'}: remove it, "
            "or add training images"
        )
    return train, test


def _split_image_folder(label: str, root: Path, fraction: float) -> tuple[ClassFiles, ClassFiles]:
    """Split the images of each class; a class of two images or more is in both splits."""
    for split in SPLIT_FOLDERS:
        if os.path.isdir(root / split):
            raise RequestError(
                f"{label}: data.test_fraction = {fraction:g}, but {root / split} exists: leave "
                "data.test_fraction out"
            )
    if not os.path.isdir(root):
        raise MissingDataError(f"{label}: no folder {root}: expected {root}/CLASS/IMAGE")
    train: ClassFiles = {}
    test: ClassFiles = {}
    for name, files in images_by_class(root).items():
        if not files:
            raise RequestError(f"{label}: no images in {root / name}: {_EXPECTED_FILES}")
        count = min(max(1, round(fraction * len(files))), len(files) - 1)
        drawn = generator(0, "test part", name).permutation(len(files))[:count]
        test[name] = [files[i] for i in sorted(drawn)]
        train[name] = [file for file in files if file not in set(test[name])]
    if not train:
        raise RequestError(f"{label}: no class folders in {root}: make one for each class")
    if not any(test.values()):
        raise RequestError(
            f"{label}: every class folder of {root} has one image: expected 2 or more"
        )
    return train, test


def decode_image_folder(
    name: str,
    root: Path,
    image_size: int,
    *,
    test_fraction: float | None = None,
    test_only: bool = False,
) -> tuple[ArraySplit, ArraySplit, tuple[str, ...]]:
    """Return the training split, the test split and the classes of a folder, decoded.

    Each image is rotated by its EXIF tag and converted to RGB; its largest centred square is
    resized (bilinear, antialiased), which equals resizing the short side and cropping. The
    arguments are those of `list_image_folder`.

    Raises:
        MissingDataError: a folder is missing.
        RequestError: as `list_image_folder`, too many pixels, or files that are no images.
    """
    label = f"data set '{name}'"
    splits = list_image_folder(name, root, test_fraction=test_fraction, test_only=test_only)
    classes = tuple(splits[0])
    count = sum(len(files) for split in splits for files in split.values())
    size = count * image_size * image_size * 3
    if size > MAX_DECODED_BYTES:
        raise RequestError(
            f"{label}: {count} images of {image_size} x {image_size} pixels need "
            f"{size / 2**30:.1f} GiB, at most {MAX_DECODED_BYTES / 2**30:.0f}: reduce "
            "data.image_size, or set data.load = stream"
        )
    unreadable: list[Path] = []
    train, test = (_decode_files(files, classes, image_size, unreadable) for files in splits)
    if unreadable:
        listed = ", ".join(str(p.relative_to(root)) for p in unreadable[:MAX_LISTED_FILES])
        more = len(unreadable) - MAX_LISTED_FILES
        raise RequestError(
            f"{label}: {len(unreadable)} of {count} files in {root} cannot be read as 8-bit "
            f"images: {listed}{f' and {more} more' if more > 0 else ''}: repair or remove them"
        )
    return train, test, classes


def images_by_class(folder: Path) -> ClassFiles:
    """Return the image files of each class folder, without hidden ones.

    Raises:
        RequestError: a folder cannot be read.
    """
    return {inner.name: images_in(inner) for inner in _visible(folder) if os.path.isdir(inner)}


def images_in(folder: Path) -> list[Path]:
    """Return the image files of a folder, sorted by name, without hidden ones.

    Raises:
        RequestError: the folder cannot be read.
    """
    return [
        file
        for file in _visible(folder)
        if file.suffix.lower() in IMAGE_SUFFIXES and os.path.isfile(file)
    ]


def open_rgb(path: str | Path) -> "Image":
    """Return a decoded RGB image, rotated by its EXIF tag.

    Raises:
        Exception: of any kind: a corrupt image can make the decoders raise anything.
    """
    from PIL import Image, ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about corrupt tags of intact images
        with Image.open(path) as image:
            # conversion of deeper pixels to RGB would clip them at 255 without an error
            if image.mode.startswith(("I", "F")):
                raise OSError(f"pixels of mode {image.mode}, expected 8 bits a channel")
            return ImageOps.exif_transpose(image).convert("RGB")


def centre_square(image: "Image", image_size: int) -> "Image":
    """Return the largest centred square of an image, resized (bilinear, antialiased)."""
    from PIL import Image, ImageOps

    return ImageOps.fit(image, (image_size, image_size), Image.Resampling.BILINEAR)


def _visible(folder: Path) -> Iterator[Path]:
    try:
        paths = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as error:
        raise RequestError(f"{folder}: cannot be read: {error.strerror or error}") from None
    return (path for path in paths if not path.name.startswith("."))


def _decode_files(
    files: Mapping[str, Sequence[Path]],
    classes: tuple[str, ...],
    image_size: int,
    unreadable: list[Path],
) -> ArraySplit:
    labels = {name: label for label, name in enumerate(classes)}
    rows = [(path, labels[name]) for name, paths in files.items() for path in paths]
    x = np.zeros((len(rows), image_size, image_size, 3), np.uint8)
    for i, (path, _) in enumerate(rows):
        try:
            x[i] = np.asarray(centre_square(open_rgb(path), image_size), np.uint8)
        except Exception:  # a corrupt image can make the decoders raise anything
            unreadable.append(path)
    return x, np.array([label for _, label in rows], np.int64)
