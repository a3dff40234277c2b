"""Image sets by name against torchvision's own classes, on miniatures in the original layout."""

import importlib
import json
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from marginctl.data.images.folders import open_rgb
from marginctl.data.images.registry import IMAGE_SETS
from marginctl.data.images.torchvision_sets import fetch_image_set
from marginctl.data.paths import MissingDataError
from marginctl.errors import RequestError
from tests.data.helpers import load_in_memory, load_on_disk, refusal
from tests.data.miniatures import WRITERS, write_miniature

ON_DISK = [name for name in WRITERS if IMAGE_SETS[name].on_disk]
IN_MEMORY = [name for name in WRITERS if name not in ON_DISK]
OFFICIAL = [n for n in ON_DISK if IMAGE_SETS[n].torchvision and IMAGE_SETS[n].split == "official"]
# images by part (training, test, validation), and classes, as the papers of the sets or their pages
# give them; SUN397's parts are as large as the official partitions
PUBLISHED = {
    "kmnist": ((60_000, 10_000), 10),
    "emnist": ((112_800, 18_800), 47),
    "usps": ((7291, 2007), 10),
    "stl-10": ((5000, 8000), 10),
    "food-101": ((75_750, 25_250), 101),
    "dtd": ((1880, 1880, 1880), 47),
    "dtd-10": ((1880, 1880, 1880), 47),
    "flowers-102": ((1020, 6149, 1020), 102),
    "oxford-iiit-pet": ((3680, 3669), 37),
    "fgvc-aircraft": ((3334, 3333, 3333), 100),
    "stanford-cars": ((8144, 8041), 196),
    "sun397": ((19_850, 19_850), 397),
    "caltech-101": ((101 * 30, 8677 - 101 * 30), 101),
    "caltech-256": ((257 * 60, 30_607 - 257 * 60), 257),
    "eurosat": ((21_600, 5400), 10),
    "gtsrb": ((26_640, 12_630), 43),
    "inaturalist-2018": ((437_513, 24_426), 8142),
    "cub-200-2011": ((5994, 5794), 200),
}


@pytest.fixture
def miniature(tmp_path, monkeypatch):
    """Writes the miniature of a set; returns the data folder."""

    def write(name):
        write_miniature(name, tmp_path / "data", monkeypatch)
        return tmp_path / "data"

    return write


def torchvision_part(name, part, root):
    entry = IMAGE_SETS[name]
    datasets = importlib.import_module("torchvision.datasets")
    return getattr(datasets, entry.torchvision)(root, **entry.parts[part])


def as_multiset(images):
    """Images and labels, whatever their order."""
    return Counter((np.asarray(x).tobytes(), int(y)) for x, y in images)


def test_the_registry_has_the_published_sizes():
    assert PUBLISHED.keys() == WRITERS.keys()
    for name, (sizes, classes) in PUBLISHED.items():
        assert (IMAGE_SETS[name].num_images, IMAGE_SETS[name].num_classes) == (sizes, classes)


def test_sets_of_one_measure():
    measured = {n for n, entry in IMAGE_SETS.builtin.items() if entry.metric != "accuracy"}
    assert measured == {
        *("flowers-102", "oxford-iiit-pet", "fgvc-aircraft", "caltech-101", "caltech-256")
    }
    assert {IMAGE_SETS[name].metric for name in measured} == {"balanced_accuracy"}


@pytest.mark.parametrize("name", [n for n in OFFICIAL if n != "inaturalist-2018"])
def test_parts_equal_those_of_torchvision(name, miniature):
    root = miniature(name)
    found = load_on_disk(name, root, 32)
    splits = {"train": found.train, "test": found.test, "val": found.val}
    for part in IMAGE_SETS[name].parts:
        split = splits[part]
        rows = [(open_rgb(found.root / split.path(i)), y) for i, y in enumerate(split.y)]
        expected = torchvision_part(name, part, root)
        assert as_multiset(rows) == as_multiset((x.convert("RGB"), y) for x, y in expected)
        names = getattr(expected, "classes", None)
        assert names is None or found.classes == tuple(names)
    assert (found.val is None) == ("val" not in IMAGE_SETS[name].parts)


@pytest.mark.parametrize("name", [n for n in ON_DISK if IMAGE_SETS[n].split == "ours"])
def test_drawn_parts_hold_each_image_of_torchvision_once(name, miniature):
    root = miniature(name)
    found = load_on_disk(name, root, 32)
    paths = [s.path(i) for s in (found.train, found.test) for i in range(len(s))]
    assert len(paths) == len({*paths})
    rows = [
        (open_rgb(found.root / split.path(i)), y)
        for split in (found.train, found.test)
        for i, y in enumerate(split.y)
    ]
    everything = as_multiset((x.convert("RGB"), y) for x, y in torchvision_part(name, "all", root))
    left_out = everything - as_multiset(rows)
    assert as_multiset(rows) <= everything
    assert sum(left_out.values()) == (4 if name == "sun397" else 0)
    again = load_on_disk(name, root, 32)
    assert found.digest == again.digest


def test_inaturalist_takes_the_parts_of_the_competition(miniature):
    root = miniature("inaturalist-2018")
    found = load_on_disk("inaturalist-2018", root, 32)
    everything = as_multiset((x, y) for x, y in torchvision_part("inaturalist-2018", "all", root))
    rows = [
        (open_rgb(found.root / split.path(i)), y)
        for split in (found.train, found.test)
        for i, y in enumerate(split.y)
    ]
    assert as_multiset(rows) == everything
    listed = json.loads((root / "val2018.json").read_text())["images"]
    tested = {f"train_val2018/{found.test.path(i)}" for i in range(len(found.test))}
    assert tested == {image["file_name"] for image in listed}
    (root / "val2018.json").unlink()
    assert f"{root / 'val2018.json'}: cannot be read as the competition's list" in refusal(
        RequestError, load_on_disk, "inaturalist-2018", root, 32
    )


def test_cub_is_read_by_its_lists(miniature):
    root = miniature("cub-200-2011")
    found = load_on_disk("cub-200-2011", root, 32)
    assert found.classes == ("001.Black_footed_Albatross", "002.Laysan_Albatross")
    assert [found.test.path(i) for i in range(4)] == [
        *(f"images/001.Black_footed_Albatross/{n}.jpg" for n in (10, 8)),
        *(f"images/002.Laysan_Albatross/{n}.jpg" for n in (11, 9)),
    ]
    assert found.test_y.tolist() == [0, 0, 1, 1]
    lists = root / "CUB_200_2011"
    (lists / "image_class_labels.txt").write_text("2 1\n")
    assert refusal(RequestError, load_on_disk, "cub-200-2011", root, 32) == (
        f"{lists}: its lists have other images or classes: unpack it again"
    )
    (lists / "images.txt").write_text("1\n")
    assert refusal(RequestError, load_on_disk, "cub-200-2011", root, 32) == (
        f"{lists / 'images.txt'}: expected a number and a value on each line"
    )


@pytest.mark.parametrize("name", IN_MEMORY)
def test_arrays_equal_those_of_torchvision(name, miniature):
    root = miniature(name)
    found = load_in_memory(name, root)
    for part, x, y in (
        ("train", found.train.x, found.train_y),
        ("test", found.test.x, found.test_y),
    ):
        expected = list(torchvision_part(name, part, root))
        shown = np.stack([np.asarray(image) for image, _ in expected])
        assert np.array_equal(x if x.shape[3] == 3 else x[..., 0], shown)
        assert y.tolist() == [int(label) for _, label in expected]


@pytest.mark.parametrize("name", ON_DISK)
def test_a_set_on_disk_loads_into_memory_unless_it_is_large(name, miniature):
    root = miniature(name)
    found = load_in_memory(name, root, 16)
    streamed = load_on_disk(name, root, 16)
    assert found.train.x.shape == (len(streamed.train), 16, 16, 3)
    assert sorted(found.test_y.tolist()) == sorted(streamed.test_y.tolist())
    assert found.has_validation == streamed.has_validation
    assert found.classes == streamed.classes


@pytest.mark.parametrize("name", WRITERS)
def test_a_set_of_another_size_is_refused(name, miniature, monkeypatch):
    """As half an archive is."""
    root = miniature(name)
    entry = IMAGE_SETS.builtin[name]
    more = replace(entry, num_images=(*entry.num_images[:1], 1000, *entry.num_images[2:]))
    monkeypatch.setitem(IMAGE_SETS.builtin, name, more)
    load = (lambda: load_on_disk(name, root, 32)) if entry.on_disk else load_in_memory
    said = refusal(RequestError, *((load,) if entry.on_disk else (load, name, root)))
    assert said.startswith((f"data set '{name}': ", str(root)))
    assert "expected" in said


@pytest.mark.parametrize("name", WRITERS)
def test_a_missing_set_says_what_to_do(name, tmp_path):
    load = load_on_disk if name in ON_DISK else load_in_memory
    said = refusal(MissingDataError, load, name, tmp_path, 32)
    assert said.startswith(f"data set '{name}': no ")
    fetch = f"run marginctl data fetch {name}, or name the data folder with --data-dir"
    assert (fetch in said) == (IMAGE_SETS[name].torchvision is not None)


def test_a_half_extracted_set_is_one_line(miniature):
    root = miniature("food-101")
    (root / "food-101/meta/test.json").unlink()
    assert refusal(RequestError, load_on_disk, "food-101", root, 32) == (
        f"data set 'food-101': torchvision's Food101 cannot read it in {root}: [Errno 2] No such "
        f"file or directory: '{root / 'food-101/meta/test.json'}': remove it and download it again "
        "with: marginctl data fetch food-101"
    )
    shutil.rmtree(root)
    root = miniature("dtd")
    (root / "dtd/dtd/images/banded/banded_0002.jpg").unlink()
    assert "no image file" in refusal(RequestError, load_on_disk, "dtd", root, 32)


def test_a_download_that_fails_is_a_reason(tmp_path, monkeypatch):
    from torchvision.datasets import Food101

    def fail(dataset):
        print("Downloading")
        raise OSError("HTTP Error 503: Service Unavailable\nmore")

    monkeypatch.setattr(Food101, "_download", fail)
    assert fetch_image_set("food-101", tmp_path) == (
        "HTTP Error 503: Service Unavailable more: put meta/train.json, images/CLASS/IMAGE into "
        f"{tmp_path / 'food-101'}"
    )
    assert fetch_image_set("cub-200-2011", tmp_path) == (
        "torchvision does not download it: put images.txt, image_class_labels.txt, classes.txt, "
        f"train_test_split.txt, images/CLASS/IMAGE into {tmp_path / 'CUB_200_2011'}"
    )


def test_a_download_is_torchvisions(miniature, monkeypatch, capsys):
    """The parts of a set are asked for by their arguments; messages go to stderr."""
    from torchvision.datasets import DTD

    asked = []
    monkeypatch.setattr(DTD, "_download", lambda dataset: asked.append(dataset._split))
    root = miniature("dtd")
    assert fetch_image_set("dtd", root) is None
    assert asked == ["train", "test", "val"]
    assert capsys.readouterr().out == ""
