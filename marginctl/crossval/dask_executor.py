"""The dask executor: the workers of a dask cluster train stacks, a task each.

A worker that is killed loses no results: the scheduler gives its stacks to another one. How
networks are stacked depends on the protocol alone, so the results equal those of this machine.
"""

import contextlib
import functools
import json
import logging
import pickle
import socket
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

from marginctl import NUMERICS
from marginctl.crossval.executors import StackExecutor, TrainedStack, train
from marginctl.crossval.stack import Stack
from marginctl.errors import MarginctlError, RequestError
from marginctl.runs.run_dir import versions

CONNECT_TIMEOUT = 10.0  # seconds: a running scheduler answers sooner
RECOUNT_INTERVAL = 2.0  # seconds between two requests for the number of workers
RESUME_HINT = "finished trials are kept: the same command again resumes"


class MismatchError(Exception):
    """A worker has other versions or more than one thread."""


def numeric_environment() -> dict[str, Any]:
    """Return the versions that a worker must share with the submitting process."""
    packages: dict[str, Any] = {k: v for k, v in versions().items() if k != "python"}
    return packages | {"numerics": NUMERICS}


def train_on_worker(expected: dict[str, Any], packed: bytes) -> TrainedStack:
    """Train a stack on a worker of the cluster.

    Args:
        expected: `numeric_environment` of the submitting process.
        packed: the pickled arguments of `train`, which another version might be unable to load.

    Raises:
        MismatchError: this worker may not train.
    """
    from distributed import get_worker

    worker = get_worker()
    actual = numeric_environment()
    for name, version in expected.items():
        if actual.get(name) != version:
            raise MismatchError(
                f"{worker.address} has {name} {actual.get(name)}, expected {version} as in this "
                "process"
            )
    if worker.state.nthreads != 1:
        raise MismatchError(
            f"{worker.address} has {worker.state.nthreads} threads, expected 1: start its workers "
            "with --nthreads 1, one per core"
        )
    task = worker.state.tasks[worker.get_current_task()]
    # a task is cancelled when its command was interrupted or killed
    return train(*pickle.loads(packed), cancelled=lambda: task.state == "cancelled")


class DaskExecutor(StackExecutor):
    """Trains on the workers of a dask scheduler; each round of a search uses the same connection.

    Raises:
        RequestError: dask is not installed, or no scheduler answers at the address.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        try:
            import distributed
            from dask import config
        except ImportError:
            raise RequestError(
                "--backend dask: dask is not installed: pip install 'marginctl[dask]'"
            ) from None
        # its errors are reported in one line below
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        client: Any = distributed.Client
        timeouts = {"distributed.comm.timeouts.connect": f"{CONNECT_TIMEOUT}s"}
        try:
            resolved = _resolve_address(address)
            with warnings.catch_warnings(action="ignore"), config.set(timeouts):
                self._client = client(resolved, timeout=CONNECT_TIMEOUT, set_as_default=False)
        except Exception as error:  # a wrong file or another service may raise anything
            lines = str(error).strip().splitlines()
            raise RequestError(
                f"--scheduler {address}: no dask scheduler answers there "
                f"({lines[0] if lines else type(error).__name__}): expected its address, such as "
                "tcp://host:8786, or the file of dask scheduler --scheduler-file"
            ) from None
        self._pool = self._client.get_executor(pure=False)
        self._submitted: set[Future[Any]] = set()
        self._cost, self._workers, self._counted_at = 0.0, 0, 0.0

    def num_workers(self) -> int:
        if time.monotonic() - self._counted_at > RECOUNT_INTERVAL:
            with contextlib.suppress(Exception):  # a lost scheduler shows at the next result
                self._workers = len(self._client.nthreads())
            self._counted_at = time.monotonic()
        return self._workers

    def submit(self, stack: Stack, device: str, outputs: frozenset[str]) -> "Future[Any]":
        packed = pickle.dumps((stack, device, outputs))
        future: Future[Any] = Future()
        try:
            # of versions, which `train_on_worker` checks, and of large tasks
            with warnings.catch_warnings(action="ignore"):
                task = self._pool.submit(train_on_worker, numeric_environment(), packed)
        except Exception:  # of any kind: the scheduler is lost
            future.set_exception(CancelledError())
            return future
        self._submitted.add(task)
        task.add_done_callback(functools.partial(self._forward, future, stack.cost))
        return future

    def _forward(self, future: "Future[Any]", cost: float, task: "Future[Any]") -> None:
        """Set a future to the outcome of its dask task."""
        self._submitted.discard(task)
        try:
            trained = task.result()
        except Exception as error:  # CancelledError among them
            future.set_exception(error)
            return
        self._cost += cost
        future.set_result(trained)

    def capacity(self) -> int:
        return 2 * max(1, self.num_workers())

    def completed_cost(self) -> float:
        return self._cost

    def fatal_error(self, error: BaseException) -> MarginctlError | None:
        from distributed.scheduler import KilledWorker

        if isinstance(error, MismatchError):
            return RequestError(
                f"--scheduler {self.address}: {error}: install the same versions there: "
                f"{RESUME_HINT}"
            )
        if isinstance(error, CancelledError):
            return MarginctlError(f"lost the dask scheduler at {self.address}: {RESUME_HINT}")
        if isinstance(error, KilledWorker):
            return MarginctlError(
                f"workers of {self.address} were repeatedly killed while training one stack, "
                f"perhaps for lack of memory: {RESUME_HINT}"
            )
        if "deserializ" in str(error) or isinstance(error, ModuleNotFoundError):
            return RequestError(
                f"--scheduler {self.address}: its scheduler or a worker cannot load our tasks: "
                f"expected the same versions of marginctl, torch and dask as here: {RESUME_HINT}"
            )
        return None

    def cancel(self) -> None:
        for task in list(self._submitted):
            task.cancel()

    def close(self) -> None:
        """Disconnect from the scheduler, which drops the tasks of this command."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=1.0)


def _resolve_address(address_or_file: str) -> str:
    """Return the scheduler's address, given as such or by its file, once something answers there.

    A client that cannot connect leaves threads that log errors when the program ends, so a plain
    socket tries first.
    """
    from distributed.comm.addressing import get_address_host_port

    path = Path(address_or_file)
    address = json.loads(path.read_text("utf-8"))["address"] if path.is_file() else address_or_file
    host, port = get_address_host_port(address)
    socket.create_connection((host, port), timeout=CONNECT_TIMEOUT).close()
    return str(address)


@contextlib.contextmanager
def open_dask_executor(
    backend: str, scheduler: str | None, workers: int | None, *, needed: bool
) -> Iterator[DaskExecutor | None]:
    """Connect to the cluster that `--backend` and `--scheduler` name; None for local processes.

    Args:
        needed: whether anything is to be trained; if not, no connection is made.

    Raises:
        RequestError: the options contradict each other, or as `DaskExecutor`.
    """
    if backend == "processes" and scheduler is not None:
        raise RequestError(f"--scheduler {scheduler}: requires --backend dask: add it")
    if backend == "dask" and scheduler is None:
        raise RequestError(
            "--backend dask: --scheduler is missing: name the address, such as tcp://host:8786, "
            "or the file of dask scheduler --scheduler-file"
        )
    if backend == "dask" and workers is not None:
        raise RequestError(
            f"--workers {workers}: with --backend dask the cluster's workers train: leave it out"
        )
    if scheduler is None or not needed:
        yield None
        return
    with contextlib.closing(DaskExecutor(scheduler)) as executor:
        yield executor
