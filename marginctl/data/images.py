"""Image data sets in memory: read from the files of their own distributions, and checked."""

import gzip
import hashlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marginctl.data import image_files
from marginctl.data.image_files import Part
from marginctl.data.uci import DATA_DIR_VARIABLE, DataMissingError
from marginctl.errors import RequestError
from marginctl.seeds import generator
from marginctl.text import did_you_mean

FOLDER = "folder:"
DIGITS_TEST_ROWS = 360

# Mean and standard deviation for each colour, where the papers give them: the CIFAR protocol of
# Large Margin in Softmax. The rest is computed from the training images.
PUBLISHED_MEAN = {"cifar-100": (0.5071, 0.4867, 0.4408)}
PUBLISHED_STD = {"cifar-10": (0.2023, 0.1994, 0.2010), "cifar-100": (0.2675, 0.2565, 0.2761)}


@dataclass(frozen=True, eq=False)
class Images:
    """Square images for classification, with their own test part.

    Attributes:
        name: the name they are asked for by.
        train_x, test_x: (N, H, W, C) uint8 pixels.
        train_y, test_y: (N,) int64 classes, 0 .. num_classes - 1.
        classes: the class names, in the order of their numbers.
    """

    name: str
    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    classes: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def channels(self) -> int:
        return int(self.train_x.shape[3])

    @property
    def pixels(self) -> int:
        """The length of a side."""
        return int(self.train_x.shape[1])

    @cached_property
    def part_digests(self) -> Mapping[str, str]:
        """SHA-256 of the shape, pixels and labels of each part."""
        return {
            "train": part_digest(self.train_x, self.train_y),
            "test": part_digest(self.test_x, self.test_y),
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content: the same images give the same digest from any files."""
        parts = self.part_digests
        content = repr((self.classes, parts["train"], parts["test"]))
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean of each channel, of pixels in [0, 1]: published, or of the training images."""
        return PUBLISHED_MEAN.get(self.name) or self._moments[0]

    @property
    def std(self) -> tuple[float, ...]:
        """The standard deviation of each channel, like `mean`; 1 where the pixels are all alike."""
        return PUBLISHED_STD.get(self.name) or self._moments[1]

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """From the exact count of each pixel value, so that no rounding depends on the order."""
        counts = np.zeros((self.channels, 256), np.int64)
        for start in range(0, len(self.train_x), 1000):  # bincount takes 8 bytes a pixel
            block = self.train_x[start : start + 1000]
            for channel in range(self.channels):
                counts[channel] += np.bincount(block[..., channel].ravel(), minlength=256)
        shares = counts / counts.sum(1, keepdims=True)
        values = np.arange(256) / 255
        mean = shares @ values
        std = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(1))
        alike = (counts > 0).sum(1) == 1
        return tuple(mean.tolist()), tuple(np.where(alike, 1.0, std).tolist())


def part_digest(x: NDArray[np.uint8], y: NDArray[np.int64]) -> str:
    """SHA-256 of one part's shape, pixels and labels."""
    content = hashlib.sha256(repr(x.shape).encode())
    content.update(np.ascontiguousarray(x).reshape(-1).data)
    content.update(np.ascontiguousarray(y, "<i8").tobytes())
    return content.hexdigest()


@dataclass(frozen=True)
class Layout:
    """One way in which the files of an image set lie below the data folder.

    Attributes:
        folder: their folder; empty where they lie in the data folder itself.
        train, test: the files of each part; of `FILE.gz`, the unpacked `FILE` will do.
        read: gives a part from its files and its number of rows.
        md5: the published MD5 sums of files, where there are any.
    """

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    read: Callable[[Sequence[Path], int], Part]
    md5: Mapping[str, str] = field(default_factory=dict)

    def files(self) -> tuple[str, ...]:
        """Every file, as a path relative to the data folder."""
        prefix = f"{self.folder}/" if self.folder else ""
        return tuple(prefix + file for file in (*self.train, *self.test))


@dataclass(frozen=True)
class ImageSet:
    """What a named image set is.

    Attributes:
        summary: one line about it.
        classes: the class names.
        rows: the numbers of training and of test images.
        layouts: the file layouts that are read, the first that is there before the others.
        part_digests: of the parts whose original content was at hand to compute it.
    """

    summary: str
    classes: tuple[str, ...]
    rows: tuple[int, int]
    layouts: tuple[Layout, ...]
    part_digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Description:
    """What an image set is, and the files that it needs in each layout that is read."""

    summary: str
    layouts: tuple[tuple[str, ...], ...]


def image_sets() -> Mapping[str, Description]:
    """A description of every image set by its name; `folder:PATH` stands for any folder."""
    named = {
        name: Description(kind.summary, tuple(layout.files() for layout in kind.layouts))
        for name, kind in IMAGE_SETS.items()
    }
    inside = tuple(f"PATH/{part}/CLASS/IMAGE" for part in ("train", "val"))
    own = Description("a folder of images of one's own, cut square and scaled", (inside,))
    return {"digits": Description(DIGITS_SUMMARY, ()), **named, f"{FOLDER}PATH": own}


def find_images(name: str, data_dir: Path) -> Path | None:
    """The folder in which a named set's files lie; None for what is built in.

    Raises:
        DataMissingError: files are not there.
    """
    if name == "digits":
        return None
    layout, _ = _find(name, IMAGE_SETS[name], data_dir)
    return data_dir / layout.folder


def check_images_name(name: str) -> str:
    """The name, if it is an image set's.

    Raises:
        RequestError: it is not.
    """
    known = image_sets()
    if name in known or (name.startswith(FOLDER) and name != FOLDER):
        return name
    raise RequestError(
        f"unknown image set '{name}': expected one of {', '.join(known)}."
        + did_you_mean(name, known)
    )


def load_images(name: str, data_dir: Path, pixels: int = 64) -> Images:
    """Reads an image set from the data folder; `digits` comes with scikit-learn.

    Args:
        name: one of `image_sets()`; a relative PATH of `folder:PATH` that is not there is looked
            for in `data_dir`.
        pixels: the side to which the images of a folder are scaled; other sets have their own.

    Raises:
        DataMissingError: files are not there.
        RequestError: an unknown name, or files that are damaged or not the original ones.
    """
    check_images_name(name)
    if name == "digits":
        return _digits()
    if name.startswith(FOLDER):
        if pixels < 1:
            raise RequestError(f"pixels = {pixels}: expected 1 or more")
        root = Path(os.path.expanduser(name.removeprefix(FOLDER)))
        root = root if root.is_dir() else data_dir / root
        train, test, classes = image_files.folder(name, root, pixels)
        return Images(name, *train, *test, classes)
    kind = IMAGE_SETS[name]
    layout, paths = _find(name, kind, data_dir)
    for path in paths:
        _check_md5(path, layout.md5.get(path.name))
    split = len(layout.train)
    train = layout.read(paths[:split], kind.rows[0])
    test = layout.read(paths[split:], kind.rows[1])
    images = Images(name, *train, *test, kind.classes)
    _check(images, kind, data_dir / layout.folder)
    return images


def stratified_order(y: NDArray[np.int64], stream: np.random.Generator) -> NDArray[np.int64]:
    """All row numbers in a random order whose every beginning holds the classes in proportion.

    The r-th drawn row of a class of n (r = 0, 1, ...) stands at (r + 1/2)/n, which apportions as
    Sainte-Lague does; but the first of each class stand before all others.

    Returns:
        (n,) row numbers.
    """
    order = stream.permutation(len(y))
    drawn = y[order]
    counts = np.bincount(y)
    by_class = np.argsort(drawn, kind="stable")
    rank = np.empty(len(y), np.int64)
    rank[by_class] = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = np.where(rank == 0, 0.0, (rank + 0.5) / counts[drawn])
    return order[np.lexsort((drawn, place))]


def _digits() -> Images:
    """scikit-learn's 8 x 8 digits, split into 1,437 training and 360 test images.

    The data come without a split: this one is ours, stratified, and always the same. The file is
    read by its path: importing the library takes over a second.
    """
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.submodule_search_locations
    path = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    x = np.rint(table[:, :64] * 255 / 16).astype(np.uint8).reshape(-1, 8, 8, 1)
    y = table[:, 64].astype(np.int64)
    order = stratified_order(y, generator(0, "digits", "split"))
    test, train = np.sort(order[:DIGITS_TEST_ROWS]), np.sort(order[DIGITS_TEST_ROWS:])
    return Images("digits", x[train], y[train], x[test], y[test], DIGIT_NAMES)


def _find(name: str, kind: ImageSet, data_dir: Path) -> tuple[Layout, list[Path]]:
    """The first layout that is all there, with its files; else says what the nearest one lacks."""
    lacking = []
    for layout in kind.layouts:
        paths = [data_dir / file for file in layout.files()]
        paths = [p if os.path.isfile(p) or p.suffix != ".gz" else p.with_suffix("") for p in paths]
        names = (*layout.train, *layout.test)
        absent = [file for file, p in zip(names, paths, strict=True) if not os.path.isfile(p)]
        if not absent:
            return layout, paths
        lacking.append(absent)
    nearest = min(range(len(lacking)), key=lambda i: len(lacking[i]))
    instead = "".join(
        f", or all of {', '.join((*layout.train, *layout.test))} in {data_dir / layout.folder}"
        for i, layout in enumerate(kind.layouts)
        if i != nearest
    )
    raise DataMissingError(
        f"data set '{name}': no {', '.join(lacking[nearest])} in "
        f"{data_dir / kind.layouts[nearest].folder}: put the original files there{instead}, "
        f"or name the data folder with --data-dir or {DATA_DIR_VARIABLE}"
    )


def _check_md5(path: Path, expected: str | None) -> None:
    if expected is None:
        return
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False))
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None
    if found.hexdigest() != expected:
        raise RequestError(
            f"{path}: MD5 {found.hexdigest()} ({path.stat().st_size} bytes), expected {expected}: "
            "the file is damaged or is another one: fetch it again"
        )


def _check(images: Images, kind: ImageSet, folder: Path) -> None:
    """Compares what was read with what is known of the set."""
    parts = {"train": images.train_y, "test": images.test_y}
    for (part, y), rows in zip(parts.items(), kind.rows, strict=True):
        at = f"data set '{images.name}': {part} part in {folder}"
        if len(y) != rows:
            raise RequestError(f"{at}: {len(y)} images, expected {rows}: fetch it again")
        outside = y[(y < 0) | (y >= images.num_classes)]
        if len(outside):
            raise RequestError(
                f"{at}: label {outside[0]}, expected 0 .. {images.num_classes - 1}: fetch it again"
            )
        if images.part_digests[part] != kind.part_digests.get(part, images.part_digests[part]):
            raise RequestError(
                f"{at}: its content has another digest than the original: fetch it again"
            )


def _listed(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(","))


def _idx_layout(folder: str, *md5: str) -> Layout:
    train = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    test = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
    sums = dict(zip((*train, *test), md5, strict=True))
    return Layout(folder, train, test, image_files.idx, sums)


def _svhn_layouts(*train: str) -> tuple[Layout, ...]:
    """In a folder of their own, or where torchvision puts them: in the data folder itself."""
    test = ("test_32x32.mat",)
    return tuple(Layout(f, train, test, image_files.svhn, SVHN_MD5) for f in ("svhn", ""))


DIGITS_SUMMARY = "1,797 digits of 8 x 8 grey pixels, inside scikit-learn; the split is ours"
DIGIT_NAMES = tuple("0123456789")
FASHION_NAMES = _listed(
    "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"
)
CIFAR_10_NAMES = _listed("airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck")
CIFAR_100_NAMES = _listed(
    """
    apple, aquarium_fish, baby, bear, beaver, bed, bee, beetle, bicycle, bottle, bowl, boy, bridge,
    bus, butterfly, camel, can, castle, caterpillar, cattle, chair, chimpanzee, clock, cloud,
    cockroach, couch, crab, crocodile, cup, dinosaur, dolphin, elephant, flatfish, forest, fox,
    girl, hamster, house, kangaroo, keyboard, lamp, lawn_mower, leopard, lion, lizard, lobster, man,
    maple_tree, motorcycle, mountain, mouse, mushroom, oak_tree, orange, orchid, otter, palm_tree,
    pear, pickup_truck, pine_tree, plain, plate, poppy, porcupine, possum, rabbit, raccoon, ray,
    road, rocket, rose, sea, seal, shark, shrew, skunk, skyscraper, snail, snake, spider, squirrel,
    streetcar, sunflower, sweet_pepper, table, tank, telephone, television, tiger, tractor, train,
    trout, tulip, turtle, wardrobe, whale, willow_tree, wolf, woman, worm
    """
)

# The MD5 sums are those that torchvision checks. The digests were computed from original files; of
# the training parts of Fashion-MNIST and CIFAR-10 and of all SVHN none were at hand, so that only
# sizes, labels and MD5 sums are checked there, and SVHN's reader has never met its real files.
SVHN_MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    "extra_32x32.mat": "a93ce644f1a588dc4d68dda5feec44a7",
}
MNIST_LAYOUT = _idx_layout(
    "MNIST/raw",
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
FASHION_LAYOUT = _idx_layout(
    "FashionMNIST/raw",
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)
CIFAR_10_LAYOUTS = (
    Layout(
        "cifar-10-batches-bin",
        tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        ("test_batch.bin",),
        partial(image_files.cifar_binary, label_bytes=1),
    ),
    Layout(
        "cifar-10-batches-py",
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        ("test_batch",),
        partial(image_files.cifar_pickle, labels="labels"),
    ),
)
CIFAR_100_LAYOUTS = (
    Layout(
        "cifar-100-binary",
        ("train.bin",),
        ("test.bin",),
        partial(image_files.cifar_binary, label_bytes=2),
    ),
    Layout(
        "cifar-100-python",
        ("train",),
        ("test",),
        partial(image_files.cifar_pickle, labels="fine_labels"),
    ),
)
IMAGE_SETS: Mapping[str, ImageSet] = {
    "mnist": ImageSet(
        "60,000 + 10,000 handwritten digits of 28 x 28 grey pixels",
        DIGIT_NAMES,
        (60_000, 10_000),
        (MNIST_LAYOUT,),
        {
            "train": "91fd7a250495ac6742489b2a01919e8774cf195fed7282a7ecc63d849f99a9e1",
            "test": "ffebde4273aab1f43748061ea9a58ebbd58f1959a6f92750e145265e4f6c826f",
        },
    ),
    "fashion-mnist": ImageSet(
        "60,000 + 10,000 pieces of clothing of 28 x 28 grey pixels",
        FASHION_NAMES,
        (60_000, 10_000),
        (FASHION_LAYOUT,),
        {"test": "31f656d43529baa045916ac6ce5e3b374968b3185ea991af67108481546e51da"},
    ),
    "cifar-10": ImageSet(
        "50,000 + 10,000 photographs of 32 x 32 colour pixels in 10 classes",
        CIFAR_10_NAMES,
        (50_000, 10_000),
        CIFAR_10_LAYOUTS,
        {"test": "e600ce11aaf5eb6759aae8ec88c3ab7c664a3bb307f49f95ddb7a5333c26325a"},
    ),
    "cifar-100": ImageSet(
        "50,000 + 10,000 photographs of 32 x 32 colour pixels in 100 classes",
        CIFAR_100_NAMES,
        (50_000, 10_000),
        CIFAR_100_LAYOUTS,
        {
            "train": "ab2276dc15ab37c1cec2432e3e82bf8c5a729e27f498bf130cd58389a48ea081",
            "test": "cfa1019151e5e9116132de136675e40ccf38a51c211a7a70cf642fb14a165330",
        },
    ),
    "svhn": ImageSet(
        "73,257 + 26,032 house-number digits of 32 x 32 colour pixels",
        DIGIT_NAMES,
        (73_257, 26_032),
        _svhn_layouts("train_32x32.mat"),
    ),
    "svhn-extra": ImageSet(
        "SVHN with its 531,131 simpler images as further training ones",
        DIGIT_NAMES,
        (73_257 + 531_131, 26_032),
        _svhn_layouts("train_32x32.mat", "extra_32x32.mat"),
    ),
}
