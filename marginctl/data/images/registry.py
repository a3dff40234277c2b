"""Image sets by name, as data: classes, sizes, files and readers. Nothing is read here.

An image set is added by an entry in `IMAGE_SETS`, or by a plug-in.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from marginctl.data.paths import DATA_DIR_VARIABLE
from marginctl.errors import RequestError
from marginctl.utils.registry import Registry

FOLDER_PREFIX = "folder:"
PATTERN_PREFIX = "re:"  # of the groups of images, by their file names
LIST_PREFIX = "list:"
OOD_GROUPS = ("near", "far")
MAX_IN_MEMORY = 150_000  # images of a set on disk that can be loaded into memory
OPENOOD = "openood"  # stands for the OOD sets of OpenOOD 1.5
_READERS = "marginctl.data.images.readers"
_LISTING = "marginctl.data.images.listing"
_TORCHVISION = "marginctl.data.images.torchvision_sets"


@dataclass(frozen=True)
class Layout:
    """One arrangement of an image set's files below the data folder."""

    folder: str  # the folder of the files; empty for the data folder itself
    # the files of each split; instead of `FILE.gz`, the unpacked `FILE` will do
    train: tuple[str, ...]
    test: tuple[str, ...]
    # import path `module:function`. For a set in memory, the function is called with the paths of a
    # split and its number of images, and returns images (N, H, W, C) uint8 and labels (N,) int64.
    # For a set on disk, it is called with the set's name, its folder and whether only the test
    # split is wanted, and returns a `Listing`.
    reader: str
    md5: Mapping[str, str] = field(default_factory=dict)  # published MD5 digests of files
    marker: str = ""  # for a set on disk, the file or folder by which its folder is recognised


@dataclass(frozen=True)
class ImageSet:
    description: str
    # the class names; of sets on disk, whose files name them, their number
    classes: tuple[str, ...] | int
    num_images: tuple[int, ...]  # of the training, the test and, if there is one, validation part
    # accepted arrangements of the files; the first complete one is read
    layouts: tuple[Layout, ...] = ()
    on_disk: bool = False  # whether images are decoded batch by batch instead of held in memory
    # import path of a function that returns the training and the test split of data that come with
    # a dependency
    embedded: str | None = None
    # SHA-256 of splits whose original content was available to compute it
    digests: Mapping[str, str] = field(default_factory=dict)
    # published normalisation of each channel; else the training images' own
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    # the class of torchvision.datasets that downloads the set, and its arguments for each part:
    # train, test and val, or `all` for a set without official parts
    torchvision: str | None = None
    parts: Mapping[str, Mapping[str, str | int | bool]] = field(default_factory=dict)
    # of a set without official parts: training images that are drawn of each class, a number or a
    # fraction, and test images; None for the others
    train_per_class: float = 0
    test_per_class: int | None = None
    metric: str = "accuracy"  # by which the set is usually compared
    terms: str = "not stated"  # licence or terms of use, by those who publish the set

    @property
    def part_sizes(self) -> dict[str, int]:
        """The number of images of each part."""
        return dict(zip(("train", "test", "val"), self.num_images, strict=False))

    @property
    def split(self) -> str:
        """Who divides the set: `official`, or `ours`."""
        return "ours" if self.train_per_class or self.embedded else "official"

    @property
    def num_classes(self) -> int:
        return self.classes if isinstance(self.classes, int) else len(self.classes)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


_IDX = ("images-idx3-ubyte", "labels-idx1-ubyte")


def _idx_layout(folder: str, *md5: str) -> Layout:
    train, test = (tuple(f"{part}-{kind}.gz" for kind in _IDX) for part in ("train", "t10k"))
    digests = dict(zip((*train, *test), md5, strict=True))
    return Layout(folder, train, test, f"{_READERS}:read_idx", digests)


def _svhn_layouts(*train: str) -> tuple[Layout, ...]:
    """SVHN in a folder of its own, or in the data folder itself, as torchvision places it."""
    test, reader = ("test_32x32.mat",), f"{_READERS}:read_svhn"
    return tuple(Layout(folder, train, test, reader, SVHN_MD5) for folder in ("svhn", ""))


_BY_FLAG = {"train": {"train": True}, "test": {"train": False}}
_TRAIN_TEST = {"train": {"split": "train"}, "test": {"split": "test"}}
_TRAIN_VAL_TEST = {**_TRAIN_TEST, "val": {"split": "val"}}
_ALL: Mapping[str, Mapping[str, str | int | bool]] = {"all": {}}
_RESEARCH = "non-commercial research and education"


def _on_disk(
    description: str,
    classes: int,
    num_images: tuple[int, ...],
    files: tuple[str, ...],
    torchvision: str,
    parts: Mapping[str, Mapping[str, str | int | bool]],
    reader: str = f"{_TORCHVISION}:list_torchvision",
    **fields: Any,
) -> ImageSet:
    """A set whose files are where its class of torchvision places them.

    Args:
        files: their folder in the data folder, then files and folders in it; the first one is the
            marker.
    """
    folder, *names = files
    layout = Layout(folder, tuple(names), (), reader, marker=names[0])
    return ImageSet(
        description,
        classes,
        num_images,
        (layout,),
        on_disk=True,
        torchvision=torchvision,
        parts=parts,
        **fields,
    )


def _dtd(partition: int) -> ImageSet:
    return _on_disk(
        f"Describable Textures (DTD), partition {partition} of 10: 5,640 images in 47 classes",
        47,
        (1880, 1880, 1880),
        ("dtd", f"dtd/labels/train{partition}.txt", "dtd/images/CLASS/IMAGE"),
        "DTD",
        {part: {**given, "partition": partition} for part, given in _TRAIN_VAL_TEST.items()},
        terms="research",
    )


DIGITS = tuple("0123456789")
FASHION = _names(
    "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"
)
EMNIST_BALANCED = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt")
KUZUSHIJI = _names("o, ki, su, tsu, na, ha, ma, ya, re, wo")
STL_10 = _names("airplane, bird, car, cat, deer, dog, horse, monkey, ship, truck")
CIFAR_10 = _names("airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck")
CIFAR_100 = _names(
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

# The MD5 digests are torchvision's. The SHA-256 digests of splits were computed from original
# files. The training splits of Fashion-MNIST and CIFAR-10 and all of SVHN were not available to us:
# their sizes, labels and MD5 digests are checked, and SVHN's reader is untested on real files.
SVHN_MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    "extra_32x32.mat": "a93ce644f1a588dc4d68dda5feec44a7",
}
USPS_MD5 = {
    "usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197",
    "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118",
}
STL_10_MD5 = {
    "train_X.bin": "918c2871b30a85fa023e0c44e0bee87f",
    "train_y.bin": "5a34089d4802c674881badbb80307741",
    "test_X.bin": "7f263ba9f9e0b06b93213547f721ac82",
    "test_y.bin": "36f9794fa4beb8a2c72628de14fa638e",
}
CIFAR_10_LAYOUTS = (
    Layout(
        "cifar-10-batches-bin",
        tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        ("test_batch.bin",),
        f"{_READERS}:read_cifar10_binary",
    ),
    Layout(
        "cifar-10-batches-py",
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        ("test_batch",),
        f"{_READERS}:read_cifar10_pickle",
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
)
CIFAR_100_LAYOUTS = (
    Layout("cifar-100-binary", ("train.bin",), ("test.bin",), f"{_READERS}:read_cifar100_binary"),
    Layout(
        "cifar-100-python",
        ("train",),
        ("test",),
        f"{_READERS}:read_cifar100_pickle",
        {
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
    ),
)

IMAGE_SETS = Registry(
    "dataset",
    ImageSet,
    {
        "digits": ImageSet(
            "1,797 digits of 8 x 8 grey pixels, part of scikit-learn; the split is ours",
            DIGITS,
            (1437, 360),
            embedded=f"{_READERS}:read_digits",
            terms="CC BY 4.0",
        ),
        "mnist": ImageSet(
            "60,000 + 10,000 handwritten digits of 28 x 28 grey pixels",
            DIGITS,
            (60_000, 10_000),
            (
                _idx_layout(
                    "MNIST/raw",
                    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                    "d53e105ee54ea40749a09fcbcd1e9432",
                    "9fb629c4189551a2d022fa330f9573f3",
                    "ec29112dd5afa0611ce80d1b7f02629c",
                ),
            ),
            digests={
                "train": "91fd7a250495ac6742489b2a01919e8774cf195fed7282a7ecc63d849f99a9e1",
                "test": "ffebde4273aab1f43748061ea9a58ebbd58f1959a6f92750e145265e4f6c826f",
            },
            torchvision="MNIST",
            parts=_BY_FLAG,
            terms="CC BY-SA 3.0",
        ),
        "fashion-mnist": ImageSet(
            "60,000 + 10,000 pieces of clothing of 28 x 28 grey pixels",
            FASHION,
            (60_000, 10_000),
            (
                _idx_layout(
                    "FashionMNIST/raw",
                    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                    "25c81989df183df01b3e8a0aad5dffbe",
                    "bef4ecab320f06d8554ea6380940ec79",
                    "bb300cfdad3c16e7a12a480ee83cd310",
                ),
            ),
            digests={"test": "31f656d43529baa045916ac6ce5e3b374968b3185ea991af67108481546e51da"},
            torchvision="FashionMNIST",
            parts=_BY_FLAG,
            terms="MIT",
        ),
        "cifar-10": ImageSet(
            "50,000 + 10,000 colour images of 32 x 32 pixels in 10 classes",
            CIFAR_10,
            (50_000, 10_000),
            CIFAR_10_LAYOUTS,
            digests={"test": "e600ce11aaf5eb6759aae8ec88c3ab7c664a3bb307f49f95ddb7a5333c26325a"},
            # Large Margin in Softmax's protocol for CIFAR gives no mean for CIFAR-10
            std=(0.2023, 0.1994, 0.2010),
            torchvision="CIFAR10",
            parts=_BY_FLAG,
        ),
        "cifar-100": ImageSet(
            "50,000 + 10,000 colour images of 32 x 32 pixels in 100 classes",
            CIFAR_100,
            (50_000, 10_000),
            CIFAR_100_LAYOUTS,
            digests={
                "train": "ab2276dc15ab37c1cec2432e3e82bf8c5a729e27f498bf130cd58389a48ea081",
                "test": "cfa1019151e5e9116132de136675e40ccf38a51c211a7a70cf642fb14a165330",
            },
            mean=(0.5071, 0.4867, 0.4408),  # Large Margin in Softmax's protocol for CIFAR
            std=(0.2675, 0.2565, 0.2761),
            torchvision="CIFAR100",
            parts=_BY_FLAG,
        ),
        "svhn": ImageSet(
            "73,257 + 26,032 house-number digits of 32 x 32 colour pixels",
            DIGITS,
            (73_257, 26_032),
            _svhn_layouts("train_32x32.mat"),
            torchvision="SVHN",
            parts=_TRAIN_TEST,
            terms="non-commercial use",
        ),
        "svhn-extra": ImageSet(
            "SVHN with its 531,131 simpler images as further training images",
            DIGITS,
            (73_257 + 531_131, 26_032),
            _svhn_layouts("train_32x32.mat", "extra_32x32.mat"),
            torchvision="SVHN",
            parts={**_TRAIN_TEST, "extra": {"split": "extra"}},
            terms="non-commercial use",
        ),
        "imagenet": ImageSet(
            "ImageNet (ILSVRC 2012): 1,281,167 + 50,000 images in 1,000 classes",
            1000,
            (1_281_167, 50_000),
            (
                Layout(
                    "imagenet",
                    ("train/WNID/IMAGE",),
                    ("val/WNID/IMAGE",),
                    f"{_LISTING}:list_imagenet",
                    marker="val",
                ),
            ),
            on_disk=True,
            terms=_RESEARCH,
        ),
        "places-365": ImageSet(
            "Places-365: 1,803,460 + 36,500 scenes of 256 x 256 pixels in 365 classes",
            365,
            (1_803_460, 36_500),
            tuple(
                Layout(
                    folder,
                    (
                        "categories_places365.txt",
                        "places365_train_standard.txt",
                        "data_256_standard/CLASS/IMAGE",
                    ),
                    ("places365_val.txt", "val_256/IMAGE"),
                    f"{_LISTING}:list_places365",
                    marker="categories_places365.txt",
                )
                for folder in ("places-365", "")
            ),
            on_disk=True,
            torchvision="Places365",
            parts={
                "train": {"split": "train-standard", "small": True},
                "test": {"split": "val", "small": True},
            },
            terms=_RESEARCH,
        ),
        "kmnist": ImageSet(
            "Kuzushiji-MNIST: 60,000 + 10,000 cursive characters of 28 x 28 grey pixels",
            KUZUSHIJI,
            (60_000, 10_000),
            (
                _idx_layout(
                    "KMNIST/raw",
                    "bdb82020997e1d708af4cf47b453dcf7",
                    "e144d726b3acfaa3e44228e80efcd344",
                    "5c965bf0a639b31b8f53240b1b52f4d7",
                    "7320c461ea6c1c855c0b718fb2a4b134",
                ),
            ),
            torchvision="KMNIST",
            parts=_BY_FLAG,
            terms="CC BY-SA 4.0",
        ),
        "emnist": ImageSet(
            "EMNIST balanced: 112,800 + 18,800 digits and letters of 28 x 28 grey pixels, as "
            "published: with rows and columns exchanged",
            EMNIST_BALANCED,
            (112_800, 18_800),
            (
                Layout(
                    "EMNIST/raw",
                    tuple(f"emnist-balanced-train-{kind}.gz" for kind in _IDX),
                    tuple(f"emnist-balanced-test-{kind}.gz" for kind in _IDX),
                    f"{_READERS}:read_idx",
                ),
            ),
            torchvision="EMNIST",
            parts={part: {"split": "balanced", **given} for part, given in _BY_FLAG.items()},
        ),
        "usps": ImageSet(
            "7,291 + 2,007 digits of envelopes of 16 x 16 grey pixels",
            DIGITS,
            (7291, 2007),
            (Layout("", ("usps.bz2",), ("usps.t.bz2",), f"{_TORCHVISION}:read_usps", USPS_MD5),),
            torchvision="USPS",
            parts=_BY_FLAG,
        ),
        "stl-10": ImageSet(
            "5,000 + 8,000 labeled colour images of 96 x 96 pixels in 10 classes",
            STL_10,
            (5000, 8000),
            (
                Layout(
                    "stl10_binary",
                    ("train_X.bin", "train_y.bin"),
                    ("test_X.bin", "test_y.bin"),
                    f"{_READERS}:read_stl10",
                    STL_10_MD5,
                ),
            ),
            torchvision="STL10",
            parts=_TRAIN_TEST,
        ),
        "food-101": _on_disk(
            "Food-101: 75,750 + 25,250 photographs of dishes in 101 classes",
            101,
            (75_750, 25_250),
            ("food-101", "meta/train.json", "images/CLASS/IMAGE"),
            "Food101",
            _TRAIN_TEST,
            terms="research; the images' authors hold the copyright",
        ),
        "dtd": _dtd(1),
        **{f"dtd-{partition}": _dtd(partition) for partition in range(2, 11)},
        "flowers-102": _on_disk(
            "Oxford Flowers-102: 8,189 photographs in 102 classes",
            102,
            (1020, 6149, 1020),
            ("flowers-102", "setid.mat", "imagelabels.mat", "jpg/IMAGE"),
            "Flowers102",
            _TRAIN_VAL_TEST,
            metric="balanced_accuracy",
        ),
        "oxford-iiit-pet": _on_disk(
            "Oxford-IIIT Pet: 7,349 photographs of cats and dogs of 37 breeds",
            37,
            (3680, 3669),
            ("oxford-iiit-pet", "annotations/trainval.txt", "images/IMAGE"),
            "OxfordIIITPet",
            {"train": {"split": "trainval"}, "test": {"split": "test"}},
            metric="balanced_accuracy",
            terms="CC BY-SA 4.0",
        ),
        "fgvc-aircraft": _on_disk(
            "FGVC-Aircraft: 10,000 photographs of 100 variants",
            100,
            (3334, 3333, 3333),
            ("fgvc-aircraft-2013b", "data/variants.txt", "data/images/IMAGE"),
            "FGVCAircraft",
            _TRAIN_VAL_TEST,
            metric="balanced_accuracy",
            terms="non-commercial research",
        ),
        "stanford-cars": _on_disk(
            "Stanford Cars: 16,185 photographs of 196 models",
            196,
            (8144, 8041),
            (
                "stanford_cars",
                "devkit/cars_meta.mat",
                "devkit/cars_train_annos.mat",
                "cars_test_annos_withlabels.mat",
                "cars_train/IMAGE",
                "cars_test/IMAGE",
            ),
            "StanfordCars",
            _TRAIN_TEST,
        ),
        "sun397": _on_disk(
            "SUN397: 108,754 scenes in 397 classes, of which 50 + 50 a class are used",
            397,
            (19_850, 19_850),
            ("SUN397", "ClassName.txt", "LETTER/CLASS/IMAGE"),
            "SUN397",
            _ALL,
            train_per_class=50,
            test_per_class=50,
        ),
        "caltech-101": _on_disk(
            "Caltech-101: 8,677 images of objects in 101 classes, 30 a class for training",
            101,
            (3030, 5647),
            ("caltech101", "101_ObjectCategories"),
            "Caltech101",
            _ALL,
            train_per_class=30,
            metric="balanced_accuracy",
            terms="CC BY 4.0",
        ),
        "caltech-256": _on_disk(
            "Caltech-256: 30,607 images of 256 kinds of objects and clutter, 60 a class for "
            "training",
            257,
            (15_420, 15_187),
            ("caltech256", "256_ObjectCategories"),
            "Caltech256",
            _ALL,
            train_per_class=60,
            metric="balanced_accuracy",
            terms="CC BY 4.0",
        ),
        "eurosat": _on_disk(
            "EuroSAT: 27,000 satellite images of 64 x 64 pixels in 10 classes",
            10,
            (21_600, 5400),
            ("eurosat", "2750"),
            "EuroSAT",
            _ALL,
            train_per_class=0.8,
            terms="MIT",
        ),
        "gtsrb": _on_disk(
            "German traffic signs: 26,640 + 12,630 images in 43 classes",
            43,
            (26_640, 12_630),
            ("gtsrb", "GTSRB/Training", "GTSRB/Final_Test/Images", "GT-final_test.csv"),
            "GTSRB",
            _TRAIN_TEST,
        ),
        "inaturalist-2018": _on_disk(
            "iNaturalist 2018: 437,513 + 24,426 photographs of 8,142 species; needs the files "
            "train2018.json and val2018.json of the competition in the data folder",
            8142,
            (437_513, 24_426),
            ("2018", ".", "GROUP/NUMBER/IMAGE"),
            "INaturalist",
            {"all": {"version": "2018"}},
            reader=f"{_TORCHVISION}:list_inaturalist",
            terms=_RESEARCH,
        ),
        "cub-200-2011": ImageSet(
            "Caltech-UCSD Birds: 5,994 + 5,794 photographs of 200 species",
            200,
            (5994, 5794),
            (
                Layout(
                    "CUB_200_2011",
                    ("images.txt", "image_class_labels.txt", "classes.txt"),
                    ("train_test_split.txt", "images/CLASS/IMAGE"),
                    f"{_LISTING}:list_cub",
                    marker="train_test_split.txt",
                ),
            ),
            on_disk=True,
            terms=_RESEARCH,
        ),
    },
    label="image set",
    also=f"{FOLDER_PREFIX}PATH or {LIST_PREFIX}PATH",
)


def how_to_get(name: str, entry: ImageSet, alternatives: str = "") -> str:
    """Return what to do where the files of a set are missing in the folder that was named."""
    fetch = f", run marginctl data fetch {name}" if entry.torchvision else ""
    return (
        f"put the original files there{alternatives}{fetch}, or name the data folder with "
        f"--data-dir or {DATA_DIR_VARIABLE}"
    )


_FAR_FROM_CIFAR = ("mnist", "svhn", "dtd", "places-365")
# OpenOOD 1.5 (Zhang et al. 2023, arXiv 2306.09301): in-distribution set -> group -> OOD sets. Those
# that are not in `IMAGE_SETS` are reported as not available. Its iNaturalist is a selection of
# plants (Huang and Li 2021): the whole set has classes of ImageNet.
OPENOOD_SETS = {
    "cifar-10": {"near": ("cifar-100", "tiny-imagenet"), "far": _FAR_FROM_CIFAR},
    "cifar-100": {"near": ("cifar-10", "tiny-imagenet"), "far": _FAR_FROM_CIFAR},
    "imagenet": {"near": ("ssb-hard", "ninco"), "far": ("inaturalist", "dtd", "openimage-o")},
}


def loading_modes(name: str) -> tuple[str, ...]:
    """Return how an image set can be loaded, the default first: into `memory`, or as a `stream`."""
    if name.startswith(FOLDER_PREFIX):
        return ("memory", "stream")
    if name.startswith(LIST_PREFIX):
        return ("stream",)
    entry = IMAGE_SETS.find(name)
    if not entry.on_disk:
        return ("memory",)
    return ("stream",) if sum(entry.num_images) > MAX_IN_MEMORY else ("stream", "memory")


def check_image_set_name(name: str) -> str:
    """Return the name of an image set, without outer blanks.

    Raises:
        RequestError: there is no such image set.
    """
    has_path = name.startswith((FOLDER_PREFIX, LIST_PREFIX)) and not name.endswith(":")
    if not has_path:
        name = name.strip()
        IMAGE_SETS.find(name)
    return name


def parse_ood_name(text: str) -> tuple[str | None, str]:
    """Return the group, near, far or None, and the name in NAME (or openood), near=NAME, far=NAME.

    Raises:
        RequestError: there is no such image set.
    """
    group, _, name = text.partition("=")
    if group in OOD_GROUPS:
        return group, check_image_set_name(name)
    return None, text if text == OPENOOD else check_image_set_name(text)


def expand_ood_names(names: Iterable[str], in_distribution: str) -> tuple[list[str], list[str]]:
    """Return names with OpenOOD's sets, `GROUP=NAME`, for `openood`, and lines on absent sets.

    Raises:
        RequestError: OpenOOD has no sets for the network's images, `in_distribution`.
    """
    expanded, lines = [], []
    for text in names:
        if text != OPENOOD:
            expanded.append(text)
            continue
        if in_distribution not in OPENOOD_SETS:
            raise RequestError(
                f"ood {OPENOOD}: not defined for {in_distribution}: expected data "
                f"{', '.join(OPENOOD_SETS)}: name OOD sets as near=NAME or far=NAME"
            )
        named = [(g, name) for g, sets in OPENOOD_SETS[in_distribution].items() for name in sets]
        expanded += [f"{group}={name}" for group, name in named if name in IMAGE_SETS]
        absent = [f"{name} ({group})" for group, name in named if name not in IMAGE_SETS]
        if absent:
            lines.append(
                f"ood {OPENOOD}: not available by name: {', '.join(absent)}: add their images by "
                "--ood near=folder:PATH or far=folder:PATH"
            )
    return expanded, lines


def parse_pattern(source: str) -> re.Pattern[str]:
    """Return the pattern of `re:PATTERN`.

    Raises:
        RequestError: it is no regular expression, or has no group.
    """
    text = source.removeprefix(PATTERN_PREFIX)
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise RequestError(f"data.groups = {source}: no regular expression: {error}") from None
    if pattern.groups < 1:
        raise RequestError(
            f"data.groups = {source}: expected parentheses around the name of the group, such as "
            f"{PATTERN_PREFIX}^(patient\\d+)_"
        )
    return pattern
