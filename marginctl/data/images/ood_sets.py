"""Foreign images: sets of none of a network's classes, whose test parts are to be told apart."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from marginctl.data.images.base import ImageDataset
from marginctl.data.images.in_memory import load_in_memory
from marginctl.data.images.on_disk_sets import load_on_disk
from marginctl.data.images.registry import loading_modes, parse_ood_name
from marginctl.errors import RequestError


@dataclass(frozen=True, eq=False)
class OODDataset:
    """The test part of a set of images that a network was not trained for.

    Attributes:
        group: `near`, `far` or None.
        images: their training part is empty.
    """

    group: str | None
    images: ImageDataset

    @property
    def digest(self) -> str:
        """Of the test part."""
        return self.images.split_digests["test"]


def load_ood_datasets(
    written: Iterable[str], own: ImageDataset, folder: Path, *, streamed: bool
) -> list[OODDataset]:
    """Loads or lists the test parts of foreign sets.

    Args:
        written: `NAME`, `near=NAME` or `far=NAME`.
        own: the images of the network, which gives the side of those in a folder.
        folder: where images are.
        streamed: whether those of a folder are decoded batch by batch, as its own are.

    Raises:
        RequestError: no such set, one that is named twice, the network's own test images, or files
            that are not there or damaged.
    """
    found: dict[str, OODDataset] = {}
    for one in written:
        group, name = parse_ood_name(one)
        ways = loading_modes(name)
        images: ImageDataset
        if ways[0] == "stream" or (streamed and "stream" in ways):
            images = load_on_disk(name, folder, own.image_size, test_only=True)
        else:
            images = load_in_memory(name, folder, own.image_size, test_only=True)
        made = OODDataset(group, images)
        if name == own.name or made.digest == own.split_digests["test"]:
            raise RequestError(
                f"ood {one}: the test images of {own.name} themselves: expected images of other "
                "classes"
            )
        if made.digest in found or any(name == other.images.name for other in found.values()):
            raise RequestError(f"ood {one}: stands twice: name each set once")
        found[made.digest] = made
    return list(found.values())
