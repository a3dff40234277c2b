"""Benchmark `uci-cv`: the stacked engine against scikit-learn and a loop over networks."""

import itertools
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from pydantic import Field
from threadpoolctl import threadpool_limits

from marginctl.bench import timing
from marginctl.crossval.executors import ProcessExecutor
from marginctl.crossval.reference_trainer import train_network
from marginctl.crossval.stack import Stack, build_stacks
from marginctl.data.paths import default_data_dir
from marginctl.data.tabular.dataset import TabularDataset
from marginctl.data.tabular.uci import load_uci
from marginctl.errors import RequestError
from marginctl.objectives.parsing import parse_preset
from marginctl.recipe.uci_cv import Protocol
from marginctl.utils.device import torch_threads, usable_cores

OURS = "marginctl"
LOOP_NETWORKS = 10  # the loop is timed on this many networks, and its time scaled up


class UciCvSettings(timing.Settings):
    rounds: timing.Count = 3
    datasets: list[str] = Field(default=["iris", "banknote-authentication"])
    epochs: timing.Count = 100
    repeats: timing.Count = 10  # of 10 folds


SETTINGS = UciCvSettings
SUITE = {"epochs": 10}
QUICK = {"rounds": 1, "datasets": ["iris"], "epochs": 3}


def run(settings: UciCvSettings, context: timing.Context) -> timing.Result:
    """Time the training of the same networks by each side, on each data set.

    Every side trains networks of two hidden layers of 64 with Adam and batches of 32. The first
    round tries each setting of threads and jobs; the others repeat each side's best setting.
    """
    result = timing.Result("uci-cv", settings.model_dump(), "cpu")
    cores = usable_cores()
    counts = [1, cores] if cores > 1 else [1]
    protocol = Protocol(hidden=[64, 64], epochs=settings.epochs, repeats=settings.repeats)
    pools = {count: ProcessExecutor(count) for count in counts}
    by_side: dict[str, list[float]] = {}
    try:
        for dataset in load_datasets(settings.datasets, context, result):
            name = dataset.name
            seconds = _time_dataset(dataset, protocol, pools, settings.rounds, context)
            result.add(f"{OURS}, {name}", seconds[OURS], "s", spread=timing.full_range)
            for side in [side for side in seconds if side != OURS]:
                times = timing.ratios(seconds, side, OURS)
                spread = result.add(f"{side}, {name}", times, "x", OURS, spread=timing.full_range)
                by_side.setdefault(side, []).append(spread.median)
    finally:
        for pool in pools.values():
            pool.shutdown()
    if not result.measurements:
        raise RequestError(*(skipped.reason for skipped in result.skipped))
    for side, medians in by_side.items():
        if len(medians) > 1:
            result.add(f"{side}, geometric mean", medians, "x", OURS, spread=_geometric_mean)
    return result


def load_datasets(
    names: Iterable[str], context: timing.Context, result: timing.Result, title: str = "{}"
) -> Iterator[TabularDataset]:
    """Yield UCI data sets; those without data are skipped, by the title with their name."""
    for name in names:
        try:
            yield load_uci(name, context.data_dir or default_data_dir())
        except RequestError as error:
            result.skipped.append(timing.Skipped(title.format(name), error.lines[0]))


def _geometric_mean(values: Sequence[float]) -> timing.Spread:
    return replace(timing.full_range(values), median=statistics.geometric_mean(values))


def _time_dataset(
    dataset: TabularDataset,
    protocol: Protocol,
    pools: dict[int, ProcessExecutor],
    rounds: int,
    context: timing.Context,
) -> dict[str, list[float]]:
    """Return the seconds of each side with its best setting, by round."""
    short = protocol.model_copy(update={"epochs": 1})
    stacks = build_stacks(dataset, parse_preset("soft"), protocol, seed=0)
    networks = protocol.folds * protocol.repeats
    sides: dict[str, dict[str, Callable[[], object]]] = {
        OURS: {f"{n} processes": partial(_train_stacks, stacks, pools[n]) for n in pools},
        "scikit-learn": {
            f"{jobs} jobs, {threads} threads": partial(
                _train_sklearn, dataset, protocol, jobs, threads
            )
            for jobs, threads in itertools.product(pools, pools)
            if jobs * threads <= usable_cores()
        },
        "torch loop": {f"{n} threads": partial(_train_loop, stacks[0], n) for n in pools},
    }
    scale = {"torch loop": networks / min(LOOP_NETWORKS, len(stacks[0].networks))}
    for count, pool in pools.items():  # so that no side's start-up is timed
        _train_stacks(build_stacks(dataset, parse_preset("soft"), short, seed=0), pool)
        _train_sklearn(dataset, short, count, 1)
    seconds, best = {}, {}
    for side, settings in sides.items():
        first = timing.interleave(settings, 1, warm_up=0)
        setting = min(first, key=lambda s: first[s][0])
        seconds[side], best[side] = first[setting], settings[setting]
        context.report(f"{dataset.name}, {side}: {setting}, {first[setting][0]:.2f} s")
    more = timing.interleave(best, rounds - 1, warm_up=0, report=context.report)
    return {
        side: [scale.get(side, 1.0) * s for s in seconds[side] + more[side]] for side in seconds
    }


def _train_stacks(stacks: list[Stack], pool: ProcessExecutor) -> None:
    for future in [pool.submit(stack, "cpu", frozenset()) for stack in stacks]:
        future.result()


def _train_sklearn(dataset: TabularDataset, protocol: Protocol, jobs: int, threads: int) -> None:
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
    with warnings.catch_warnings(), torch_threads(threads), threadpool_limits(threads):
        warnings.simplefilter("ignore")  # that the maximum of iterations was reached is intended
        cross_val_score(pipeline, dataset.x.astype(np.float32), dataset.y, cv=folds, n_jobs=jobs)


def _train_loop(stack: Stack, threads: int) -> None:
    with torch_threads(threads), threadpool_limits(threads):
        for split in stack.networks[:LOOP_NETWORKS]:
            train_network(stack, split)
