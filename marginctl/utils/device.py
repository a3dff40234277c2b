"""Devices, processes and CPU cores; torch is imported on demand."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from marginctl.errors import RequestError

if TYPE_CHECKING:
    from torch import Tensor


def resolve_device(name: str, *, accelerated: bool = False) -> str:
    """Return the torch device for a value of `--device`.

    Args:
        accelerated: whether `auto` prefers an accelerator. Otherwise it is the CPU: the networks of
            a cross-validation are small, and CPUs of one kind give the same bits.
    """
    if name == "cpu" or (name == "auto" and not accelerated):
        return "cpu"
    match = re.fullmatch(r"(cuda)(?::(\d+))?|(mps)", name)
    if not match and name != "auto":
        raise RequestError(f"--device {name}: expected auto, cpu, cuda, cuda:N or mps")
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    has_mps = torch.backends.mps.is_available()
    if match is None:
        return "cuda" if count else "mps" if has_mps else "cpu"
    if match[3]:
        available, inventory = has_mps, "no MPS device"
    else:
        available = int(match[2] or 0) < count
        inventory = f"{count} CUDA devices" if count else "no CUDA device"
    if not available:
        raise RequestError(f"--device {name}: this machine has {inventory}: use --device cpu")
    return name


def world_size() -> int:
    """Return the number of processes that torchrun started to train together; 1 without it."""
    size = os.environ.get("WORLD_SIZE", "")
    return max(1, int(size)) if "RANK" in os.environ and size.isdecimal() else 1


def is_main_process() -> bool:
    """Return whether this process is the one that writes files and messages."""
    return world_size() == 1 or os.environ["RANK"] == "0"


def is_other_process_of_torchrun() -> bool:
    """Return whether this is a process of torchrun, and not the main one, which prints for all.

    Without torchrun, the variables of ranks may be left over from something else.
    """
    return not is_main_process() and "TORCHELASTIC_RUN_ID" in os.environ


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use, container limits included."""
    import joblib

    return int(joblib.cpu_count())


@contextlib.contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Use this number of torch threads inside; None leaves it as it is."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def synchronize(device: object) -> None:
    """Wait until a torch device, or the device of this name, has finished its work."""
    import torch

    if str(device).startswith("cuda"):
        torch.cuda.synchronize(str(device))
    elif str(device).startswith("mps"):
        torch.mps.synchronize()


def to_host(tensors: "Iterable[Tensor]", *, copy: bool = False) -> "list[Tensor]":
    """Return tensors of one device on the CPU; the host waits once for all of them.

    Args:
        copy: whether those that are on the CPU are copied, too.
    """
    tensors = list(tensors)
    # other devices than GPUs have no copies that the host need not wait for
    on_cpu = [tensor.to("cpu", non_blocking=tensor.is_cuda, copy=copy) for tensor in tensors]
    synchronize(tensors[0].device)
    return on_cpu
