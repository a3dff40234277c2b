"""Checkpoint files: written atomically, with a digest of their content in the name."""

import hashlib
import io
import re
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from torch import Tensor

from marginctl.errors import RequestError
from marginctl.runs.atomic_io import write_atomically
from marginctl.runs.disk_usage import CHECKPOINTS

LAST, BEST = "step", "best"
_NAME = re.compile(r"(step|best)-(\d{9})-([0-9a-f]{16})\.pt")


def _check_dense(value: Tensor) -> Tensor:
    if value.layout is not torch.strided or value.dtype.is_complex:
        raise ValueError("expected a dense tensor of real numbers")
    return value


DenseTensor = Annotated[Tensor, AfterValidator(_check_dense)]


class _CheckpointState(BaseModel):
    """The schema of a checkpoint."""

    model_config = ConfigDict(extra="allow", strict=True, arbitrary_types_allowed=True)
    trial: str
    step: Annotated[int, Field(ge=0)]
    steps_per_epoch: Annotated[int, Field(ge=1)]
    world_size: Annotated[int, Field(ge=1)]
    device: str
    precision: str
    versions: dict[str, str]
    metrics: str  # the finished epochs' lines of metrics.jsonl, as JSON
    # mean and standard deviation of each channel
    normalization: Annotated[list[list[float]], Field(min_length=2, max_length=2)]
    classes: list[str]
    image_size: Annotated[int, Field(ge=1)]
    model: dict[str, DenseTensor]
    objective: dict[str, DenseTensor]
    optimizer: dict[str, Any] = {}  # neither is in that of the best epoch or of the last step
    scaler: dict[str, Any] = {}


def save(folder: Path, kind: str, step: int, state: Mapping[str, Any], keep: int) -> Path:
    """Write a checkpoint and keep the `keep` newest of its kind, this one included.

    With `keep` 0, all others are removed. Return its path.

    Raises:
        StorageError: the disk is full or the folder cannot be written; earlier checkpoints are
            unharmed.
    """
    content = io.BytesIO()
    torch.save(dict(state), content)
    data = content.getvalue()
    name = f"{kind}-{step:09d}-{hashlib.sha256(data).hexdigest()[:16]}.pt"
    path = folder / CHECKPOINTS / name
    write_atomically(path, data)
    for old in list_checkpoints(folder, kind)[keep:]:
        if old != path:
            old.unlink(missing_ok=True)
    return path


class BackgroundWriter:
    """Writes checkpoints in a thread, one at a time, while training goes on."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._pending: Future[Path] | None = None

    def save(self, folder: Path, kind: str, step: int, state: Mapping[str, Any], keep: int) -> None:
        """Begin to write a checkpoint, as `save`; its tensors must not change any more."""
        self.wait()
        self._pending = self._pool.submit(save, folder, kind, step, state, keep)

    def wait(self) -> None:
        """Wait until the checkpoint is written, or raise its StorageError."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


def list_checkpoints(folder: Path, kind: str) -> list[Path]:
    """Return the checkpoints of a kind, the latest first."""
    matches = [(_NAME.fullmatch(path.name), path) for path in (folder / CHECKPOINTS).glob("*.pt")]
    dated = [
        (int(match[2]), path.lstat().st_mtime_ns, path)
        for match, path in matches
        if match and match[1] == kind
    ]
    return [path for *_, path in sorted(dated, reverse=True)]


def remove_all(folder: Path) -> None:
    for kind in (LAST, BEST):
        for path in list_checkpoints(folder, kind):
            path.unlink(missing_ok=True)


def load_latest(
    folder: Path, kind: str = LAST, trial: str | None = None
) -> tuple[tuple[Path, dict[str, Any]] | None, list[str]]:
    """Return the latest valid checkpoint with its path, and a message for each skipped one."""
    problems: list[str] = []
    for path in list_checkpoints(folder, kind):
        try:
            state = load(path)
        except RequestError as error:
            problems += [f"{line}: skipped" for line in error.lines]
            continue
        if trial in (None, state["trial"]):
            return (path, state), problems
        problems.append(f"{path}: belongs to another trial, {state['trial']}: skipped")
    return None, problems


def load(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint, or raise RequestError; code in it is never run."""
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise RequestError(f"{path}: is not a file: expected a checkpoint of marginctl train")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None
    name = _NAME.fullmatch(path.name)
    if name and hashlib.sha256(data).hexdigest()[:16] != name[3]:
        raise RequestError(f"{path}: is corrupt: checksum mismatch")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files that are rejected below anyway
            state: dict[str, Any] = torch.load(
                io.BytesIO(data), map_location="cpu", weights_only=True
            )
        _CheckpointState.model_validate(state)
    except Exception:  # torch raises many kinds of errors for other files
        raise RequestError(f"{path}: is not a checkpoint of marginctl train") from None
    return state


def weights_digest(*states: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of named tensors: equal for equal bits, whatever file holds them."""
    digest = hashlib.sha256()
    for state in states:
        for name in sorted(state):
            value = state[name].detach().cpu().contiguous()
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
