"""The state of each data set in the data folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marginctl.data.images.image_sets import load_image_set
from marginctl.data.images.in_memory import find_in_memory
from marginctl.data.images.listing import find_on_disk
from marginctl.data.images.registry import IMAGE_SETS
from marginctl.data.paths import MissingDataError
from marginctl.data.tabular.uci import check_uci_name, load_uci, missing_files, uci_definitions
from marginctl.errors import RequestError


@dataclass(frozen=True)
class DatasetStatus:
    name: str
    classes: int
    features: int | None  # the number of features; None for images of varying resolution
    instances: int  # the number of rows, or of training and test images together
    state: str  # `built in`, `present`, `absent` or `corrupt`
    path: str | None = None  # its folder, where it has one
    detail: str | None = None  # why it is absent or corrupt
    # of an image set: images by part, who divided it, its usual measure, and its known terms of use
    parts: Mapping[str, int] | None = None
    split: str | None = None
    metric: str | None = None
    terms: str | None = None


def dataset_status(name: str, data_dir: Path, *, read: bool = True) -> DatasetStatus:
    """Return the state of a UCI data set or an image set, after a comparison with its digest.

    Args:
        read: whether images are read, or their files only looked up; for sets on disk, the lists
            are read and every file is looked up.

    Raises:
        RequestError: an unknown name.
    """
    if name in IMAGE_SETS:
        entry = IMAGE_SETS[name]
        features = 64 if name == "digits" else None
        size = (entry.num_classes, features, sum(entry.num_images))
        state = _image_state(name, data_dir, read=read)
        parts, split, metric, terms = entry.part_sizes, entry.split, entry.metric, entry.terms
        return DatasetStatus(name, *size, *state, parts, split, metric, terms)
    published = uci_definitions()[check_uci_name(name)]["published"]
    size = (published["classes"], published["features"], published["instances"])
    return DatasetStatus(name, *size, *_uci_state(name, data_dir))


def _uci_state(name: str, data_dir: Path) -> tuple[str, str | None, str | None]:
    """Return state, path and detail."""
    folder = data_dir / "uci" / name
    try:
        load_uci(name, data_dir)
    except MissingDataError as error:
        return "absent", None, error.lines[0]
    except RequestError as error:
        return "corrupt", str(folder), error.lines[0]
    if missing_files(name, data_dir):
        return "built in", None, None
    return "present", str(folder), None


def _image_state(name: str, data_dir: Path, *, read: bool) -> tuple[str, str | None, str | None]:
    """Return state, path and detail."""
    on_disk = IMAGE_SETS[name].on_disk
    try:
        folder = find_on_disk(name, data_dir) if on_disk else find_in_memory(name, data_dir)
    except MissingDataError as error:
        return "absent", None, error.lines[0]
    path = str(folder) if folder else None
    try:
        if read:
            load_image_set(name, data_dir, 224, stream=on_disk)
    except RequestError as error:
        return "corrupt", path, error.lines[0]
    return "present" if path else "built in", path, None
