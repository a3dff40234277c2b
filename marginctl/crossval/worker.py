"""What happens in a worker process: one stack at a time, with one thread."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from marginctl.crossval.stack import Stack
from marginctl.runs.run_dir import NETWORKS, PREDICTIONS

_progress: Callable[[float], None] = lambda cost: None  # noqa: E731


_stopped: Callable[[], bool] = lambda: False  # noqa: E731


class _StoppedError(Exception):
    """The parent wants no more of this stack."""


def _start_worker(counter: Any, stop: Any) -> None:
    """Runs first in each worker process."""
    # A terminal or a scheduler signals the whole group: the parent decides what that means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()

    def add(cost: float) -> None:
        with counter.get_lock():
            counter.value += cost

    global _progress, _stopped
    _progress, _stopped = add, lambda: bool(stop.value)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """One thread a process: two processes train faster than two threads. Restored at the end."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # Vanishing gradients of saturated networks are denormal numbers, which are slow.
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class Trained:
    """What a worker gives back for a stack, with what was asked to be kept."""

    result: Any  # StackResult; its module imports torch
    predictions: list[tuple[Any, ...]] | None = None
    arrays: dict[str, Any] | None = None
    chosen: list[int] | None = None  # of a tuned stack, the number of each network's candidate


def train(stack: Stack, device: str, keep: frozenset[str] = frozenset()) -> Trained:
    """Trains a stack with one thread and reports its progress: what a worker does."""
    if _stopped():
        raise _StoppedError
    from marginctl.crossval.stacked_trainer import train_stack

    an_epoch = stack.cost / stack.protocol.epochs
    unsaid = 0.0
    said = time.monotonic()

    def spent(cost: float) -> None:
        nonlocal unsaid, said
        if _stopped():
            raise _StoppedError
        unsaid += cost
        if time.monotonic() - said > 0.2:
            _progress(unsaid)
            unsaid, said = 0.0, time.monotonic()

    with _one_thread():
        chosen = None
        if stack.tuning is None:
            result, only = train_stack(stack, device, on_epoch=lambda: spent(an_epoch))
            networks = [only]
        else:
            from marginctl.crossval.nested_cv import train_tuned

            result, networks, chosen = train_tuned(stack, device, spent)
        predictions = None
        if PREDICTIONS in keep:
            predictions = sorted(
                (row for n in networks for row in n.test_predictions()), key=lambda r: r[1:3]
            )
        arrays = networks[0].arrays() if NETWORKS in keep else None
    _progress(unsaid)
    return Trained(result, predictions, arrays, chosen)


@contextlib.contextmanager
def reporting_to(add: Callable[[float], None]) -> Iterator[None]:
    """What is trained in this process reports its cost to `add`."""
    global _progress
    before, _progress = _progress, add
    try:
        yield
    finally:
        _progress = before


@contextlib.contextmanager
def stopped_by(asked: Callable[[], bool]) -> Iterator[None]:
    """What is trained in this process ends at its next epoch once `asked()` is true."""
    global _stopped
    before, _stopped = _stopped, asked
    try:
        yield
    finally:
        _stopped = before


def worker_pool(workers: int) -> tuple[ProcessPoolExecutor, Any, Any]:
    """Processes for `train`, the shared counter of the cost that they have trained, and a stop.

    Setting the stop's value ends what they train at its next epoch. A worker is never killed: it
    might be sending a result, and the pool would wait for the rest of it for ever.
    """
    context = multiprocessing.get_context("spawn")
    counter, stop = context.Value("d", 0.0), context.Value("b", 0)
    return ProcessPoolExecutor(workers, context, _start_worker, (counter, stop)), counter, stop
