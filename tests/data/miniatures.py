"""Miniature copies of published image sets, in the layout of the originals: two classes."""

import bz2
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from marginctl.data.images.registry import IMAGE_SETS

SIDE = 40  # of the images on disk
PER_CLASS = {"train": 3, "test": 2, "val": 2}
COUNTS = tuple(2 * count for count in PER_CLASS.values())


def _image(path: Path, number: int) -> None:
    """Write an image of random pixels, brighter for odd numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 128, (SIDE, SIDE + 8, 3), np.uint8)
    Image.fromarray(pixels + np.uint8(100 * (number % 2))).save(path, quality=95)


def _text(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def _members() -> list[tuple[str, int, int]]:
    """(part, label, number) of each image; numbers count from 1 and are odd for label 1."""
    found, number = [], 2
    for part, count in PER_CLASS.items():
        for _ in range(count):
            found += [(part, 0, number), (part, 1, number + 1)]
            number += 2
    return found


def _food(root: Path) -> None:
    parts: dict[str, dict[str, list[str]]] = {"train": {}, "test": {}}
    for part, label, number in _members():
        name = ("apple_pie", "waffles")[label]
        if part in parts:
            parts[part].setdefault(name, []).append(f"{name}/{number}")
            _image(root / "food-101" / "images" / name / f"{number}.jpg", number)
    for part, files in parts.items():
        _text(root / "food-101" / "meta" / f"{part}.json", [json.dumps(files)])


def _dtd(root: Path) -> None:
    lines: dict[str, list[str]] = {}
    for part, label, number in _members():
        name = ("banded", "zigzagged")[label]
        lines.setdefault(part, []).append(f"{name}/{name}_{number:04d}.jpg")
        _image(root / "dtd/dtd/images" / lines[part][-1], number)
    for part, rows in lines.items():
        for partition in range(1, 11):
            _text(root / "dtd/dtd/labels" / f"{part}{partition}.txt", rows)


def _flowers(root: Path) -> None:
    keys = {"train": "trnid", "val": "valid", "test": "tstid"}
    ids: dict[str, list[int]] = {}
    labels = [1] * 20
    for part, label, number in _members():
        ids.setdefault(keys[part], []).append(number)
        labels[number - 1] = label + 1
        _image(root / "flowers-102/jpg" / f"image_{number:05d}.jpg", number)
    savemat(root / "flowers-102/setid.mat", ids)
    savemat(root / "flowers-102/imagelabels.mat", {"labels": labels})


def _pets(root: Path) -> None:
    lines: dict[str, list[str]] = {"trainval": [], "test": []}
    for part, label, number in _members():
        name = f"{('Abyssinian', 'yorkshire_terrier')[label]}_{number}"
        if part != "val":
            lines["test" if part == "test" else "trainval"].append(f"{name} {label + 1} 1 1")
            _image(root / "oxford-iiit-pet/images" / f"{name}.jpg", number)
    for part, rows in lines.items():
        _text(root / "oxford-iiit-pet/annotations" / f"{part}.txt", rows)


def _aircraft(root: Path) -> None:
    data = root / "fgvc-aircraft-2013b" / "data"
    names, lines = ("707-320", "Yak-42"), dict[str, list[str]]()
    for part, label, number in _members():
        lines.setdefault(part, []).append(f"{number:07d} {names[label]}")
        _image(data / "images" / f"{number:07d}.jpg", number)
    _text(data / "variants.txt", [*names])
    for part, rows in lines.items():
        _text(data / f"images_variant_{part}.txt", rows)


def _cars(root: Path) -> None:
    base = root / "stanford_cars"
    rows: dict[str, list[tuple[str, int]]] = {"train": [], "test": []}
    for part, label, number in _members():
        if part in rows:
            rows[part].append((f"{number:05d}.jpg", label + 1))
            _image(base / f"cars_{part}" / f"{number:05d}.jpg", number)
    (base / "devkit").mkdir()
    for part, path in (
        ("train", base / "devkit" / "cars_train_annos.mat"),
        ("test", base / "cars_test_annos_withlabels.mat"),
    ):
        savemat(path, {"annotations": np.array(rows[part], [("fname", "O"), ("class", "O")])})
    names = np.array(["AM General Hummer SUV 2000", "smart fortwo Convertible 2012"], object)
    savemat(base / "devkit" / "cars_meta.mat", {"class_names": names})


def _sun(root: Path) -> None:
    _text(root / "SUN397/ClassName.txt", ["/a/abbey", "/y/youth_hostel"])
    for _, label, number in _members():
        folder = ("a/abbey", "y/youth_hostel")[label]
        _image(root / "SUN397" / folder / f"sun_{number:04d}.jpg", number)


def _caltech101(root: Path) -> None:
    base = root / "caltech101/101_ObjectCategories"
    _image(base / "BACKGROUND_Google" / "image_0001.jpg", 1)
    for _, label, number in _members():
        _image(base / ("accordion", "yin_yang")[label] / f"image_{number // 2:04d}.jpg", number)


def _caltech256(root: Path) -> None:
    base = root / "caltech256/256_ObjectCategories"
    for _, label, number in _members():
        folder = ("001.ak47", "002.american-flag")[label]
        _image(base / folder / f"{label + 1:03d}_{number // 2:04d}.jpg", number)


def _eurosat(root: Path) -> None:
    for _, label, number in _members():
        _image(root / "eurosat/2750" / ("AnnualCrop", "SeaLake")[label] / f"{number}.jpg", number)


def _gtsrb(root: Path) -> None:
    base, rows = root / "gtsrb", ["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"]
    for part, label, number in _members():
        if part == "train":
            _image(base / f"GTSRB/Training/{label:05d}/{number:05d}.ppm", number)
        elif part == "test":
            _image(base / f"GTSRB/Final_Test/Images/{number:05d}.ppm", number)
            rows.append(f"{number:05d}.ppm;48;40;0;0;1;1;{label}")
    _text(base / "GT-final_test.csv", rows)


def _inaturalist(root: Path) -> None:
    listed: dict[str, list[dict[str, str]]] = {"train": [], "test": []}
    for part, label, number in _members():
        file = f"{('Plantae/0', 'Aves/1')[label]}/{number}.jpg"
        if part in listed:
            listed[part].append({"file_name": f"train_val2018/{file}"})
            _image(root / "2018" / file, number)
    for part, images in listed.items():
        name = "train2018.json" if part == "train" else "val2018.json"
        _text(root / name, [json.dumps({"images": images})])


def _cub(root: Path) -> None:
    base, names = root / "CUB_200_2011", ("001.Black_footed_Albatross", "002.Laysan_Albatross")
    rows = [(part, label, n) for part, label, n in _members() if part != "val"]
    for _, label, number in rows:
        _image(base / "images" / names[label] / f"{number}.jpg", number)
    _text(base / "classes.txt", [f"{i} {name}" for i, name in enumerate(names, 1)])
    _text(base / "images.txt", [f"{n} {names[label]}/{n}.jpg" for _, label, n in rows])
    _text(base / "image_class_labels.txt", [f"{n} {label + 1}" for _, label, n in rows])
    _text(base / "train_test_split.txt", [f"{n} {int(part == 'train')}" for part, _, n in rows])


def _idx(path: Path, values: np.ndarray[Any, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = [0x800 + values.ndim, *values.shape]
    path.write_bytes(np.array(header, ">i4").tobytes() + values.tobytes())


def _mnist_like(folder: str, prefixes: dict[str, str]) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        for part, prefix in prefixes.items():
            count = 2 * PER_CLASS[part]
            x = np.random.default_rng(count).integers(0, 256, (count, 28, 28), np.uint8)
            _idx(root / folder / f"{prefix}-images-idx3-ubyte", x)
            _idx(
                root / folder / f"{prefix}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8) % 2
            )

    return write


def _usps(root: Path) -> None:
    for part, file in (("train", "usps.bz2"), ("test", "usps.t.bz2")):
        count = 2 * PER_CLASS[part]
        x = np.random.default_rng(count).uniform(-1, 1, (count, 256))
        rows = [
            f"{1 + i % 2} " + " ".join(f"{k}:{v:.6f}" for k, v in enumerate(row, 1))
            for i, row in enumerate(x)
        ]
        (root / file).write_bytes(bz2.compress(("\n".join(rows) + "\n").encode()))


def _stl10(root: Path) -> None:
    base = root / "stl10_binary"
    base.mkdir()
    for part in ("train", "test"):
        count = 2 * PER_CLASS[part]
        x = np.random.default_rng(count).integers(0, 256, (count, 3, 96, 96), np.uint8)
        (base / f"{part}_X.bin").write_bytes(x.tobytes())
        (base / f"{part}_y.bin").write_bytes((1 + np.arange(count) % 2).astype(np.uint8).tobytes())


def _imagenet(root: Path) -> None:
    for part, label, number in _members():
        if part != "val":
            folder = "train" if part == "train" else "val"
            name = ("n01440764", "n15075141")[label]
            _image(root / "imagenet" / folder / name / f"{number}.JPEG", number)


def _cifar(folder: str, train: list[str], test: str, label_bytes: int) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / folder).mkdir()
        stream = np.random.default_rng(0)
        for file in (*train, test):
            rows = stream.integers(0, 256, (4, label_bytes + 3 * 32 * 32), np.uint8)
            rows[:, :label_bytes] = (np.arange(4) % 2)[:, None]
            (root / folder / file).write_bytes(rows.tobytes())

    return write


# needed by recipes, and read by readers of their own
OTHER_WRITERS: dict[str, Callable[[Path], None]] = {
    "imagenet": _imagenet,
    "cifar-10": _cifar(
        "cifar-10-batches-bin", [f"data_batch_{i}.bin" for i in range(1, 6)], "test_batch.bin", 1
    ),
    "cifar-100": _cifar("cifar-100-binary", ["train.bin"], "test.bin", 2),
}
OTHER_SIZES = {"imagenet": COUNTS[:2], "cifar-10": (20, 4), "cifar-100": (4, 4)}
WRITERS: dict[str, Callable[[Path], None]] = {
    "kmnist": _mnist_like("KMNIST/raw", {"train": "train", "test": "t10k"}),
    "emnist": _mnist_like(
        "EMNIST/raw", {"train": "emnist-balanced-train", "test": "emnist-balanced-test"}
    ),
    "usps": _usps,
    "stl-10": _stl10,
    "food-101": _food,
    "dtd": _dtd,
    "dtd-10": _dtd,
    "flowers-102": _flowers,
    "oxford-iiit-pet": _pets,
    "fgvc-aircraft": _aircraft,
    "stanford-cars": _cars,
    "sun397": _sun,
    "caltech-101": _caltech101,
    "caltech-256": _caltech256,
    "eurosat": _eurosat,
    "gtsrb": _gtsrb,
    "inaturalist-2018": _inaturalist,
    "cub-200-2011": _cub,
}
# what is drawn of the seven images of each class of a set without official parts
DRAWN = {
    "sun397": (3, 2),
    "caltech-101": (3, None),
    "caltech-256": (3, None),
    "eurosat": (0.8, None),
}


def write_miniature(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a miniature below a data folder, and give the registry's entry its sizes."""
    root.mkdir(parents=True, exist_ok=True)
    (WRITERS | OTHER_WRITERS)[name](root)
    entry = IMAGE_SETS.builtin[name]
    sizes: tuple[int, ...] = OTHER_SIZES.get(name, COUNTS[: len(entry.num_images)])
    changes: dict[str, Any] = {"digests": {}}
    if name in DRAWN:
        train, test = DRAWN[name]
        count = train if train >= 1 else round(train * 7)
        sizes = (2 * count, 2 * (test or 7 - count))
        changes |= {"train_per_class": train, "test_per_class": test}
    classes = 2 if isinstance(entry.classes, int) else entry.classes
    layouts = tuple(replace(layout, md5={}) for layout in entry.layouts)
    small = replace(entry, classes=classes, num_images=sizes, layouts=layouts, **changes)
    monkeypatch.setitem(IMAGE_SETS.builtin, name, small)
    if name == "flowers-102":  # whose lists torchvision compares with the published digests
        from torchvision.datasets import Flowers102

        files = {key: (file, None) for key, (file, _) in Flowers102._file_dict.items()}
        monkeypatch.setattr(Flowers102, "_file_dict", files)
        monkeypatch.setattr(Flowers102, "classes", Flowers102.classes[:2])
    if name == "stl-10":
        from torchvision.datasets import STL10

        monkeypatch.setattr(STL10, "_check_integrity", lambda dataset: True)
