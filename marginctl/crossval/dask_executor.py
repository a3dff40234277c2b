"""The workers of a dask cluster as a crew: a stack is a task.

A worker that is killed takes no result along: the scheduler gives its stacks to another one. How
networks are stacked depends on the protocol alone, so the results are those of this machine.
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
from marginctl.crossval.stack import Stack
from marginctl.crossval.worker import reporting_to, stopped_by, train
from marginctl.errors import MarginctlError, RequestError
from marginctl.runs.run_dir import versions

PATIENCE = 10.0  # seconds: a scheduler that is there answers sooner
COUNTED = 2.0  # seconds between two looks at how many workers there are
KEPT = "finished trials are kept: the same command again resumes"


def made_with() -> dict[str, Any]:
    """What a worker must have in common with the process that asks: as trials are told apart."""
    found: dict[str, Any] = {k: v for k, v in versions().items() if k != "python"}
    return found | {"numerics": NUMERICS}


def train_there(asked_with: dict[str, Any], packed: bytes) -> dict[str, Any]:
    """What a worker of the cluster runs.

    Args:
        asked_with: `made_with` of the process that asks.
        packed: the arguments of `train`, which another version could not even read.

    Returns:
        `trained`; or `misfit`, why this worker may not train.
    """
    from distributed import get_worker

    worker = get_worker()
    own = made_with()
    for name, wanted in asked_with.items():
        if own.get(name) != wanted:
            return {"misfit": f"{worker.address} has {name} {own.get(name)}, this is {wanted}"}
    if worker.state.nthreads != 1:
        return {
            "misfit": f"{worker.address} has {worker.state.nthreads} threads, expected 1: start "
            "its workers with --nthreads 1, and as many as there are cores"
        }
    task = worker.state.tasks[worker.get_current_task()]
    # a call that was interrupted, or whose process was killed, wants no more of its stacks
    with stopped_by(lambda: task.state == "cancelled"), reporting_to(lambda cost: None):
        return {"trained": train(*pickle.loads(packed))}


class Cluster:
    """The workers of a dask scheduler.

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
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors are told in one line
        client: Any = distributed.Client
        try:
            where = _answering(address)
            with _quietly(), config.set({"distributed.comm.timeouts.connect": f"{PATIENCE}s"}):
                self._client = client(where, timeout=PATIENCE, set_as_default=False)
        except Exception as error:  # a file or a service of another kind: anything may come
            said = str(error).strip().splitlines()
            raise RequestError(
                f"--scheduler {address}: no dask scheduler answers there "
                f"({said[0] if said else type(error).__name__}): expected its address, such as "
                "tcp://host:8786, or the file of dask scheduler --scheduler-file"
            ) from None
        self._executor = self._client.get_executor(pure=False)
        self._asked: set[Future[Any]] = set()
        self._cost, self._workers, self._counted = 0.0, 0, 0.0

    def workers(self) -> int:
        """How many workers there are now."""
        if time.monotonic() - self._counted > COUNTED:
            with contextlib.suppress(Exception):  # the next result, or none, says what is wrong
                self._workers = len(self._client.nthreads())
            self._counted = time.monotonic()
        return self._workers

    def submit(self, stack: Stack, device: str, keep: frozenset[str]) -> "Future[Any]":
        packed = pickle.dumps((stack, device, keep))
        future: Future[Any] = Future()
        try:
            with _quietly():
                asked = self._executor.submit(train_there, made_with(), packed)
        except Exception as error:
            future.set_exception(_GoneError(str(error)))
            return future
        self._asked.add(asked)
        asked.add_done_callback(functools.partial(self._done, future, stack.cost))
        return future

    def _done(self, future: "Future[Any]", cost: float, asked: "Future[Any]") -> None:
        """Passes the end of a task on, as that of `train`."""
        self._asked.discard(asked)
        try:
            found = asked.result()
        except Exception as error:  # CancelledError among them
            future.set_exception(error)
            return
        if "misfit" in found:
            future.set_exception(_MisfitError(found["misfit"]))
            return
        self._cost += cost
        future.set_result(found["trained"])

    def at_once(self) -> int:
        return 2 * max(1, self.workers())

    def trained(self) -> float:
        return self._cost

    def lost(self, error: BaseException) -> MarginctlError | None:
        from distributed.scheduler import KilledWorker

        if isinstance(error, _MisfitError):
            return RequestError(
                f"--scheduler {self.address}: {error}: install the same there: {KEPT}"
            )
        if isinstance(error, CancelledError | _GoneError):
            return MarginctlError(f"the dask scheduler at {self.address} has gone: {KEPT}")
        if isinstance(error, KilledWorker):
            return MarginctlError(
                f"workers of {self.address} were killed at one stack again and again, perhaps for "
                f"lack of memory: {KEPT}"
            )
        if "deserializ" in str(error) or isinstance(error, ModuleNotFoundError):
            return RequestError(
                f"--scheduler {self.address}: it or a worker cannot read our tasks: expected the "
                f"same marginctl, torch and dask there as here: {KEPT}"
            )
        return None

    def stop(self) -> None:
        for asked in list(self._asked):
            asked.cancel()

    def close(self) -> None:
        """Nothing is left, and the next round of a search may come."""

    def leave(self) -> None:
        """Leaves the scheduler, which drops what this call has asked for."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=1.0)


class _MisfitError(Exception):
    """A worker has other versions."""


class _GoneError(Exception):
    """The scheduler takes no task."""


def _answering(written: str) -> str:
    """The address that is written, or that its file has, once something answers there.

    A client that cannot connect leaves threads that complain when the program ends, so a plain
    socket tries first.
    """
    from distributed.comm.addressing import get_address_host_port

    is_file = Path(written).is_file()
    address = json.loads(Path(written).read_text("utf-8"))["address"] if is_file else written
    host, port = get_address_host_port(address)
    socket.create_connection((host, port), timeout=PATIENCE).close()
    return str(address)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """No warnings of dask's: of versions, which `made_with` compares, and of large tasks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def cluster_for(
    backend: str, scheduler: str | None, workers: int | None, *, needed: bool
) -> Iterator[Cluster | None]:
    """The cluster that `--backend` and `--scheduler` name, connected; None for processes here.

    Args:
        needed: whether anything is to be trained; without it none is asked.

    Raises:
        RequestError: options that do not go together, or as `Cluster`.
    """
    if backend == "processes":
        if scheduler is not None:
            raise RequestError(f"--scheduler {scheduler}: goes with --backend dask: add it")
        yield None
        return
    if scheduler is None:
        raise RequestError(
            "--backend dask: --scheduler is missing: name the address, such as tcp://host:8786, "
            "or the file of dask scheduler --scheduler-file"
        )
    if workers is not None:
        raise RequestError(
            f"--workers {workers}: with --backend dask the scheduler's own do the work: leave it "
            "out"
        )
    if not needed:
        yield None
        return
    cluster = Cluster(scheduler)
    try:
        yield cluster
    finally:
        cluster.leave()
