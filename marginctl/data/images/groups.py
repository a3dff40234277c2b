"""Groups of images: those of one person or object are in one part of a data set."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marginctl.data.images.registry import PATTERN_PREFIX, parse_pattern
from marginctl.data.paths import resolve_path
from marginctl.errors import RequestError
from marginctl.utils.seed import generator
from marginctl.utils.text import count_noun, join_names

COLUMNS = ("image", "group")

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class ImageGroups:
    """Names the group of an image by its path."""

    source: str  # the recipe's text
    # whose first group, in the file's name, is the name; None for a table
    pattern: re.Pattern[str] | None
    names: Mapping[str, str]  # of a table, the group of each path

    def numbers(self, paths: Sequence[str]) -> IntArray:
        """Return (n,) the number of each image's group.

        Raises:
            RequestError: an image without a group.
        """
        keys = [self._name(path) for path in paths]
        missing = [path for path, key in zip(paths, keys, strict=True) if not key]
        if missing:
            what = "does not match" if self.pattern else "has no row for"
            raise RequestError(
                f"data.groups = {self.source}: {what} {count_noun(len(missing), 'image')}: "
                f"{join_names(missing)}: expected a group for each"
            )
        numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        return np.array([numbers[key] for key in keys], np.int64)

    def _name(self, path: str) -> str:
        if self.pattern is None:
            return self.names.get(path, "")
        match = self.pattern.search(path.rpartition("/")[2])
        return match[1] or "" if match else ""


def read_image_groups(source: str, data_dir: Path) -> ImageGroups:
    """Return the groups that `data.groups` names.

    Args:
        source: `re:PATTERN` with a group in parentheses, or a CSV file with the columns `image`, a
            path relative to the folder of the images, and `group`.

    Raises:
        RequestError: no such pattern or file.
    """
    if source.startswith(PATTERN_PREFIX):
        return ImageGroups(source, parse_pattern(source), {})
    from marginctl.data.tabular.cells import read_cells

    frame = read_cells(resolve_path(source, data_dir)).frame
    if missing := [name for name in COLUMNS if name not in frame]:
        raise RequestError(
            f"data.groups = {source}: no column '{missing[0]}': expected a CSV file with the "
            f"columns {' and '.join(COLUMNS)}"
        )
    images, groups = (frame[name].astype(str) for name in COLUMNS)
    return ImageGroups(source, None, dict(zip(images, groups, strict=True)))


def hold_out_groups(
    label: str, labels: IntArray, groups: IntArray, fraction: float, seed: int, stream: str
) -> IntArray:
    """Return the sorted rows to hold out: about a fraction of the images, in whole groups.

    They are a fold of scikit-learn's StratifiedGroupKFold, the first that leaves images of every
    class.

    Args:
        label: what the images are called in an error.
        labels, groups: (n,) class and group of each image.
        stream: names the random stream, which is drawn by the seed.

    Raises:
        RequestError: there are too few groups.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    number = len(np.unique(groups))
    folds = min(number, max(2, round(1 / min(fraction, 1 - fraction))))
    if number > 1:
        random_state = int(generator(seed, stream, "groups").integers(2**31))
        split = StratifiedGroupKFold(folds, shuffle=True, random_state=random_state)
        with warnings.catch_warnings(action="ignore"):  # of a class with fewer images than folds
            parts = list(split.split(np.zeros(len(labels)), labels, groups))
        for fit, held_out in parts if fraction <= 0.5 else [(b, a) for a, b in parts]:
            if len(held_out) and len(np.unique(labels[fit])) == len(np.unique(labels)):
                return np.sort(held_out).astype(np.int64)
    raise RequestError(
        f"{label}: {count_noun(number, 'group')} of images: no division leaves images of every "
        "class: expected several groups in each class"
    )
