"""Argument checks and row blocks that all metrics share."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Numbers in one block of rows: 16 MiB of float64, and metrics hold a few arrays of that size.
BLOCK_SIZE = 2**21


def check_rows(name: str, rows: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], IntArray]:
    """Return an (N, C) array in its own dtype and its N labels from 0 to C - 1; else ValueError."""
    x = np.asarray(rows)
    if x.ndim != 2 or x.shape[1] < 1:
        raise ValueError(f"{name}: shape {x.shape}, expected (N, C)")
    if x.dtype.kind not in "iuf":
        raise ValueError(f"{name}: dtype {x.dtype}, expected real numbers")
    if not len(x):
        raise ValueError(f"{name}: no sample")
    return x, check_labels(labels, x.shape[1], name, len(x))


def check_labels(labels: ArrayLike, num_classes: int, name: str, n: int) -> IntArray:
    """Return n labels from 0 to `num_classes` - 1; ValueError as `check_classes`, or another n."""
    y = check_classes("labels", labels, num_classes)
    if len(y) != n:
        raise ValueError(f"labels: {len(y)} of them, expected one for each of {n} {name}")
    return y


def check_classes(name: str, classes: ArrayLike, num_classes: int) -> IntArray:
    """Return (N,) class indices as int64, each from 0 to `num_classes` - 1; else ValueError."""
    y = np.asarray(classes)
    if y.ndim != 1:
        raise ValueError(f"{name}: shape {y.shape}, expected (N,)")
    if not len(y):
        raise ValueError(f"{name}: no sample")
    if y.dtype.kind not in "iu":  # numpy counts timedelta64 as an integer type, too
        raise ValueError(f"{name}: dtype {y.dtype}, expected an integer one")
    for value in (int(y.min()), int(y.max())):
        if not 0 <= value < num_classes:
            row = int((y == value).argmax())
            raise ValueError(f"{name}: {value}, expected 0 to {num_classes - 1} (row {row})")
    return y.astype(np.int64)


def row_blocks(n: int, width: int) -> Iterator[slice]:
    """Yield slices that cover n rows of `width` numbers, about `BLOCK_SIZE` numbers in each."""
    rows = max(1, BLOCK_SIZE // max(1, width))
    for start in range(0, n, rows):
        yield slice(start, min(start + rows, n))
