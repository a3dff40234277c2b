"""Lists of image pairs for verification: two images of one identity, or of two.

The first line distinguishes two formats. LFW's begins with a line of two numbers, `FOLDS
PAIRS`, or of one, `PAIRS`; then each fold has PAIRS lines `NAME I J` (two images of an identity)
and PAIRS lines `NAME I OTHER J` (of two identities). Image I of NAME is NAME/NAME_000I.jpg, or has
another image suffix. The plain format has lines `PATH PATH 1` (one identity) or `PATH PATH 0`
(two). Columns are separated by tabs, where a line has any, else by blanks; empty lines are ignored.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marginctl.data.images.content import IMAGE_SUFFIXES
from marginctl.data.paths import readable, resolve_path
from marginctl.errors import RequestError
from marginctl.utils.text import shorten

FOLDS = 10

_LFW = "NAME I J or NAME I OTHER J"
_PLAIN = "two paths and 1 (one identity) or 0"

Row = tuple[int, str, str, bool]  # line number, two paths, whether they show one identity


@dataclass(frozen=True, eq=False)
class VerificationPairs:
    name: str  # the path of the list as the user gave it
    file: Path  # the path of the list
    root: Path  # the folder of the images
    files: Sequence[Path]  # the M different images, in the order of their first occurrence
    rows: NDArray[np.int64]  # (N, 2) the images of each pair, as indices of `files`
    same: NDArray[np.bool_]  # (N,) whether a pair shows one identity
    lines: NDArray[np.int64]  # (N,) the line of each pair in the list
    folds: NDArray[np.int64]  # (N,) the fold of each pair, from 0
    folds_from: str  # `file`, or `order` where folds are contiguous parts of the pairs of each kind

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the pairs and their folds, by the images' relative paths and file sizes.

        The images are not read: an image that changes and keeps its size is not noticed.
        """
        images = [
            b"%s\0%d\0" % (os.fsencode(os.path.relpath(file, self.root)), file.stat().st_size)
            for file in self.files
        ]
        columns = (self.rows.tolist(), self.same, self.folds)
        content = hashlib.sha256()
        for (first, second), same, fold in zip(*columns, strict=True):
            content.update(b"%s%s%d\0%d\n" % (images[first], images[second], same, fold))
        return content.hexdigest()

    def first_line(self, row: int) -> int:
        """Return the first line of the list that has an image, by its row in `files`."""
        return int(self.lines[(self.rows == row).any(1).argmax()])


def load_pairs(paths: Iterable[str], data_dir: Path) -> list[VerificationPairs]:
    """Return the pairs of lists, whose images are in the folder of the list.

    Args:
        paths: the lists; a relative path that does not exist is taken below `data_dir`.

    Raises:
        RequestError: as `read_pairs`, or two lists have the same pairs.
    """
    lists: dict[str, VerificationPairs] = {}
    for name in paths:
        pairs = replace(read_pairs(resolve_path(name, data_dir), None), name=name)
        if pairs.digest in lists:
            raise RequestError(f"pairs {name}: duplicate: name each list once")
        lists[pairs.digest] = pairs
    return list(lists.values())


def read_pairs(file: Path, root: Path | None) -> VerificationPairs:
    """Return the pairs of a list; its images are looked up, and none is read.

    Where the list has no folds there are ten, or as many as the rarer kind has pairs: the i-th of n
    pairs of a kind is in fold floor(10 i / n), so that every fold has both kinds.

    Args:
        file: the path of the list.
        root: the folder of the images; None for the folder of the list.

    Raises:
        RequestError: the list or an image is missing, a line has another form, the number of lines
            contradicts the first line, a pair has both kinds, or all pairs have one kind.
    """
    lines = _lines(file)
    root = file.parent if root is None else root
    if not root.is_dir():
        raise RequestError(
            f"--images {root}: no such folder: expected the folder of the pairs' images"
        )
    first = _cells(lines[0][1])
    folds: NDArray[np.int64] | None = None
    if len(first) < 3 and all(cell.isdecimal() and len(cell) < 10 for cell in first):
        rows = [_read_lfw_line(file, number, text, root) for number, text in lines[1:]]
        folds = _lfw_folds(file, [int(cell) for cell in first], rows)
    else:
        rows = [_read_plain_line(file, number, text) for number, text in lines]
    same = np.array([kind for _, _, _, kind in rows], np.bool_)
    for kind, identities in ((True, "one identity"), (False, "two identities")):
        if kind not in same:
            raise RequestError(
                f"{file}: no pair of {identities} among {len(rows)}: expected pairs of both kinds"
            )
    images: dict[str, str] = {}  # normalised path -> path as first written
    for _, *paths, _ in rows:
        for path in paths:
            images.setdefault(os.path.normpath(path), path)
    index = {path: i for i, path in enumerate(images)}
    pairs = VerificationPairs(
        name=str(file),
        file=file,
        root=root,
        files=[root / path for path in images.values()],
        rows=np.array(
            [[index[os.path.normpath(path)] for path in paths] for _, *paths, _ in rows], np.int64
        ),
        same=same,
        lines=np.array([number for number, *_ in rows], np.int64),
        folds=_contiguous_folds(same) if folds is None else folds,
        folds_from="order" if folds is None else "file",
    )
    _check_images_exist(pairs)
    _check_one_kind(pairs)
    return pairs


def _lines(file: Path) -> list[tuple[int, str]]:
    """Return the lines that are not empty, with their numbers."""
    with readable(file):
        content = file.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{file}: not UTF-8 text at byte {error.start}: expected a list of pairs of images"
        ) from None
    if "\0" in text:
        raise RequestError(f"{file}: a binary file: expected a list of pairs of images")
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise RequestError(f"{file}: is empty: expected lines of {_LFW}, or of {_PLAIN}")
    return lines


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().split("\t")] if "\t" in line else line.split()


def _read_lfw_line(file: Path, number: int, text: str, root: Path) -> Row:
    cells = _cells(text)
    name, other = (cells[0], cells[0]) if len(cells) == 3 else (cells[0], cells[-2])
    images = [cells[1], cells[-1]] if len(cells) in (3, 4) else []
    if not images or not all(i.isdecimal() and len(i) < 10 for i in images):
        raise RequestError(f"{file}:{number}: '{shorten(text)}': expected {_LFW}")
    if len(cells) == 4 and name == other:
        raise RequestError(
            f"{file}:{number}: '{shorten(text)}': expected two names that differ, or {name} "
            f"{images[0]} {images[1]}"
        )
    paths = [_lfw_path(root, n, int(i)) for n, i in zip((name, other), images, strict=True)]
    return _row(file, number, paths[0], paths[1], len(cells) == 3)


def _lfw_path(root: Path, name: str, image: int) -> str:
    """Return LFW's path of an image, with the suffix of the existing file, else .jpg."""
    path = f"{name}/{name}_{image:04d}"
    return path + next((s for s in IMAGE_SUFFIXES if os.path.isfile(root / f"{path}{s}")), ".jpg")


def _read_plain_line(file: Path, number: int, text: str) -> Row:
    cells = _cells(text)
    if len(cells) != 3 or cells[2] not in ("0", "1") or not all(cells):
        raise RequestError(f"{file}:{number}: '{shorten(text)}': expected {_PLAIN}")
    return _row(file, number, cells[0], cells[1], cells[2] == "1")


def _row(file: Path, number: int, first: str, second: str, same: bool) -> Row:
    if os.path.normpath(first) == os.path.normpath(second):
        raise RequestError(f"{file}:{number}: {shorten(first)} with itself: expected two images")
    return number, first, second, same


def _lfw_folds(file: Path, counts: Sequence[int], rows: Sequence[Row]) -> NDArray[np.int64] | None:
    """Return the fold of each pair by LFW's first line; None where that has no number of folds."""
    folds, pairs = counts if len(counts) == 2 else (1, counts[0])
    if len(rows) != folds * 2 * pairs or not rows:
        raise RequestError(
            f"{file}:1: says {folds} x 2 x {pairs} pairs, but the file has {len(rows)}: expected "
            "as many lines as the first one says"
        )
    for i, (number, *_, same) in enumerate(rows):
        if same != (i % (2 * pairs) < pairs):
            wanted = "NAME I OTHER J" if same else "NAME I J"
            raise RequestError(
                f"{file}:{number}: pair {i % (2 * pairs) + 1} of its fold: expected {wanted}: the "
                f"first {pairs} pairs of a fold show one identity, the others two"
            )
    return np.arange(len(rows)) // (2 * pairs) if folds > 1 else None


def _contiguous_folds(same: NDArray[np.bool_]) -> NDArray[np.int64]:
    folds = np.empty(len(same), np.int64)
    number = min(FOLDS, int(same.sum()), int((~same).sum()))
    for kind in (True, False):
        count = int((same == kind).sum())
        folds[same == kind] = np.arange(count) * number // count
    return folds


def _check_images_exist(pairs: VerificationPairs) -> None:
    absent = [row for row, file in enumerate(pairs.files) if not os.path.isfile(file)]
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise RequestError(
            f"{pairs.file}:{pairs.first_line(absent[0])}: no image {pairs.files[absent[0]]}{more}:"
            " add them (or name the folder of the images: eval --images)"
        )


def _check_one_kind(pairs: VerificationPairs) -> None:
    """Raise RequestError where two images are paired as one identity and as two."""
    key = pairs.rows.min(1) * len(pairs.files) + pairs.rows.max(1)
    both = np.intersect1d(key[pairs.same], key[~pairs.same])
    if len(both):
        one, two = (pairs.lines[(key == both[0]) & kind][0] for kind in (pairs.same, ~pairs.same))
        raise RequestError(
            f"{pairs.file}:{max(one, two)}: repeats the pair of line {min(one, two)} with the "
            "other kind: expected one of the two"
        )
