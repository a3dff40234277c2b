"""Image sets through torchvision's own classes of them: listing of their files, and downloads."""

import contextlib
import json
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marginctl.data.images.listing import Listing, Rows
from marginctl.data.images.readers import ArraySplit
from marginctl.data.images.registry import IMAGE_SETS, ImageSet
from marginctl.errors import RequestError
from marginctl.utils.seed import generator

ANSWER_SECONDS = 30.0


def list_torchvision(name: str, root: Path, test_only: bool) -> Listing:
    """List a set by its class of torchvision, whose files are in a folder of the data folder.

    Raises:
        RequestError: torchvision finds a file missing or another than its own.
    """
    entry = IMAGE_SETS[name]
    datasets = {
        part: _open(name, entry, root.parent, arguments)
        for part, arguments in entry.parts.items()
        if not (test_only and part in ("train", "val"))
    }
    rows = {part: _rows(dataset, root) for part, dataset in datasets.items()}
    dataset = datasets["all" if "all" in datasets else "test"]
    names = getattr(dataset, "classes", getattr(dataset, "categories", None))
    classes = tuple(map(str, range(entry.num_classes) if names is None else names))
    if "all" in rows:
        train, test = _draw_parts(rows["all"], entry)
        return Listing(classes, [] if test_only else train, test)
    return Listing(classes, rows.get("train", []), rows["test"], rows.get("val"))


def list_inaturalist(name: str, root: Path, test_only: bool) -> Listing:
    """List iNaturalist 2018: images through torchvision, parts by the competition's JSON files.

    Raises:
        RequestError: such a file is missing or has another form.
    """
    ((_, arguments),) = IMAGE_SETS[name].parts.items()
    dataset = _open(name, IMAGE_SETS[name], root.parent, arguments)
    labels = dict(_rows(dataset, root))

    def read(part: str) -> Rows:
        path = root.parent / f"{part}2018.json"
        try:
            listed = [Path(image["file_name"]) for image in json.loads(path.read_text())["images"]]
            return [(p, labels[p]) for file in listed for p in ["/".join(file.parts[1:])]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RequestError(
                f"data set '{name}': {path}: cannot be read as the competition's list of images "
                f"({type(error).__name__}: {error}): put the original file there"
            ) from None

    return Listing(tuple(dataset.all_categories), [] if test_only else read("train"), read("val"))


def read_usps(paths: Sequence[Path], count: int) -> ArraySplit:
    """Read one of USPS's files."""
    from torchvision.datasets import USPS

    (path,) = paths
    try:
        dataset = USPS(path.parent, train=path.name == "usps.bz2")
    except Exception as error:  # a corrupt file can raise anything
        raise RequestError(f"{path}: cannot be read: {error}: download it again") from None
    return dataset.data[..., None], np.array(dataset.targets, np.int64)


def fetch_image_set(name: str, data_dir: Path) -> str | None:
    """Download a set through torchvision, which checks digests; return why it failed, or None.

    What is complete is not downloaded again. Messages of torchvision go to stderr.
    """
    entry = IMAGE_SETS[name]
    reason = "torchvision does not download it"
    if entry.torchvision is not None:
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            with contextlib.ExitStack() as stack:
                stack.enter_context(contextlib.redirect_stdout(sys.stderr))
                # torchvision has no limit for the wait for an answer or more bytes
                stack.callback(socket.setdefaulttimeout, socket.getdefaulttimeout())
                socket.setdefaulttimeout(ANSWER_SECONDS)
                for arguments in entry.parts.values():
                    _dataset_class(entry)(data_dir, download=True, **arguments)
            return None
        except Exception as error:  # downloads and archives can raise anything
            reason = re.sub(r"<urlopen error (\[Errno -?\d+\] )?(.*)>", r"\2", _one_line(error))
    layout = entry.layouts[0]
    files = ", ".join((*layout.train, *layout.test))
    return f"{reason}: put {files} into {data_dir / layout.folder}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".:") or type(error).__name__


def _dataset_class(entry: ImageSet) -> Any:
    from torchvision import datasets

    return getattr(datasets, str(entry.torchvision))


def _open(name: str, entry: ImageSet, data_dir: Path, arguments: Mapping[str, Any]) -> Any:
    """Return torchvision's data set of a part, which decodes nothing yet."""
    try:
        return _dataset_class(entry)(data_dir, **arguments)
    except Exception as error:  # of any kind, where a file is missing or has other content
        raise RequestError(
            f"data set '{name}': torchvision's {entry.torchvision} cannot read it in {data_dir}: "
            f"{_one_line(error)}: remove it and download it again with: marginctl data fetch {name}"
        ) from None


def _rows(dataset: Any, root: Path) -> Rows:
    """Return paths, relative to the folder of a set, and labels: torchvision has no common form."""
    match type(dataset).__name__:
        case "Caltech101" | "Caltech256" as name:
            folder = "101_ObjectCategories" if name == "Caltech101" else "256_ObjectCategories"
            rows = [
                (f"{folder}/{dataset.categories[c]}/{prefix}_{i:04d}.jpg", c)
                for c, i in zip(dataset.y, dataset.index, strict=True)
                for prefix in ["image" if name == "Caltech101" else f"{c + 1:03d}"]
            ]
        case "INaturalist":
            rows = [(f"{dataset.all_categories[c]}/{file}", c) for c, file in dataset.index]
        case "EuroSAT" | "GTSRB" | "StanfordCars":
            samples = dataset.samples if hasattr(dataset, "samples") else dataset._samples
            rows = [(os.path.relpath(path, root), int(label)) for path, label in samples]
        case name:
            paths = dataset._images if name == "OxfordIIITPet" else dataset._image_files
            labels = zip(paths, dataset._labels, strict=True)
            rows = [(os.path.relpath(path, root), int(label)) for path, label in labels]
    return [(path.replace(os.sep, "/"), label) for path, label in rows]


def _draw_parts(rows: Rows, entry: ImageSet) -> tuple[Rows, Rows]:
    """Draw training and test images of each class, always the same ones."""
    by_class: dict[int, list[str]] = {}
    for path, label in sorted(rows):
        by_class.setdefault(label, []).append(path)
    train: Rows = []
    test: Rows = []
    share = entry.train_per_class
    for label, paths in by_class.items():
        count = int(share) if share >= 1 else round(share * len(paths))
        drawn = [(paths[i], label) for i in generator(0, "parts", label).permutation(len(paths))]
        train += drawn[:count]
        test += drawn[count:][: entry.test_per_class]
    return train, test
