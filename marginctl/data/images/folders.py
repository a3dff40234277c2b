"""Folders of images with one sub-folder per class: listing and decoding."""

import os
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from marginctl.data.images import content
from marginctl.data.images.groups import ImageGroups, hold_out_groups
from marginctl.data.images.registry import FOLDER_PREFIX
from marginctl.data.paths import MissingDataError, readable
from marginctl.errors import RequestError
from marginctl.utils.seed import generator

if TYPE_CHECKING:
    from PIL.Image import Image

SPLIT_FOLDERS = ("val", "test", "train")  # with two of them, val or test is the test split
# Folders that are meant as one of these, and would else be taken for classes.
PART_NAMES = frozenset(["train", "training", "val", "valid", "validation", "test", "testing"])
TEST_FRACTION = 0.2  # of a folder without parts
GROUND = "white"  # below transparent pixels

HIDDEN = "hidden"
MACOSX = "__MACOSX"
DANGLING = "link to nothing"
LOOP = "link to a folder that is read already"
OUTSIDE = "image outside a class folder"
NO_FILE = "neither a file nor a folder"

ClassFiles = dict[str, list[str]]  # paths relative to the root by class, both sorted


@dataclass(frozen=True)
class FolderScan:
    """Lists the images of a folder, and those files that are passed over.

    Raises:
        RequestError: from every method, where a folder cannot be read.
    """

    root: Path
    # by reason, the paths of files, relative to the root
    skipped: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def images_by_class(self, part: str = "") -> ClassFiles:
        """Return the images of each class folder of a part, at any depth below that folder.

        Class names are in Unicode's composed form (NFC): two spellings of a name are one class.
        """
        classes: ClassFiles = {}
        folders, files = self._entries(part)
        for path in folders:
            name = unicodedata.normalize("NFC", os.path.basename(path))
            classes.setdefault(name, []).extend(self._images_below(path, part))
        self._skip_outside(files)
        return {name: sorted(paths) for name, paths in sorted(classes.items())}

    def other_folders(self, parts: Sequence[str]) -> list[str]:
        """Return the folders of the root that are no parts; its files are passed over."""
        folders, files = self._entries("")
        self._skip_outside(files)
        return [folder for folder in folders if folder not in parts]

    def images_at_any_depth(self) -> list[str]:
        """Return the images of the root and of all folders below it."""
        folders, files = self._entries("")
        images = self._images(files)
        for folder in folders:
            images += self._images_below(folder, "")
        return sorted(images)

    def images_in(self, folder: str) -> list[str]:
        """Return the images of a folder, without its sub-folders."""
        return sorted(self._images(self._entries(folder)[1]))

    def _images_below(self, folder: str, part: str) -> list[str]:
        """Return the images of a folder and its sub-folders, each of which is read once."""
        read = {os.path.realpath(self.root), os.path.realpath(os.path.join(self.root, part))}
        images, pending = [], [folder]
        while pending:
            inner = pending.pop()
            real = os.path.realpath(os.path.join(self.root, inner))
            if real in read:
                self.skipped[LOOP].append(inner)
                continue
            read.add(real)
            folders, files = self._entries(inner)
            pending += folders
            images += self._images(files)
        return images

    def _images(self, files: Sequence[str]) -> list[str]:
        images = []
        for path in files:
            reason = content.pass_over_reason(os.path.join(self.root, path))
            if reason is None:
                images.append(path)
            else:
                self.skipped[reason].append(path)
        return images

    def _skip_outside(self, files: Sequence[str]) -> None:
        if images := self._images(files):
            self.skipped[OUTSIDE] += images

    def _entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the sub-folders and the files of a folder; others are passed over."""
        folders, files = [], []
        prefix = f"{folder}/" if folder else ""
        place = os.path.join(self.root, folder)
        with readable(place), os.scandir(place) as iterator:
            entries = sorted(iterator, key=lambda entry: entry.name)
        for entry in entries:
            path, link = prefix + entry.name, entry.is_symlink()
            if entry.name.startswith("."):
                self.skipped[HIDDEN].append(path)
            elif os.path.isdir(entry.path) if link else entry.is_dir():
                if entry.name == MACOSX:
                    self.skipped[MACOSX].append(path)
                else:
                    folders.append(path)
            elif os.path.isfile(entry.path) if link else entry.is_file():
                files.append(path)
            else:
                self.skipped[DANGLING if link else NO_FILE].append(path)
        return folders, files


def has_validation_folder(name: str, root: Path) -> bool:
    """Return whether `val/` is the validation part: `train/` and `test/` have classes too.

    The `val/` of a named image set, such as imagenet, is its test part.
    """
    parts = (root / part for part in SPLIT_FOLDERS)
    return name.startswith(FOLDER_PREFIX) and all(map(_has_folders, parts))


def _has_folders(folder: Path) -> bool:
    try:
        return any(entry.is_dir() for entry in os.scandir(folder) if entry.name[0] != ".")
    except OSError:
        return False


class PartOptions(TypedDict, total=False):
    """Which parts of a folder are needed, and how one without parts is divided."""

    test_fraction: float | None
    groups: ImageGroups | None  # of images that stay together
    test_only: bool  # the training part is left empty and its files are not needed


def list_image_folder(
    name: str,
    root: Path,
    *,
    test_fraction: float | None = None,
    groups: ImageGroups | None = None,
    test_only: bool = False,
) -> tuple[ClassFiles, ClassFiles, ClassFiles | None]:
    """Return the training, test and validation files by class; None without a validation part.

    They are `train/CLASS/*`, and `val/CLASS/*` or `test/CLASS/*`; see `has_validation_folder`.
    Images may lie deeper in a class folder. A folder `CLASS/*` without these parts is split: a
    fraction of the images of each class, always the same ones, is the test split.

    Args:
        name: the image set's name, for messages.
        test_fraction: of a folder without parts; None for `TEST_FRACTION`.
        groups: of images that belong together when a folder without parts is split.
        test_only: whether `train/` is not needed; the classes may be in the root itself, or there
            are none and the images are in the root, as is usual for OOD data sets.

    Raises:
        MissingDataError: a folder is missing.
        RequestError: no classes or images, or a class without a training folder.
    """
    label, scan = f"data set '{name}'", FolderScan(root)
    parts = [part for part in SPLIT_FOLDERS if os.path.isdir(root / part)]
    if test_fraction is not None and parts:
        raise RequestError(
            f"{label}: data.test_fraction = {test_fraction:g}, but {root / parts[0]} exists: leave "
            "data.test_fraction out"
        )
    is_undivided = not parts and os.path.isdir(root)
    if is_undivided and not test_only:
        classes = scan.images_by_class()
        check_no_parts(label, root, classes)
        _check_classes(label, root, classes)
        return *split_classes(label, root, classes, test_fraction, groups), None
    has_validation = has_validation_folder(name, root)
    part = next((part for part in parts if part != "train"), "val")
    part = "" if is_undivided else "test" if has_validation else part
    test_root = root / part
    for folder in (test_root,) if test_only else (root / "train", test_root):
        if not os.path.isdir(folder):
            raise MissingDataError(
                f"{label}: no folder {folder}: expected {root}/train/CLASS/IMAGE and "
                f"{root}/val/CLASS/IMAGE (or test instead of val), or {root}/CLASS/IMAGE"
            )
    train = {} if test_only else scan.images_by_class("train")
    test = scan.images_by_class(part)
    if test_only and not any(test.values()) and (flat := scan.skipped.get(OUTSIDE)):
        test = {test_root.name: flat}
    if not test_only:
        _check_classes(label, root / "train", train)
    val = scan.images_by_class("val") if has_validation and not test_only else None
    for folder, files in ((test_root, test), (root / "val", val)):
        if files is None:
            continue
        if not any(files.values()):
            raise RequestError(f"{label}: no images in {folder}: expected a folder for each class")
        if not test_only:
            _check_trained_classes(label, train, files, folder)
    return {c: [] for c in test} if test_only else train, test, val


def _check_trained_classes(
    label: str, train: ClassFiles, classes: ClassFiles, folder: Path
) -> None:
    """Raise RequestError for a class of another part that has no training folder."""
    for c in classes:
        if c not in train:
            same = [known for known in train if known.casefold() == c.casefold()]
            raise RequestError(
                f"{label}: class '{c}' in {folder} is not in {folder.parent / 'train'}: remove it, "
                f"or add training images{f', or rename it to {same[0]!r}' if same else ''}"
            )


def check_no_parts(label: str, root: Path, classes: ClassFiles) -> None:
    """Raise RequestError where a folder without parts has them under other names or deeper.

    `Training/CLASS/IMAGE`, `CLASS/train/IMAGE` or `NAME/train/CLASS/IMAGE` would mix the parts.
    """
    for folder in (root, *(root / c for c in classes if (root / c).is_dir())):
        parts = sorted(name for name in os.listdir(folder) if name.casefold() in PART_NAMES)
        if len(parts) > 1:
            raise RequestError(
                f"{label}: {folder / parts[0]} and {folder / parts[1]} look like parts: expected "
                f"{root}/train/CLASS/IMAGE and {root}/val/CLASS/IMAGE (or test instead of val): "
                "rename or move them, or name the folder that holds them"
            )


def _check_classes(label: str, folder: Path, classes: ClassFiles) -> None:
    if not classes:
        raise RequestError(f"{label}: no class folders in {folder}: make one for each class")
    empty = next((c for c, files in classes.items() if not files), None)
    if empty is not None:
        raise RequestError(
            f"{label}: no images in {folder / empty}: add images, or remove the folder"
        )


def split_classes(
    label: str, root: Path, classes: ClassFiles, fraction: float | None, groups: ImageGroups | None
) -> tuple[ClassFiles, ClassFiles]:
    """Split the images of each class; a class of two images or more is in both splits.

    With groups, those of a group are in one split.
    """
    fraction = fraction or TEST_FRACTION
    tested: set[tuple[str, str]] = set()
    if groups is not None:
        rows = [(name, file) for name, files in classes.items() for file in files]
        labels = np.repeat(np.arange(len(classes)), [len(files) for files in classes.values()])
        numbers = groups.numbers([file for _, file in rows])
        held_out = hold_out_groups(label, labels, numbers, fraction, 0, "test part")
        tested = {rows[i] for i in held_out}
    else:
        for name, files in classes.items():
            count = min(max(1, round(fraction * len(files))), len(files) - 1)
            drawn = generator(0, "test part", name).permutation(len(files))[:count]
            tested |= {(name, files[i]) for i in drawn}
    if not tested:
        raise RequestError(
            f"{label}: every class folder of {root} has one image: expected 2 or more"
        )
    return (
        {c: [f for f in files if (c, f) not in tested] for c, files in classes.items()},
        {c: [f for f in files if (c, f) in tested] for c, files in classes.items()},
    )


def open_rgb(path: str | Path) -> "Image":
    """Return a decoded RGB image, rotated by its EXIF tag, on a white ground if it is transparent.

    Raises:
        Exception: of any kind: a corrupt image can make the decoders raise anything.
    """
    from PIL import Image, ImageOps

    with (
        warnings.catch_warnings(action="ignore"),  # about corrupt tags of intact images
        Image.open(path, formats=content.image_formats()) as image,
    ):
        if content.is_deep(image.mode):
            raise content.NotAnImageError(content.DEEP)
        upright = ImageOps.exif_transpose(image)
        if not upright.has_transparency_data:
            return upright.convert("RGB")
        colours = upright.convert("RGBA")
        ground = Image.new("RGBA", colours.size, GROUND)
        return Image.alpha_composite(ground, colours).convert("RGB")


def centre_square(image: "Image", image_size: int) -> "Image":
    """Return the largest centred square of an image, resized (bilinear, antialiased)."""
    from PIL import Image, ImageOps

    return ImageOps.fit(image, (image_size, image_size), Image.Resampling.BILINEAR)
