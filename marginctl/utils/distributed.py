"""Several processes that train one network: what `torchrun` starts, by torch's own means."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from marginctl.errors import PeerLostError, RequestError
from marginctl.utils.device import world_size


@dataclass(frozen=True)
class World:
    """This process among those that train together; alone, it is number 0 of 1."""

    rank: int = 0
    size: int = 1

    @property
    def is_main_process(self) -> bool:
        """Whether it is the one that writes and speaks."""
        return self.rank == 0

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values)
        return values

    def all_reduce_max(self, flag: int | None) -> int | None:
        """The largest of the numbers that processes have, None where none has one."""
        if self.size == 1:
            return flag
        largest = torch.tensor(-1 if flag is None else flag)
        if dist.get_backend() == "nccl":
            largest = largest.cuda()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return None if int(largest) < 0 else int(largest)

    def broadcast(self, value: Tensor) -> None:
        """Gives every process the first one's tensor, in place."""
        if self.size > 1:
            dist.broadcast(value, 0)

    def broadcast_object(self, value: Any) -> Any:
        """What the first process has, on all of them."""
        if self.size == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0)
        return held[0]

    def all_gather(self, value: Any) -> list[Any]:
        """What every process has, in their order."""
        if self.size == 1:
            return [value]
        held: list[Any] = [None] * self.size
        dist.all_gather_object(held, value)
        return held


def local_device(device: str) -> str:
    """The device of this process: its own GPU, by its number on this machine.

    Raises:
        RequestError: one GPU was named for several processes.
    """
    if world_size() == 1 or not device.startswith("cuda"):
        return device
    if device != "cuda":
        raise RequestError(
            f"--device {device}: several processes cannot share one GPU: use --device cuda, which "
            "gives each its own, or cpu"
        )
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


@contextlib.contextmanager
def process_group(device: str) -> Iterator[World]:
    """The processes that torchrun started, joined; gloo on CPUs, NCCL on GPUs.

    Raises:
        PeerLostError: another process has gone.
    """
    if world_size() == 1:
        yield World()
        return
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield World(dist.get_rank(), dist.get_world_size())
        dist.barrier()  # all leave together: one that is still connected would be cut off
    except (RuntimeError, dist.DistError) as error:
        if not _is_of_a_peer(error):
            raise
        raise PeerLostError(
            "another process of this training has gone: checkpoints are kept: the same command "
            "again resumes"
        ) from None
    finally:
        with contextlib.suppress(Exception):  # a peer that has gone cannot say goodbye
            dist.destroy_process_group()


def _is_of_a_peer(error: BaseException) -> bool:
    words = ("Connection closed by peer", "Connection reset by peer", "gloo", "NCCL", "Broken pipe")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)
