"""Image sets on disk: lists and layouts, digests, and errors."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marginctl.data.images import listing
from marginctl.data.images.listing import imagenet_wnids
from marginctl.data.images.registry import IMAGE_SETS
from marginctl.data.images.subsets import label_noise, subsample
from marginctl.data.paths import MissingDataError
from marginctl.data.status import dataset_status
from marginctl.errors import RequestError
from tests.data.helpers import load_in_memory, load_on_disk, paint, refusal, write


def lines(path: Path, *rows: str) -> Path:
    return write(path, ("\n".join(rows) + "\n").encode())


@pytest.fixture
def listed(tmp_path):
    """Three training images of two classes: an absolute path, one with blanks; two test images."""
    root = tmp_path / "lists"
    away = paint(tmp_path / "elsewhere" / "c.png")
    for name in ("a.png", "b 1 .png", "v/1.png", "v/2.png"):
        paint(root / name)
    lines(root / "train.txt", "b 1 .png\t1", "", f"{away} 0", "a.png  0")
    lines(root / "val.txt", "v/2.png 1", "v/1.png 0")
    return root


def paths(part) -> list[str]:
    return [part.path(row) for row in range(len(part))]


# --- lists


def test_a_list(listed, tmp_path):
    found = load_on_disk("list:lists", tmp_path, 32)
    away = str(tmp_path / "elsewhere" / "c.png")
    assert paths(found.train) == sorted([away, "a.png", "b 1 .png"])
    assert dict(zip(paths(found.train), found.train_y.tolist(), strict=True)) == {
        away: 0,
        "a.png": 0,
        "b 1 .png": 1,
    }
    assert (paths(found.test), found.test_y.tolist()) == (["v/1.png", "v/2.png"], [0, 1])
    assert (found.classes, found.channels, found.image_size) == (("0", "1"), 3, 32)
    assert found.mean == (0.485, 0.456, 0.406)
    assert found.std == (0.229, 0.224, 0.225)
    lines(listed / "classes.txt", "cat", "great dane")
    (listed / "val.txt").rename(listed / "test.txt")
    assert load_on_disk(f"list:{listed}", Path(), 32).classes == ("cat", "great dane")


def test_the_test_part_alone(listed, tmp_path):
    (listed / "train.txt").unlink()
    found = load_on_disk("list:lists", tmp_path, 32, test_only=True)
    assert (len(found.train), len(found.test), found.num_classes) == (0, 2, 2)
    (listed / "train.txt").touch()
    lines(listed / "val.txt", "v/2.png 1", "v/1.png 300000000")
    assert refusal(RequestError, load_on_disk, "list:lists", tmp_path, 32, test_only=True) == (
        f"{listed / 'val.txt'}: label 300000000 of v/1.png: expected 0 .. 999999"
    )
    (listed / "train.txt").unlink()
    expected = f"data set 'list:lists': no {listed / 'train.txt'}: expected train.txt and val.txt"
    assert refusal(MissingDataError, load_on_disk, "list:lists", tmp_path, 32).startswith(expected)


def test_the_digest_is_of_paths_sizes_and_labels(listed, tmp_path):
    found = load_on_disk("list:lists", tmp_path, 32)
    content = hashlib.sha256()
    for path, label in (("v/1.png", 0), ("v/2.png", 1)):
        size = (listed / path).stat().st_size
        content.update(f"{path}\0{size}\0{label}\n".encode())
    assert found.split_digests["test"] == content.hexdigest()
    train = (listed / "train.txt").read_text().splitlines()
    lines(listed / "train.txt", *reversed(train))
    assert load_on_disk("list:lists", tmp_path, 32).digest == found.digest
    bytes_ = bytearray((listed / "a.png").read_bytes())
    bytes_[-1] ^= 1
    (listed / "a.png").write_bytes(bytes_)  # of the same size: not noticed
    assert load_on_disk("list:lists", tmp_path, 32).digest == found.digest
    others = {load_on_disk("list:lists", tmp_path, 33).digest}
    (listed / "a.png").write_bytes(bytes_ + b"\0")
    others.add(load_on_disk("list:lists", tmp_path, 32).digest)
    lines(listed / "val.txt", "v/2.png 0", "v/1.png 0")
    others.add(load_on_disk("list:lists", tmp_path, 32).digest)
    lines(listed / "classes.txt", "cat", "dog")
    others.add(load_on_disk("list:lists", tmp_path, 32).digest)
    assert len(others | {found.digest}) == 5


@pytest.mark.parametrize(
    ("file", "rows", "expected"),
    [
        ("train.txt", ["a.png"], "train.txt:1: 'a.png': expected an image's path, a blank and a"),
        ("train.txt", ["a.png 0", "v/1.png x"], "train.txt:2: 'v/1.png x': expected an image's"),
        ("train.txt", ["a.png 1.0"], "train.txt:1: 'a.png 1.0': expected an image's"),
        ("train.txt", ["a.png -1"], "train.txt: label -1 of a.png: expected 0 .. 0"),
        ("train.txt", ["a.png 0", "v/1.png -1"], "train.txt: label -1 of v/1.png: expected 0 .. 1"),
        ("val.txt", ["v/1.png 2"], "val.txt: label 2 of v/1.png: expected 0 .. 1"),
        ("train.txt", ["a.png 0", "v/1.png 2"], "train.txt: no image of class 1 ('1'): add"),
        # allocates nothing of that length
        (
            "train.txt",
            ["a.png 0", f"v/1.png {10**17}"],
            "train.txt: no image of class 1 ('1'): add",
        ),
        ("train.txt", ["a.png 0", "v/1.png " + 5000 * "1"], "train.txt:2: 'v/1.png 1111"),
        (
            "train.txt",
            ["a.png 0", "v/1.png 1", "./a.png 1"],
            "train.txt:3: label 1 of ./a.png, which has label 0 above: expected one label for",
        ),
        ("classes.txt", [""], "classes.txt: is empty: expected the name of a class on each line"),
        ("classes.txt", ["cat", "dog", "cat"], "classes.txt: duplicate class 'cat': name each"),
        ("val.txt", [" "], "val.txt: is empty: expected lines of an image's path"),
    ],
)
def test_a_wrong_list(listed, tmp_path, file, rows, expected):
    lines(listed / file, *rows)
    said = refusal(RequestError, load_on_disk, "list:lists", tmp_path, 32)
    assert said.startswith(f"{listed}/{expected}")


def test_a_class_without_images_is_named(listed, tmp_path):
    lines(listed / "classes.txt", "cat", "dog", "cow")
    said = refusal(RequestError, load_on_disk, "list:lists", tmp_path, 32)
    assert said.startswith(f"{listed / 'train.txt'}: no image of class 2 ('cow')")


def test_missing_and_empty_files(listed, tmp_path):
    (listed / "v" / "1.png").unlink()
    assert refusal(RequestError, load_on_disk, "list:lists", tmp_path, 32) == (
        f"data set 'list:lists': no image file {listed / 'v/1.png'}, of 2 listed "
        "files: add them, or remove them from the list"
    )
    (listed / "v" / "1.png").touch()
    (listed / "v" / "2.png").unlink()
    said = refusal(RequestError, load_on_disk, "list:lists", tmp_path, 32)
    assert f"no image file {listed / 'v/1.png'} is empty and 1 more, of 2" in said


def test_a_set_in_memory_is_not_loaded_on_disk(tmp_path):
    said = refusal(RequestError, load_on_disk, "digits", tmp_path, 32)
    assert said.startswith("data set 'digits': is held in memory: expected one of imagenet, ")


def test_excluded_test_images(listed, tmp_path):
    excluded = lines(tmp_path / "exclude.txt", "1")
    found = load_on_disk("list:lists", tmp_path, 32, exclude=str(excluded))
    assert paths(found.test) == ["v/2.png"]
    assert found.digest != load_on_disk("list:lists", tmp_path, 32).digest
    for row, said in (("3", "'3' is no test image of list:lists"), ("1\n2", "excludes all test")):
        lines(excluded, row)
        line = refusal(
            RequestError, load_on_disk, "list:lists", tmp_path, 32, exclude="exclude.txt"
        )
        assert line.startswith(f"data.exclude = {excluded}: {said}")


# --- subsets


def test_subsets_equal_those_in_memory(data_dir):
    """The same rows and labels as of the same folder in memory, whose order is the same."""
    files = load_on_disk("folder:hymenoptera", data_dir, 32)
    images = load_in_memory("folder:hymenoptera", data_dir, image_size=8)
    assert files.train_y.tolist() == images.train_y.tolist()
    for change in (
        lambda d: subsample(d, 0.5, seed=0),
        lambda d: subsample(d, size=31, seed=0),
        lambda d: label_noise(d, 0.25, seed=0),
        lambda d: label_noise(subsample(d, size=50, seed=0), 0.25, seed=0),
    ):
        changed = change(files)
        assert changed.train_y.tolist() == change(images).train_y.tolist()
        assert len(changed.train.paths) == len(changed.train.sizes) == len(changed.train_y)
        assert changed.digest != files.digest
        assert changed.test is files.test
    part = subsample(files, size=31, seed=0)
    truth = dict(zip(paths(files.train), files.train_y.tolist(), strict=True))
    assert [truth[p] for p in paths(part.train)] == part.train_y.tolist()


# --- synthetic ImageNet and Places-365 of two classes


def test_the_wnids_of_imagenet():
    wnids = imagenet_wnids()
    assert len(set(wnids)) == 1000
    assert list(wnids) == sorted(wnids)
    known = {0: "n01440764", 1: "n01443537", 207: "n02099601", 281: "n02123045", 999: "n15075141"}
    assert {i: wnids[i] for i in known} == known


@pytest.fixture
def imagenet(tmp_path, monkeypatch):
    """Two classes of two training images, and three to test on."""
    root = tmp_path / "imagenet"
    for wnid in ("n01440764", "n01443537"):
        for i in range(2):
            paint(root / "train" / wnid / f"{wnid}_{i}.JPEG")
    for i, wnid in enumerate(("n01440764", "n01443537", "n01443537"), 1):
        paint(root / "val" / wnid / f"ILSVRC2012_val_{i:08d}.JPEG")
    small = replace(IMAGE_SETS["imagenet"], classes=2, num_images=(4, 3))
    monkeypatch.setitem(IMAGE_SETS.builtin, "imagenet", small)
    return root


def test_imagenet_in_folders(imagenet, tmp_path):
    found = load_on_disk("imagenet", tmp_path, 32)
    assert found.classes == ("n01440764", "n01443537")
    assert found.train_y.tolist() == [0, 0, 1, 1]
    assert found.test_y.tolist() == [0, 1, 1]
    assert paths(found.test)[0] == "val/n01440764/ILSVRC2012_val_00000001.JPEG"
    excluded = lines(tmp_path / "exclude.txt", "2", "ILSVRC2012_val_00000003")
    remaining = load_on_disk("imagenet", tmp_path, 32, exclude=str(excluded))
    assert remaining.test_y.tolist() == [0]
    shutil.rmtree(imagenet / "train")
    assert load_on_disk("imagenet", tmp_path, 32, test_only=True).test_y.tolist() == [0, 1, 1]


@pytest.mark.parametrize("file", ["LOC_val_solution.csv", "val_labels.txt"])
def test_imagenet_with_a_flat_validation_folder(imagenet, tmp_path, monkeypatch, file):
    order = {p.stem: p.parent.name for p in (imagenet / "val").rglob("*.JPEG")}
    for path in list((imagenet / "val").rglob("*.JPEG")):
        path.rename(imagenet / "val" / path.name)
    if file.endswith("csv"):
        rows = ["ImageId,PredictionString", *(f"{n},{w} 1 2 3 4 " for n, w in order.items())]
    else:
        rows = [f"{n}.JPEG {w}" for n, w in order.items()]
    lines(imagenet / file, *rows)
    monkeypatch.setattr(listing, "imagenet_wnids", lambda: ("n01440764", "n01443537"))
    found = load_on_disk("imagenet", tmp_path, 32)
    assert paths(found.test) == [f"val/ILSVRC2012_val_{i:08d}.JPEG" for i in (1, 2, 3)]
    assert found.test_y.tolist() == [0, 1, 1]
    lines(imagenet / file, *rows[:-1])
    said = refusal(RequestError, load_on_disk, "imagenet", tmp_path, 32)
    assert said.startswith(f"{imagenet / file}: no label of ILSVRC2012_val_")
    lines(imagenet / file, *rows[:-1], "ILSVRC2012_val_00000003")
    assert "expected an image and its wnid" in refusal(
        RequestError, load_on_disk, "imagenet", tmp_path, 32
    )


def test_imagenet_with_too_few_images(imagenet, tmp_path):
    next((imagenet / "train").rglob("*_1.JPEG")).unlink()
    line = (
        f"data set 'imagenet': 3 training images in {imagenet}, expected 4: unpack it again, or "
        "load a part of it as folder:PATH or list:PATH"
    )
    assert refusal(RequestError, load_on_disk, "imagenet", tmp_path, 32) == line
    assert dataset_status("imagenet", tmp_path, read=False).state == "present"
    found = dataset_status("imagenet", tmp_path)
    assert (found.state, found.detail) == ("corrupt", line)


def test_places(tmp_path, monkeypatch):
    root = tmp_path / "places-365"
    lines(root / "categories_places365.txt", "/a/airfield 0", "/b/bar 1")
    lines(root / "places365_train_standard.txt", "/b/bar/1.jpg 1", "/a/airfield/1.jpg 0")
    lines(root / "places365_val.txt", "Places365_val_00000001.jpg 1")
    for name in ("data_256_standard/b/bar/1.jpg", "data_256_standard/a/airfield/1.jpg"):
        paint(root / name)
    paint(root / "val_256" / "Places365_val_00000001.jpg")
    assert "363" not in refusal(RequestError, load_on_disk, "places-365", tmp_path, 32)
    small = replace(IMAGE_SETS["places-365"], classes=2, num_images=(2, 1))
    monkeypatch.setitem(IMAGE_SETS.builtin, "places-365", small)
    found = load_on_disk("places-365", tmp_path, 32)
    assert found.classes == ("/a/airfield", "/b/bar")
    assert paths(found.train) == [
        "data_256_standard/a/airfield/1.jpg",
        "data_256_standard/b/bar/1.jpg",
    ]
    assert (found.train_y.tolist(), found.test_y.tolist()) == ([0, 1], [1])
    assert dataset_status("places-365", tmp_path).state == "present"
    # where torchvision puts them: in the data folder itself
    assert load_on_disk("places-365", root, 32).digest == found.digest
    (root / "places365_train_standard.txt").unlink()
    assert str(root / "places365_train_standard.txt") in refusal(
        MissingDataError, load_on_disk, "places-365", tmp_path, 32
    )


@pytest.mark.parametrize("name", ["imagenet", "places-365"])
def test_missing_sets(tmp_path, name):
    said = refusal(MissingDataError, load_on_disk, name, tmp_path, 32)
    assert said.startswith(f"data set '{name}': no {IMAGE_SETS[name].layouts[0].train[0]} and ")
    assert str(tmp_path / name) in said
    assert dataset_status(name, tmp_path).state == "absent"


def test_a_folder_as_files(data_dir):
    found = load_on_disk("folder:hymenoptera", data_dir, 224)
    assert found.classes == ("ants", "bees")
    assert np.bincount(found.train_y).tolist() == [60, 60]
    assert np.bincount(found.test_y).tolist() == [30, 30]
    assert found.train.sizes.sum() == sum(
        (data_dir / "hymenoptera" / p).stat().st_size for p in paths(found.train)
    )
