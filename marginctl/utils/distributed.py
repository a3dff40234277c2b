"""Data-parallel training on several processes that torchrun started."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from marginctl.errors import MissingPeerError, PeerLostError, RequestError
from marginctl.utils.device import world_size

ANNOUNCE_SECONDS, JOIN_SECONDS = 5, 300  # torchrun starts all processes within seconds

# Words in the errors of a lost connection; torch has no type of its own for them.
_CONNECTION_ERRORS = (
    "Connection closed by peer",
    "Connection reset by peer",
    "gloo",
    "NCCL",
    "Broken pipe",
)


@dataclass(frozen=True)
class World:
    """This process among those that train together; a single process has rank 0 of 1."""

    rank: int = 0
    size: int = 1

    @property
    def is_main_process(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values)
        return values

    def all_reduce_max(self, value: int | None) -> int | None:
        """Return the largest value (at least 0) of all processes; None where none has one."""
        if self.size == 1:
            return value
        largest = torch.tensor(-1 if value is None else value)
        if dist.get_backend() == "nccl":
            largest = largest.cuda()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return None if int(largest) < 0 else int(largest)

    def broadcast(self, value: Tensor) -> None:
        """Overwrite a tensor with that of the main process."""
        if self.size > 1:
            dist.broadcast(value, 0)

    def broadcast_object(self, value: Any) -> Any:
        """Return the main process's object on all processes."""
        if self.size == 1:
            return value
        objects = [value]
        dist.broadcast_object_list(objects, src=0)
        return objects[0]

    def all_gather(self, value: Any) -> list[Any]:
        """Return the objects of all processes, by rank."""
        if self.size == 1:
            return [value]
        objects: list[Any] = [None] * self.size
        dist.all_gather_object(objects, value)
        return objects


def local_device(device: str) -> str:
    """Return the device of this process: with torchrun and CUDA, the GPU of its local rank.

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
def process_group(device: str, message: Callable[[str], None]) -> Iterator[World]:
    """Join the processes that torchrun started, by gloo on CPUs and NCCL on GPUs.

    Args:
        device: of this process.
        message: gets a line if the others are not there at once.

    Raises:
        MissingPeerError: they do not come, or torchrun's variables are incomplete.
        PeerLostError: another process has ended.
    """
    if world_size() == 1:
        yield World()
        return
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    _join("nccl" if device.startswith("cuda") else "gloo", message)
    try:
        yield World(dist.get_rank(), dist.get_world_size())
        dist.barrier()  # leave together: a process that is still connected would fail
    except (RuntimeError, dist.DistError) as error:
        if not _is_connection_error(error):
            raise
        raise PeerLostError(
            "another process of this training run has ended; its checkpoints are kept: run the "
            "same command again to resume"
        ) from None
    finally:
        with contextlib.suppress(Exception):  # it fails where a peer has ended
            dist.destroy_process_group()


def _join(backend: str, message: Callable[[str], None]) -> None:
    """Join the process group in a thread, as a signal cannot interrupt torch's waiting."""
    joined: Future[None] = Future()

    def join() -> None:
        try:
            joined.set_result(dist.init_process_group(backend))
        except Exception as error:
            joined.set_exception(error)

    threading.Thread(target=join, daemon=True).start()
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    given = " ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
    advice = "start all with torchrun, or unset RANK and WORLD_SIZE to train in one process"
    for seconds, text in (
        (
            ANNOUNCE_SECONDS,
            f"waiting up to {JOIN_SECONDS} s for other processes ({given}): {advice}",
        ),
        (JOIN_SECONDS, ""),
    ):
        try:
            return joined.result(seconds)
        except TimeoutError:
            if text:
                message(text)
        except (ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise MissingPeerError(f"{given}: {reason}: {advice}") from None
    raise MissingPeerError(f"{given}: other processes are missing after {JOIN_SECONDS} s: {advice}")


def _is_connection_error(error: BaseException) -> bool:
    return isinstance(error, dist.DistError) or any(
        words in str(error) for words in _CONNECTION_ERRORS
    )


def is_distributed() -> bool:
    """Whether several processes train together."""
    return _num_processes() > 1


def all_gather_rows(rows: Tensor) -> Tensor:
    """Return the rows (N,) of all processes, concatenated; their numbers of rows may differ.

    Statistics of these are the same on every process, and those of one process with all the rows.
    """
    if not is_distributed():
        return rows
    counts = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(_num_processes())]
    dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
    longest = max(int(count) for count in counts)
    padded = torch.cat([rows, rows.new_zeros(longest - len(rows))])
    buffers = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(buffers, padded)
    return torch.cat([g[: int(count)] for g, count in zip(buffers, counts, strict=True)])


def all_reduce_sum(total: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes, computed in place."""
    if is_distributed():
        dist.all_reduce(total)
    return total


def _num_processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
