"""Listing of image files on disk with their labels: by name, in folders and by lists."""

import csv
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from marginctl.data.images import folders, registry
from marginctl.data.paths import MissingDataError, readable, resolve_path
from marginctl.errors import RequestError
from marginctl.utils.registry import import_object

Rows = list[tuple[str, int]]  # a path and its label

VALIDATION_NAME = "ILSVRC2012_val_{:08d}"
VALIDATION_LISTS = ("LOC_val_solution.csv", "val_labels.txt")
PART_WORDS = {"train": "training", "test": "test", "val": "validation"}
MAX_CLASSES = 1_000_000  # of a list of test images only, which may leave classes out
MAX_LABEL_DIGITS = 18  # of a label of 64 bits


@dataclass(frozen=True)
class Listing:
    classes: tuple[str, ...]  # the class names, by label
    # path, relative to the set's folder or absolute, and label of each image
    train: Rows
    test: Rows
    val: Rows | None = None  # of the validation part; None if there is no such part

    @property
    def parts(self) -> dict[str, Rows]:
        """The images of each part: `train`, `test` and, if there is one, `val`."""
        parts = {"train": self.train, "test": self.test}
        return parts if self.val is None else parts | {"val": self.val}


def find_on_disk(name: str, data_dir: Path) -> Path:
    """Return the folder of an image set on disk.

    Raises:
        MissingDataError: it is missing.
    """
    if name.startswith((registry.FOLDER_PREFIX, registry.LIST_PREFIX)):
        return resolve_path(name.partition(":")[2], data_dir)
    return data_dir / _find_layout(name, registry.IMAGE_SETS.find(name), data_dir).folder


def list_image_set(
    name: str, data_dir: Path, **options: Unpack[folders.PartOptions]
) -> tuple[Path, Listing]:
    """Return the folder of an image set on disk, and its files by part.

    Raises:
        MissingDataError: files are missing.
        RequestError: a list or a label is not as expected, or the named set has another number of
            images.
    """
    root, test_only = find_on_disk(name, data_dir), options.get("test_only", False)
    if name.startswith(registry.FOLDER_PREFIX):
        return root, list_folder(name, root, **options)
    if name.startswith(registry.LIST_PREFIX):
        return root, list_files(name, root, test_only)
    entry = registry.IMAGE_SETS[name]
    reader = import_object(_find_layout(name, entry, data_dir).reader, f"image set '{name}'")
    listing = reader(name, root, test_only)
    _check_counts(name, entry, root, listing, test_only=test_only)
    return root, listing


def _find_layout(name: str, entry: registry.ImageSet, data_dir: Path) -> registry.Layout:
    """Return the first layout whose marker exists."""
    for layout in entry.layouts:
        if os.path.exists(data_dir / layout.folder / layout.marker):
            return layout
    first = entry.layouts[0]
    raise MissingDataError(
        f"data set '{name}': no {' and '.join((*first.train, *first.test))} in "
        f"{data_dir / first.folder}: {registry.how_to_get(name, entry)}"
    )


def _check_counts(
    name: str, entry: registry.ImageSet, root: Path, listing: Listing, *, test_only: bool
) -> None:
    counts = [("classes", len(listing.classes), entry.num_classes)]
    counts += [
        (f"{PART_WORDS[part]} images", len(getattr(listing, part) or ()), count)
        for part, count in entry.part_sizes.items()
        if part == "test" or not test_only
    ]
    for what, actual, expected in counts:
        if actual != expected:
            raise RequestError(
                f"data set '{name}': {actual} {what} in {root}, expected {expected}: unpack it "
                "again, or load a part of it as folder:PATH or list:PATH"
            )


def list_folder(name: str, root: Path, **options: Unpack[folders.PartOptions]) -> Listing:
    """List the images of class folders, as `list_image_folder`."""
    train, test, val = folders.list_image_folder(name, root, **options)
    labels = {c: label for label, c in enumerate(train)}
    return Listing(
        tuple(train),
        _label_files(train, labels),
        _label_files(test, labels),
        None if val is None else _label_files(val, labels),
    )


def _label_files(files: folders.ClassFiles, labels: Mapping[str, int]) -> Rows:
    return [(path, labels[c]) for c, paths in files.items() for path in paths]


def list_imagenet(name: str, root: Path, test_only: bool) -> Listing:
    """List ImageNet's folders by wnid.

    The validation images may be in one folder, with a list of their labels.
    """
    lists = [root / file for file in VALIDATION_LISTS if os.path.isfile(root / file)]
    scan = folders.FolderScan(root)
    images = scan.images_in("val") if lists else []
    if not images:
        return list_folder(name, root, test_only=test_only)
    classes = imagenet_wnids()
    labels = {c: label for label, c in enumerate(classes)}
    test_labels = _read_validation_labels(lists[0], labels)
    unlisted = [path for path in images if Path(path).stem not in test_labels]
    if unlisted:
        name = Path(unlisted[0]).name
        raise RequestError(f"{lists[0]}: no label of {name}: expected one for each image")
    test = [(path, test_labels[Path(path).stem]) for path in images]
    train = {} if test_only else scan.images_by_class("train")
    unknown = [c for c in train if c not in labels]
    if unknown:
        raise RequestError(f"{root / 'train' / unknown[0]}: not a class of ImageNet: remove it")
    return Listing(classes, _label_files(train, labels), test)


def _read_validation_labels(path: Path, labels: dict[str, int]) -> dict[str, int]:
    """Return labels by image name without suffix.

    Lines are `NAME WNID`, or Kaggle's `NAME,WNID x y x y`.
    """
    image_labels = {}
    for number, line in enumerate(_read_lines(path), 1):
        cells = next(csv.reader([line])) if path.suffix == ".csv" else line.split()
        if number == 1 and cells[0] == "ImageId":
            continue
        wnids = cells[1].split() if len(cells) > 1 else []
        if not wnids or wnids[0] not in labels:
            raise RequestError(f"{path}:{number}: '{line[:60]}': expected an image and its wnid")
        image_labels[Path(cells[0]).stem] = labels[wnids[0]]
    return image_labels


def imagenet_wnids() -> tuple[str, ...]:
    """Return the WordNet ids (wnids) of ImageNet's 1,000 classes (ILSVRC 2012), in order."""
    path = Path(__file__).with_name("imagenet_wnids.txt")
    return tuple(path.read_text("ascii").split())


def list_places365(name: str, root: Path, test_only: bool) -> Listing:
    """List Places-365 as torchvision unpacks its version of 256 x 256 pixels."""
    categories = root / "categories_places365.txt"
    train_list = root / "places365_train_standard.txt"
    test_list = root / "places365_val.txt"
    for path in (categories, test_list) if test_only else (categories, train_list, test_list):
        if not os.path.isfile(path):
            raise MissingDataError(f"data set '{name}': no {path}: unpack the list of files there")
    by_label = sorted((label, path) for path, label in read_list(categories))
    classes = tuple(path for _, path in by_label)

    def read(path: Path, folder: str) -> Rows:
        rows = read_list(path)
        _check_labels(path, rows, len(classes))
        return [(f"{folder}/{image.lstrip('/')}", label) for image, label in rows]

    train = [] if test_only else read(train_list, "data_256_standard")
    return Listing(classes, train, read(test_list, "val_256"))


def list_cub(name: str, root: Path, test_only: bool) -> Listing:
    """List CUB-200-2011 by its lists of images, classes, labels and parts."""
    tables = {}
    for file in ("images", "classes", "image_class_labels", "train_test_split"):
        lines = [line.split(maxsplit=1) for line in _read_lines(root / f"{file}.txt")]
        if any(len(cells) < 2 or not cells[0].isdecimal() for cells in lines):
            raise RequestError(f"{root / file}.txt: expected a number and a value on each line")
        tables[file] = {int(number): value.strip() for number, value in lines}
    images, classes, labels, trained = tables.values()
    if not images.keys() == labels.keys() == trained.keys() or {*labels.values()} != {
        str(number) for number in classes
    }:
        raise RequestError(f"{root}: its lists have other images or classes: unpack it again")
    rows = [(f"images/{path}", int(labels[i]) - 1, trained[i] == "1") for i, path in images.items()]
    train = [] if test_only else [(path, label) for path, label, is_train in rows if is_train]
    test = [(path, label) for path, label, is_train in rows if not is_train]
    return Listing(tuple(classes.values()), train, test)


def list_files(name: str, root: Path, test_only: bool) -> Listing:
    """List the images in `train.txt` and `val.txt` (or `test.txt`).

    With all three, `val.txt` is the validation part and `test.txt` the test part. `classes.txt`
    names the classes, if it exists.
    """
    has_validation = all(os.path.isfile(root / f"{part}.txt") for part in folders.SPLIT_FOLDERS)
    test_file = next((f for f in ("val.txt", "test.txt") if os.path.isfile(root / f)), "val.txt")
    if has_validation:
        test_file = "test.txt"
    for file in (test_file,) if test_only else ("train.txt", test_file):
        if not os.path.isfile(root / file):
            raise MissingDataError(
                f"data set '{name}': no {root / file}: expected train.txt and val.txt (or "
                "test.txt) there, whose lines are an image's path and its label"
            )
    train = [] if test_only else read_list(root / "train.txt")
    test = read_list(root / test_file)
    val = read_list(root / "val.txt") if has_validation and not test_only else None
    if os.path.isfile(root / "classes.txt"):
        classes = read_class_names(root / "classes.txt")
    elif test_only:
        _check_labels(root / test_file, test, MAX_CLASSES)
        classes = tuple(map(str, range(1 + max(label for _, label in test))))
    else:  # as many as there are labels, however large these are
        labels = {label for _, label in train}
        classes = tuple(map(str, range(len(labels))))
        if min(labels) >= 0:  # so that a gap is reported, and not the label after it
            _check_no_empty_class(root / "train.txt", train, classes)
    for file, rows in (("train.txt", train), (test_file, test), ("val.txt", val or [])):
        _check_labels(root / file, rows, len(classes))
    if not test_only:
        _check_no_empty_class(root / "train.txt", train, classes)
    return Listing(classes, train, test, val)


def read_class_names(path: Path) -> tuple[str, ...]:
    """Return the names of `classes.txt`, one a line.

    Raises:
        RequestError: it is empty, or names a class twice.
    """
    classes = tuple(line.strip() for line in _read_lines(path))
    if not classes:
        raise RequestError(f"{path}: is empty: expected the name of a class on each line")
    if len(set(classes)) < len(classes):
        duplicate = Counter(classes).most_common(1)[0][0]
        raise RequestError(f"{path}: duplicate class '{duplicate}': name each class once")
    return classes


def read_list(path: Path) -> Rows:
    """Read lines of a path, which may contain blanks, and a label, an integer from 0 on.

    Raises:
        RequestError: a line has another form, or gives an image a second label.
    """
    rows, labels = [], dict[str, int]()
    for number, line in enumerate(_read_lines(path), 1):
        image, *rest = line.strip().rsplit(maxsplit=1)
        label = rest[0] if rest else ""
        digits = label.removeprefix("-")
        if not digits.isascii() or not digits.isdigit() or len(digits) > MAX_LABEL_DIGITS:
            raise RequestError(
                f"{path}:{number}: '{line[:60]}': expected an image's path, a blank and a label"
            )
        first = labels.setdefault(os.path.normpath(image), int(label))
        if first != int(label):
            raise RequestError(
                f"{path}:{number}: label {label} of {image}, which has label {first} above: "
                "expected one label for each image"
            )
        rows.append((image, int(label)))
    if not rows:
        raise RequestError(f"{path}: is empty: expected lines of an image's path and its label")
    return rows


def _check_labels(path: Path, rows: Rows, num_classes: int) -> None:
    for image, label in rows:
        if not 0 <= label < num_classes:
            raise RequestError(f"{path}: label {label} of {image}: expected 0 .. {num_classes - 1}")


def _check_no_empty_class(path: Path, rows: Rows, classes: Sequence[str]) -> None:
    labels = {label for _, label in rows}
    empty = next((i for i in range(len(classes)) if i not in labels), None)
    if empty is not None:
        raise RequestError(
            f"{path}: no image of class {empty} ('{classes[empty]}'): add images, or number the "
            "classes from 0 on without a gap"
        )


def exclude_images(rows: Rows, name: str, path: Path) -> Rows:
    """Return the rows without the images that a file lists.

    Args:
        path: the file; a line is a path in the set, a file's name with or without its suffix, or,
            of ImageNet, the number of a validation image.

    Raises:
        RequestError: a line is no test image, or no test image is left.
    """
    names = [line.strip() for line in _read_lines(path)]
    if name == "imagenet":
        names = [VALIDATION_NAME.format(int(n)) if n.isdigit() else n for n in names]
    excluded, matched, remaining = set(names), set(), []
    for image, label in rows:
        file = Path(image)
        matches = excluded & {image, file.name, file.stem}
        matched |= matches
        if not matches:
            remaining.append((image, label))
    unknown = [n for n in names if n not in matched]
    if unknown or not remaining:
        problem = (
            f"'{unknown[0]}' is no test image of {name}" if unknown else "excludes all test images"
        )
        raise RequestError(f"data.exclude = {path}: {problem}: expected names of some of them")
    return remaining


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a file that are not blank; names in any encoding survive."""
    with readable(path):
        text = path.read_text("utf-8-sig", errors="surrogateescape")
    return [line for line in text.split("\n") if line.strip()]
