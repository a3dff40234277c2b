"""Worker processes that end with their parent, and objects that they share with it."""

import contextlib
import ctypes
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing import connection, reduction
from multiprocessing.process import BaseProcess
from pkgutil import resolve_name
from typing import Any

PR_SET_PDEATHSIG = 1  # of Linux
ALIGNMENT = 64  # bytes, as numpy aligns arrays


def start_worker(target: str, *arguments: Any) -> BaseProcess:
    """Start a new interpreter that calls a function; it ends with this process at the latest.

    A fork would be faster, but a child of a process whose threads have computed may deadlock.

    Args:
        target: `module:function`. The module is imported once the process follows its parent.
    """
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_run_worker, args=(target, *arguments))
    with signals_blocked():
        process.start()
    return process


def _run_worker(target: str, *arguments: Any) -> None:
    follow_parent()
    resolve_name(target)(*arguments)


def follow_parent() -> None:
    """End this process when its parent ends, and leave signals to the parent.

    A terminal or a scheduler signals the whole group: the parent decides what that means.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":  # at once, even if the thread below waits for the interpreter
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    exit_with_parent()


def exit_with_parent() -> None:
    """Watch the parent in a thread, and exit when it has gone."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Block signals while processes start; these inherit it and keep signals blocked."""
    blocked = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class SharedObject:
    """An object that workers load from one file; its arrays are mapped, not copied.

    The file has no name, so that nothing is left of it when all processes have ended. Arrays are
    private where a process writes to them.
    """

    def __init__(self, value: object) -> None:
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(value, 5, buffer_callback=buffers.append)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._spans = [self._append(part) for part in (pickled, *(b.raw() for b in buffers))]
        self._file.flush()

    def _append(self, part: Any) -> slice:
        start = -(-self._file.tell() // ALIGNMENT) * ALIGNMENT
        self._file.seek(start)
        return slice(start, start + self._file.write(part))

    def __reduce__(self) -> Any:
        return _MappedObject, (reduction.DupFd(self._file.fileno()), self._spans)


class _MappedObject:
    """A `SharedObject` in a worker."""

    def __init__(self, file: Any, spans: list[slice]) -> None:
        self._file, self._spans = file.detach(), spans

    def load(self) -> Any:
        """Return the object; its arrays are those of the file."""
        content = memoryview(mmap.mmap(self._file, 0, access=mmap.ACCESS_COPY))
        pickled, *buffers = (content[span] for span in self._spans)
        return pickle.loads(pickled, buffers=buffers)
