"""The summary of folders and lists of images: counts, what is passed over, duplicates, remarks."""

import os
import shutil
import time
from dataclasses import asdict
from random import Random

import numpy as np
import pytest
from PIL import Image

from marginctl.data.images.image_sets import load_image_set
from marginctl.data.images.summary import (
    inspect_image_set,
    inspect_images,
    looks_like_images,
    with_pixel_duplicates,
)
from marginctl.data.paths import MissingDataError
from marginctl.errors import RequestError
from tests.data.helpers import BLUE, GREEN, POINTER, RED, paint, refusal, write


def colour(number):
    """A colour that no other number has."""
    return (number % 256, number // 256, 77)


@pytest.fixture
def pets(tmp_path):
    """Four cats and two dogs to train on, two cats and a dog to test on, all different."""
    number = 0
    for part, name, count in (
        ("train", "cat", 4),
        ("train", "dog", 2),
        ("val", "cat", 2),
        ("val", "dog", 1),
    ):
        for i in range(count):
            paint(tmp_path / "pets" / part / name / f"{i}.png", colour(number))
            number += 1
    return tmp_path / "pets"


def counts(summary):
    return {name: part.images for name, part in summary.parts.items()}


def skipped(summary):
    return {s.reason: s.count for s in summary.skipped}


def test_a_plain_folder_has_nothing_to_remark(pets):
    assert asdict(inspect_images(pets)) == {
        "kind": "images",
        "parts": {
            "train": {"images": 6, "classes": {"cat": 4, "dog": 2}},
            "val": {"images": 3, "classes": {"cat": 2, "dog": 1}},
        },
        "skipped": [],
        "sizes": {"min": [12, 10], "median": [12, 10], "max": [12, 10]},
        "modes": {"RGB": 9},
        "duplicates": {"within_parts": 0, "across_parts": 0, "across_classes": 0},
        "remarks": [],
    }


def test_sizes_and_modes(pets):
    Image.new("L", (100, 8)).save(pets / "train" / "cat" / "0.png")
    Image.new("RGBA", (5, 300)).save(pets / "train" / "cat" / "1.png")
    summary = inspect_images(pets)
    assert summary.sizes == {"min": [5, 8], "median": [12, 10], "max": [100, 300]}
    assert summary.modes == {"RGB": 7, "L": 1, "RGBA": 1}
    assert summary.remarks == ["1 image with transparency: composited on a white ground"]


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_a_file_that_is_cut_off_is_refused(pets, suffix):
    noise = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
    file = pets / "train" / "cat" / f"large.{suffix}"
    Image.fromarray(noise).save(file)
    whole = file.read_bytes()
    file.write_bytes(whole + b"other data")
    assert not skipped(inspect_images(pets))
    file.write_bytes(whole[: len(whole) // 2])
    assert skipped(inspect_images(pets)) == {"unreadable image: repair or remove it": 1}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (".DS_Store", b"\0\0", "hidden"),
        ("._0.png", b"\0\5\x16\7", "hidden"),
        ("notes.txt", b"of 2019", "text"),
        ("labels.csv", "é;1\n".encode() * 2000, "text"),
        ("README", b"cats", "text"),
        ("Thumbs.db", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "no known image format"),
        ("clip.mp4", bytes(600), "no known image format"),
        ("IMG_1.HEIC", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC, which Pillow cannot decode"),
        ("clip.m4v", b"\0\0\0\x18ftypM4V \0\0\0\0isom", "no known image format"),
        ("song", b"\0\0\0\x20ftypM4A \0\0\0\0M4A ", "no known image format"),
        ("a.mov", b"\0\0\0\x14ftypqt  \0\0\0\0", "no known image format"),
        ("a.hif", b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "HEIC, which Pillow cannot decode"),
        ("a.svg", b"<svg/>", "text"),
        ("empty", b"", "text"),
        ("lost.jpg", POINTER, "Git LFS pointer: run git lfs pull"),
        ("lost", POINTER, "Git LFS pointer: run git lfs pull"),
        ("a.png", b"/annex/objects/SHA256E-s1--4d7a.png\n", "git-annex pointer: run git annex"),
        ("a", b"/annex/objects/MD5-s20--4d7a", "git-annex pointer: run git annex get"),
        ("a.webp", b"/annex/objects/URL--http&c%%a", "git-annex pointer: run git annex get"),
        ("page.jpg", b"<html>404</html>", "unreadable image: repair or remove it"),
        ("empty.png", b"", "unreadable image: repair or remove it"),
        ("cut.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF", "unreadable image: repair or remove it"),
    ],
)
def test_files_that_are_passed_over(pets, name, content, reason):
    write(pets / "train" / "cat" / name, content)
    summary = inspect_images(pets)
    (entry,) = summary.skipped
    assert entry.reason.startswith(reason)
    assert (entry.count, entry.examples) == (1, [f"train/cat/{name}"])
    assert counts(summary) == {"train": 6, "val": 3}


@pytest.mark.parametrize(
    ("suffix", "content", "reason"),
    [
        (".npy", b"\x93NUMPY\1\0", "no known image format"),
        (".svg", b"<svg/>", "text"),
        (".mp4", b"\0\0\0\x20ftypisom", "no known image format"),
    ],
)
def test_a_folder_of_other_files_alone(tmp_path, suffix, content, reason):
    for name in ("cat", "dog"):
        write(tmp_path / "train" / name / f"1{suffix}", content)
    with pytest.raises(RequestError) as caught:
        inspect_images(tmp_path)
    assert caught.value.lines == (
        f"{tmp_path}: no images: expected PART/CLASS/IMAGE, CLASS/IMAGE or images",
        f"data set '{tmp_path}': 2 files: {reason}: train/cat/1{suffix}, train/dog/1{suffix}",
    )


def test_more_that_is_passed_over(pets, monkeypatch):
    shutil.copytree(pets / "train", pets / "__MACOSX" / "train")
    shutil.copytree(pets / "val", pets / "train" / "cat" / "__MACOSX")
    shutil.copytree(pets / "val", pets / "train" / ".cache")
    paint(pets / "train" / "cover.png")
    write(pets / "train" / "labels.csv", b"cat,1")
    (pets / "val" / "dog" / "gone.png").symlink_to(pets / "gone.png")
    (pets / "val" / "dog" / "up").symlink_to(pets)
    os.mkfifo(pets / "val" / "dog" / "pipe.png")
    Image.fromarray(np.zeros((9, 9), np.uint16)).save(pets / "val" / "dog" / "deep.png")
    paint(pets / "val" / "dog" / "big.png", size=(60, 60))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    summary = inspect_images(pets)
    assert skipped(summary) == {
        "__MACOSX": 2,
        "hidden": 1,
        "image outside a class folder": 1,
        "link to a folder that is read already": 1,
        "link to nothing": 1,
        "more than 8 bits a channel: convert it": 1,
        "neither a file nor a folder": 1,
        "text": 1,
        "too many pixels for Pillow: make it smaller": 1,
    }
    assert counts(summary) == {"train": 6, "val": 3}
    with pytest.raises(RequestError) as caught:
        summary.check_readable("folder:pets")
    assert caught.value.lines == (
        "data set 'folder:pets': 1 file: more than 8 bits a channel: convert it: val/dog/deep.png",
        "data set 'folder:pets': 1 file: too many pixels for Pillow: make it smaller: "
        "val/dog/big.png",
    )


def test_only_what_should_be_an_image_is_refused(pets):
    write(pets / "train" / "cat" / "notes.txt", b"text")
    inspect_images(pets).check_readable("folder:pets")
    for i in range(7):
        write(pets / "train" / "dog" / f"p{i}.jpg", POINTER)
    said = refusal(RequestError, inspect_images(pets).check_readable, "folder:pets")
    assert said == (
        "data set 'folder:pets': 7 files: Git LFS pointer: run git lfs pull: train/dog/p0.jpg, "
        "train/dog/p1.jpg, train/dog/p2.jpg, train/dog/p3.jpg, train/dog/p4.jpg and 2 more"
    )


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ([("train/cat/0.png", "val/cat/9.png")], (0, 1, 0)),
        ([("train/cat/0.png", "val/dog/9.png")], (0, 1, 1)),
        ([("train/cat/0.png", "train/cat/9.png")], (1, 0, 0)),
        ([("train/cat/0.png", "train/dog/9.png")], (1, 0, 1)),
        ([("train/cat/0.png", "train/cat/a/b.png"), ("train/cat/0.png", "val/cat/x")], (1, 1, 0)),
        ([("train/cat/0.png", f"val/cat/{i}{i}.png") for i in range(3)], (2, 3, 0)),
        ([("val/dog/0.png", "train/dog/zz.png")], (0, 1, 0)),
    ],
)
def test_duplicates(pets, copies, expected):
    for source, target in copies:
        (pets / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pets / source, pets / target)
    found = inspect_images(pets).duplicates
    assert (found.within_parts, found.across_parts, found.across_classes) == expected


def test_files_of_one_size_and_beginning_are_read_to_their_end(pets):
    random = np.random.default_rng(0).integers(0, 256, (60, 60, 3), np.uint8)
    for i in range(3):
        random[-1, -1] = min(i, 1)
        Image.fromarray(random).save(pets / "train" / "cat" / f"big{i}.bmp")
    assert inspect_images(pets).duplicates.within_parts == 1


def test_duplicates_have_an_example(pets):
    shutil.copy(pets / "train" / "cat" / "0.png", pets / "val" / "dog" / "x.png")
    assert inspect_images(pets).remarks == [
        "1 of 4 images of val is also in an earlier part: val/dog/x.png = train/cat/0.png",
        "1 image is also in another class: val/dog/x.png = train/cat/0.png",
    ]


def test_identical_parts(pets):
    shutil.rmtree(pets / "val")
    shutil.copytree(pets / "train", pets / "val")
    summary = inspect_images(pets)
    assert summary.duplicates.across_parts == 6
    assert summary.remarks[0].startswith("all 6 images of val are also in an earlier part")


@pytest.mark.parametrize("suffix", ["bmp", "tif", "ppm", "webp"])
def test_reencoded_copies_are_equal_by_their_pixels(pets, tmp_path, suffix):
    image = Image.open(pets / "train" / "cat" / "0.png")
    image.save(
        pets / "val" / "cat" / f"copy.{suffix}", **{"lossless": True} if suffix == "webp" else {}
    )
    summary = inspect_images(pets)
    assert summary.duplicates.across_parts == 0
    held = load_image_set("folder:pets", tmp_path, 8, stream=False)
    (remark,) = with_pixel_duplicates(summary, held).remarks
    assert remark.startswith("at 8 x 8 pixels, 1 test images equal a training image and 0 images")
    files = load_image_set("folder:pets", tmp_path, 8, stream=True)
    assert with_pixel_duplicates(summary, files) is summary


@pytest.mark.parametrize("below", ["2019", "a/b/c", "x y"])
def test_nested_images_are_counted(pets, below):
    for i in range(3):
        paint(pets / "train" / "dog" / below / f"{i}.png", colour(900 + i))
    summary = inspect_images(pets)
    assert counts(summary) == {"train": 9, "val": 3}
    assert summary.parts["train"].classes == {"cat": 4, "dog": 5}
    assert summary.remarks == [
        "3 of 9 images of train lie in sub-folders of their class folder and count for that "
        f"class: train/dog/{below}"
    ]


def test_a_class_of_sub_folders_alone_may_be_several(pets):
    for kind in ("insects", "birds"):
        for i, name in enumerate(("ant", "bee")):
            paint(pets / "train" / kind / name / f"{kind}.png", colour(900 + i))
    assert (
        "train: images in sub-folders of their class folder alone: 'birds' (ant, bee); "
        "'insects' (ant, bee): if these are the classes, move them up"
    ) in inspect_images(pets).remarks


def test_classes_of_one_part_and_names_that_look_alike(pets):
    paint(pets / "train" / "Cat" / "1.png", colour(900))
    paint(pets / "val" / "owl" / "1.png", colour(901))
    (pets / "val" / "emu").mkdir()
    summary = inspect_images(pets)
    assert summary.remarks == [
        "no val images of class Cat",
        "no train images of class owl",
        "classes that differ only in case are distinct: 'Cat' and 'cat'",
    ]
    assert summary.parts["val"].classes["emu"] == 0


@pytest.mark.parametrize("name", ["dog ", "DOG", "\u00a0Dog"])
def test_a_class_that_another_part_writes_otherwise(pets, name):
    (pets / "val" / "dog").rename(pets / "val" / name)
    kind = "differ only in case" if name == "DOG" else "look alike"
    alike = f"classes that {kind} are distinct: 'dog' and {name!r}"
    assert alike in inspect_images(pets).remarks


@pytest.mark.parametrize("name", ["holdout", "valid", "unlabelled"])
def test_what_lies_beside_the_parts(pets, name):
    shutil.copytree(pets / "train", pets / name)
    paint(pets / "loose.png")
    write(pets / "labels.csv", b"cat,1")
    summary = inspect_images(pets)
    assert counts(summary) == {"train": 6, "val": 3}
    assert summary.remarks == [f"not read, because only train, val and test are parts: {name}"]
    assert skipped(summary) == {"image outside a class folder": 1, "text": 1}


@pytest.mark.parametrize(
    ("part", "remark"),
    [("val", "no train/: training needs it"), ("train", "no val/ or test/: training needs it")],
)
def test_one_part_alone(pets, part, remark):
    other = {"val": "train", "train": "val"}[part]
    shutil.rmtree(pets / other)
    assert inspect_images(pets).remarks == [remark]
    summary = inspect_image_set(f"folder:{pets}", pets, test_only=True)
    assert summary is not None
    assert summary.remarks == []


@pytest.mark.parametrize("other", ["c\u0430t", "cat\u200b", "\uff43at"])
def test_class_folders_that_look_alike(pets, other):
    paint(pets / "train" / other / "1.png", colour(900))
    paint(pets / "val" / other / "1.png", colour(901))
    assert any(r.startswith("classes that look alike") for r in inspect_images(pets).remarks)


def test_two_unicode_forms_are_one_class(pets):
    paint(pets / "train" / "e\u0301" / "1.png", colour(900))
    paint(pets / "train" / "\u00e9" / "1.png", colour(901))
    paint(pets / "val" / "e\u0301" / "1.png", colour(902))
    summary = inspect_images(pets)
    assert summary.parts["train"].classes == {"cat": 4, "dog": 2, "\u00e9": 2}
    assert summary.remarks == ["class '\u00e9': its folders have two Unicode forms: read as one"]


def test_test_beside_val(pets):
    paint(pets / "test" / "cat" / "1.png", colour(900))
    paint(pets / "test" / "dog" / "1.png", colour(901))
    summary = inspect_images(pets)
    assert counts(summary) == {"train": 6, "val": 3, "test": 2}
    assert summary.remarks == [
        "val/ is the validation part, which chooses the epoch; test/ is the test part"
    ]


def test_test_without_class_folders_is_not_used(pets):
    paint(pets / "test" / "1.png", colour(900))
    summary = inspect_images(pets)
    assert "test/ is not used: val/ is the test part" in summary.remarks


def test_a_folder_without_parts(pets):
    for _ in range(2):
        summary = inspect_images(pets / "train")
        assert counts(summary) == {"train": 4, "test": 2}
    assert summary.remarks == [
        "no train/ and val/: 20% of each class are test images, always the same ones "
        "(data.test_fraction)"
    ]
    half = inspect_image_set(f"folder:{pets / 'train'}", pets, 0.5)
    assert counts(half) == {"train": 3, "test": 3}
    whole = inspect_image_set("folder:train", pets, test_only=True)
    assert (counts(whole), whole.remarks) == ({"test": 6}, [])
    assert inspect_image_set("digits", pets) is None


def test_a_flat_folder(pets):
    summary = inspect_images(pets / "train" / "cat")
    assert asdict(summary.parts["test"]) == {"images": 4, "classes": {}}
    assert summary.remarks == ["no class folders: to be used as an OOD set, not for training"]
    assert summary.skipped == []


def test_lists(pets):
    write(pets / "train.txt", b"train/cat/0.png 0\ntrain/dog/0.png 1\ntrain/cat/1.png 0\n")
    write(pets / "val.txt", b"val/dog/0.png 1\ntrain/cat/0.png 0\nval/gone.png 1\n")
    summary = inspect_images(pets)
    assert {k: asdict(v) for k, v in summary.parts.items()} == {
        "train": {"images": 3, "classes": {"0": 2, "1": 1}},
        "val": {"images": 2, "classes": {"0": 1, "1": 1}},
    }
    assert summary.duplicates.across_parts == 1
    assert skipped(summary) == {"missing file: add it, or remove it from the list": 1}
    write(pets / "classes.txt", b"cat\ndog\n")
    one = inspect_images(pets / "val.txt")
    assert asdict(one.parts["val"]) == {"images": 2, "classes": {"cat": 1, "dog": 1}}
    assert inspect_image_set(f"list:{pets}", pets).parts == inspect_images(pets).parts


def test_what_cannot_be_inspected(tmp_path):
    assert "no such folder" in refusal(MissingDataError, inspect_images, tmp_path / "gone")
    assert "no images" in refusal(RequestError, inspect_images, tmp_path)
    file = write(tmp_path / "a.txt", b"hello\n")
    assert "expected an image's path" in refusal(RequestError, inspect_images, file)


@pytest.mark.parametrize("name", ["hymenoptera", "dtd"])
def test_real_sets_have_the_counts_of_the_disk(data_dir, name):
    root = data_dir / name
    if not root.is_dir():
        pytest.skip(f"no {name} in the data folder")
    summary = inspect_images(root)
    found: dict[str, int] = {}
    for folder, _, files in os.walk(root):
        images = [f for f in files if f.endswith((".jpg", ".jpeg", ".png"))]
        if images:
            label = os.path.basename(folder)
            found[label] = found.get(label, 0) + len(images)
    read: dict[str, int] = {}
    for part in summary.parts.values():
        for label, count in part.classes.items():
            read[label] = read.get(label, 0) + count
    assert read == found
    assert sum(summary.modes.values()) == sum(found.values())


FORMATS = {"png": "PNG", "jpg": "JPEG", "JPG": "JPEG", "jpe": "JPEG", "jfif": "JPEG", "bmp": "BMP"}
FORMATS |= {"": "PNG", "jpg_large": "JPEG", "photo": "WEBP", "tiff": "TIFF", "gif": "GIF"}
OTHERS = {
    "hidden": (".{}", b"x"),
    "text": ("{}.txt", b"some text"),
    "no known image format": ("{}.bin", bytes(range(128, 256))),
    "Git LFS pointer: run git lfs pull": ("{}.png", POINTER),
    "unreadable image: repair or remove it": ("{}.jpeg", b"<html>"),
}


def random_folder(root, seed):
    """Write a folder of random images and other files; return what is in it."""
    stream, number = Random(seed), 0
    parts = {p: {} for p in stream.choice([("train", "val"), ("train", "test"), ("",)])}
    passed: dict[str, int] = {}
    copies = [0, 0, 0]
    written = []  # part, class, file
    for part, classes in parts.items():
        for name in ("cat", "n02 dog", "é ü")[: stream.choice([2, 3])]:
            count = stream.randrange(2, 6)
            classes[name] = count
            for _ in range(count):
                number += 1
                suffix = stream.choice(sorted(FORMATS))
                below = stream.choice(["", "", "a", "a/b", "2019/x y"])
                file = root / part / name / below / f"{number}{'.' if suffix else ''}{suffix}"
                if written and stream.random() < 0.2:
                    first = stream.choice(written)
                    file = file.with_name(f"{number}.{first[2].suffix[1:] or 'x'}")
                    file.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(first[2], file)
                    content = first[3]
                else:
                    paint(file, colour(number), size=(8 + number, 8), format=FORMATS[suffix])
                    content = number
                same = [w for w in written if w[3] == content]
                copies[0] += any(w[0] == part for w in same)
                copies[1] += any(w[0] != part for w in same)
                copies[2] += any(w[1] != name for w in same)
                written.append((part, name, file, content))
            for reason in stream.sample(sorted(OTHERS), stream.randrange(3)):
                pattern, content = OTHERS[reason]
                number += 1
                write(root / part / name / pattern.format(number), content)
                passed[reason] = passed.get(reason, 0) + 1
    return parts, passed, copies


@pytest.mark.parametrize("seed", range(40))
def test_random_folders_are_read_as_they_were_written(tmp_path, seed):
    parts, passed, copies = random_folder(tmp_path, seed)
    summary = inspect_image_set(f"folder:{tmp_path}", tmp_path, test_only="" in parts)
    names = {"test": parts[""]} if "" in parts else parts
    assert {p: found.classes for p, found in summary.parts.items()} == names
    assert skipped(summary) == passed
    assert [*asdict(summary.duplicates).values()] == copies
    assert sum(summary.modes.values()) == sum(sum(c.values()) for c in parts.values())


def test_tables_are_no_lists(pets):
    write(pets / "val.txt", b"val/dog/0.png 1\n")
    assert looks_like_images(pets)
    assert looks_like_images(pets / "val.txt")
    for content in (b"a,b\n1,2\n", b"5.1 3.5 0\n", b"", b"\0\1"):
        assert not looks_like_images(write(pets / "t.txt", content))
    assert not looks_like_images(pets / "gone.txt")
    assert not looks_like_images(write(pets / "t.csv", b"val/dog/0.png 1\n"))


def test_inspect_on_the_command_line(marginctl, pets):
    ran = marginctl("data", "inspect", pets, "--json")
    assert (ran.status, ran.err) == (0, "")
    assert ran.json == asdict(inspect_images(pets))
    shown = marginctl("data", "inspect", pets).out.splitlines()
    assert marginctl("data", "inspect", f"folder:{pets}").out.splitlines() == shown
    assert shown[0] == "train: 6 images in 2 classes: cat (4), dog (2)"
    ran = marginctl("data", "inspect", pets / "gone")
    assert (ran.status, ran.out) == (2, "")


def tiny_images(root, count):
    """Distinct images of 4 x 4 pixels, of which the last 10 of the test part are copies."""
    for i in range(count):
        part = "val" if i >= count * 4 // 5 else "train"
        row = np.frombuffer(i.to_bytes(4, "big") * 12, np.uint8).reshape(4, 4, 3)
        folder = root / part / f"c{i % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(row).save(folder / f"{i:06d}.bmp")
    for i in range(count - 10, count):
        source = root / "train" / f"c{i % 10}" / f"{i % 10:06d}.bmp"
        shutil.copy(source, root / "val" / f"c{i % 10}" / f"{i:06d}.bmp")


@pytest.mark.parametrize(
    ("count", "seconds"), [(2000, None), pytest.param(100_000, 20, marks=pytest.mark.slow)]
)
def test_many_images(tmp_path, count, seconds):
    tiny_images(tmp_path, count)
    start = time.perf_counter()
    summary = inspect_images(tmp_path)
    elapsed = time.perf_counter() - start
    assert counts(summary) == {"train": count * 4 // 5, "val": count // 5}
    assert asdict(summary.duplicates) == {
        "within_parts": 0,
        "across_parts": 10,
        "across_classes": 0,
    }
    assert seconds is None or elapsed < seconds


def test_a_colour_image_of_another_colour_is_no_copy(pets):
    for part, shade in (("train", RED), ("val", GREEN)):
        paint(pets / part / "cat" / "s.bmp", shade)
    paint(pets / "val" / "dog" / "s.bmp", BLUE)
    assert inspect_images(pets).duplicates.across_parts == 0
