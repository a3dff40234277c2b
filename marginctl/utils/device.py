"""Devices and cores, by name."""

import os
import re

from marginctl.errors import RequestError


def resolve_device(asked: str, *, accelerated: bool = False) -> str:
    """The torch device for `--device`.

    Args:
        asked: auto, cpu, cuda, cuda:N or mps.
        accelerated: whether `auto` is an accelerator where there is one. Else it is the CPU: the
            networks of a cross-validation are small, and the same bits come out on any machine of
            one kind.

    Raises:
        RequestError: not a device, or one that is not there.
    """
    if asked == "cpu" or (asked == "auto" and not accelerated):
        return "cpu"
    match = re.fullmatch(r"(cuda)(?::(\d+))?|(mps)", asked)
    if not match and asked != "auto":
        raise RequestError(f"--device {asked}: expected auto, cpu, cuda, cuda:N or mps")
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mps = torch.backends.mps.is_available()
    if match is None:
        return "cuda" if count else "mps" if mps else "cpu"
    if match[3]:
        there, found = mps, "no MPS device"
    else:
        there = int(match[2] or 0) < count
        found = f"{count} CUDA devices" if count else "no CUDA device"
    if not there:
        raise RequestError(f"--device {asked}: this machine has {found}: use --device cpu")
    return asked


def world_size() -> int:
    """How many processes torchrun has started to train together, this one among them; else 1."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def is_main_process() -> bool:
    """Whether this one is alone or the first of them: the one that writes and speaks."""
    return world_size() == 1 or os.environ["RANK"] == "0"


def usable_cores() -> int:
    """Cores that this process may use, container limits included."""
    import joblib

    return int(joblib.cpu_count())


def synchronize(device: object) -> None:
    """Waits until a device has done what it was asked.

    Args:
        device: a torch device, or its name.
    """
    import torch

    if str(device).startswith("cuda"):
        torch.cuda.synchronize(str(device))
    elif str(device) == "mps":
        torch.mps.synchronize()
