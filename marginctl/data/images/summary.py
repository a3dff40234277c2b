"""ImageSummary: what a folder or a list of images holds, before anything is trained on it."""

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from marginctl.data.images import content, folders
from marginctl.data.images.groups import ImageGroups
from marginctl.data.images.image_sets import ImageDataset
from marginctl.data.images.in_memory import InMemoryImages
from marginctl.data.images.listing import read_class_names, read_list
from marginctl.data.images.registry import FOLDER_PREFIX, LIST_PREFIX
from marginctl.data.names import look_alikes
from marginctl.data.paths import MissingDataError, resolve_path
from marginctl.errors import RequestError
from marginctl.utils.device import usable_cores
from marginctl.utils.text import count_noun, join_names

BLOCK = 4000  # files that one process reads at a time
PARTS = ("train", "val", "test")
Parts = dict[str, folders.ClassFiles]  # paths relative to the root, or absolute


@dataclass(frozen=True)
class PartSummary:
    """The number of images of a part, and of each of its classes."""

    images: int
    classes: dict[str, int]


@dataclass(frozen=True)
class DuplicateCounts:
    """Numbers of images that equal an earlier one, the parts being in the order of `PARTS`."""

    within_parts: int = 0  # in the same part
    across_parts: int = 0  # in an earlier part
    across_classes: int = 0  # of another class, in any part


@dataclass(frozen=True)
class ImageSummary:
    kind: str  # `images`
    parts: dict[str, PartSummary]  # by name: `train`, `val` and `test` where they exist
    # files that are no images, or not in a place where images are read
    skipped: list[content.SkippedFiles]
    # `min`, `median` and `max`: width and height in pixels, each over all images
    sizes: dict[str, list[int]]
    modes: dict[str, int]  # the number of images of each mode of Pillow
    duplicates: DuplicateCounts  # files that are equal byte by byte
    remarks: list[str]  # what a reader should know

    def check_readable(self, name: str) -> None:
        """Raise RequestError where a file that should be an image cannot be read."""
        if refused := [s for s in self.skipped if content.is_refused(s.reason)]:
            raise RequestError(*(skipped.line(name) for skipped in refused))


def looks_like_images(path: Path) -> bool:
    """Return whether a path is a folder, or a list whose first line names a file."""
    try:
        is_list = path.suffix == ".txt" and (path.parent / read_list(path)[0][0]).is_file()
    except RequestError:
        is_list = False
    return is_list or path.is_dir()


def inspect_images(path: Path) -> ImageSummary:
    """Return the summary of a folder of images, a folder of lists, or one list.

    Raises:
        MissingDataError: there is no such folder or file.
        RequestError: it holds no images, or cannot be read.
    """
    if path.is_file() or any((path / f"{part}.txt").is_file() for part in PARTS):
        return _inspect_list(path)
    return _inspect_folder(path, None, test_only=False)


def inspect_image_set(
    name: str,
    data_dir: Path,
    test_fraction: float | None = None,
    groups: ImageGroups | None = None,
    *,
    test_only: bool = False,
) -> ImageSummary | None:
    """Return the summary of `folder:PATH` or `list:PATH`; None for a named image set.

    The arguments are those of `load_image_set`.
    """
    prefix, _, path = name.partition(":")
    if f"{prefix}:" == FOLDER_PREFIX:
        root = resolve_path(path, data_dir)
        return _inspect_folder(root, test_fraction, groups, test_only=test_only)
    if f"{prefix}:" == LIST_PREFIX:
        return _inspect_list(resolve_path(path, data_dir))
    return None


def with_pixel_duplicates(summary: ImageSummary, images: ImageDataset) -> ImageSummary:
    """Return the summary with a remark on images whose pixels are equal, but not their files.

    Images on disk are not decoded for that.
    """
    if not isinstance(images, InMemoryImages):
        return summary
    rows = [
        (part, "", part, hashlib.sha256(x).digest())
        for part, split in (("train", images.train), ("test", images.test))
        for x in split.x
    ]
    pixels, files = _count_duplicates(rows)[0], summary.duplicates
    if pixels.within_parts <= files.within_parts and pixels.across_parts <= files.across_parts:
        return summary
    remark = (
        f"at {images.image_size} x {images.image_size} pixels, {pixels.across_parts} test images "
        f"equal a training image and {pixels.within_parts} images another one of their part: "
        "re-encoded copies are among them"
    )
    return replace(summary, remarks=[*summary.remarks, remark])


def _inspect_folder(
    root: Path, fraction: float | None, groups: ImageGroups | None = None, *, test_only: bool
) -> ImageSummary:
    if not root.is_dir():
        raise MissingDataError(f"{root}: no such folder: expected a folder of images")
    scan = folders.FolderScan(root)
    present = [part for part in PARTS if (root / part).is_dir()]
    parts: Parts = {part: scan.images_by_class(part) for part in present}
    remarks, flat = list[str](), list[str]()
    if not present:
        classes = scan.images_by_class()
        flat = [] if any(classes.values()) else scan.skipped.pop(folders.OUTSIDE, [])
        if flat:
            parts = {"test": {root.name: flat}}
            remarks = ["no class folders: to be used as an OOD set, not for training"]
        elif test_only:
            parts = {"test": classes}
        elif any(classes.values()):
            folders.check_no_parts(str(root), root, classes)
            parts["train"], parts["test"] = folders.split_classes(
                str(root), root, classes, fraction, groups
            )
            divided = "of each class" if groups is None else "of the images, in whole groups,"
            remarks = [
                f"no train/ and val/: {fraction or folders.TEST_FRACTION:.0%} {divided} are test "
                "images, always the same ones (data.test_fraction)"
            ]
    if not any(files for part in parts.values() for files in part.values()):
        raise RequestError(
            f"{root}: no images: expected PART/CLASS/IMAGE, CLASS/IMAGE or images",
            *(skipped.line(str(root)) for skipped in content.skipped_files(scan.skipped)),
        )
    if groups is not None:
        remarks += _group_remarks(groups, parts)
    if present:
        remarks += _part_remarks(
            present,
            scan.other_folders(PARTS),
            has_validation=folders.has_validation_folder(FOLDER_PREFIX, root),
            test_only=test_only,
        )
    if not flat:
        folder = 1 if present else 0
        remarks += _nesting_remarks(parts, folder + 1) + _class_remarks(parts, folder)
    return _summarize(root, parts, scan.skipped, remarks, no_classes=bool(flat))


def _group_remarks(groups: ImageGroups, parts: Parts) -> list[str]:
    files = {p: [f for names in classes.values() for f in names] for p, classes in parts.items()}
    numbers = groups.numbers([file for part in files.values() for file in part])
    edges = np.cumsum([len(part) for part in files.values()])[:-1]
    counts = Counter(n for part in np.split(numbers, edges) for n in set(part.tolist()))
    remarks = [
        f"{count_noun(len(counts), 'group')} of images (data.groups): those of a group are held "
        "out together"
    ]
    if shared := sum(n > 1 for n in counts.values()):
        remarks.append(
            f"{count_noun(shared, 'group')} of images in several parts: what is learned about them "
            "leaks into the test"
        )
    return remarks


def _part_remarks(
    present: Sequence[str], ignored: Sequence[str], *, has_validation: bool, test_only: bool
) -> list[str]:
    """Return remarks on parts that are not read, or missing for training."""
    remarks = []
    if ignored:
        remarks.append(
            f"not read, because only train, val and test are parts: {join_names(ignored)}"
        )
    if {"val", "test"} <= {*present}:
        remarks.append(
            "val/ is the validation part, which chooses the epoch; test/ is the test part"
            if has_validation
            else "test/ is not used: val/ is the test part"
        )
    elif len(present) == 1 and not test_only:
        missing = "val/ or test/" if "train" in present else "train/"
        remarks.append(f"no {missing}: training needs it")
    return remarks


def _inspect_list(path: Path) -> ImageSummary:
    root = path.parent if path.is_file() else path
    files = [path] if path.is_file() else [root / f"{part}.txt" for part in PARTS]
    names = root / "classes.txt"
    classes = read_class_names(names) if names.is_file() else ()
    parts: Parts = {}
    for file in files:
        if file.is_file():
            part = parts.setdefault(file.stem, {})
            for image, label in read_list(file):
                name = classes[label] if 0 <= label < len(classes) else str(label)
                part.setdefault(name, []).append(image)
    if not parts:
        raise MissingDataError(f"{root}: no train.txt and val.txt (or test.txt)")
    remarks = []
    if len(parts) == 3:
        remarks = ["val.txt is the validation part, which chooses the epoch; test.txt is tested"]
    return _summarize(root, parts, {}, remarks + _class_remarks(parts, None))


def _summarize(
    root: Path,
    parts: Parts,
    skipped: Mapping[str, Sequence[str]],
    remarks: list[str],
    *,
    no_classes: bool = False,
) -> ImageSummary:
    """Return the summary after reading the beginning of every file."""
    unusable = defaultdict[str, list[str]](list, {k: [*paths] for k, paths in skipped.items()})
    readable: Parts = {part: {c: [] for c in classes} for part, classes in parts.items()}
    rows = [(p, c, path) for p, inside in parts.items() for c in inside for path in inside[c]]
    sizes, modes, transparent = [], Counter[str](), 0
    by_start = defaultdict[tuple[int, bytes], list[str]](list)  # by size and first bytes
    for (part, name, path), header in zip(
        rows, _headers(root, [path for *_, path in rows]), strict=True
    ):
        if isinstance(header, str):
            file = os.path.join(root, path)
            unusable[header if os.path.exists(file) else content.MISSING].append(path)
            continue
        readable[part][name].append(path)
        sizes.append(header.size)
        modes[header.mode] += 1
        transparent += header.transparent
        by_start[header.file_bytes, header.start].append(path)
    if transparent:
        ground = f"composited on a {folders.GROUND} ground"
        remarks.append(f"{count_noun(transparent, 'image')} with transparency: {ground}")
    identity = {}  # the digests of files that may be equal: of one size, with one beginning
    for path in (path for paths in by_start.values() if len(paths) > 1 for path in paths):
        with open(os.path.join(root, path), "rb") as opened:
            identity[path] = hashlib.file_digest(opened, "sha256").hexdigest()
    duplicates, duplicate_remarks = _count_duplicates(
        (part, name, path, identity.get(path, path))
        for part, classes in readable.items()
        for name, paths in classes.items()
        for path in paths
    )
    table = np.array(sizes)
    measures = (("min", np.min), ("median", np.median), ("max", np.max)) if sizes else ()
    return ImageSummary(
        "images",
        {
            part: PartSummary(
                sum(map(len, classes.values())),
                {} if no_classes else {name: len(paths) for name, paths in classes.items()},
            )
            for part, classes in readable.items()
        },
        content.skipped_files(unusable),
        {key: [int(v) for v in measure(table, axis=0)] for key, measure in measures},
        dict(modes.most_common()),
        duplicates,
        remarks + duplicate_remarks,
    )


def _headers(root: Path, paths: Sequence[str]) -> Iterator[content.Header | str]:
    """Yield what `read_headers` returns; of many files by as many processes as there are cores."""
    import joblib

    parts = [paths[i : i + BLOCK] for i in range(0, len(paths), BLOCK)]
    processes = max(1, min(usable_cores(), len(parts)))
    read = joblib.delayed(content.read_headers)
    for headers in joblib.Parallel(processes)(read(root, part) for part in parts):
        yield from headers


def _count_duplicates(
    rows: Iterable[tuple[str, str, str, Hashable]],
) -> tuple[DuplicateCounts, list[str]]:
    """Return the numbers of duplicates by part, class, path and content of images, and remarks."""
    first = defaultdict[Hashable, dict[tuple[str, str], str]](dict)  # path by part and class
    totals, counts, examples = Counter[str](), Counter[tuple[str, str]](), dict[str, str]()
    for part, name, path, pixels in rows:
        totals[part] += 1
        earlier = first[pixels]
        equal = {
            "within_parts": [p for place, p in earlier.items() if place[0] == part],
            "across_parts": [p for place, p in earlier.items() if place[0] != part],
            "across_classes": [p for place, p in earlier.items() if place[1] != name],
        }
        for kind, paths in equal.items():
            if paths:
                counts[kind, part] += 1
                examples.setdefault(kind, f"{path} = {paths[0]}")
        earlier.setdefault((part, name), path)
    sums = {kind: sum(n for (k, _), n in counts.items() if k == kind) for kind in examples}
    remarks = []
    for (kind, part), n in counts.items():
        if kind == "across_parts":
            subject = f"all {n}" if n == totals[part] else f"{n} of {totals[part]}"
            example = examples[kind]
            verb = "is" if n == 1 else "are"
            remarks.append(f"{subject} images of {part} {verb} also in an earlier part: {example}")
    for kind, what in (
        ("within_parts", "repeated in one part"),
        ("across_classes", "also in another class"),
    ):
        if kind in sums:
            verb = "is" if sums[kind] == 1 else "are"
            remarks.append(f"{count_noun(sums[kind], 'image')} {verb} {what}: {examples[kind]}")
    return DuplicateCounts(**sums), remarks


def _nesting_remarks(parts: Parts, depth: int) -> list[str]:
    """Return remarks on images that lie deeper than in class folders, `depth` folders down."""
    remarks = []
    for part, classes in parts.items():
        paths = [path for paths in classes.values() for path in paths]
        deep = [path for path in paths if path.count("/") > depth]
        if deep:
            remarks.append(
                f"{len(deep)} of {len(paths)} images of {part} lie in sub-folders of their class "
                f"folder and count for that class: {os.path.dirname(deep[0])}"
            )
        alone = [
            f"'{name}' ({join_names(below)})"
            for name, inside in classes.items()
            if len(below := sorted({path.split("/")[depth] for path in inside})) > 1
            and all(path.count("/") > depth for path in inside)
        ]
        if alone:
            remarks.append(
                f"{part}: images in sub-folders of their class folder alone: "
                f"{'; '.join(alone[:3])}{f' and {len(alone) - 3} more' if len(alone) > 3 else ''}: "
                "if these are the classes, move them up"
            )
    return remarks


def _class_remarks(parts: Parts, folder: int | None) -> list[str]:
    """Return remarks on classes of a part only, and on names that look alike.

    `folder` is the place of the class folder in a path; None for a list.
    """
    remarks = []
    names = dict.fromkeys(name for classes in parts.values() for name in classes)
    train = parts.get("train")
    test = "val" if "val" in parts else "test"
    if train is not None and test in parts:
        for part, other in (("train", test), (test, "train")):
            alone = [c for c, paths in parts[part].items() if paths and not parts[other].get(c)]
            if alone:
                remarks.append(f"no {other} images of class {join_names(alone)}")
    remarks += look_alikes("classes", names)
    if folder is not None:
        for name in names:
            paths = [p for classes in parts.values() for p in classes.get(name, ())]
            if len({path.split("/")[folder] for path in paths}) > 1:
                remarks.append(f"class '{name}': its folders have two Unicode forms: read as one")
    return remarks
