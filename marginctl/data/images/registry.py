"""Image sets by their names: which there are, and how each can be loaded."""

from collections.abc import Mapping
from dataclasses import dataclass

from marginctl.data.images.known_sets import DIGITS_SUMMARY, IMAGE_SETS, STREAMED_SETS
from marginctl.errors import RequestError
from marginctl.utils.text import did_you_mean, short

FOLDER_PREFIX = "folder:"
LIST_PREFIX = "list:"
GROUPS = ("near", "far")  # of foreign images


@dataclass(frozen=True)
class Description:
    """What an image set is, and the files that it needs in each layout that is read."""

    summary: str
    layouts: tuple[tuple[str, ...], ...]


def image_sets() -> Mapping[str, Description]:
    """A description of every image set by its name; `folder:PATH` stands for any folder."""
    named = {
        name: Description(kind.summary, tuple(layout.files() for layout in kind.layouts))
        for name, kind in IMAGE_SETS.items()
    }
    streamed = {
        name: Description(
            kind.summary,
            tuple(tuple(f"{f}/{file}".lstrip("/") for file in kind.files) for f in kind.folders),
        )
        for name, kind in STREAMED_SETS.items()
    }
    inside = tuple(f"PATH/{part}/CLASS/IMAGE" for part in ("train", "val"))
    own = {
        f"{FOLDER_PREFIX}PATH": Description(
            "a folder of images of one's own", (inside, ("PATH/CLASS/IMAGE",))
        ),
        f"{LIST_PREFIX}PATH": Description(
            "a folder with lists of image files and their labels",
            (("PATH/train.txt", "PATH/val.txt"),),
        ),
    }
    return {"digits": Description(DIGITS_SUMMARY, ()), **named, **streamed, **own}


def loading_modes(name: str) -> tuple[str, ...]:
    """How a set can be loaded, the usual way first: whole into `memory`, or as a `stream`."""
    if name.startswith(FOLDER_PREFIX):
        return ("memory", "stream")
    return ("stream",) if name in STREAMED_SETS or name.startswith(LIST_PREFIX) else ("memory",)


def check_image_set_name(name: str) -> str:
    """The name, if it is an image set's.

    Raises:
        RequestError: it is not.
    """
    known = image_sets()
    if name in known or (
        name.startswith((FOLDER_PREFIX, LIST_PREFIX)) and name not in (FOLDER_PREFIX, LIST_PREFIX)
    ):
        return name
    raise RequestError(
        f"unknown image set '{short(name)}': expected one of {', '.join(known)}."
        + did_you_mean(name, known)
    )


def parse_ood_name(written: str) -> tuple[str | None, str]:
    """The group, `near`, `far` or None, and the name of a set of foreign images: `near=NAME`.

    Raises:
        RequestError: the name is no image set's.
    """
    before, _, name = written.partition("=")
    if before in GROUPS:
        return before, check_image_set_name(name)
    return None, check_image_set_name(written)
