"""Folders of images, a sub-folder a class: what lies in them, and decoding it."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from marginctl.data.images.readers import ArraySplit
from marginctl.data.tabular.uci import MissingDataError
from marginctl.errors import RequestError
from marginctl.utils.seed import generator

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_DECODED_BYTES = 2 * 2**30
IMAGE_SUFFIXES = frozenset(
    [".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"]
)
MOST_NAMED = 5
PARTS = ("val", "test", "train")  # of a folder, the first two to test on
_ENDINGS = f"expected files ending in {', '.join(sorted(IMAGE_SUFFIXES))}"


def resolve_path(path: str, data_dir: Path) -> Path:
    """The path that a user wrote; a relative one that is not there is looked for in `data_dir`."""
    written = Path(os.path.expanduser(path))
    return written if written.exists() else data_dir / written


def held_out_part(root: Path, *, test_only: bool = False) -> Path:
    """`val/`, or `test/` where there is no `val/`.

    Where the test part alone is asked for it is the folder itself, if that has neither these nor
    `train/`: images to be told apart, or to try a network on, often lie so.
    """
    parts = [root / part for part in PARTS if os.path.isdir(root / part)]
    if test_only and not parts and os.path.isdir(root):
        return root
    return next((part for part in parts if part.name != "train"), root / "val")


def list_image_folder(
    name: str, root: Path, *, test_share: float | None = None, test_only: bool = False
) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """The image files by class, of `train/CLASS/*` and of `val/CLASS/*` (or `test/`).

    Args:
        name: of the set, for messages.
        root: the folder.
        test_share: of the images of each class in a folder that holds the classes themselves,
            `CLASS/*`: so many are its test part, always the same ones.
        test_only: whether `train/` is not looked at; the classes may lie in the folder itself.

    Returns:
        The training and the test files; the classes and the files of each are sorted by name.

    Raises:
        DataMissingError: there is no such folder.
        RequestError: no classes or images, or a class that is only tested.
    """
    at, tested = f"data set '{name}'", held_out_part(root, test_only=test_only)
    if test_share is not None:
        return _divided(at, root, test_share)
    for part in (tested,) if test_only else (root / "train", tested):
        if not os.path.isdir(part):
            flat = not any(os.path.isdir(root / p) for p in PARTS) and os.path.isdir(root)
            divided = f"; a training divides {root}/CLASS/IMAGE: data.test_fraction = 0.2"
            raise MissingDataError(
                f"{at}: no folder {part}: expected {root}/train/CLASS/IMAGE and "
                f"{root}/val/CLASS/IMAGE (or test in place of val){divided * flat}"
            )
    train = {} if test_only else images_of_classes(root / "train")
    test = images_of_classes(tested)
    if test_only:
        train = {c: [] for c in test}
    if not train:
        where = tested if test_only else root / "train"
        raise RequestError(f"{at}: no class folders in {where}: make one for each class")
    empty = [] if test_only else [root / "train" / c for c, files in train.items() if not files]
    if not any(test.values()):
        empty.append(tested)
    if empty:
        raise RequestError(f"{at}: no images in {empty[0]}: {_ENDINGS}")
    unknown = [c for c in test if c not in train]
    if unknown:
        raise RequestError(
            f"{at}: class '{unknown[0]}' in {tested} is not in {root / 'train'}: "
            "remove it, or add training images"
        )
    return train, test


def _divided(
    at: str, root: Path, share: float
) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """The images of each class in two parts; a class of two images or more is in both."""
    for part in PARTS:
        if os.path.isdir(root / part):
            raise RequestError(
                f"{at}: data.test_fraction = {share:g} of a folder with {root / part}: leave it out"
            )
    if not os.path.isdir(root):
        raise MissingDataError(f"{at}: no folder {root}: expected {root}/CLASS/IMAGE")
    train: dict[str, list[Path]] = {}
    test: dict[str, list[Path]] = {}
    for name, files in images_of_classes(root).items():
        if not files:
            raise RequestError(f"{at}: no images in {root / name}: {_ENDINGS}")
        count = min(max(1, round(share * len(files))), len(files) - 1)
        drawn = generator(0, "test part", name).permutation(len(files))[:count]
        test[name] = [files[i] for i in sorted(drawn)]
        train[name] = [file for file in files if file not in set(test[name])]
    if not train:
        raise RequestError(f"{at}: no class folders in {root}: make one for each class")
    if not any(test.values()):
        raise RequestError(f"{at}: one image in each class of {root}: expected 2 or more")
    return train, test


def decode_image_folder(
    name: str,
    root: Path,
    pixels: int,
    *,
    test_share: float | None = None,
    test_only: bool = False,
) -> tuple[ArraySplit, ArraySplit, tuple[str, ...]]:
    """A folder of images, as `list_image_folder` finds them, in memory.

    Each image is turned as its EXIF tag says and converted to RGB; its largest centred square is
    scaled (bilinear, antialiased) to `pixels`: the same as scaling the short side and cropping.

    With `test_only` the training part is empty, and `train/` is not looked at.

    Returns:
        The training part, the test part, and the classes: the sorted sub-folders of `train/`, or
        of the folder itself where `test_share` is given.

    Raises:
        DataMissingError: there is no such folder.
        RequestError: as `list_image_folder`, too many pixels, or files that are no images.
    """
    at = f"data set '{name}'"
    train, test = list_image_folder(name, root, test_share=test_share, test_only=test_only)
    classes = tuple(train)
    count = sum(map(len, (*train.values(), *test.values())))
    size = count * pixels * pixels * 3
    if size > MOST_DECODED_BYTES:
        raise RequestError(
            f"{at}: {count} images of {pixels} x {pixels} pixels are {size / 2**30:.1f} GiB "
            f"decoded, at most {MOST_DECODED_BYTES / 2**30:.0f}: ask for fewer pixels, or for "
            "data.load = stream"
        )
    unreadable: list[Path] = []
    parts = [_decode_all(files, classes, pixels, unreadable) for files in (train, test)]
    if unreadable:
        named = ", ".join(str(p.relative_to(root)) for p in unreadable[:MOST_NAMED])
        more = len(unreadable) - MOST_NAMED
        raise RequestError(
            f"{at}: {len(unreadable)} of {count} files in {root} cannot be read as 8-bit images: "
            f"{named}{f' and {more} more' if more > 0 else ''}: repair or remove them"
        )
    return parts[0], parts[1], classes


def images_of_classes(part: Path) -> dict[str, list[Path]]:
    """The image files of each class, both sorted by name; hidden ones are passed over.

    Raises:
        RequestError: a folder that cannot be read.
    """
    return {inner.name: images_in(inner) for inner in _visible(part) if os.path.isdir(inner)}


def images_in(folder: Path) -> list[Path]:
    """The image files of a folder, sorted by name; hidden ones are passed over.

    Raises:
        RequestError: the folder cannot be read.
    """
    return [
        file
        for file in _visible(folder)
        if file.suffix.lower() in IMAGE_SUFFIXES and os.path.isfile(file)
    ]


def open_rgb(path: str | Path) -> "Image":
    """A decoded image: turned as its EXIF tag says, and RGB.

    Raises:
        Exception: of any kind: a damaged image makes the decoders raise anything.
    """
    from PIL import Image, ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tags that are damaged: the pixels are whole
        with Image.open(path) as image:
            # converting deeper pixels to RGB cuts them at 255: a white image and no error
            if image.mode.startswith(("I", "F")):
                raise OSError(f"pixels of mode {image.mode}, expected 8 bits a channel")
            return ImageOps.exif_transpose(image).convert("RGB")


def _visible(where: Path) -> Iterator[Path]:
    try:
        found = sorted(where.iterdir(), key=lambda path: path.name)
    except OSError as error:
        raise RequestError(f"{where}: cannot be read: {error.strerror or error}") from None
    return (path for path in found if not path.name.startswith("."))


def _decode_all(
    files: Mapping[str, Sequence[Path]],
    classes: tuple[str, ...],
    pixels: int,
    unreadable: list[Path],
) -> ArraySplit:
    numbers = {name: number for number, name in enumerate(classes)}
    labelled = [(path, numbers[name]) for name, paths in files.items() for path in paths]
    x = np.zeros((len(labelled), pixels, pixels, 3), np.uint8)
    for i, (path, _) in enumerate(labelled):
        try:
            x[i] = np.asarray(centre_square(open_rgb(path), pixels), np.uint8)
        except Exception:  # a damaged image makes the decoders raise anything
            unreadable.append(path)
    return x, np.array([label for _, label in labelled], np.int64)


def centre_square(image: "Image", pixels: int) -> "Image":
    """The largest centred square of an image, scaled bilinearly and antialiased to `pixels`."""
    from PIL import Image, ImageOps

    return ImageOps.fit(image, (pixels, pixels), Image.Resampling.BILINEAR)
