"""Executors that train stacks: serial, and processes of this machine.

joblib is not used. Its `Parallel` takes a list and returns results: submitting tasks while others
run, cancelling a worker at its next epoch, and the cost that the workers have completed so far
would each need the code below, on top of joblib's own processes.
"""

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol

from marginctl.crossval.stack import Choice, Stack, StackResult
from marginctl.errors import MarginctlError
from marginctl.recipe.uci_cv import SklearnBaseline
from marginctl.runs.run_dir import NETWORKS, PREDICTIONS
from marginctl.utils.device import torch_threads
from marginctl.utils.processes import follow_parent


class StackExecutor(Protocol):
    """Trains stacks; only the process that submits them writes run directories."""

    def submit(self, stack: Stack, device: str, outputs: frozenset[str]) -> "Future[Any]":
        """Return a future of the stack's `TrainedStack`; see `train`."""

    def capacity(self) -> int:
        """Return how many stacks to submit ahead: one per worker, and those that come next."""

    def completed_cost(self) -> float:
        """Return the cost of what has been trained so far."""

    def fatal_error(self, error: BaseException) -> MarginctlError | None:
        """Return the error that ends the command, if `error` is a failure of the executor."""
        return None

    def cancel(self) -> None:
        """Stop the training of stacks at their next epoch."""
        return

    def shutdown(self) -> None:
        """Drop the stacks that have not begun, and wait for the others."""
        return


class CancelledTrainingError(Exception):
    """The training of a stack was cancelled."""


@dataclass(frozen=True)
class TrainedStack:
    """The results of a stack and the requested outputs."""

    result: StackResult  # of all its networks
    # for predictions.csv and networks.npz, where requested
    predictions: list[tuple[Any, ...]] | None = None
    arrays: dict[str, Any] | None = None
    choices: Sequence[Choice] = ()  # of a tuned stack or a baseline, one of each network


def train(
    stack: Stack,
    device: str,
    outputs: frozenset[str] = frozenset(),
    *,
    report: Callable[[float], None] = lambda cost: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> TrainedStack:
    """Train a stack with one thread.

    Args:
        outputs: files to make besides the result: PREDICTIONS, NETWORKS.
        report: called with the cost of each finished epoch.
        cancelled: returns whether to stop; called at every epoch.

    Raises:
        CancelledTrainingError: `cancelled` returned true.
    """

    def report_cost(cost: float) -> None:
        if cancelled():
            raise CancelledTrainingError
        report(cost)

    report_cost(0.0)
    if isinstance(stack.objective, SklearnBaseline):
        return _train_baseline(stack, outputs, report_cost)
    from marginctl.crossval.nested_cv import train_and_choose

    with one_thread():
        trained = train_and_choose(stack, device, report_cost)
        networks, predictions = trained.networks, None
        if PREDICTIONS in outputs:
            predictions = sorted(
                (row for n in networks for row in n.test_predictions()), key=lambda r: r[1:3]
            )
        arrays = networks[0].arrays() if NETWORKS in outputs else None
    return TrainedStack(trained.result, predictions, arrays, trained.choices)


def _train_baseline(
    stack: Stack, outputs: frozenset[str], report_cost: Callable[[float], None]
) -> TrainedStack:
    from marginctl.crossval.baselines import train_baseline

    result, choices, probabilities = train_baseline(stack, report_cost)
    predictions = None
    if PREDICTIONS in outputs:
        predictions = [
            (int(row), split.repeat, split.fold, int(p[row].argmax()), float(p[row].max()))
            for split, p in zip(stack.by_number, probabilities, strict=True)
            for row in split.test
        ]
    return TrainedStack(result, predictions, None, choices)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Use one torch thread inside: two processes train faster than two threads."""
    import torch

    with torch_threads(1):
        # Vanishing gradients of saturated networks are denormal numbers, which are slow.
        torch.set_flush_denormal(True)
        try:
            yield
        finally:
            torch.set_flush_denormal(False)


class SerialExecutor(StackExecutor):
    """Trains in this process, within `submit`: there is nothing to cancel or to wait for.

    Args:
        on_cost: called with the cost of what has been trained so far.
    """

    def __init__(self, on_cost: Callable[[float], None]) -> None:
        self._on_cost, self._cost = on_cost, 0.0

    def submit(self, stack: Stack, device: str, outputs: frozenset[str]) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(train(stack, device, outputs, report=self._add))
        except Exception as error:
            future.set_exception(error)
        return future

    def _add(self, cost: float) -> None:
        self._cost += cost
        self._on_cost(self._cost)

    def capacity(self) -> int:
        return 1

    def completed_cost(self) -> float:
        return self._cost


class ProcessExecutor(StackExecutor):
    """Trains in processes of this machine, one thread each.

    Cancelling sets a flag that workers read at their next epoch. A worker is never killed: it
    might be sending a result, and the pool would wait for the rest of it for ever.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        context = multiprocessing.get_context("spawn")
        self._cost, self._cancelled = context.Value("d", 0.0), context.Value("b", 0)
        shared = (self._cost, self._cancelled)
        self._pool = ProcessPoolExecutor(workers, context, _start_worker, shared)

    def submit(self, stack: Stack, device: str, outputs: frozenset[str]) -> "Future[Any]":
        try:
            return self._pool.submit(_train_in_worker, stack, device, outputs)
        except BrokenProcessPool as error:
            future: Future[Any] = Future()
            future.set_exception(error)
            return future

    def capacity(self) -> int:
        return self._workers + 1

    def completed_cost(self) -> float:
        return float(self._cost.value)

    def fatal_error(self, error: BaseException) -> MarginctlError | None:
        if not isinstance(error, BrokenProcessPool):
            return None
        # A signal to the whole process group may have killed a starting worker: handle ours first.
        time.sleep(0.3)
        return MarginctlError(
            "a worker process was killed, perhaps for lack of memory: finished trials are kept: "
            "run the same command again, with fewer --workers"
        )

    def cancel(self) -> None:
        self._cancelled.value = 1

    def shutdown(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class _Worker:
    """State of a worker process that its parent shares: completed cost, and the cancel flag."""

    cost: Any = None
    cancelled: Any = None

    @classmethod
    def add_cost(cls, cost: float) -> None:
        with cls.cost.get_lock():
            cls.cost.value += cost


def _start_worker(cost: Any, cancelled: Any) -> None:
    follow_parent()
    _Worker.cost, _Worker.cancelled = cost, cancelled


def _train_in_worker(stack: Stack, device: str, outputs: frozenset[str]) -> TrainedStack:
    return train(
        stack,
        device,
        outputs,
        report=_Worker.add_cost,
        cancelled=lambda: bool(_Worker.cancelled.value),
    )
