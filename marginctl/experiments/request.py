"""The recipe, options and folders of one command."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginctl.data.paths import default_data_dir
from marginctl.errors import RequestError
from marginctl.utils.device import resolve_device


@dataclass(frozen=True)
class Request:
    """What a command asks for."""

    recipe: str | None
    # dotted key -> (option, value); the value is None if the option was not given
    options: Mapping[str, tuple[str, Any]]
    overrides: Iterable[str] = ()
    data_dir: Path | None = None
    out: Path = Path("runs")
    device: str = "auto"
    # whether to tune; None leaves it to the recipe, or to the default of comparisons
    tune: bool | None = None

    @property
    def data_folder(self) -> Path:
        return self.data_dir or default_data_dir()

    def check_out(self) -> None:
        """Raise RequestError where the runs folder is a file."""
        if self.out.exists() and not self.out.is_dir():
            raise RequestError(f"--out {self.out}: is a file: name a folder")

    def resolve_device(self) -> str:
        """Return the device of this process for the task, an accelerator if there is one."""
        from marginctl.utils.distributed import local_device

        return local_device(resolve_device(self.device, accelerated=True))
