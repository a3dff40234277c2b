"""Readers of image files' formats.

A reader takes the paths of a split and its number of images, and returns the images as (N, H, W, C)
uint8 and the labels as (N,) int64. A file that cannot be read is a RequestError of one line.
Whether the labels are in range, and the content original, is checked by the caller.
"""

import gzip
import io
import math
import pickle
import re
import struct
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.data.paths import readable, sklearn_file
from marginctl.errors import RequestError
from marginctl.utils.seed import generator, stratified_order
from marginctl.utils.text import shorten

ArraySplit = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images (N, H, W, C), labels (N,)

CIFAR_VALUES = 3 * 32 * 32
DIGITS_TEST_SIZE = 360
MNIST_SHAPE = (28, 28)


def read_idx(paths: Sequence[Path], count: int) -> ArraySplit:
    """Read MNIST's pair of idx files, images and labels, gzipped or not."""
    images, labels = paths
    x = read_idx_file(images, (count, *MNIST_SHAPE))
    return x[..., None], read_idx_file(labels, (count,)).astype(np.int64)


def read_idx_file(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes: two zeros, the type 8, the number of axes, their lengths.

    Raises:
        RequestError: the file cannot be read, or has another header or size.
    """
    content = _read(path)
    magic, start = 0x800 + len(shape), 4 + 4 * len(shape)
    size = start + math.prod(shape)
    if path.suffix == ".gz":
        try:  # never unpack more than is needed
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                content = file.read(size + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise _unusable(path, f"corrupt gzip file: {error}") from None
    if len(content) < start:
        raise _unusable(path, f"{len(content)} bytes, expected {size}")
    actual_magic, *lengths = struct.unpack(f">I{len(shape)}I", content[:start])
    if actual_magic != magic:
        numbers = f"magic number 0x{actual_magic:08x}, expected 0x{magic:08x}"
        raise _unusable(path, f"{numbers}: not the idx file that its name says")
    if tuple(lengths) != shape:
        raise _unusable(path, f"shape {tuple(lengths)}, expected {shape}")
    if len(content) > size:
        raise _unusable(path, f"more than {size} bytes, expected {size}")
    if len(content) < size:
        raise _unusable(path, f"{len(content)} bytes, expected {size}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def _read_cifar_binary(paths: Sequence[Path], count: int, *, label_bytes: int) -> ArraySplit:
    """Read files of equal length: rows of labels, the last of which is taken, and colour planes."""
    rows, width = count // len(paths), label_bytes + CIFAR_VALUES
    tables = [
        np.frombuffer(_read(path, rows * width), np.uint8).reshape(rows, width) for path in paths
    ]
    x = np.concatenate([_interleave(table[:, label_bytes:]) for table in tables])
    return x, np.concatenate([table[:, label_bytes - 1] for table in tables]).astype(np.int64)


read_cifar10_binary = partial(_read_cifar_binary, label_bytes=1)
read_cifar100_binary = partial(_read_cifar_binary, label_bytes=2)  # of coarse and fine classes


def _read_cifar_pickle(paths: Sequence[Path], count: int, *, key: str) -> ArraySplit:
    """Read pickled batches of equal length, labels under `key`, without running their content."""
    rows = count // len(paths)
    x, y = [], []
    for path in paths:
        batch = _unpickle(path)
        shape, table = _pickled_array(batch.get("data"))
        if shape != (rows, CIFAR_VALUES):
            text = f"images of shape {shorten(str(shape))}, expected {(rows, CIFAR_VALUES)}"
            raise _unusable(path, text)
        labels = batch.get(key)
        if not isinstance(labels, list) or not all(type(v) is int and 0 <= v < 256 for v in labels):
            raise _unusable(path, f"no list of labels under '{key}'")
        if len(labels) != rows:
            raise _unusable(path, f"{len(labels)} labels, expected {rows}")
        x.append(_interleave(table))
        y.append(np.array(labels, np.int64))
    return np.concatenate(x), np.concatenate(y)


read_cifar10_pickle = partial(_read_cifar_pickle, key="labels")
read_cifar100_pickle = partial(_read_cifar_pickle, key="fine_labels")


def read_svhn(paths: Sequence[Path], count: int) -> ArraySplit:
    """Read SVHN's cropped digits: MATLAB files of X (32, 32, 3, N) and y (N, 1), with 10 for 0."""
    from scipy.io import loadmat

    x, y = [], []
    for path in paths:
        try:
            arrays = loadmat(path, variable_names=["X", "y"])
        except Exception as error:  # a corrupt file can raise anything
            raise _unusable(path, f"corrupt .mat file: {shorten(str(error))}") from None
        images, labels = arrays.get("X"), arrays.get("y")
        n = 0 if labels is None or labels.dtype.kind not in "uif" else labels.size
        if images is None or images.shape != (32, 32, 3, n) or images.dtype != np.uint8:
            raise _unusable(path, "expected X (32, 32, 3, N) of bytes and y (N, 1) of numbers")
        x.append(np.ascontiguousarray(images.transpose(3, 0, 1, 2)))
        y.append(labels.reshape(-1).astype(np.int64))
    labels = np.concatenate(y)
    labels[labels == 10] = 0
    return np.concatenate(x), labels


def read_stl10(paths: Sequence[Path], count: int) -> ArraySplit:
    """Read STL-10's pair of binary files: images by channel, column and row, and labels from 1."""
    images, labels = paths
    x = np.frombuffer(_read(images, count * 3 * 96 * 96), np.uint8).reshape(-1, 3, 96, 96)
    y = np.frombuffer(_read(labels, count), np.uint8).astype(np.int64) - 1
    return np.ascontiguousarray(x.transpose(0, 3, 2, 1)), y


def read_digits() -> tuple[ArraySplit, ArraySplit]:
    """Read scikit-learn's 8 x 8 digits, split into 1,437 training and 360 test images.

    The data have no split: this one is ours, stratified and always the same.
    """
    with gzip.open(sklearn_file("digits.csv.gz"), "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    x = np.rint(table[:, :64] * 255 / 16).astype(np.uint8).reshape(-1, 8, 8, 1)
    y = table[:, 64].astype(np.int64)
    order = stratified_order(y, generator(0, "digits", "split"))
    test, train = np.sort(order[:DIGITS_TEST_SIZE]), np.sort(order[DIGITS_TEST_SIZE:])
    return (x[train], y[train]), (x[test], y[test])


def _read(path: Path, size: int | None = None) -> bytes:
    """Return a file's bytes; a file of another size than expected is not read."""
    with readable(path):
        actual = path.stat().st_size
        if size is not None and actual != size:
            raise _unusable(path, f"{actual} bytes, expected {size}")
        return path.read_bytes()


def _unusable(path: Path, problem: str) -> RequestError:
    return RequestError(f"{path}: {problem}: download it again")


def _interleave(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return rows of three colour planes, (N, 3072), as (N, 32, 32, 3)."""
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


class _Placeholder:
    """Stands for a numpy object of a pickle, so that no code of numpy receives unknown content."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _SafeUnpickler(pickle.Unpickler):
    """Reads numbers, text, lists, dicts and placeholders of arrays; refuses every other name."""

    ARRAYS = re.compile(r"numpy\.(ndarray|dtype|_?core\.multiarray\._reconstruct)")

    def find_class(self, module: str, name: str) -> Any:
        if not self.ARRAYS.fullmatch(f"{module}.{name}"):
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _Placeholder


def _unpickle(path: Path) -> dict[str, Any]:
    """Return the dict of a pickle; arrays are placeholders."""
    content = io.BytesIO(_read(path))
    try:
        batch = _SafeUnpickler(content, encoding="bytes").load()
    except Exception as error:  # a corrupt pickle can raise anything
        reason = f"{shorten(str(error) or type(error).__name__)}: nothing in it was run"
        raise _unusable(path, f"corrupt CIFAR file: {reason}") from None
    if not isinstance(batch, dict):
        raise _unusable(path, "not a CIFAR file: no dict in it")
    # Python 2 wrote the original files: its strings are read as bytes
    texts = {k.decode("latin-1"): v for k, v in batch.items() if isinstance(k, bytes)}
    return texts | {k: v for k, v in batch.items() if isinstance(k, str)}


def _pickled_array(value: object) -> tuple[object, NDArray[np.uint8]]:
    """Return the shape and the rows of an array of bytes; the shape is None for anything else."""
    match value:
        case _Placeholder(state=(_, (int(n), int(d)), _Placeholder() as dtype, column, bytes(raw))):
            if dtype.arguments[:1] in ((b"u1",), ("u1",)) and n >= 0 and len(raw) == n * d:
                order: Any = "F" if column else "C"
                return (n, d), np.frombuffer(raw, np.uint8).reshape((n, d), order=order)
    return None, np.empty((0, 0), np.uint8)
