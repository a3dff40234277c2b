"""The registry of image sets: entries, names, and loading modes."""

import importlib.util
import re
from pathlib import Path

import pytest

from marginctl.data.images.registry import (
    IMAGE_SETS,
    OPENOOD_SETS,
    check_image_set_name,
    expand_ood_names,
    loading_modes,
    parse_ood_name,
)
from marginctl.errors import RequestError
from marginctl.utils.registry import import_object
from tests.data.helpers import load_in_memory, refusal


def test_entries():
    assert list(IMAGE_SETS.builtin) == [
        "digits",
        "mnist",
        "fashion-mnist",
        "cifar-10",
        "cifar-100",
        "svhn",
        "svhn-extra",
        "imagenet",
        "places-365",
        "kmnist",
        "emnist",
        "usps",
        "stl-10",
        "food-101",
        "dtd",
        *(f"dtd-{partition}" for partition in range(2, 11)),
        "flowers-102",
        "oxford-iiit-pet",
        "fgvc-aircraft",
        "stanford-cars",
        "sun397",
        "caltech-101",
        "caltech-256",
        "eurosat",
        "gtsrb",
        "inaturalist-2018",
        "cub-200-2011",
    ]
    for entry in IMAGE_SETS.builtin.values():
        assert entry.description
        paths = [entry.embedded] if entry.embedded else [layout.reader for layout in entry.layouts]
        assert all(callable(import_object(path, "image set")) for path in paths)
        assert all(bool(layout.marker) == entry.on_disk for layout in entry.layouts)


def test_the_md5_digests_are_torchvisions():
    """Its source is read by path: importing it takes seconds."""
    (folder,) = importlib.util.find_spec("torchvision").submodule_search_locations
    for module, digests in (
        ("mnist", IMAGE_SETS["mnist"].layouts[0].md5),
        ("mnist", IMAGE_SETS["fashion-mnist"].layouts[0].md5),
        ("cifar", IMAGE_SETS["cifar-10"].layouts[1].md5),
        ("cifar", IMAGE_SETS["cifar-100"].layouts[1].md5),
        ("svhn", IMAGE_SETS["svhn-extra"].layouts[0].md5),
        ("mnist", IMAGE_SETS["kmnist"].layouts[0].md5),
        ("usps", IMAGE_SETS["usps"].layouts[0].md5),
        ("stl10", IMAGE_SETS["stl-10"].layouts[0].md5),
    ):
        text = (Path(folder) / "datasets" / f"{module}.py").read_text()
        for file, md5 in digests.items():
            assert re.search(rf'"{file}",\s+"{md5}"', text)


def test_every_class_has_one_name():
    named = {n: e.classes for n, e in IMAGE_SETS.builtin.items() if not isinstance(e.classes, int)}
    counts = {name: len(set(classes)) for name, classes in named.items()}
    assert counts == {name: {"cifar-100": 100, "emnist": 47}.get(name, 10) for name in named}


@pytest.mark.parametrize("name", ["digits", "cifar-100", "imagenet", "folder:a b/ü", "list:a b"])
def test_known_names(name):
    assert check_image_set_name(name) == name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("minst", " Did you mean 'mnist'?"),
        ("cifar10", " Did you mean 'cifar-10'?"),
        ("folder:", ""),
    ],
)
def test_an_unknown_name(name, hint):
    expected = (
        f"unknown image set '{name}': expected one of {', '.join(IMAGE_SETS)}, or folder:PATH or "
        f"list:PATH.{hint}"
    )
    assert refusal(RequestError, check_image_set_name, name) == expected
    assert refusal(RequestError, load_in_memory, name, Path()) == expected


@pytest.mark.parametrize(
    ("name", "modes"),
    [
        ("digits", ("memory",)),
        ("svhn", ("memory",)),
        ("folder:x", ("memory", "stream")),
        ("list:x", ("stream",)),
        ("imagenet", ("stream",)),
        ("places-365", ("stream",)),
        ("inaturalist-2018", ("stream",)),
        ("food-101", ("stream", "memory")),
    ],
)
def test_loading_modes(name, modes):
    assert loading_modes(name) == modes


def test_the_sets_of_openood():
    """Table 1 of OpenOOD 1.5, with the names of here."""
    far = ["mnist", "svhn", "dtd", "places-365"]
    assert {name: [*groups["near"], *groups["far"]] for name, groups in OPENOOD_SETS.items()} == {
        "cifar-10": ["cifar-100", "tiny-imagenet", *far],
        "cifar-100": ["cifar-10", "tiny-imagenet", *far],
        "imagenet": ["ssb-hard", "ninco", "inaturalist", "dtd", "openimage-o"],
    }
    for name, groups in OPENOOD_SETS.items():
        assert list(groups) == ["near", "far"]
        sets, lines = expand_ood_names(["far=digits", "openood"], name)
        assert sets.pop(0) == "far=digits"
        assert sets == [f"{g}={n}" for g, names in groups.items() for n in names if n in IMAGE_SETS]
        absent = [f"{n} ({g})" for g, names in groups.items() for n in names if n not in IMAGE_SETS]
        assert lines == [
            f"ood openood: not available by name: {', '.join(absent)}: add their images by "
            "--ood near=folder:PATH or far=folder:PATH"
        ] * bool(absent)
    assert {"near=cifar-100", "far=mnist", "far=svhn", "far=places-365"} <= {
        *expand_ood_names(["openood"], "cifar-10")[0]
    }
    assert "near=cifar-10" in expand_ood_names(["openood"], "cifar-100")[0]


def test_openood_is_a_name_without_a_group_for_some_data_alone():
    assert parse_ood_name("openood") == (None, "openood")
    with pytest.raises(RequestError, match="unknown image set 'openood'"):
        parse_ood_name("near=openood")
    for name in ("mnist", "folder:imagenet"):
        said = f"ood openood: not defined for {name}: expected data cifar-10, cifar-100, imagenet: "
        with pytest.raises(RequestError, match=said):
            expand_ood_names(["openood"], name)
        assert expand_ood_names(["mnist"], name) == (["mnist"], [])
