"""What the data folder holds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginctl.data.uci import DataMissingError, definitions, load
from marginctl.errors import RequestError


@dataclass(frozen=True)
class Status:
    """A data set's state: `built in`, `present`, `absent` or `damaged`, with the reason."""

    name: str
    state: str
    path: str | None
    detail: str | None

    def row(self) -> dict[str, Any]:
        published = definitions()[self.name]["published"]
        return {
            "name": self.name,
            **published,
            "state": self.state,
            "path": self.path,
            "detail": self.detail,
        }


def status(name: str, data_dir: Path) -> Status:
    """Reads a data set and compares it with its definition and digest.

    Raises:
        RequestError: an unknown name.
    """
    folder = data_dir / "uci" / name
    try:
        data = load(name, data_dir)
    except DataMissingError as error:
        return Status(name, "absent", None, error.lines[0])
    except RequestError as error:
        if name not in definitions():
            raise
        return Status(name, "damaged", str(folder), error.lines[0])
    if data.digest != definitions()[name]["digest"]:
        detail = (
            f"data set '{name}': the content of {folder} has another digest than the original "
            "files: fetch it again"
        )
        return Status(name, "damaged", str(folder), detail)
    files = definitions()[name]["files"]
    there = all((folder / file["file"]).is_file() for file in files)
    return Status(name, "present" if there else "built in", str(folder) if there else None, None)
