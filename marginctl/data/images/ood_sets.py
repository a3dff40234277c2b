"""Foreign images: sets of none of a network's classes, whose test parts are to be told apart."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from marginctl.data.images.base import LabelledImages
from marginctl.data.images.in_memory import load_images
from marginctl.data.images.on_disk_sets import load_files
from marginctl.data.images.registry import foreign_name, ways_to_load
from marginctl.errors import RequestError


@dataclass(frozen=True, eq=False)
class ForeignImages:
    """The test part of a set of images that a network was not trained for.

    Attributes:
        group: `near`, `far` or None.
        images: their training part is empty.
    """

    group: str | None
    images: LabelledImages

    @property
    def digest(self) -> str:
        """Of the test part."""
        return self.images.part_digests["test"]


def load_foreign(
    written: Iterable[str], own: LabelledImages, folder: Path, *, streamed: bool
) -> list[ForeignImages]:
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
    found: dict[str, ForeignImages] = {}
    for one in written:
        group, name = foreign_name(one)
        ways = ways_to_load(name)
        images: LabelledImages
        if ways[0] == "stream" or (streamed and "stream" in ways):
            images = load_files(name, folder, own.pixels, test_only=True)
        else:
            images = load_images(name, folder, own.pixels, test_only=True)
        made = ForeignImages(group, images)
        if name == own.name or made.digest == own.part_digests["test"]:
            raise RequestError(
                f"ood {one}: the test images of {own.name} themselves: expected images of other "
                "classes"
            )
        if made.digest in found or any(name == other.images.name for other in found.values()):
            raise RequestError(f"ood {one}: stands twice: name each set once")
        found[made.digest] = made
    return list(found.values())
