"""Files of figures."""

from pathlib import Path
from typing import Any

from marginctl.errors import RequestError

FORMATS = (".png", ".svg", ".pdf")


def check_path(option: str, path: Path) -> None:
    """Refuses a path before anything is drawn.

    Raises:
        RequestError: a file type other than `FORMATS`, or a folder that is not there.
    """
    if path.suffix.lower() not in FORMATS:
        raise RequestError(f"{option} {path}: expected a file name ending in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise RequestError(f"{option} {path}: there is no folder {path.parent}: make it first")


def save(figure: Any, option: str, path: Path) -> None:
    """Writes a matplotlib figure: the same file for the same figure.

    Raises:
        RequestError: the file cannot be written.
    """
    import matplotlib

    undated: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"svg.hashsalt": "marginctl"}):
        try:
            figure.savefig(path, dpi=110, metadata=undated.get(path.suffix.lower(), {}))
        except OSError as error:
            raise RequestError(
                f"{option} {path}: cannot be written: {error.strerror or error}: name a file"
            ) from None
