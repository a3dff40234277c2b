"""The table of image sets: names, files, and how each is loaded."""

import importlib.util
import re
from pathlib import Path

import pytest

from marginctl.data.images.in_memory import load_in_memory
from marginctl.data.images.known_sets import IMAGE_SETS, SVHN_MD5
from marginctl.data.images.registry import check_image_set_name, image_sets, loading_modes
from marginctl.errors import RequestError
from tests.data.made import refusal


def test_the_description_of_every_set():
    sets = image_sets()
    assert list(sets) == [
        "digits",
        "mnist",
        "fashion-mnist",
        "cifar-10",
        "cifar-100",
        "svhn",
        "svhn-extra",
        "imagenet",
        "places-365",
        "folder:PATH",
        "list:PATH",
    ]
    assert sets["digits"].layouts == ()
    assert sets["fashion-mnist"].layouts == (
        (
            "FashionMNIST/raw/train-images-idx3-ubyte.gz",
            "FashionMNIST/raw/train-labels-idx1-ubyte.gz",
            "FashionMNIST/raw/t10k-images-idx3-ubyte.gz",
            "FashionMNIST/raw/t10k-labels-idx1-ubyte.gz",
        ),
    )
    assert sets["cifar-100"].layouts == (
        ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin"),
        ("cifar-100-python/train", "cifar-100-python/test"),
    )
    assert sets["svhn"].layouts == (
        ("svhn/train_32x32.mat", "svhn/test_32x32.mat"),
        ("train_32x32.mat", "test_32x32.mat"),
    )
    assert sets["imagenet"].layouts == (("imagenet/train/WNID/IMAGE", "imagenet/val/WNID/IMAGE"),)
    assert [layout[2] for layout in sets["places-365"].layouts] == [
        "places-365/places365_val.txt",
        "places365_val.txt",
    ]
    assert sets["list:PATH"].layouts == (("PATH/train.txt", "PATH/val.txt"),)
    assert sets["folder:PATH"].layouts == (
        ("PATH/train/CLASS/IMAGE", "PATH/val/CLASS/IMAGE"),
        ("PATH/CLASS/IMAGE",),
    )
    assert all(kind.summary for kind in sets.values())


def test_the_md5_sums_are_torchvisions():
    """Its source is read by path: importing it takes seconds."""
    (folder,) = importlib.util.find_spec("torchvision").submodule_search_locations
    for module, sums in (
        ("mnist", IMAGE_SETS["mnist"].layouts[0].md5),
        ("mnist", IMAGE_SETS["fashion-mnist"].layouts[0].md5),
        ("svhn", SVHN_MD5),
    ):
        text = (Path(folder) / "datasets" / f"{module}.py").read_text()
        for file, md5 in sums.items():
            assert re.search(rf'"{file}",\s+"{md5}"', text)


def test_every_class_has_one_name():
    counts = {name: len(set(kind.classes)) for name, kind in IMAGE_SETS.items()}
    assert counts == {name: 100 if name == "cifar-100" else 10 for name in IMAGE_SETS}


@pytest.mark.parametrize("name", ["digits", "cifar-100", "imagenet", "folder:a b/ü", "list:a b"])
def test_known_names(name):
    assert check_image_set_name(name) == name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("minst", " Did you mean 'mnist'?"),
        ("CIFAR-10", ""),
        ("folder:", " Did you mean 'folder:PATH'?"),
    ],
)
def test_an_unknown_name(name, hint):
    expected = (
        f"unknown image set '{name}': expected one of digits, mnist, fashion-mnist, cifar-10, "
        f"cifar-100, svhn, svhn-extra, imagenet, places-365, folder:PATH, list:PATH.{hint}"
    )
    assert refusal(RequestError, check_image_set_name, name) == expected
    assert refusal(RequestError, load_in_memory, name, Path()) == expected


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("digits", ("memory",)),
        ("svhn", ("memory",)),
        ("folder:x", ("memory", "stream")),
        ("list:x", ("stream",)),
        ("imagenet", ("stream",)),
        ("places-365", ("stream",)),
    ],
)
def test_the_ways_to_load(name, ways):
    assert loading_modes(name) == ways


@pytest.mark.parametrize("name", ["imagenet", "list:x"])
def test_what_is_streamed_is_not_loaded_whole(tmp_path, name):
    assert refusal(RequestError, load_in_memory, name, tmp_path) == (
        f"data set '{name}': is too large for memory: load it as a stream"
    )
