"""Who trains the stacks of a call: this process, processes beside it, or a dask cluster.

joblib is not used for it. Its `Parallel` takes a list and gives results: what is submitted while
others run, a stop that a worker sees at its next epoch, and the cost that workers have trained so
far would each need what is here, on top of joblib's own processes.
"""

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from marginctl.crossval.stack import Stack
from marginctl.crossval.worker import reporting_to, train, worker_pool
from marginctl.errors import MarginctlError


class Crew(Protocol):
    """Trains stacks; the process that asks for them alone writes the run store."""

    def submit(self, stack: Stack, device: str, keep: frozenset[str]) -> "Future[Any]":
        """A future of what `worker.train` gives."""

    def at_once(self) -> int:
        """How many stacks are best under way: each worker has one, and the next one is there."""

    def trained(self) -> float:
        """The cost of what has been trained so far."""

    def lost(self, error: BaseException) -> MarginctlError | None:
        """What ends the call, where a stack's error is none of its training."""

    def stop(self) -> None:
        """Ends what is being trained at its next epoch."""

    def close(self) -> None:
        """Drops what has not begun, and waits for what has."""


class Alone:
    """Trains in this process, within `submit`."""

    def __init__(self, hears: Callable[[float], None]) -> None:
        self._hears, self._cost = hears, 0.0

    def submit(self, stack: Stack, device: str, keep: frozenset[str]) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            with reporting_to(self._add):
                future.set_result(train(stack, device, keep))
        except Exception as error:
            future.set_exception(error)
        return future

    def _add(self, cost: float) -> None:
        self._cost += cost
        self._hears(self._cost)

    def at_once(self) -> int:
        return 1

    def trained(self) -> float:
        return self._cost

    def lost(self, error: BaseException) -> MarginctlError | None:
        return None

    def stop(self) -> None:
        """Nothing is being trained when this is called."""

    def close(self) -> None:
        """Nothing is left."""


class Processes:
    """Trains in processes of this machine, one thread each."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        executor, self._counter, self._stop = worker_pool(workers)
        self._executor: Executor = executor

    def submit(self, stack: Stack, device: str, keep: frozenset[str]) -> "Future[Any]":
        try:
            return self._executor.submit(train, stack, device, keep)
        except BrokenProcessPool as error:
            future: Future[Any] = Future()
            future.set_exception(error)
            return future

    def at_once(self) -> int:
        return self._workers + 1

    def trained(self) -> float:
        return float(self._counter.value)

    def lost(self, error: BaseException) -> MarginctlError | None:
        if not isinstance(error, BrokenProcessPool):
            return None
        time.sleep(0.3)  # a signal to the whole group may have ended a starting worker: ours first
        return MarginctlError(
            "a worker process was killed, perhaps for lack of memory: finished trials are kept: "
            "run the same command again, with fewer --workers"
        )

    def stop(self) -> None:
        self._stop.value = 1

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)
