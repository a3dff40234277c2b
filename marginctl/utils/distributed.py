"""Data-parallel training on several processes that torchrun started."""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from marginctl.errors import MissingPeerError, PeerLostError, RequestError
from marginctl.utils.device import world_size
from marginctl.utils.text import count_noun

ANNOUNCE_SECONDS, JOIN_SECONDS = 5, 45  # torchrun starts all processes within seconds
# One process may work alone for long while the others wait, such as on the final evaluation; the
# heartbeat notices those that stall.
ALONE = timedelta(hours=12)

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
        lost = any(words in str(error) for words in _CONNECTION_ERRORS)
        if not lost and not isinstance(error, dist.DistError):
            raise
        raise PeerLostError(
            "another process of this training run has ended; its checkpoints are kept: run the "
            "same command again to resume"
        ) from None
    finally:
        with contextlib.suppress(Exception):  # it fails where a peer has ended
            dist.destroy_process_group()


def _join(device: str, message: Callable[[str], None]) -> Any:
    """Join the process group in a thread, as a signal cannot interrupt torch's waiting.

    Returns:
        A store of the processes, for the heartbeat.
    """
    joined: Future[Any] = Future()
    # tensors on the CPU always go by gloo: numbers for the host wait for no GPU
    on_gpu = device.startswith("cuda")
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"

    def join() -> None:
        try:
            store, rank, size = next(rendezvous("env://"))
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


def is_distributed() -> bool:
    """Whether several processes train together."""
    return _num_processes() > 1


def all_gather_rows(rows: Tensor) -> Tensor:
    """Return the rows (N, ...) of all processes, concatenated; their numbers of rows may differ.

    Statistics of these are the same on every process, and those of one process with all the rows.
    """
    if not is_distributed():
        return rows
    # on the CPU, where that is possible, the numbers of rows wait for no GPU
    device = "cpu" if "cpu:gloo" in dist.get_backend_config() else rows.device
    counts = list(torch.zeros(_num_processes(), 1, dtype=torch.long, device=device))
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


def _num_processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


BEAT_SECONDS = 1.0
STALL_SECONDS = 45.0  # without a sign of life
SIGNAL_SECONDS = 3.0  # the same, once a signal has come


@contextlib.contextmanager
def heartbeat(store: Any, rank: int, size: int, message: Callable[[str], None]) -> Iterator[None]:
    """End this process when another one stalls within the context.

    While torch waits for another process, this one runs no Python code in its main thread, not even
    on a signal. So threads send a sign of life every second, listen for the others', and end this
    process. A process that works alone for long, such as one that evaluates, keeps its sign.

    Args:
        store: one of torch's; no other thread of this process may use this object.
        message: gets the last line of this process.
    """
    monitor = _Monitor(store, rank, size, message)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = -1
    with contextlib.suppress(ValueError):  # not the main thread
        previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threads = [
        threading.Thread(target=target, args=arguments, daemon=True)
        for target, arguments in ((monitor.beat, ()), (monitor.watch, (reader,)))
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(previous)
        monitor.stopped.set()
        os.close(writer)  # wakes the thread that reads
        threads[1].join()
        os.close(reader)


class _Monitor:
    def __init__(self, store: Any, rank: int, size: int, message: Callable[[str], None]) -> None:
        self._store, self._rank, self._size, self._message = store, rank, size, message
        self.stopped = threading.Event()
        self._heard = {r: time.monotonic() for r in range(size) if r != rank}

    def beat(self) -> None:
        """Send signs of life, and note when those of the others come."""
        counts = dict.fromkeys(self._heard, 0)
        with contextlib.suppress(RuntimeError):  # the store's process has ended: it is silent
            while not self.stopped.wait(BEAT_SECONDS):
                self._store.add(f"beats/{self._rank}", 1)
                for rank, count in counts.items():
                    counts[rank] = self._store.add(f"beats/{rank}", 0)
                    if counts[rank] != count:
                        self._heard[rank] = time.monotonic()

    def watch(self, signals: int) -> None:
        """End this process if another one is silent, or at a second signal."""
        received: list[int] = []
        while not self.stopped.is_set():
            if select.select([signals], [], [], BEAT_SECONDS)[0]:
                numbers = os.read(signals, 16)
                received += [n for n in numbers if n in (signal.SIGINT, signal.SIGTERM)]
            rank = min(self._heard, key=lambda r: self._heard[r])
            silence = time.monotonic() - self._heard[rank]
            limit = SIGNAL_SECONDS if received else STALL_SECONDS
            if silence > limit and not self.stopped.is_set():
                self._message(
                    f"error: process {rank} of {self._size} has not answered for {silence:.0f} s: "
                    "run the same command again to resume from the last checkpoint"
                )
            if silence > limit or len(received) > 1:
                os._exit(128 + received[0] if received else 1)
