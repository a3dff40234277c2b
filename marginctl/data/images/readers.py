"""The file formats of image data sets: each reader gives whole arrays, or one line saying why not.

Every reader returns the images as (N, H, W, C) uint8 and the labels as (N,) int64; whether the
labels are within the classes, and the content the original one, is for the caller to check.
"""

import gzip
import io
import math
import pickle
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.errors import RequestError
from marginctl.utils.text import short

ArraySplit = tuple[NDArray[np.uint8], NDArray[np.int64]]

CIFAR_PIXELS = 3 * 32 * 32
MNIST_SHAPE = (28, 28)


def idx(paths: Sequence[Path], rows: int) -> ArraySplit:
    """MNIST's pair of idx files, images and labels, gzipped or not.

    Raises:
        RequestError: a file that cannot be read, or has another header or size.
    """
    images, labels = paths
    x = read_idx(images, (rows, *MNIST_SHAPE))
    return x[..., None], read_idx(labels, (rows,)).astype(np.int64)


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An idx file of unsigned bytes: two zeros, the type 8, the number of axes, their lengths.

    Raises:
        RequestError: the file cannot be read, or has another header or size.
    """
    content = _read(path)
    magic, start = 0x800 + len(shape), 4 + 4 * len(shape)
    size = start + math.prod(shape)
    if path.suffix == ".gz":
        try:  # not more than what is looked for, however much is packed
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                content = file.read(size + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise RequestError(f"{path}: not a whole gzip file: {error}: fetch it again") from None
    if len(content) < start:
        raise _wrong_size(path, len(content), size)
    found, *lengths = struct.unpack(f">I{len(shape)}I", content[:start])
    if found != magic:
        raise RequestError(
            f"{path}: magic number 0x{found:08x}, expected 0x{magic:08x}: not the idx file that "
            "its name says: fetch it again"
        )
    if tuple(lengths) != shape:
        raise RequestError(f"{path}: shape {tuple(lengths)}, expected {shape}: fetch it again")
    if len(content) > size:
        raise RequestError(f"{path}: more than {size} bytes, expected {size}: fetch it again")
    if len(content) < size:
        raise _wrong_size(path, len(content), size)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def cifar_binary(paths: Sequence[Path], rows: int, label_bytes: int) -> ArraySplit:
    """CIFAR's binary batches, of equal length: rows of labels, then the planes of one image.

    Args:
        label_bytes: how many labels a row begins with; the last is the finest and is taken.

    Raises:
        RequestError: a file that cannot be read or has another size.
    """
    each, width = rows // len(paths), label_bytes + CIFAR_PIXELS
    x, y = np.empty((rows, 32, 32, 3), np.uint8), np.empty(rows, np.int64)
    for i, path in enumerate(paths):
        content = _read(path, each * width)
        table = np.frombuffer(content, np.uint8).reshape(each, width)
        here = slice(i * each, (i + 1) * each)
        x[here] = _interleaved(table[:, label_bytes:])
        y[here] = table[:, label_bytes - 1]
    return x, y


def cifar_pickle(paths: Sequence[Path], rows: int, labels: str) -> ArraySplit:
    """CIFAR's Python batches, of equal length, without running anything that they hold.

    Args:
        labels: the key of the labels.

    Raises:
        RequestError: a file that cannot be read, is no plain pickle, or has other shapes.
    """
    each = rows // len(paths)
    x, y = np.empty((rows, 32, 32, 3), np.uint8), np.empty(rows, np.int64)
    for i, path in enumerate(paths):
        batch = _unpickle(path)
        shape, table = _pickled_array(batch.get("data"))
        if shape != (each, CIFAR_PIXELS):
            raise RequestError(
                f"{path}: images of shape {short(str(shape))}, expected {(each, CIFAR_PIXELS)}: "
                "fetch it again"
            )
        found = batch.get(labels)
        if not isinstance(found, list) or not all(type(v) is int and 0 <= v < 256 for v in found):
            raise RequestError(f"{path}: no list of labels under '{labels}': fetch it again")
        if len(found) != each:
            raise RequestError(f"{path}: {len(found)} labels, expected {each}: fetch it again")
        here = slice(i * each, (i + 1) * each)
        x[here] = _interleaved(table)
        y[here] = found
    return x, y


def svhn(paths: Sequence[Path], rows: int) -> ArraySplit:
    """SVHN's cropped digits: MATLAB files of X (32, 32, 3, N) and y (N, 1), where 10 stands for 0.

    Raises:
        RequestError: a file that cannot be read, or that holds other arrays.
    """
    from scipy.io import loadmat

    x, y = [], []
    for path in paths:
        try:
            held = loadmat(path, variable_names=["X", "y"])
        except Exception as error:  # a damaged file makes the parser raise anything
            reason = short(str(error))
            raise RequestError(f"{path}: not a whole .mat file: {reason}: fetch it again") from None
        images, labels = held.get("X"), held.get("y")
        n = 0 if labels is None or labels.dtype.kind not in "uif" else labels.size
        if images is None or images.shape != (32, 32, 3, n) or images.dtype != np.uint8:
            raise RequestError(
                f"{path}: expected X (32, 32, 3, N) of bytes and y (N, 1) of numbers: "
                "fetch it again"
            )
        x.append(np.ascontiguousarray(images.transpose(3, 0, 1, 2)))
        y.append(labels.reshape(-1).astype(np.int64))
    train_y = np.concatenate(y)
    train_y[train_y == 10] = 0
    return np.concatenate(x), train_y


def _read(path: Path, size: int | None = None) -> bytes:
    """A file's bytes; where its size is known, a file of another size is not read at all."""
    try:
        found = path.stat().st_size
        if size is not None and found != size:
            raise _wrong_size(path, found, size)
        return path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None


def _wrong_size(path: Path, found: int, expected: int) -> RequestError:
    return RequestError(f"{path}: {found} bytes, expected {expected}: fetch it again")


def _interleaved(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of three colour planes, (N, 3072), as (N, 32, 32, 3)."""
    return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


class _Noted:
    """Stands for each numpy object that a pickle makes: it keeps what it was given.

    So neither numpy's constructors nor any other code meets what an unknown file says.
    """

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _PlainUnpickler(pickle.Unpickler):
    """Reads numbers, text, lists, dicts and noted arrays; every other name is refused."""

    NOTED = frozenset(
        {
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),  # from numpy 2 on
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.NOTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _Noted


def _unpickle(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            batch = _PlainUnpickler(file, encoding="bytes").load()
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # a damaged pickle can raise anything
        reason = short(str(error) or type(error).__name__)
        raise RequestError(
            f"{path}: not a whole CIFAR file: {reason}: nothing in it was run: fetch it again"
        ) from None
    if not isinstance(batch, dict):
        raise RequestError(f"{path}: not a CIFAR file: no dict in it: fetch it again")
    # Python 2 wrote the original files: its strings come as bytes
    texts = {k.decode("latin-1"): v for k, v in batch.items() if isinstance(k, bytes)}
    return texts | {k: v for k, v in batch.items() if isinstance(k, str)}


def _pickled_array(noted: object) -> tuple[object, NDArray[np.uint8]]:
    """The shape and the rows of a noted array of bytes; the shape is None where it is not one."""
    match noted:
        case _Noted(
            state=(_, (int(n), int(d)), _Noted(arguments=(b"u1" | "u1", *_)), by_column, bytes(raw))
        ) if n >= 0 and len(raw) == n * d:
            table = np.frombuffer(raw, np.uint8)
            return (n, d), table.reshape((n, d), order="F" if by_column else "C")
    return None, np.empty((0, 0), np.uint8)


# By the name of a format, what gives a part from its files and its number of rows.
READERS: Mapping[str, Callable[[Sequence[Path], int], ArraySplit]] = {
    "idx": idx,
    "cifar-10-binary": partial(cifar_binary, label_bytes=1),
    "cifar-10-pickle": partial(cifar_pickle, labels="labels"),
    "cifar-100-binary": partial(cifar_binary, label_bytes=2),
    "cifar-100-pickle": partial(cifar_pickle, labels="fine_labels"),
    "svhn": svhn,
}
