"""The heartbeat of processes that train together: one that stalls ends the others, too."""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

BEAT_SECONDS = 1.0
STALL_SECONDS = 45.0  # without a sign of life
SIGNAL_SECONDS = 3.0  # the same, once a signal has come


class Store(Protocol):
    """Counters that the processes share: one of torch's stores."""

    def add(self, key: str, amount: int) -> int: ...


@contextlib.contextmanager
def heartbeat(store: Store, rank: int, size: int, message: Callable[[str], None]) -> Iterator[None]:
    """End this process when another one stalls within the context.

    While torch waits for another process, this one runs no Python code in its main thread, not even
    on a signal. So threads send a sign of life every second, listen for the others', and end this
    process. A process that works alone for long, such as one that evaluates, keeps its sign.

    Args:
        store: shared by the processes; no other thread of this process may use this object.
        message: gets the last line of this process.
    """
    monitor = _Monitor(store, rank, size, message)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = -1
    with contextlib.suppress(ValueError):  # not the main thread
        previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=monitor.beat, daemon=True).start()
    watch = threading.Thread(target=monitor.watch, args=(reader,), daemon=True)
    watch.start()
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(previous)
        monitor.stopped.set()
        os.close(writer)  # wakes the thread that reads
        watch.join()
        os.close(reader)


class _Monitor:
    def __init__(self, store: Store, rank: int, size: int, message: Callable[[str], None]) -> None:
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
