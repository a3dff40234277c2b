"""Image sets in memory: original files, synthetic files in their formats, corrupt files."""

import functools
import gzip
import io
import os
import pickle
import struct
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy.io import savemat
from sklearn.datasets import load_digits

from marginctl.data.images import readers
from marginctl.data.images.in_memory import InMemoryImages, PixelSplit
from marginctl.data.images.registry import IMAGE_SETS
from marginctl.data.paths import MissingDataError
from marginctl.errors import RequestError
from marginctl.utils.seed import stratified_order
from tests.data.helpers import denied, load_in_memory, refusal, write

loaded = functools.cache(load_in_memory)  # once for all tests that only look


# --- Images


def synthetic(train_x, train_y=(0, 1), name="synthetic"):
    train_x = np.asarray(train_x, np.uint8)
    y = np.asarray(train_y, np.int64)
    return InMemoryImages(
        name, ("a", "b"), PixelSplit(train_x, y=y), PixelSplit(train_x[:1].copy(), y=y[:1].copy())
    )


def test_shapes():
    data = synthetic(np.zeros((2, 5, 5, 3)))
    assert (data.num_classes, data.channels, data.image_size) == (2, 3, 5)


def test_mean_and_std_are_those_of_the_training_pixels():
    x = np.random.default_rng(0).integers(0, 256, (2100, 2, 2, 3), np.uint8)
    data = synthetic(x)
    assert data.mean == pytest.approx((x / 255).mean((0, 1, 2)), rel=1e-12)
    assert data.std == pytest.approx((x / 255).std((0, 1, 2)), rel=1e-12)


def test_the_std_of_a_constant_channel_is_one():
    x = np.full((2, 4, 4, 2), 102, np.uint8)
    x[0, ..., 1] = 0
    data = synthetic(x)
    assert data.mean == pytest.approx((0.4, 0.2))
    assert data.std == (1.0, pytest.approx(0.2))


def test_mean_and_std_of_cifar_are_the_published_ones():
    x = np.zeros((2, 4, 4, 3))
    assert synthetic(x, name="cifar-100").mean == (0.5071, 0.4867, 0.4408)
    assert synthetic(x, name="cifar-100").std == (0.2675, 0.2565, 0.2761)
    assert synthetic(x, name="cifar-10").mean == (0.0, 0.0, 0.0)
    assert synthetic(x, name="cifar-10").std == (0.2023, 0.1994, 0.2010)


def test_the_digest_is_of_the_content_and_not_of_the_name():
    x = np.arange(32).reshape(2, 4, 4, 1)
    data = synthetic(x)
    assert data.digest == synthetic(x, name="other").digest
    assert data.digest == synthetic(np.asfortranarray(x)).digest
    others = [
        synthetic(x[::-1]),
        synthetic(x.reshape(2, 2, 2, 4)),
        synthetic(x, (1, 0)),
        replace(data, test=replace(data.test, x=data.test.x + 1)),
        replace(data, test=replace(data.test, y=data.test_y + 1)),
        replace(data, classes=("a", "c")),
    ]
    assert len({data.digest, *(other.digest for other in others)}) == 7


# --- missing files

FOUR = "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, "
FOUR += "t10k-labels-idx1-ubyte.gz"
FIVE = "data_batch_1, data_batch_2, data_batch_3, data_batch_4, data_batch_5"
EXTRA = "train_32x32.mat, extra_32x32.mat, test_32x32.mat"


@pytest.mark.parametrize(
    ("name", "missing", "instead"),
    [
        ("mnist", f"{FOUR} in DIR/MNIST/raw", ""),
        ("fashion-mnist", f"{FOUR} in DIR/FashionMNIST/raw", ""),
        (
            "cifar-10",
            f"{FIVE.replace(',', '.bin,')}.bin, test_batch.bin in DIR/cifar-10-batches-bin",
            f", or all of {FIVE}, test_batch in DIR/cifar-10-batches-py",
        ),
        (
            "cifar-100",
            "train.bin, test.bin in DIR/cifar-100-binary",
            ", or all of train, test in DIR/cifar-100-python",
        ),
        ("svhn-extra", f"{EXTRA} in DIR/svhn", f", or all of {EXTRA} in DIR"),
    ],
)
def test_missing_files_are_named_with_their_folder(tmp_path, name, missing, instead):
    assert refusal(MissingDataError, load_in_memory, name, tmp_path) == (
        f"data set '{name}': no {missing}: put the original files there{instead}, run "
        f"marginctl data fetch {name}, or name the data folder with --data-dir or MARGINCTL_DATA"
    ).replace("DIR", str(tmp_path))


def touch(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def test_a_set_with_its_test_files_alone_says_what_is_missing(tmp_path):
    folder = tmp_path / "FashionMNIST" / "raw"
    touch(folder, "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte")
    line = refusal(MissingDataError, load_in_memory, "fashion-mnist", tmp_path)
    assert line.startswith(
        "data set 'fashion-mnist': no train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz in "
        f"{folder}: put the original files there, run marginctl data fetch "
        "fashion-mnist, or"
    )


def test_the_most_complete_layout_is_named(tmp_path):
    touch(tmp_path / "cifar-10-batches-bin", "test_batch.bin")
    touch(tmp_path / "cifar-10-batches-py", "test_batch", "data_batch_1")
    line = refusal(MissingDataError, load_in_memory, "cifar-10", tmp_path)
    assert line.startswith(
        "data set 'cifar-10': no data_batch_2, data_batch_3, data_batch_4, data_batch_5 in "
        f"{tmp_path / 'cifar-10-batches-py'}: put the original files there, or all of data_batch_1"
    )


# --- digits


def test_digits_are_scikit_learns(tmp_path):
    data = load_in_memory("digits", tmp_path)
    assert data.train.x.shape == (1437, 8, 8, 1)
    assert data.test.x.shape == (360, 8, 8, 1)
    assert data.classes == tuple("0123456789")
    original = load_digits()
    scaled = [[round(v * 255 / 16) for v in row] for row in original.data]
    x = np.concatenate([data.train.x, data.test.x]).reshape(-1, 64).tolist()
    y = np.concatenate([data.train_y, data.test_y])
    assert sorted(zip(x, y.tolist(), strict=True)) == sorted(
        zip(scaled, original.target.tolist(), strict=True)
    )


def test_the_split_of_the_digits_is_stratified_and_never_changes(tmp_path):
    data = load_in_memory("digits", tmp_path)
    assert np.bincount(data.train_y).tolist() == [142, 145, 142, 146, 145, 146, 145, 143, 139, 144]
    assert np.bincount(data.test_y).tolist() == [36, 37, 35, 37, 36, 36, 36, 36, 35, 36]
    assert data.digest == "7871fbdb1a3c4a437baaccdb34da45158721e550e86eb5668a9bb7986bc2b854"


def test_every_prefix_of_a_stratified_order_is_in_proportion():
    y = np.repeat([0, 1, 2, 4], [500, 300, 199, 1])
    order = stratified_order(y, np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(1000))
    assert sorted(y[order[:4]].tolist()) == [0, 1, 2, 4]
    for n in (10, 100, 999):
        excess = np.bincount(y[order[:n]], minlength=5) - n * np.bincount(y) / 1000
        assert np.abs(excess).max() <= 1


# --- idx files


def idx_bytes(values: np.ndarray) -> bytes:
    header = struct.pack(f">I{values.ndim}I", 0x800 + values.ndim, *values.shape)
    return header + values.astype(np.uint8).tobytes()


def test_idx_files_packed_and_unpacked(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (3, 28, 28))
    x_path = write(tmp_path / "x.gz", gzip.compress(idx_bytes(x), mtime=0))
    y_path = write(tmp_path / "y", idx_bytes(np.array([2, 0, 9])))
    found_x, found_y = readers.read_idx([x_path, y_path], 3)
    assert np.array_equal(found_x, x[..., None])
    assert found_y.tolist() == [2, 0, 9]
    assert (found_x.dtype, found_y.dtype) == (np.uint8, np.int64)
    assert found_x.flags.writeable


GOOD_IDX = idx_bytes(np.arange(12).reshape(3, 2, 2))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes, expected 28: download it again"),
        (GOOD_IDX[:15], "15 bytes, expected 28: download it again"),
        (GOOD_IDX[:-1], "27 bytes, expected 28: download it again"),
        (GOOD_IDX + b"\0", "more than 28 bytes, expected 28: download it again"),
        (
            idx_bytes(np.arange(16)),
            "magic number 0x00000801, expected 0x00000803: not the idx file that its name says: "
            "download it again",
        ),
        (
            b"<html>404 not found</html>",
            "magic number 0x3c68746d, expected 0x00000803: not the idx file that its name says: "
            "download it again",
        ),
        (
            idx_bytes(np.zeros((2, 2, 2))),
            "shape (2, 2, 2), expected (3, 2, 2): download it again",
        ),
    ],
)
def test_a_corrupt_idx_file(tmp_path, content, message):
    path = write(tmp_path / "x", content)
    assert refusal(RequestError, readers.read_idx_file, path, (3, 2, 2)) == f"{path}: {message}"
    packed = write(tmp_path / "x.gz", gzip.compress(content, mtime=0))
    assert refusal(RequestError, readers.read_idx_file, packed, (3, 2, 2)) == f"{packed}: {message}"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            gzip.compress(GOOD_IDX, mtime=0)[:-9],
            "Compressed file ended before the end-of-stream marker",
        ),
        (b"<html>", r"Not a gzipped file \(b'<h'\)"),
    ],
)
def test_a_corrupt_gzip_file(tmp_path, content, reason):
    path = write(tmp_path / "x.gz", content)
    with pytest.raises(RequestError, match=f"x.gz: corrupt gzip file: {reason}.*: download it"):
        readers.read_idx_file(path, (3, 2, 2))


def test_a_path_that_cannot_be_read(tmp_path):
    (tmp_path / "x").mkdir()
    assert refusal(RequestError, readers.read_idx_file, tmp_path / "x", (3, 2, 2)) == (
        f"{tmp_path / 'x'}: cannot be read: Is a directory"
    )


def test_an_unreadable_gzip_file(tmp_path, monkeypatch):
    folder = tmp_path / "MNIST" / "raw"
    touch(folder, *FOUR.split(", "))
    monkeypatch.setattr(Path, "open", denied)
    assert refusal(RequestError, load_in_memory, "mnist", tmp_path) == (
        f"{folder / 'train-images-idx3-ubyte.gz'}: cannot be read: Permission denied"
    )


def test_a_gzip_file_with_another_md5(tmp_path):
    folder = tmp_path / "MNIST" / "raw"
    for name in FOUR.split(", "):
        write(folder / name, b"page")
    assert refusal(RequestError, load_in_memory, "mnist", tmp_path) == (
        f"{folder / 'train-images-idx3-ubyte.gz'}: MD5 71860c77c6745379b0d44304d66b6a13 (4 bytes), "
        "expected f68b3c2dcbeaaa9fbdd348bbdeb94873: the file is corrupt or another one: download "
        "it again"
    )


def test_unpacked_files_with_another_content(tmp_path):
    folder = tmp_path / "MNIST" / "raw"
    for part, rows in (("train", 60_000), ("t10k", 10_000)):
        header = struct.pack(">IIII", 0x803, rows, 28, 28)
        path = write(folder / f"{part}-images-idx3-ubyte", header)
        os.truncate(path, 16 + rows * 784)  # zeros that take no disk
        write(folder / f"{part}-labels-idx1-ubyte", idx_bytes(np.zeros(rows)))
    assert refusal(RequestError, load_in_memory, "mnist", tmp_path) == (
        f"data set 'mnist': train split in {folder}: its content differs from the "
        "original (SHA-256): download it again"
    )


# --- synthetic CIFAR: 10 rows in each training file of CIFAR-10, 50 in that of CIFAR-100


class Python2Pickler(pickle._Pickler):
    """Writes text and bytes alike as Python 2 wrote its strings: the original files are such."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value):
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    def save_text(self, value):
        self.save_bytes(value.encode("latin-1"))

    dispatch[bytes] = save_bytes
    dispatch[str] = save_text


def python2(value) -> bytes:
    buffer = io.BytesIO()
    Python2Pickler(buffer, 2).dump(value)
    return buffer.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def batch_of(x: np.ndarray, y: np.ndarray, key: str) -> dict:
    """A batch as the original files hold it: rows of planes."""
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2).reshape(len(x), -1))
    return {"batch_label": "a batch", key: y.tolist(), "data": planes, "filenames": ["a.png"]}


def binary_of(x: np.ndarray, *labels: np.ndarray) -> bytes:
    planes = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return np.column_stack([*labels, planes]).astype(np.uint8).tobytes()


def write_binary(folder: Path, name: str, train, test) -> None:
    if name == "cifar-10":
        for i in range(5):
            rows = slice(10 * i, 10 * i + 10)
            content = binary_of(train[0][rows], train[1][rows])
            write(folder / "cifar-10-batches-bin" / f"data_batch_{i + 1}.bin", content)
        write(folder / "cifar-10-batches-bin" / "test_batch.bin", binary_of(*test))
    else:
        for part, (x, y) in (("train", train), ("test", test)):
            coarse = 255 - y
            write(folder / "cifar-100-binary" / f"{part}.bin", binary_of(x, coarse, y))


def write_python(folder: Path, name: str, train, test, dump) -> None:
    if name == "cifar-10":
        for i in range(5):
            rows = slice(10 * i, 10 * i + 10)
            content = dump(batch_of(train[0][rows], train[1][rows], "labels"))
            write(folder / "cifar-10-batches-py" / f"data_batch_{i + 1}", content)
        write(folder / "cifar-10-batches-py" / "test_batch", dump(batch_of(*test, "labels")))
    else:
        for part, (x, y) in (("train", train), ("test", test)):
            content = dump({**batch_of(x, y, "fine_labels"), "coarse_labels": (255 - y).tolist()})
            write(folder / "cifar-100-python" / part, content)


def replace_entry(monkeypatch, name, **changes):
    """Replace a built-in image set for a test."""
    entry = replace(IMAGE_SETS[name], **changes)
    monkeypatch.setitem(IMAGE_SETS.builtin, name, entry)
    return entry


@pytest.fixture
def small_cifar(monkeypatch):
    """CIFAR sets of 50 + 8 images of any content."""
    for name in ("cifar-10", "cifar-100"):
        layouts = tuple(replace(layout, md5={}) for layout in IMAGE_SETS[name].layouts)
        replace_entry(monkeypatch, name, num_images=(50, 8), digests={}, layouts=layouts)


def content_of(name: str):
    stream = np.random.default_rng(3)
    classes = len(IMAGE_SETS[name].classes)
    return tuple(
        (stream.integers(0, 256, (n, 32, 32, 3), np.uint8), stream.integers(0, classes, n))
        for n in (50, 8)
    )


@pytest.mark.parametrize("name", ["cifar-10", "cifar-100"])
@pytest.mark.parametrize(
    "dump",
    [
        python2,
        functools.partial(pickle.dumps, protocol=3),
        functools.partial(pickle.dumps, protocol=4),
    ],
    ids=["python2", "3", "4"],
)
def test_both_layouts_give_the_same_images(tmp_path, small_cifar, name, dump):
    train, test = content_of(name)
    write_binary(tmp_path / "b", name, train, test)
    write_python(tmp_path / "p", name, train, test, dump)
    binary, python = load_in_memory(name, tmp_path / "b"), load_in_memory(name, tmp_path / "p")
    assert np.array_equal(binary.train.x, train[0])
    assert np.array_equal(binary.train_y, train[1])
    assert np.array_equal(binary.test.x, test[0])
    assert np.array_equal(binary.test_y, test[1])
    assert binary.digest == python.digest
    assert binary.train.x.flags.c_contiguous
    assert binary.classes == IMAGE_SETS[name].classes


def test_pickled_by_columns(tmp_path):
    x, y = content_of("cifar-10")[1]
    batch = batch_of(x, y, "labels")
    batch["data"] = np.asfortranarray(batch["data"])
    path = write(tmp_path / "b", pickle.dumps(batch, protocol=4))
    assert np.array_equal(readers.read_cifar10_pickle([path], 8)[0], x)


def test_a_cifar_file_of_another_size(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    write(folder / "test.bin", b"")
    path = write(folder / "train.bin", b"12345")
    assert refusal(RequestError, load_in_memory, "cifar-100", tmp_path) == (
        f"{path}: 5 bytes, expected 153700000: download it again"
    )


def test_a_label_out_of_range(tmp_path, small_cifar):
    train, test = content_of("cifar-10")
    test[1][3] = 10
    write_binary(tmp_path, "cifar-10", train, test)
    assert refusal(RequestError, load_in_memory, "cifar-10", tmp_path) == (
        f"data set 'cifar-10': test split in {tmp_path / 'cifar-10-batches-bin'}: label 10, "
        "expected 0 .. 9: download it again"
    )


def test_a_changed_pixel_of_a_split_with_a_known_digest(tmp_path, small_cifar, monkeypatch):
    train, test = content_of("cifar-10")
    replace_entry(
        monkeypatch, "cifar-10", digests={"test": PixelSplit(test[0], y=test[1]).digest()}
    )
    write_binary(tmp_path, "cifar-10", train, test)
    load_in_memory("cifar-10", tmp_path)
    test[0][0, 0, 0, 0] ^= 1
    write_binary(tmp_path, "cifar-10", train, test)
    assert refusal(RequestError, load_in_memory, "cifar-10", tmp_path) == (
        f"data set 'cifar-10': test split in {tmp_path / 'cifar-10-batches-bin'}: its content "
        "differs from the original (SHA-256): download it again"
    )


class Call:
    """A pickle that calls a function when it is loaded."""

    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize(
    ("name", "folder", "file"),
    [
        ("cifar-10", "cifar-10-batches-py", "data_batch_1"),
        ("cifar-100", "cifar-100-python", "train"),
    ],
)
def test_a_pickle_is_only_loaded_with_its_md5(tmp_path, name, folder, file):
    """No other file than the original one is loaded."""
    content = pickle.dumps(Call(os.system, f"touch '{tmp_path / 'ran'}'"), protocol=2)
    layout = IMAGE_SETS[name].layouts[1]
    for other in (*layout.train, *layout.test):
        write(tmp_path / folder / other, content)
    line = refusal(RequestError, load_in_memory, name, tmp_path)
    assert line.startswith(f"{tmp_path / folder / file}: MD5 ")
    assert line.endswith(": the file is corrupt or another one: download it again")
    assert not (tmp_path / "ran").exists()


def test_every_pickle_of_a_layout_has_an_md5():
    layouts = [layout for entry in IMAGE_SETS.values() for layout in entry.layouts]
    pickled = [layout for layout in layouts if "pickle" in layout.reader]
    assert len(pickled) == 2
    assert all(set(layout.md5) == {*layout.train, *layout.test} for layout in pickled)


@pytest.mark.parametrize("inside", [False, True])
def test_a_hostile_pickle_runs_nothing(tmp_path, inside):
    call = Call(os.system, f"touch '{tmp_path / 'ran'}'")
    content = {"data": call} if inside else call
    path = write(tmp_path / "train", pickle.dumps(content, protocol=2))
    assert refusal(RequestError, readers.read_cifar10_pickle, [path], 8) == (
        f"{path}: corrupt CIFAR file: it asks for {os.system.__module__}.system: nothing in it "
        "was run: download it again"
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("value", "asked"),
    [
        (Call(eval, "1"), "builtins.eval"),
        (Call(getattr, "a", "b"), "builtins.getattr"),
        (Call(np.load, "a"), "numpy.load"),
        (Path("a"), f"{type(Path()).__module__}.PosixPath"),
        (np.float64, "numpy.float64"),
        (Call(np.frombuffer, b"a"), None),
    ],
)
def test_no_other_name_is_admitted(tmp_path, value, asked):
    path = write(tmp_path / "train", pickle.dumps(value, protocol=4))
    line = refusal(RequestError, readers.read_cifar10_pickle, [path], 8)
    assert line.startswith(f"{path}: corrupt CIFAR file: it asks for {asked or 'numpy.'}")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>404</html>",
        pickle.dumps(batch_of(*content_of("cifar-10")[1], "labels"), protocol=4)[:-100],
        b"cnumpy\nndarray\n}b.",  # state for a class
        b"cnumpy\n\xff\n.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",  # more bytes than there can be
        b"(" * 1000,
        b"\x80\x02P1\n.",  # a persistent id
    ],
)
def test_a_corrupt_pickle(tmp_path, content):
    path = write(tmp_path / "train", content)
    line = refusal(RequestError, readers.read_cifar10_pickle, [path], 8)
    assert line.startswith(f"{path}: corrupt CIFAR file: ")
    assert line.endswith(": nothing in it was run: download it again")


SMALL_X, SMALL_Y = content_of("cifar-10")[1]
BATCH = batch_of(SMALL_X, SMALL_Y, "labels")
SHAPE = "expected (8, 3072): download it again"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "not a CIFAR file: no dict in it: download it again"),
        ({}, f"images of shape None, {SHAPE}"),
        (BATCH | {"data": BATCH["data"][:7]}, f"images of shape (7, 3072), {SHAPE}"),
        (BATCH | {"data": BATCH["data"][:, :1024]}, f"images of shape (8, 1024), {SHAPE}"),
        (BATCH | {"data": BATCH["data"].astype(float)}, f"images of shape None, {SHAPE}"),
        (BATCH | {"data": BATCH["data"].astype(object)}, f"images of shape None, {SHAPE}"),
        (BATCH | {"data": BATCH["data"].ravel()}, f"images of shape None, {SHAPE}"),
        (BATCH | {"data": "text"}, f"images of shape None, {SHAPE}"),
        (BATCH | {"labels": [1] * 7}, "7 labels, expected 8: download it again"),
        (
            BATCH | {"labels": [1] * 7 + ["1"]},
            "no list of labels under 'labels': download it again",
        ),
        (BATCH | {"labels": [1] * 7 + [-1]}, "no list of labels under 'labels': download it again"),
        (
            BATCH | {"labels": [1] * 7 + [2**70]},
            "no list of labels under 'labels': download it again",
        ),
        (batch_of(SMALL_X, SMALL_Y, "fine"), "no list of labels under 'labels': download it again"),
    ],
)
def test_a_pickle_of_something_else(tmp_path, value, message):
    path = write(tmp_path / "train", pickle.dumps(value, protocol=4))
    line = refusal(RequestError, readers.read_cifar10_pickle, [path], 8)
    assert line == f"{path}: {message}"


def test_a_pickle_that_cannot_be_read(tmp_path):
    assert refusal(RequestError, readers.read_cifar10_pickle, [tmp_path], 8) == (
        f"{tmp_path}: cannot be read: Is a directory"
    )


# --- SVHN


def write_svhn(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"X": x.transpose(1, 2, 3, 0), "y": y.reshape(-1, 1)})
    return path


@pytest.mark.parametrize(
    ("name", "folder"), [("svhn", "svhn"), ("svhn", ""), ("svhn-extra", "svhn")]
)
def test_svhn(tmp_path, monkeypatch, name, folder):
    stream = np.random.default_rng(0)
    train, test, extra = stream.integers(0, 256, (3, 4, 32, 32, 3), np.uint8)
    y = np.array([1, 10, 9, 2], np.uint8)
    for part, x in (("train", train), ("test", test), ("extra", extra)):
        write_svhn(tmp_path / folder / f"{part}_32x32.mat", x, y)
    layouts = tuple(replace(layout, md5={}) for layout in IMAGE_SETS[name].layouts)
    count = 8 if name == "svhn-extra" else 4
    replace_entry(monkeypatch, name, num_images=(count, 4), layouts=layouts)
    data = load_in_memory(name, tmp_path)
    both = np.concatenate([train, extra]) if name == "svhn-extra" else train
    assert np.array_equal(data.train.x, both)
    assert np.array_equal(data.test.x, test)
    assert data.train_y.tolist() == [1, 0, 9, 2] * (len(both) // 4)
    assert data.train.x.flags.c_contiguous
    replace_entry(monkeypatch, name, num_images=(count, 5))
    assert refusal(RequestError, load_in_memory, name, tmp_path) == (
        f"data set '{name}': test split in {tmp_path / folder}: 4 images, expected 5: "
        "download it again"
    )


def test_the_md5_of_svhn_is_checked(tmp_path):
    path = write(tmp_path / "svhn" / "train_32x32.mat", b"page")
    write(tmp_path / "svhn" / "test_32x32.mat", b"page")
    assert refusal(RequestError, load_in_memory, "svhn", tmp_path).startswith(
        f"{path}: MD5 71860c77c6745379b0d44304d66b6a13 (4 bytes), expected "
        "e26dedcc434d2e4c54c9b2d4a06d8373: "
    )


def test_a_corrupt_mat_file(tmp_path):
    path = write(tmp_path / "a.mat", b"not a matrix" * 20)
    line = refusal(RequestError, readers.read_svhn, [path], 4)
    assert line.startswith(f"{path}: corrupt .mat file: ")
    assert line.endswith(": download it again")


@pytest.mark.parametrize(
    "held",
    [
        {"Z": np.zeros(3)},
        {"X": np.zeros((32, 32, 3, 4)), "y": np.zeros((4, 1))},
        {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.zeros((3, 1))},
        {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.array(["a", "b", "c", "d"], object)},
    ],
)
def test_a_mat_file_of_something_else(tmp_path, held):
    savemat(tmp_path / "a.mat", held)
    assert refusal(RequestError, readers.read_svhn, [tmp_path / "a.mat"], 4) == (
        f"{tmp_path / 'a.mat'}: expected X (32, 32, 3, N) of bytes and y (N, 1) of numbers: "
        "download it again"
    )


# --- the original files


def test_mnist(data_dir):
    data = loaded("mnist", data_dir)
    assert data.train.x.shape == (60_000, 28, 28, 1)
    assert data.test.x.shape == (10_000, 28, 28, 1)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.train_y).tolist() == counts
    counts = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(data.test_y).tolist() == counts
    assert data.train_y[:6].tolist() == [5, 0, 4, 1, 9, 2]
    assert data.mean == pytest.approx((0.1307,), abs=5e-5)  # as is known everywhere
    assert data.std == pytest.approx((0.3081,), abs=5e-5)
    assert data.digest == "9ff0c79c850d391f0028daba74c507906b25753fe00ab0adae9a00f3deaf878e"


def test_the_test_part_of_fashion_mnist(data_dir):
    entry = IMAGE_SETS["fashion-mnist"]
    test = load_in_memory("fashion-mnist", data_dir, test_only=True)
    y = test.test_y
    assert np.bincount(y).tolist() == [1000] * 10
    assert test.test.digest() == entry.digests["test"]


def test_cifar_100(data_dir):
    data = loaded("cifar-100", data_dir)
    assert data.train.x.shape == (50_000, 32, 32, 3)
    assert data.test.x.shape == (10_000, 32, 32, 3)
    assert np.bincount(data.train_y).tolist() == [500] * 100
    assert np.bincount(data.test_y).tolist() == [100] * 100
    measured = data.train.x[::10].mean((0, 1, 2)) / 255
    assert measured == pytest.approx(data.mean, abs=0.005)
    assert data.digest == "852b25594952c688eab1d4fba5ced05d402a7c11e318eeceba7bff3ce803dc83"


def test_the_names_of_cifar_100_fit_its_groups(data_dir):
    """Each coarse label, which alone does not give names, must hold the classes that it should."""
    rows = np.fromfile(data_dir / "cifar-100-binary" / "test.bin", np.uint8).reshape(-1, 3074)
    names = IMAGE_SETS["cifar-100"].classes
    groups = [{names[fine] for fine in set(rows[rows[:, 0] == g, 1].tolist())} for g in range(20)]
    assert groups[0] == {"beaver", "dolphin", "otter", "seal", "whale"}
    assert groups[5] == {"clock", "keyboard", "lamp", "telephone", "television"}
    assert groups[14] == {"baby", "boy", "girl", "man", "woman"}
    assert groups[17] == {"maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"}
    assert groups[19] == {"lawn_mower", "rocket", "streetcar", "tank", "tractor"}


def test_the_test_part_of_cifar_10(data_dir):
    entry = IMAGE_SETS["cifar-10"]
    test = load_in_memory("cifar-10", data_dir, test_only=True)
    y = test.test_y
    assert np.bincount(y).tolist() == [1000] * 10
    assert test.test.digest() == entry.digests["test"]
    assert [entry.classes[c] for c in y[:4]] == ["cat", "ship", "ship", "airplane"]
