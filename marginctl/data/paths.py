"""The data folder, paths in it, and the errors for data that are missing or cannot be read."""

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from marginctl.errors import RequestError

DATA_DIR_VARIABLE = "MARGINCTL_DATA"


class MissingDataError(RequestError):
    """The files of a data set are missing."""


def default_data_dir() -> Path:
    """Return the data folder MARGINCTL_DATA, or else one in the user's cache folder."""
    folder = os.environ.get(DATA_DIR_VARIABLE)
    if folder:
        return Path(folder)
    cache_home = os.environ.get("XDG_CACHE_HOME")
    return Path(cache_home or os.path.expanduser("~/.cache")) / "marginctl" / "data"


def resolve_path(path: str, data_dir: Path) -> Path:
    """Return a user's path; a relative one that does not exist is taken below `data_dir`."""
    given = Path(os.path.expanduser(path))
    return given if given.exists() else data_dir / given


@contextlib.contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Raise RequestError where the system cannot read a file or folder inside."""
    try:
        yield
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None


def sklearn_file(name: str) -> Path:
    """Return a data file of scikit-learn by its path: importing the package takes over a second."""
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.submodule_search_locations
    return Path(package.submodule_search_locations[0]) / "datasets" / "data" / name
