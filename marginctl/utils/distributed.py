"""Data-parallel training on several processes that torchrun started."""

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from marginctl.errors import MissingPeerError, PeerLostError, RequestError
from marginctl.utils.device import world_size
from marginctl.utils.heartbeat import Store, heartbeat
from marginctl.utils.text import count_noun

T = TypeVar("T")

ANNOUNCE_SECONDS, JOIN_SECONDS = 5, 45  # torchrun starts all processes within seconds
# One process may work alone for long while the others wait, such as on the final evaluation; the
# heartbeat notices those that stall.
ALONE = timedelta(hours=12)

# Words in the errors of a lost connection; torch has no type of its own for them.
_LOST = re.compile("Connection (closed|reset) by peer|gloo|NCCL|Broken pipe")


@dataclass(frozen=True)
class World:
    """This process among those that train together; a single process has rank 0 of 1."""

    rank: int = 0
    size: int = 1

    @property
    def is_main_process(self) -> bool:
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

    def from_main(self, compute: Callable[[], T]) -> T:
        """Return on all processes what the main process alone computes."""
        value: T = self.broadcast_object(compute() if self.is_main_process else None)
        return value

    def all_gather(self, value: Any) -> list[Any]:
        """Return the objects of all processes, by rank."""
        if self.size == 1:
            return [value]
        objects: list[Any] = [None] * self.size
        dist.all_gather_object(objects, value)
        return objects

    def all_gather_rows(self, rows: Tensor) -> Tensor:
        """Return the rows (N, ...) of all processes, concatenated by rank."""
        return rows if self.size == 1 else all_gather_rows(rows)


def local_device(device: str) -> str:
    """Return the device of this process: with torchrun and CUDA, the GPU of its local rank.

    Raises:
        RequestError: one GPU was named for several processes, or there are fewer than these.
    """
    if world_size() == 1 or not device.startswith("cuda"):
        return device
    count = torch.cuda.device_count()
    local = max(
        int(os.environ.get("LOCAL_WORLD_SIZE", 1)), int(os.environ.get("LOCAL_RANK", 0)) + 1
    )
    if local > count:
        raise RequestError(
            f"{local} processes on this machine, which has {count_noun(count, 'CUDA device')}: "
            f"start at most {count} here"
        )
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
    store = _join(device, message)
    rank, size = dist.get_rank(), dist.get_world_size()
    try:
        with heartbeat(store, rank, size, message):
            yield World(rank, size)
            dist.barrier()  # leave together: a process that is still connected would fail
    except (RuntimeError, dist.DistError) as error:
        if not _LOST.search(str(error)) and not isinstance(error, dist.DistError):
            raise
        raise PeerLostError(
            "another process of this training run has ended; its checkpoints are kept: run the "
            "same command again to resume"
        ) from None
    finally:
        with contextlib.suppress(Exception):  # it fails where a peer has ended
            dist.destroy_process_group()


def _join(device: str, message: Callable[[str], None]) -> Store:
    """Join the process group in a thread, as a signal cannot interrupt torch's waiting.

    The store of the processes is returned for the heartbeat.
    """
    joined: Future[Store] = Future()
    # tensors on the CPU always go by gloo: numbers for the host wait for no GPU
    on_gpu = device.startswith("cuda")
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"

    def join() -> None:
        try:
            store, rank, size = next(rendezvous("env://"))
            with _stdout_to_stderr():
                dist.init_process_group(
                    backend,
                    timeout=ALONE,
                    world_size=size,
                    rank=rank,
                    store=store,
                    device_id=torch.device(device) if on_gpu else None,
                )
            joined.set_result(store.clone())
        except Exception as error:
            joined.set_exception(error)

    threading.Thread(target=join, daemon=True).start()
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    given = " ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
    advice = "start all with torchrun, or unset RANK and WORLD_SIZE to train in one process"
    try:
        with contextlib.suppress(TimeoutError):
            return joined.result(ANNOUNCE_SECONDS)
        message(f"waiting up to {JOIN_SECONDS} s for other processes ({given}): {advice}")
        return joined.result(JOIN_SECONDS)
    except TimeoutError:
        reason = f"other processes are missing after {JOIN_SECONDS} s"
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
    raise MissingPeerError(f"{given}: {reason}: {advice}")


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Redirect stdout, on which torch 2.9 and 2.10 announce the connections of Gloo."""
    if sys.stdout is None:  # closed
        yield
        return
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def all_gather_rows(rows: Tensor) -> Tensor:
    """Return the rows (N, ...) of all processes, concatenated; their numbers of rows may differ.

    Statistics of these are the same on every process, and those of one process with all the rows.
    """
    if not is_distributed():
        return rows
    # on the CPU, where that is possible, the numbers of rows wait for no GPU
    device = "cpu" if "cpu:gloo" in dist.get_backend_config() else rows.device
    counts = list(torch.zeros(dist.get_world_size(), 1, dtype=torch.long, device=device))
    dist.all_gather(counts, torch.tensor([len(rows)], device=device))
    lengths = [int(count) for count in counts]
    padded = torch.cat([rows, rows.new_zeros(max(lengths) - len(rows), *rows.shape[1:])])
    buffers = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(buffers, padded)
    return torch.cat([g[:length] for g, length in zip(buffers, lengths, strict=True)])


def all_reduce_sum(total: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes, computed in place."""
    if is_distributed():
        dist.all_reduce(total)
    return total
