"""Where the files of streamed image sets lie, and how they are labelled."""

import csv
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from marginctl.data.images import folders
from marginctl.data.images.known_sets import STREAMED_SETS
from marginctl.data.images.on_disk import OnDiskImages, make_file_split
from marginctl.data.images.registry import (
    FOLDER_PREFIX,
    LIST_PREFIX,
    check_image_set_name,
    loading_modes,
)
from marginctl.data.tabular.uci import DATA_DIR_VARIABLE, MissingDataError
from marginctl.errors import RequestError

Rows = list[tuple[str, int]]  # a path and its class
Found = tuple[tuple[str, ...], Rows, Rows]  # class names, training and test rows

VALIDATION_NAME = "ILSVRC2012_val_{:08d}"
VALIDATION_LISTS = ("LOC_val_solution.csv", "val_labels.txt")
MOST_CLASSES = 1_000_000  # of a list of test images alone, which may leave classes out
MOST_DIGITS = 18  # of a label, which is 64 bits wide


def load_on_disk(
    name: str,
    data_dir: Path,
    pixels: int,
    *,
    blacklist: str | None = None,
    test_share: float | None = None,
    test_only: bool = False,
) -> OnDiskImages:
    """Lists and labels the files of a streamed set; that they are there is checked, none is read.

    Args:
        name: `list:PATH`, `folder:PATH`, `imagenet` or `places-365`; a relative PATH that is not
            there is looked for in `data_dir`.
        pixels: the side of the images that a network is given.
        blacklist: a file of test images to leave out, a line each: a path in the set, a file's name
            with or without its ending, or, of ImageNet, the number of a validation image.
        test_share: of the images of each class in a folder without parts (see `list_image_folder`).
        test_only: whether the training part is left out; what it lacks then does not matter.

    Raises:
        DataMissingError: files are not there.
        RequestError: a name that is not of a streamed set, a label outside its range, a class
            without images, a missing file, or other counts than the named set has.
    """
    check_image_set_name(name)
    if "stream" not in loading_modes(name):
        raise RequestError(
            f"data set '{name}': is held in memory: expected one of {', '.join(STREAMED_SETS)}, "
            f"{FOLDER_PREFIX}PATH, {LIST_PREFIX}PATH"
        )
    root = find_on_disk(name, data_dir)
    kinds: dict[str, Callable[[str, Path, bool], Found]] = {
        "imagenet": _imagenet,
        "places-365": _places,
    }
    in_folder = partial(_folder, test_share=test_share)
    read = kinds.get(name) or (_lists if name.startswith(LIST_PREFIX) else in_folder)
    classes, train, test = read(name, root, test_only)
    if name in STREAMED_SETS:
        _check_counts(name, root, len(classes), train, test, test_only)
    if blacklist is not None:
        test = _without(test, name, folders.resolve_path(blacklist, data_dir))
    parts = (make_file_split(name, root, rows) for rows in (train, test))
    return OnDiskImages(name, root.absolute(), pixels, classes, *parts)


def find_on_disk(name: str, data_dir: Path) -> Path:
    """The folder of a streamed set.

    Raises:
        DataMissingError: it is not there.
    """
    if name not in STREAMED_SETS:
        return folders.resolve_path(name.partition(":")[2], data_dir)
    kind = STREAMED_SETS[name]
    for folder in kind.folders:
        root = data_dir / folder
        if name == "imagenet" and os.path.isdir(root / "val"):
            return root
        if name != "imagenet" and os.path.isfile(root / kind.files[0]):
            return root
    raise MissingDataError(
        f"data set '{name}': no {' and '.join(kind.files)} in {data_dir / kind.folders[0]}: put "
        f"the original files there, or name the data folder with --data-dir or {DATA_DIR_VARIABLE}"
    )


def _check_counts(
    name: str, root: Path, classes: int, train: Rows, test: Rows, test_only: bool
) -> None:
    kind = STREAMED_SETS[name]
    found = {
        "classes": (classes, kind.num_classes),
        "training images": (kind.rows[0] if test_only else len(train), kind.rows[0]),
        "test images": (len(test), kind.rows[1]),
    }
    for what, (have, expected) in found.items():
        if have != expected:
            raise RequestError(
                f"data set '{name}': {have} {what} in {root}, expected {expected}: unpack it "
                f"again, or name a part of it {FOLDER_PREFIX}PATH or {LIST_PREFIX}PATH"
            )


def _folder(name: str, root: Path, test_only: bool, test_share: float | None = None) -> Found:
    """`train/CLASS/*` and `val/CLASS/*`, or `test/`; with a share `CLASS/*` alone."""
    train, test = folders.list_image_folder(name, root, test_share=test_share, test_only=test_only)
    classes = tuple(train)
    if test_share is not None:
        return classes, _labelled(".", train, classes), _labelled(".", test, classes)
    inside = folders.held_out_part(root, test_only=test_only).relative_to(root).as_posix()
    return classes, _labelled("train", train, classes), _labelled(inside, test, classes)


def _labelled(part: str, files: dict[str, list[Path]], classes: Sequence[str]) -> Rows:
    numbers = {c: i for i, c in enumerate(classes)}
    inside = "" if part == "." else f"{part}/"
    return [(f"{inside}{c}/{f.name}", numbers[c]) for c, there in files.items() for f in there]


def _imagenet(name: str, root: Path, test_only: bool) -> Found:
    """Folders by wnid; the validation images also in one folder, with a list of their labels."""
    lists = [root / file for file in VALIDATION_LISTS if os.path.isfile(root / file)]
    flat = folders.images_in(root / "val") if lists else []
    if not flat:
        return _folder(name, root, test_only)
    classes = imagenet_wnids()
    numbers = {c: i for i, c in enumerate(classes)}
    labels = _validation_labels(lists[0], numbers)
    unlisted = [file for file in flat if file.stem not in labels]
    if unlisted:
        raise RequestError(f"{lists[0]}: no label of {unlisted[0].name}: expected one a line")
    test = [(f"val/{file.name}", labels[file.stem]) for file in flat]
    train = {} if test_only else folders.images_of_classes(root / "train")
    unknown = [c for c in train if c not in numbers]
    if unknown:
        raise RequestError(f"{root / 'train' / unknown[0]}: is no class of ImageNet: remove it")
    return classes, _labelled("train", train, classes), test


def _validation_labels(path: Path, numbers: dict[str, int]) -> dict[str, int]:
    """By an image's name without its ending, from `NAME WNID` or Kaggle's `NAME,WNID x y x y`."""
    labels = {}
    for number, line in enumerate(_lines(path), 1):
        cells = next(csv.reader([line])) if path.suffix == ".csv" else line.split()
        if number == 1 and cells[0] == "ImageId":
            continue
        said = cells[1].split() if len(cells) > 1 else []
        if not said or said[0] not in numbers:
            raise RequestError(f"{path}:{number}: '{line[:60]}': expected an image and its wnid")
        labels[Path(cells[0]).stem] = numbers[said[0]]
    return labels


def imagenet_wnids() -> tuple[str, ...]:
    """The WordNet numbers (wnids) of ImageNet's 1,000 classes, ILSVRC 2012, in their order."""
    path = Path(__file__).with_name("imagenet_wnids.txt")
    return tuple(path.read_text("ascii").split())


def _lists(name: str, root: Path, test_only: bool) -> Found:
    """`train.txt` and `val.txt`, or `test.txt`; `classes.txt` has the class names where it is."""
    tested = next((f for f in ("val.txt", "test.txt") if os.path.isfile(root / f)), "val.txt")
    for file in (tested,) if test_only else ("train.txt", tested):
        if not os.path.isfile(root / file):
            raise MissingDataError(
                f"data set '{name}': no {root / file}: expected train.txt and val.txt (or "
                "test.txt) there, with lines of an image's path and its label"
            )
    train = [] if test_only else _read_list(root / "train.txt")
    test = _read_list(root / tested)
    if os.path.isfile(root / "classes.txt"):
        classes = _class_names(root / "classes.txt")
    elif test_only:
        _check_labels(root / tested, test, MOST_CLASSES)
        classes = tuple(map(str, range(1 + max(label for _, label in test))))
    else:
        classes = _numbered(root / "train.txt", train)
    for file, rows in (("train.txt", train), (tested, test)):
        _check_labels(root / file, rows, len(classes))
    if not test_only:
        _check_no_class_is_empty(root / "train.txt", train, classes)
    return classes, train, test


def _numbered(path: Path, rows: Rows) -> tuple[str, ...]:
    """The classes of a list that names none: as many as it has labels, however large these are."""
    labels = {label for _, label in rows}
    classes = tuple(map(str, range(len(labels))))
    if min(labels) >= 0:  # then the gap is what is wrong, and not the label behind it
        _check_no_class_is_empty(path, rows, classes)
    return classes


def _class_names(path: Path) -> tuple[str, ...]:
    classes = tuple(line.strip() for line in _lines(path))
    if not classes:
        raise RequestError(f"{path}: is empty: expected the name of a class on each line")
    if len(set(classes)) < len(classes):
        twice = next(name for i, name in enumerate(classes) if name in classes[:i])
        raise RequestError(f"{path}: class '{twice}' stands twice: name each class once")
    return classes


def _places(name: str, root: Path, test_only: bool) -> Found:
    """Places-365 as torchvision unpacks its 256 x 256 version."""
    categories, train_list, test_list = (root / f for f in STREAMED_SETS[name].files[:3])
    for path in (categories, test_list) if test_only else (categories, train_list, test_list):
        if not os.path.isfile(path):
            raise MissingDataError(f"data set '{name}': no {path}: unpack the list of files there")
    numbered = sorted((label, path) for path, label in _read_list(categories))
    classes = tuple(path for _, path in numbered)
    parts = []
    for path, folder in ((train_list, "data_256_standard"), (test_list, "val_256")):
        rows = [] if test_only and path == train_list else _read_list(path)
        _check_labels(path, rows, len(classes))
        parts.append([(f"{folder}/{image.lstrip('/')}", label) for image, label in rows])
    return classes, parts[0], parts[1]


def _read_list(path: Path) -> Rows:
    """Lines of a path, which may hold blanks, and of a label, an integer from 0 on.

    Raises:
        RequestError: a line is another one, or gives an image a second label.
    """
    rows, labels = [], dict[str, int]()
    for number, line in enumerate(_lines(path), 1):
        image, *rest = line.strip().rsplit(maxsplit=1)
        label = rest[0] if rest else ""
        digits = label.removeprefix("-")
        if not digits.isascii() or not digits.isdigit() or len(digits) > MOST_DIGITS:
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


def _check_labels(path: Path, rows: Rows, classes: int) -> None:
    for image, label in rows:
        if not 0 <= label < classes:
            raise RequestError(f"{path}: label {label} of {image}: expected 0 .. {classes - 1}")


def _check_no_class_is_empty(path: Path, rows: Rows, classes: Sequence[str]) -> None:
    there = {label for _, label in rows}
    empty = [i for i in range(len(classes)) if i not in there]
    if empty:
        raise RequestError(
            f"{path}: no image of class {empty[0]} ('{classes[empty[0]]}'): add images, or number "
            "the classes from 0 on without a gap"
        )


def _without(rows: Rows, name: str, blacklist: Path) -> Rows:
    """The rows that the file does not name."""
    names = [line.strip() for line in _lines(blacklist)]
    if name == "imagenet":
        names = [VALIDATION_NAME.format(int(n)) if n.isdigit() else n for n in names]
    wanted, used, kept = set(names), set(), []
    for path, label in rows:
        file = Path(path)
        hits = wanted & {path, file.name, file.stem}
        used |= hits
        if not hits:
            kept.append((path, label))
    unknown = [n for n in names if n not in used]
    if unknown or not kept:
        said = f"'{unknown[0]}' is no test image of {name}" if unknown else "leaves no test image"
        raise RequestError(f"data.exclude = {blacklist}: {said}: expected names of some of them")
    return kept


def _lines(path: Path) -> list[str]:
    """The lines of a file that are not blank; names in any encoding survive."""
    try:
        text = path.read_text("utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None
    return [line for line in text.split("\n") if line.strip()]
