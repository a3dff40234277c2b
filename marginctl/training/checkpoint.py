"""Checkpoints: whole or absent, each with its digest in its name."""

import hashlib
import io
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator
from torch import Tensor, nn

from marginctl.errors import RequestError
from marginctl.runs.atomic_io import write_bytes_atomically

FOLDER = "checkpoints"
LAST, BEST = "step", "best"
_NAME = re.compile(r"(step|best)-(\d{9})-([0-9a-f]{16})\.pt")


def _dense(value: Tensor) -> Tensor:
    if value.layout is not torch.strided or value.dtype.is_complex:
        raise ValueError("expected real numbers in place")
    return value


Dense = Annotated[Tensor, AfterValidator(_dense)]


class _State(BaseModel):
    """What a checkpoint holds beside tensors in dictionaries.

    Attributes:
        trial: its id.
        step: steps that are done.
        steps: of an epoch.
        processes: that trained together.
        metrics: the JSON lines of the epochs that are done.
        normalization: mean and standard deviation of each channel.
        classes: their names, in order.
    """

    model_config = ConfigDict(extra="allow", strict=True, arbitrary_types_allowed=True)
    trial: str
    step: Annotated[int, Field(ge=0)]
    steps: Annotated[int, Field(ge=1)]
    processes: Annotated[int, Field(ge=1)]
    versions: dict[str, str]
    metrics: str
    normalization: tuple[list[float], list[float]]
    classes: list[str]
    model: dict[str, Dense]
    objective: dict[str, Dense]
    optimizer: dict[str, Any]
    scaler: dict[str, Any]

    @field_validator("normalization", mode="before")
    @classmethod
    def _pair(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


def check_shapes(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Finds the first tensor that a network's state has otherwise than a network.

    Raises:
        ValueError: there is one.
    """
    own = module.state_dict()
    for name in dict.fromkeys((*own, *state)):
        has, wanted = (_shape(tensors.get(name)) for tensors in (state, own))
        if has != wanted:
            raise ValueError(f"'{name}' is {has} in it, and {wanted} in this network")


def _shape(value: Tensor | None) -> str:
    return "absent" if value is None else " x ".join(map(str, value.shape)) or "a number"


def save(folder: Path, kind: str, step: int, state: Mapping[str, Any], keep: int) -> Path:
    """Writes a checkpoint, then removes the oldest of its kind beyond `keep`.

    Args:
        folder: the trial's.
        kind: LAST or BEST.
        step: steps that are done.
        state: tensors, numbers, strings, lists and dictionaries of them.
        keep: how many of this kind stay, at least 1.

    Raises:
        StorageError: the disk is full or the folder cannot be written; what was there is unharmed.
    """
    content = io.BytesIO()
    torch.save(dict(state), content)
    data = content.getvalue()
    name = f"{kind}-{step:09d}-{hashlib.sha256(data).hexdigest()[:16]}.pt"
    path = folder / FOLDER / name
    write_bytes_atomically(path, data)
    for old in list_checkpoints(folder, kind)[max(keep, 1) :]:
        if old != path:
            old.unlink(missing_ok=True)
    return path


def list_checkpoints(folder: Path, kind: str) -> list[Path]:
    """The checkpoints of a kind, the latest first."""
    names = [(m, p) for p in (folder / FOLDER).glob("*.pt") if (m := _NAME.fullmatch(p.name))]
    own = [(int(m[2]), p.lstat().st_mtime_ns, p) for m, p in names if m[1] == kind]
    return [path for *_, path in sorted(own, reverse=True)]


def remove_all(folder: Path) -> None:
    """Removes all checkpoints of a trial."""
    for kind in (LAST, BEST):
        for path in list_checkpoints(folder, kind):
            path.unlink(missing_ok=True)


def load_latest(
    folder: Path, kind: str = LAST, trial: str | None = None
) -> tuple[tuple[Path, dict[str, Any]] | None, list[str]]:
    """The latest whole checkpoint with its file, and a line for each one that is passed over.

    Args:
        trial: the id that it must have; None for any.
    """
    problems: list[str] = []
    for path in list_checkpoints(folder, kind):
        try:
            state = load(path)
        except RequestError as error:
            problems += [f"{line}: passed over" for line in error.lines]
            continue
        if trial in (None, state["trial"]):
            return (path, state), problems
        problems.append(f"{path}: is of another trial, {state['trial']}: passed over")
    return None, problems


def load(path: Path) -> dict[str, Any]:
    """Reads a checkpoint; no code in it is ever run.

    Raises:
        RequestError: it is not there, or it is damaged.
    """
    if path.exists() and not path.is_file():  # a pipe would be waited for without end
        raise RequestError(f"{path}: is no file: expected a checkpoint of marginctl train")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None
    name = _NAME.fullmatch(path.name)
    if name and hashlib.sha256(data).hexdigest()[:16] != name[3]:
        raise RequestError(f"{path}: is damaged (its checksum does not fit)")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is no checkpoint: that is said below
            state: dict[str, Any] = torch.load(
                io.BytesIO(data), map_location="cpu", weights_only=True
            )
    except Exception:  # torch raises many kinds for what is no checkpoint
        raise RequestError(f"{path}: is not a checkpoint of marginctl train") from None
    try:
        _State.model_validate(state)
    except ValidationError:
        raise RequestError(f"{path}: is not a checkpoint of marginctl train") from None
    return state


def weights_digest(*states: Mapping[str, Tensor]) -> str:
    """SHA-256 of named tensors: equal for equal bits, whatever file they stand in."""
    digest = hashlib.sha256()
    for state in states:
        for name in sorted(state):
            value = state[name].detach().cpu().contiguous()
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
