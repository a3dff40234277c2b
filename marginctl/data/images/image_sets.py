"""Loading of image sets, in memory or on disk, and of OOD test sets."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from marginctl.data.images import registry
from marginctl.data.images.folders import PartOptions
from marginctl.data.images.in_memory import InMemoryImages, decode_parts, load_original_files
from marginctl.data.images.listing import exclude_images, list_image_set
from marginctl.data.images.on_disk import OnDiskImages, make_file_split
from marginctl.data.paths import MissingDataError, resolve_path
from marginctl.errors import RequestError

ImageDataset = InMemoryImages | OnDiskImages


def load_image_set(
    name: str,
    data_dir: Path,
    image_size: int,
    *,
    stream: bool,
    exclude: str | None = None,
    **options: Unpack[PartOptions],
) -> ImageDataset:
    """Return an image set: on disk if `stream`, else in memory.

    The files of a set on disk are listed, labelled and looked up, but not read.

    Args:
        name: an image set's name, `folder:PATH` or `list:PATH`.
        image_size: height and width of images from files of any resolution, as a network gets them;
            sets that are never on disk have their own.
        exclude: of a set on disk, a file that lists test images to leave out; see `exclude_images`.
        options: see `PartOptions` and `list_image_folder`.

    Raises:
        MissingDataError: files are missing.
        RequestError: an unknown name, a set that cannot be loaded in this way, a label out of
            range, a class without images, files that are missing, corrupt or not the original ones,
            or another number of images than the named set has.
    """
    registry.check_image_set_name(name)
    modes = registry.loading_modes(name)
    if "stream" not in modes and stream:
        on_disk = [known for known, entry in registry.IMAGE_SETS.items() if entry.on_disk]
        raise RequestError(
            f"data set '{name}': is held in memory: expected one of {', '.join(on_disk)}, "
            f"{registry.FOLDER_PREFIX}PATH, {registry.LIST_PREFIX}PATH"
        )
    if "stream" not in modes:
        return load_original_files(name, data_dir, test_only=options.get("test_only", False))
    root, listing = list_image_set(name, data_dir, **options)
    if exclude is not None:
        rows = exclude_images(listing.test, name, resolve_path(exclude, data_dir))
        listing = replace(listing, test=rows)
    groups = options.get("groups")
    files = [path for path, _ in (sorted(listing.train) if stream else listing.train)]
    numbers = None if groups is None else groups.numbers(files)
    if not stream:
        decoded = decode_parts(name, root, listing, image_size)
        train, test, val = decoded["train"], decoded["test"], decoded.get("val")
        return InMemoryImages(name, listing.classes, train, test, val, numbers)
    splits = {part: make_file_split(name, root, rows) for part, rows in listing.parts.items()}
    return OnDiskImages(
        name,
        listing.classes,
        splits["train"],
        splits["test"],
        splits.get("val"),
        numbers,
        root=root.absolute(),
        image_size=image_size,
    )


@dataclass(frozen=True, eq=False)
class OODDataset:
    """The test split of an image set that a network was not trained on."""

    group: str | None  # `near`, `far` or None
    images: ImageDataset  # the image set, with an empty training split

    @property
    def digest(self) -> str:
        return self.images.split_digests["test"]


def load_ood_datasets(
    names: Iterable[str], in_distribution: ImageDataset, data_dir: Path, *, stream: bool
) -> list[OODDataset]:
    """Return the test splits of OOD data sets.

    Args:
        names: `NAME`, `near=NAME` or `far=NAME`; or `openood`, for the sets of OpenOOD.
        in_distribution: the network's images, whose image size the images of folders get.
        stream: whether images of folders are decoded batch by batch.

    Raises:
        RequestError: an unknown or duplicate set, the network's own test images, or files that are
            missing or corrupt.
    """
    datasets: dict[str, OODDataset] = {}
    missing: dict[str, str] = {}
    texts, _ = registry.expand_ood_names(names, in_distribution.name)
    for text in texts:
        group, name = registry.parse_ood_name(text)
        modes, size = registry.loading_modes(name), in_distribution.image_size
        streamed = modes[0] == "stream" or (stream and "stream" in modes)
        try:
            images = load_image_set(name, data_dir, size, stream=streamed, test_only=True)
        except MissingDataError as error:
            missing[text] = error.lines[0]
            continue
        dataset = OODDataset(group, images)
        if in_distribution.name == name or in_distribution.split_digests["test"] == dataset.digest:
            raise RequestError(
                f"ood {text}: these are the test images of {in_distribution.name}: expected images "
                "of other classes"
            )
        if dataset.digest in datasets or name in {d.images.name for d in datasets.values()}:
            raise RequestError(f"ood {text}: duplicate: name each set once")
        datasets[dataset.digest] = dataset
    if missing:
        others = " ".join(f"--ood {text}" for text in texts if text not in missing)
        hint = [f"ood: or name the sets without them: {others}"] if others else []
        raise MissingDataError(*missing.values(), *hint)
    return list(datasets.values())
