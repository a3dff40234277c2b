"""Loading of image sets, in memory or on disk, and of OOD test sets."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from marginctl.data.images.folders import PartOptions
from marginctl.data.images.in_memory import InMemoryImages, load_in_memory
from marginctl.data.images.on_disk import OnDiskImages, load_on_disk
from marginctl.data.images.registry import expand_ood_names, loading_modes, parse_ood_name
from marginctl.data.paths import MissingDataError
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

    The other arguments and the errors are those of `load_on_disk` and `load_in_memory`.
    """
    if stream:
        return load_on_disk(name, data_dir, image_size, exclude=exclude, **options)
    return load_in_memory(name, data_dir, image_size, **options)


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
    texts, _ = expand_ood_names(names, in_distribution.name)
    for text in texts:
        group, name = parse_ood_name(text)
        modes, size = loading_modes(name), in_distribution.image_size
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
