"""Folders of images: listing, splits and decoding."""

import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from marginctl.data.images.folders import list_image_folder, open_rgb
from marginctl.data.paths import MissingDataError
from marginctl.errors import RequestError
from marginctl.recipe.load import RecipeDocument, validate
from marginctl.recipe.train import TrainRecipe
from tests.data.helpers import (
    BLUE,
    GREEN,
    POINTER,
    RED,
    denied,
    load_in_memory,
    load_on_disk,
    paint,
    refusal,
    write,
)


@pytest.fixture
def pets(tmp_path):
    """Two classes in `pets/`: 2 + 1 images to train on, 1 + 1 to test on."""
    root = tmp_path / "pets"
    paint(root / "train" / "dog" / "1.png", RED)
    paint(root / "train" / "dog" / "2.PNG", GREEN)
    paint(root / "train" / "cat" / "1.bmp", BLUE)
    paint(root / "val" / "cat" / "1.png", BLUE)
    paint(root / "val" / "dog" / "1.png", RED)
    return root


def test_a_folder(pets):
    data = load_in_memory("folder:pets", pets.parent, image_size=8)
    assert data.name == "folder:pets"
    assert data.classes == ("cat", "dog")
    assert data.train.x.shape == (3, 8, 8, 3)
    assert data.train_y.tolist() == [0, 1, 1]
    assert data.test_y.tolist() == [0, 1]
    assert data.train.x.dtype == np.uint8
    assert data.train_y.dtype == np.int64
    for image, colour in zip(data.train.x, (BLUE, RED, GREEN), strict=True):
        assert (image == colour).all()
    assert load_in_memory("folder:pets", pets.parent).image_size == 64


def test_test_in_place_of_val(pets):
    val = load_in_memory("folder:pets", pets.parent, image_size=8)
    (pets / "val").rename(pets / "test")
    assert load_in_memory("folder:pets", pets.parent, image_size=8).digest == val.digest


def test_an_absolute_path_and_one_of_the_users_home(pets, monkeypatch):
    data = load_in_memory(f"folder:{pets}", Path("elsewhere"), image_size=8)
    monkeypatch.setenv("HOME", str(pets.parent))
    assert load_in_memory("folder:~/pets", Path("elsewhere"), image_size=8).digest == data.digest


def test_names_with_blanks_and_letters_of_any_script(pets):
    pets.rename(pets.parent / "Bilder ü 图")
    root = pets.parent / "Bilder ü 图"
    for part in ("train", "val"):
        paint(root / part / "häschen 兔" / "é 1.png")
    data = load_in_memory("folder:Bilder ü 图", pets.parent, image_size=8)
    assert data.classes == ("cat", "dog", "häschen 兔")
    assert np.bincount(data.test_y).tolist() == [1, 1, 1]


def test_hidden_and_other_files_are_ignored(pets):
    before = load_in_memory("folder:pets", pets.parent, image_size=8)
    write(pets / "train" / "dog" / ".hidden.png", b"no image")
    write(pets / "train" / "dog" / "notes.txt", b"no image")
    write(pets / "train" / "readme.png", b"no image")
    write(pets / "train" / ".cache" / "1.png", b"no image")
    (pets / "train" / "dog" / "folder.png").mkdir()
    assert load_in_memory("folder:pets", pets.parent, image_size=8).digest == before.digest


@pytest.mark.parametrize(
    ("size", "scaled", "box"),
    [((60, 20), (30, 10), (10, 0, 20, 10)), ((20, 60), (10, 30), (0, 10, 10, 20))],
)
def test_the_centred_square_is_used(pets, size, scaled, box):
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, tuple(2 * edge for edge in box))
    image.save(pets / "train" / "cat" / "1.bmp")
    first = load_in_memory("folder:pets", pets.parent, image_size=10).train.x[0]
    assert (first[1:-1, 1:-1] == BLUE).all()
    cropped = image.resize(scaled, Image.Resampling.BILINEAR).crop(box)
    assert np.array_equal(first, np.asarray(cropped))


def test_the_short_side_is_scaled_without_aliasing(pets):
    stripes = np.zeros((40, 40, 3), np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(pets / "train" / "cat" / "1.bmp")
    first = load_in_memory("folder:pets", pets.parent, image_size=10).train.x[0]
    assert np.abs(first[:, 1:-1].astype(int) - 127).max() <= 2


def test_an_image_is_rotated_by_its_exif_tag(pets):
    exif = Image.Exif()
    exif[274] = 6  # to be turned by 90 degrees to the right
    image = Image.new("RGB", (16, 16), RED)
    image.paste(BLUE, (0, 0, 16, 8))  # the upper half, which comes to the right
    image.save(pets / "train" / "cat" / "1.png", exif=exif)
    (pets / "train" / "cat" / "1.bmp").unlink()
    first = load_in_memory("folder:pets", pets.parent, image_size=16).train.x[0]
    assert (first[:, :8] == RED).all()
    assert (first[:, 8:] == BLUE).all()


@pytest.mark.parametrize("mode", ["L", "P", "1", "RGBA", "CMYK"])
def test_other_modes_become_rgb(pets, mode):
    white = Image.new("RGB", (12, 10), "white").convert(mode)
    (pets / "train" / "cat" / "1.bmp").unlink()
    white.save(pets / "train" / "cat" / "1.tif")
    assert (load_in_memory("folder:pets", pets.parent, image_size=8).train.x[0] == 255).all()


def test_unreadable_files_are_named_together(pets):
    for i in range(6):
        write(pets / "train" / "dog" / f"bad {i}.jpg", b"no image")
    whole = paint(pets / "val" / "cat" / "half.jpg", size=(64, 64)).read_bytes()
    write(pets / "val" / "cat" / "half.jpg", whole[: len(whole) // 2])
    assert refusal(RequestError, load_in_memory, "folder:pets", pets.parent) == (
        "data set 'folder:pets': 7 files: unreadable image: repair or remove it: "
        "train/dog/bad 0.jpg, train/dog/bad 1.jpg, train/dog/bad 2.jpg, train/dog/bad 3.jpg, "
        "train/dog/bad 4.jpg and 2 more"
    )


def test_deep_pixels_are_refused_not_clipped(pets):
    Image.fromarray(np.full((9, 9), 1000, np.uint16)).save(pets / "val" / "cat" / "deep.png")
    assert refusal(RequestError, load_in_memory, "folder:pets", pets.parent) == (
        "data set 'folder:pets': 1 file: more than 8 bits a channel: convert it: val/cat/deep.png"
    )


def test_pointers_and_bombs_are_named(pets, monkeypatch):
    write(pets / "val" / "cat" / "2.jpg", POINTER)
    paint(pets / "train" / "cat" / "big.png", size=(60, 60))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(RequestError) as caught:
        load_in_memory("folder:pets", pets.parent, image_size=8)
    assert caught.value.lines == (
        "data set 'folder:pets': 1 file: Git LFS pointer: run git lfs pull: val/cat/2.jpg",
        "data set 'folder:pets': 1 file: too many pixels for Pillow: make it smaller: "
        "train/cat/big.png",
    )


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_missing_folder(pets, part):
    (pets / part).rename(pets / "away")
    assert refusal(MissingDataError, load_in_memory, "folder:pets", pets.parent) == (
        f"data set 'folder:pets': no folder {pets / part}: expected {pets}/train/CLASS/IMAGE and "
        f"{pets}/val/CLASS/IMAGE (or test instead of val), or {pets}/CLASS/IMAGE"
    )


def test_no_classes(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "val").mkdir()
    assert refusal(RequestError, load_in_memory, f"folder:{tmp_path}", tmp_path) == (
        f"data set 'folder:{tmp_path}': no class folders in {tmp_path / 'train'}: make one for "
        "each class"
    )


def test_a_class_without_images(pets):
    (pets / "train" / "cat" / "1.bmp").unlink()
    assert refusal(RequestError, load_in_memory, "folder:pets", pets.parent) == (
        f"data set 'folder:pets': no images in {pets / 'train' / 'cat'}: add images, or remove "
        "the folder"
    )


def test_no_test_images(pets):
    for path in (pets / "val").rglob("*.png"):
        path.unlink()
    assert refusal(RequestError, load_in_memory, "folder:pets", pets.parent) == (
        f"data set 'folder:pets': no images in {pets / 'val'}: expected a folder for each class"
    )


def test_a_class_with_only_test_images(pets):
    paint(pets / "val" / "cow" / "1.png")
    assert refusal(RequestError, load_in_memory, "folder:pets", pets.parent) == (
        f"data set 'folder:pets': class 'cow' in {pets / 'val'} is not in {pets / 'train'}: "
        "remove it, or add training images"
    )
    (pets / "val" / "cow").rename(pets / "val" / "Cat")
    said = refusal(RequestError, load_in_memory, "folder:pets", pets.parent)
    assert said.endswith("or add training images, or rename it to 'cat'")


def test_a_class_with_only_training_images(pets):
    (pets / "val" / "cat" / "1.png").unlink()
    data = load_in_memory("folder:pets", pets.parent, image_size=8)
    assert (data.num_classes, data.test_y.tolist()) == (2, [1])


def test_too_many_pixels_are_refused_before_decoding(pets):
    write(pets / "train" / "dog" / "bad.png", b"no image")
    assert refusal(RequestError, load_in_memory, "folder:pets", pets.parent, image_size=11_000) == (
        "data set 'folder:pets': 6 images of 11000 x 11000 pixels need 2.0 GiB, at most 2: reduce "
        "data.image_size, or set data.load = stream"
    )


def test_a_folder_that_cannot_be_listed(pets, monkeypatch):
    monkeypatch.setattr(os, "scandir", denied)
    assert refusal(RequestError, load_in_memory, "folder:pets", pets.parent) == (
        f"{pets / 'train'}: cannot be read: Permission denied"
    )


def test_hymenoptera(data_dir):
    data = load_in_memory("folder:hymenoptera", data_dir)
    assert data.classes == ("ants", "bees")
    assert data.train.x.shape == (120, 64, 64, 3)
    assert data.test.x.shape == (60, 64, 64, 3)
    assert np.bincount(data.train_y).tolist() == [60, 60]
    assert np.bincount(data.test_y).tolist() == [30, 30]
    assert all(0.1 < s < 0.4 for s in data.std)


@pytest.fixture
def flat(tmp_path):
    """Five images of each of two classes, and one of a third, without splits."""
    root = tmp_path / "flat"
    for number in range(5):
        paint(root / "cat" / f"{number}.png", (number, 0, 0))
        paint(root / "dog" / f"{number}.png", (number, 9, 0))
    paint(root / "owl" / "0.png", (0, 0, 9))
    return root


@pytest.mark.parametrize(("fraction", "count"), [(0.01, 1), (0.2, 1), (0.4, 2), (0.99, 4)])
def test_a_folder_without_splits_is_split_by_class(flat, fraction, count):
    data = load_in_memory("folder:flat", flat.parent, image_size=8, test_fraction=fraction)
    assert data.classes == ("cat", "dog", "owl")
    assert np.bincount(data.test_y, minlength=3).tolist() == [count, count, 0]
    assert np.bincount(data.train_y, minlength=3).tolist() == [5 - count, 5 - count, 1]
    pixels = [tuple(x[0, 0]) for x in (*data.train.x, *data.test.x)]
    assert len(set(pixels)) == 11  # each image once
    assert (
        load_in_memory("folder:flat", flat.parent, 8, test_fraction=fraction).digest == data.digest
    )
    # more images of one class do not move another's test images
    paint(flat / "owl" / "1.png", GREEN)
    more = load_in_memory("folder:flat", flat.parent, 8, test_fraction=fraction)
    assert (more.test.x[more.test_y < 2] == data.test.x).all()


def test_files_on_disk_are_split_equally(flat):
    held = load_in_memory("folder:flat", flat.parent, 8, test_fraction=0.4)
    files = load_on_disk("folder:flat", flat.parent, 8, test_fraction=0.4)
    names = [files.test.path(row) for row in range(len(files.test))]
    assert [int(name.split("/")[1][0]) for name in names] == held.test.x[:, 0, 0, 0].tolist()
    assert (files.train_y == held.train_y).all()


def test_folders_that_cannot_be_split(flat, pets):
    assert "leave data.test_fraction out" in refusal(
        RequestError, load_in_memory, "folder:pets", pets.parent, test_fraction=0.5
    )
    with pytest.raises(MissingDataError, match="no folder"):
        load_in_memory("folder:gone", flat.parent, test_fraction=0.5)
    (flat / "empty").mkdir()
    assert "no images in" in refusal(
        RequestError, load_in_memory, "folder:flat", flat.parent, test_fraction=0.5
    )
    document = {"task": "train", "data": {"name": "digits", "test_fraction": 0.5}}
    assert "expected folder:PATH" in refusal(
        RequestError, validate, TrainRecipe, RecipeDocument(document, {}, "r")
    )
    for name in ("cat", "dog"):
        for file in list((flat / name).iterdir())[1:]:
            file.unlink()
    (flat / "empty").rmdir()
    assert "has one image" in refusal(
        RequestError, load_in_memory, "folder:flat", flat.parent, test_fraction=0.5
    )
    for inner in list(flat.iterdir()):
        for file in inner.iterdir():
            file.unlink()
        inner.rmdir()
    assert "no class folders" in refusal(
        RequestError, load_in_memory, "folder:flat", flat.parent, test_fraction=0.5
    )


def test_a_folder_without_parts_has_a_fifth_of_each_class_to_test_on(flat):
    data = load_in_memory("folder:flat", flat.parent, image_size=8)
    assert np.bincount(data.test_y, minlength=3).tolist() == [1, 1, 0]
    fifth = load_in_memory("folder:flat", flat.parent, image_size=8, test_fraction=0.2)
    assert fifth.digest == data.digest


@pytest.mark.parametrize(
    "folders",
    [
        ("Training/cat", "Testing/cat"),
        ("cat/train", "cat/val"),
        ("pets/train/cat", "pets/test/cat"),
        ("Valid/cat", "Test/cat"),
    ],
)
def test_parts_under_other_names_are_no_classes(tmp_path, folders):
    for folder in folders:
        paint(tmp_path / folder / "1.png")
        paint(tmp_path / folder / "2.png")
    said = refusal(RequestError, load_in_memory, f"folder:{tmp_path}", tmp_path)
    assert "look like parts: expected" in said


def test_a_class_may_be_called_train(tmp_path):
    for name in ("Train", "car"):
        for number in range(2):
            paint(tmp_path / "set" / name / f"{number}.png")
    assert load_in_memory("folder:set", tmp_path, image_size=8).classes == ("Train", "car")


# --- content, nesting, names


@pytest.mark.parametrize(
    "name", ["1.jfif", "1.JPE", "IMG_0001", "1.jpg_medium", "photo.1", "1.jpg?w=100", "1.data"]
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_an_image_is_known_by_its_content(pets, name, kind):
    paint(pets / "train" / "cat" / name, RED, format=kind)
    train, *_ = list_image_folder("pets", pets)
    assert sorted(train["cat"]) == sorted(["train/cat/1.bmp", f"train/cat/{name}"])
    data = load_in_memory("folder:pets", pets.parent, image_size=8)
    row = train["cat"].index(f"train/cat/{name}")
    assert np.abs(data.train.x[row].astype(int) - RED).max() < 3


@pytest.mark.parametrize("below", ["2019", "a/b/c/d", "x y/é", "jpg", "2020/train"])
def test_images_below_their_class_folder(pets, below):
    paint(pets / "train" / "cat" / below / "1.png", GREEN)
    for load in (load_in_memory, load_on_disk):
        data = load("folder:pets", pets.parent, image_size=8)
        assert data.train_y.tolist() == [0, 0, 1, 1]
    assert list_image_folder("pets", pets)[0]["cat"] == [
        "train/cat/1.bmp",
        f"train/cat/{below}/1.png",
    ]


def test_links_in_a_circle_are_read_once(pets):
    (pets / "train" / "cat" / "up").symlink_to(pets)
    (pets / "train" / "cat" / "again").symlink_to(pets / "train" / "cat")
    (pets / "train" / "cat" / "dogs").symlink_to(pets / "train" / "dog")
    (pets / "train" / "cat" / "twice").symlink_to(pets / "train" / "dog")
    train, *_ = list_image_folder("pets", pets)
    assert train["cat"] == ["train/cat/1.bmp", "train/cat/twice/1.png", "train/cat/twice/2.PNG"]


@pytest.mark.parametrize("name", ["é", "Ångström", "ñandú", "ガ"])
def test_a_class_in_two_unicode_forms(tmp_path, name):
    for form, number in (("NFC", 0), ("NFD", 1)):
        folder = tmp_path / "set" / "train" / unicodedata.normalize(form, name)
        paint(folder / f"{number}.png")
    paint(tmp_path / "set" / "train" / "x" / "1.png")
    paint(tmp_path / "set" / "val" / unicodedata.normalize("NFD", name) / "1.png")
    for load in (load_in_memory, load_on_disk):
        data = load("folder:set", tmp_path, image_size=8)
        assert sorted(data.classes) == sorted((unicodedata.normalize("NFC", name), "x"))
        assert sorted(np.bincount(data.train_y).tolist()) == [1, 2]
        assert len(data.test_y) == 1


def test_a_flat_folder_is_a_test_set(tmp_path):
    for number in range(3):
        paint(tmp_path / "noise" / f"{number}.png")
    write(tmp_path / "noise" / "notes.txt", b"of 2019")
    for load in (load_in_memory, load_on_disk):
        data = load("folder:noise", tmp_path, image_size=8, test_only=True)
        assert (len(data.test_y), len(data.train_y)) == (3, 0)
    with pytest.raises(RequestError, match="no class folders"):
        load_in_memory("folder:noise", tmp_path)


# --- transparency


def transparent(mode):
    """Red below full transparency, and a blue pixel that is seen."""
    image = Image.new("RGBA", (4, 4), (*RED, 0))
    image.putpixel((1, 1), (*BLUE, 255))
    if mode == "P":
        image = Image.new("P", (4, 4), 0)
        image.putpalette([*RED, *BLUE])
        image.putpixel((1, 1), 1)
        image.info["transparency"] = 0
    elif mode == "LA":
        image = Image.new("LA", (4, 4), (99, 0))
        image.putpixel((1, 1), (0, 255))
    elif mode == "RGB":
        image = Image.new("RGB", (4, 4), RED)
        image.putpixel((1, 1), BLUE)
        image.info["transparency"] = RED
    return image


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        ("RGBA", "png"),
        ("P", "png"),
        ("LA", "png"),
        ("RGB", "png"),
        ("P", "gif"),
        ("RGBA", "tif"),
        ("RGBA", "webp"),
    ],
)
def test_hidden_colours_are_not_seen(tmp_path, mode, suffix):
    image = transparent(mode)
    options = {"lossless": True, "exact": True} if suffix == "webp" else {}
    if "transparency" in image.info:
        options["transparency"] = image.info["transparency"]
    image.save(tmp_path / f"a.{suffix}", **options)
    pixels = np.asarray(open_rgb(tmp_path / f"a.{suffix}"))
    white = (pixels == 255).all(-1)
    assert white.sum() == 15
    assert tuple(pixels[1, 1]) == ((0, 0, 0) if mode == "LA" else BLUE)


def test_half_transparency_is_blended_and_opaque_pixels_stay(tmp_path):
    random = np.random.default_rng(0).integers(0, 256, (9, 9, 4), np.uint8)
    random[..., 3] = 255
    random[0, 0] = (0, 0, 0, 128)
    Image.fromarray(random).save(tmp_path / "a.png")
    pixels = np.asarray(open_rgb(tmp_path / "a.png"))
    assert abs(int(pixels[0, 0, 0]) - 127) <= 1
    assert (pixels[1:] == random[1:, :, :3]).all()
