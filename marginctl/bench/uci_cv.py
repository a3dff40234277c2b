"""`marginctl bench uci-cv`: the stacked engine against scikit-learn and a loop over networks."""

import contextlib
import itertools
import math
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from marginctl.crossval.executors import ProcessExecutor
from marginctl.crossval.reference_trainer import train_network
from marginctl.crossval.stack import Stack, build_stacks
from marginctl.data.tabular.dataset import TabularDataset
from marginctl.data.tabular.uci import default_data_dir, load_uci
from marginctl.objectives.parsing import parse
from marginctl.recipe import Protocol
from marginctl.runs.run_dir import versions
from marginctl.utils.device import usable_cores

LOOP_NETWORKS = 10  # the loop is timed on this many networks, and its time scaled up


def protocol(epochs: int) -> Protocol:
    """Equal work for every side: two hidden layers of 64, Adam, batches of 32, 10x10 folds."""
    return Protocol(hidden=[64, 64], epochs=epochs)


@contextlib.contextmanager
def _threads(number: int) -> Iterator[None]:
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        with threadpool_limits(number):
            yield
    finally:
        torch.set_num_threads(before)


def _ours(cut: list[Stack], pool: ProcessExecutor) -> float:
    started = time.perf_counter()
    for future in [pool.submit(stack, "cpu") for stack in cut]:
        future.result()
    return time.perf_counter() - started


def _sklearn(dataset: TabularDataset, protocol: Protocol, jobs: int, threads: int) -> float:
    from sklearn.model_selection import RepeatedKFold, cross_val_score
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPClassifier(
        tuple(protocol.hidden),
        batch_size=protocol.batch_size,
        learning_rate_init=protocol.lr,
        alpha=protocol.weight_decay,
        max_iter=protocol.epochs,
        n_iter_no_change=protocol.epochs + 1,
        tol=0,
        random_state=0,
    )
    folds = RepeatedKFold(n_splits=protocol.folds, n_repeats=protocol.repeats, random_state=0)
    pipeline = make_pipeline(StandardScaler(), network)
    x = dataset.x.astype(np.float32)
    with warnings.catch_warnings(), _threads(threads):
        warnings.simplefilter("ignore")  # "maximum iterations reached", which is meant here
        started = time.perf_counter()
        cross_val_score(pipeline, x, dataset.y, cv=folds, n_jobs=jobs)
        return time.perf_counter() - started


def _loop(stack: Stack, networks: int, threads: int) -> float:
    with _threads(threads):
        started = time.perf_counter()
        for rows in stack.networks[:LOOP_NETWORKS]:
            train_network(stack, rows)
        return (time.perf_counter() - started) * networks / min(LOOP_NETWORKS, len(stack.networks))


def run(
    names: Iterable[str],
    *,
    data_dir: Path | None,
    rounds: int,
    epochs: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Times every side on each data set.

    The first round tries each setting of threads and jobs; the others repeat each side's best,
    one side after the other, so that a ratio is taken within one round.

    Args:
        names: data sets.
        data_dir: None for the default one.
        rounds: at least 1.
        epochs: 100 for the published figures.
        say: hears of each time as it is measured.

    Returns:
        A JSON document: seconds of each side and setting, and the ratios of each round.

    Raises:
        RequestError: a data set that is not there.
    """
    cores = usable_cores()
    many = [1, cores] if cores > 1 else [1]
    shape = protocol(epochs)
    networks = shape.folds * shape.repeats
    rows: list[dict[str, Any]] = []
    pools = {count: ProcessExecutor(count) for count in many}
    try:
        for name in names:
            dataset = load_uci(name, data_dir or default_data_dir())
            cut = build_stacks(dataset, parse("soft"), shape, seed=0)
            short = build_stacks(dataset, parse("soft"), protocol(1), seed=0)
            sides: dict[str, dict[str, Callable[[], float]]] = {
                "marginctl": {f"{n} processes": partial(_ours, cut, pools[n]) for n in many},
                "scikit-learn": {
                    f"{jobs} jobs, {threads} threads": partial(
                        _sklearn, dataset, shape, jobs, threads
                    )
                    for jobs, threads in itertools.product(many, many)
                    if jobs * threads <= cores
                },
                "torch loop": {f"{n} threads": partial(_loop, cut[0], networks, n) for n in many},
            }
            for pool in pools.values():  # start-up is nobody's training time
                _ours(short, pool)
            for count in many:
                _sklearn(dataset, protocol(1), count, 1)
            times: dict[str, dict[str, list[float]]] = {s: {} for s in sides}
            for _ in range(rounds):
                for side, settings in sides.items():
                    tried = times[side]
                    best = [min(tried, key=lambda s: tried[s][0])] if tried else list(settings)
                    for setting in best:
                        seconds = settings[setting]()
                        tried.setdefault(setting, []).append(seconds)
                        say(f"{name}: {side}, {setting}: {seconds:.2f} s")
            best_times = {side: min(t.values(), key=lambda v: v[0]) for side, t in times.items()}
            ratios = {
                side: [b / a for a, b in zip(best_times["marginctl"], t, strict=True)]
                for side, t in best_times.items()
                if side != "marginctl"
            }
            rows.append({"dataset": name, "seconds": times, "ratios": ratios})
    finally:
        for pool in pools.values():
            pool.shutdown()
    sides_compared = rows[0]["ratios"] if rows else {}
    return {
        "schema": 1,
        "command": "bench uci-cv",
        "protocol": shape.model_dump(),
        "networks": networks,
        "rounds": rounds,
        "torch_loop_networks": LOOP_NETWORKS,
        "datasets": rows,
        "geometric_mean_ratio": {
            side: math.exp(
                statistics.fmean(math.log(statistics.median(r["ratios"][side])) for r in rows)
            )
            for side in sides_compared
        },
        "machine": {"cores": cores, "architecture": platform.machine()},
        "versions": versions(),
    }
