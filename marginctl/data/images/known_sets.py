"""The table of the named image sets: what each one is, and where its files lie."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layout:
    """One way in which the files of an image set lie below the data folder.

    Attributes:
        folder: their folder; empty where they lie in the data folder itself.
        train, test: the files of each part; of `FILE.gz`, the unpacked `FILE` will do.
        format: of the files, a key of `image_files.READERS`.
        md5: the published MD5 sums of files, where there are any.
    """

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    format: str
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
        split_digests: of the parts whose original content was at hand to compute it.
    """

    summary: str
    classes: tuple[str, ...]
    rows: tuple[int, int]
    layouts: tuple[Layout, ...]
    split_digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamedSet:
    """A named set of images that stay in their files.

    Attributes:
        summary: one line about it.
        num_classes: how many classes it has.
        rows: the numbers of training and of test images.
        folders: in which it is looked for, in this order, relative to the data folder.
        files: what must be in one of them.
    """

    summary: str
    num_classes: int
    rows: tuple[int, int]
    folders: tuple[str, ...]
    files: tuple[str, ...]


def _listed(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(","))


def _idx_layout(folder: str, *md5: str) -> Layout:
    train = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    test = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
    sums = dict(zip((*train, *test), md5, strict=True))
    return Layout(folder, train, test, "idx", sums)


def _svhn_layouts(*train: str) -> tuple[Layout, ...]:
    """In a folder of their own, or where torchvision puts them: in the data folder itself."""
    test = ("test_32x32.mat",)
    return tuple(Layout(f, train, test, "svhn", SVHN_MD5) for f in ("svhn", ""))


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
        "cifar-10-binary",
    ),
    Layout(
        "cifar-10-batches-py",
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        ("test_batch",),
        "cifar-10-pickle",
    ),
)
CIFAR_100_LAYOUTS = (
    Layout(
        "cifar-100-binary",
        ("train.bin",),
        ("test.bin",),
        "cifar-100-binary",
    ),
    Layout(
        "cifar-100-python",
        ("train",),
        ("test",),
        "cifar-100-pickle",
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
STREAMED_SETS: Mapping[str, StreamedSet] = {
    "imagenet": StreamedSet(
        "ImageNet (ILSVRC 2012): 1,281,167 + 50,000 photographs in 1,000 classes",
        1000,
        (1_281_167, 50_000),
        ("imagenet",),
        ("train/WNID/IMAGE", "val/WNID/IMAGE"),
    ),
    "places-365": StreamedSet(
        "Places-365: 1,803,460 + 36,500 scenes of 256 x 256 pixels in 365 classes",
        365,
        (1_803_460, 36_500),
        ("places-365", ""),
        (
            "categories_places365.txt",
            "places365_train_standard.txt",
            "places365_val.txt",
            "data_256_standard/CLASS/IMAGE",
            "val_256/IMAGE",
        ),
    ),
}
