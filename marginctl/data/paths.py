"""The data folder, paths in it, and the error for missing data."""

import os
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
