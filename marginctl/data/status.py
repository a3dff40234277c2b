"""What the data folder holds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginctl.data.images.in_memory import find_in_memory, load_in_memory
from marginctl.data.images.known_sets import IMAGE_SETS, STREAMED_SETS
from marginctl.data.images.on_disk_sets import find_on_disk, load_on_disk
from marginctl.data.tabular.uci import MissingDataError, load_uci, uci_definitions
from marginctl.errors import RequestError


@dataclass(frozen=True)
class DatasetStatus:
    """A data set's state: `built in`, `present`, `absent` or `damaged`, with the reason."""

    name: str
    state: str
    path: str | None
    detail: str | None

    def row(self) -> dict[str, Any]:
        return {
            "name": self.name,
            **_published(self.name),
            "state": self.state,
            "path": self.path,
            "detail": self.detail,
        }


def _published(name: str) -> dict[str, int | None]:
    """Classes, features and rows; of images, the training and test images together."""
    if name in uci_definitions():
        published: dict[str, int | None] = uci_definitions()[name]["published"]
        return published
    if name == "digits":
        return {"classes": 10, "features": 64, "instances": 1797}
    if name in STREAMED_SETS:
        streamed = STREAMED_SETS[name]
        rows = sum(streamed.rows)
        return {"classes": streamed.num_classes, "features": None, "instances": rows}
    kind = IMAGE_SETS[name]
    return {"classes": len(kind.classes), "features": None, "instances": sum(kind.rows)}


def image_set_names() -> list[str]:
    """The image sets that have a name."""
    return ["digits", *IMAGE_SETS, *STREAMED_SETS]


def dataset_status(name: str, data_dir: Path, *, read: bool = True) -> DatasetStatus:
    """Reads a data set and compares it with its definition and digest.

    Args:
        read: whether images are read, or only looked for; of those that stay in their files, the
            lists are, and every file is looked for.

    Raises:
        RequestError: an unknown name.
    """
    if name in image_set_names():
        return _images(name, data_dir, read=read)
    folder = data_dir / "uci" / name
    try:
        data = load_uci(name, data_dir)
    except MissingDataError as error:
        return DatasetStatus(name, "absent", None, error.lines[0])
    except RequestError as error:
        if name not in uci_definitions():
            raise
        return DatasetStatus(name, "damaged", str(folder), error.lines[0])
    if data.digest != uci_definitions()[name]["digest"]:
        detail = (
            f"data set '{name}': the content of {folder} has another digest than the original "
            "files: fetch it again"
        )
        return DatasetStatus(name, "damaged", str(folder), detail)
    files = uci_definitions()[name]["files"]
    there = all((folder / file["file"]).is_file() for file in files)
    return DatasetStatus(
        name, "present" if there else "built in", str(folder) if there else None, None
    )


def _images(name: str, data_dir: Path, *, read: bool) -> DatasetStatus:
    streamed = name in STREAMED_SETS
    try:
        folder = find_on_disk(name, data_dir) if streamed else find_in_memory(name, data_dir)
    except MissingDataError as error:
        return DatasetStatus(name, "absent", None, error.lines[0])
    try:
        if read and streamed:
            load_on_disk(name, data_dir, 224)
        elif read:
            load_in_memory(name, data_dir)
    except RequestError as error:
        return DatasetStatus(name, "damaged", str(folder), error.lines[0])
    return DatasetStatus(
        name, "present" if folder else "built in", str(folder) if folder else None, None
    )
