"""Image sets by name, as data: classes, sizes, files and readers. No images are read here.

An image set is added by an entry in `image_sets.toml`, or by a plug-in.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from marginctl.data.paths import DATA_DIR_VARIABLE, default_data_dir, resolve_path
from marginctl.errors import RequestError
from marginctl.utils.registry import Registry

FOLDER_PREFIX = "folder:"
PATTERN_PREFIX = "re:"  # of the groups of images, by their file names
LIST_PREFIX = "list:"
OOD_GROUPS = ("near", "far")
MAX_IN_MEMORY = 150_000  # images of a set on disk that can be loaded into memory
OPENOOD = "openood"  # stands for the OOD sets of OpenOOD 1.5


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
    terms: str | None = None  # licence or terms of use of those who publish it; None: not known

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


DTD_PARTITIONS = range(2, 11)  # dtd-2 to dtd-10; `dtd` is the first one


def _read_entries() -> dict[str, ImageSet]:
    """Return the entries of `image_sets.toml`, and the further partitions of DTD."""
    text = Path(__file__).with_name("image_sets.toml").read_text("utf-8")
    entries = {}
    for name, table in tomllib.loads(text).items():
        layouts = tuple(Layout(**_with_tuples(layout)) for layout in table.pop("layouts", ()))
        entries[name] = ImageSet(**_with_tuples(table), layouts=layouts)
        if name == "dtd":
            entries |= {f"dtd-{k}": _dtd(entries[name], k) for k in DTD_PARTITIONS}
    return entries


def _with_tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in table.items()}


def _dtd(first: ImageSet, partition: int) -> ImageSet:
    """Return another partition of DTD, from the entry of the first."""
    labels = f"dtd/labels/train{partition}.txt"
    (layout,) = first.layouts
    return replace(
        first,
        description=first.description.replace("partition 1", f"partition {partition}"),
        layouts=(replace(layout, train=(labels, *layout.train[1:]), marker=labels),),
        parts={part: {**given, "partition": partition} for part, given in first.parts.items()},
    )


IMAGE_SETS = Registry(
    "dataset",
    ImageSet,
    _read_entries(),
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
        if IMAGE_SETS.name_of(name) is None and resolve_path(name, default_data_dir()).is_dir():
            raise RequestError(f"image set '{name}': is a folder: write {FOLDER_PREFIX}{name}")
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
