"""`uci-cv --search`: its plan, and successive halving with selections scored on held-out data sets.

Each round trains every remaining setting with the round's number of repeats, and keeps those
nearest to the published table. A selection that is scored on held-out data sets must not have
seen them in any round. So each selection (on all data sets, and on two thirds of them, in turn)
keeps its own settings, and a round trains the settings of all selections.
"""

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from marginctl.crossval.dask_executor import DaskExecutor
from marginctl.crossval.executors import ProcessExecutor
from marginctl.crossval.search_space import STACK_KEYS, Grid, Setting, column_alternatives
from marginctl.crossval.stack import (
    COST_KEYS,
    group_stackable,
    max_variants,
    num_folds,
    variants_cost,
)
from marginctl.data.tabular.dataset import TabularDataset
from marginctl.errors import MarginctlError, RequestError
from marginctl.experiments.records import CVResult
from marginctl.experiments.uci_cv_execution import Callback
from marginctl.experiments.uci_cv_session import UciCvSession
from marginctl.experiments.uci_cv_trial import CVTrial, cost_seconds, total_cost
from marginctl.metrics.arrays import IntArray
from marginctl.objectives.parsing import ParsedObjective
from marginctl.papers import PublishedMean, published_means
from marginctl.recipe.uci_cv import UciCvRecipe
from marginctl.runs.run_dir import SAVE_SECONDS
from marginctl.search.distance import Cells, Distance, distance
from marginctl.utils.seed import generator

PARTS = 3  # of the data sets: a setting is selected on two and scored on the third
ALL = "all"
TRIALS_PER_PART = 10_000  # of a round: small enough for memory, large enough to fill the workers
MAX_LISTED = 1000  # settings of the last round in the result


@dataclass(frozen=True)
class Match:
    """A setting compared with the published table."""

    setting: Setting
    objectives: Mapping[str, str]  # column -> the alternative objective that is nearest
    distance: Distance
    cells: Cells  # the columns' cells, with these objectives
    measured: Cells  # the cells of every alternative

    def sort_key(self, criterion: str) -> tuple[float, int]:
        """Return the distance to sort by, and the setting's number to break ties."""
        distances = {
            "points": self.distance.mean_absolute,
            "effects": self.distance.effects_mean_absolute,
            "stds": self.distance.std_mean_absolute,
        }
        return distances[criterion], self.setting.number

    def as_json(self) -> dict[str, Any]:
        return {
            "setting": self.setting.number,
            "protocol": self.setting.changed,
            "repeats": self.setting.protocol.repeats,
            "objectives": dict(self.objectives),
            "distance": asdict(self.distance),
        }


def match(
    setting: Setting,
    measured: Cells,
    alternatives: Mapping[str, Sequence[ParsedObjective]],
    published: Cells,
    selected_on: Sequence[str],
    scored_on: Sequence[str] | None = None,
) -> Match:
    """Compare a setting with the published table, each column by its nearest alternative.

    Args:
        measured: the setting's cells, for every alternative objective of every column.
        selected_on: the data sets on which the nearest alternatives are selected.
        scored_on: the data sets of the distance; None for the same.
    """
    nearest: dict[str, str] = {}
    for column, objectives in alternatives.items():
        mean_errors = {}
        for name in map(str, objectives):
            errors = [
                abs(measured[d, name].mean - published[d, column].mean)
                for d in selected_on
                if (d, column) in published and (d, name) in measured
            ]
            mean_errors[name] = statistics.fmean(errors) if errors else 0.0
        nearest[column] = min(mean_errors, key=mean_errors.__getitem__)
    scored_on = scored_on or selected_on
    cells = {
        (d, column): measured[d, name]
        for column, name in nearest.items()
        for d in scored_on
        if (d, name) in measured
    }
    return Match(setting, nearest, distance(cells, published, scored_on), cells, measured)


def selections(names: Sequence[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Return, for each selection, the data sets it selects on and those it is scored on.

    `all` selects and scores on all data sets; with three or more, every third of them (in the
    order of their names) is held out in turn.
    """
    result = {ALL: (list(names), list(names))}
    ordered = sorted(names)
    for i in range(PARTS if len(ordered) >= PARTS else 0):
        held_out = ordered[i::PARTS]
        result[f"part {i + 1}"] = ([n for n in ordered if n not in held_out], held_out)
    return result


@dataclass
class SearchResult:
    rounds: list[dict[str, int]]
    matches: list[Match]  # the settings of the last round, nearest first
    # for each part of the data sets, the setting selected on the other parts, with its distance on
    # this part
    held_out: list[tuple[list[str], Match]]
    networks: int


def round_trials(
    settings: Sequence[Setting], datasets: Sequence[TabularDataset], recipe: UciCvRecipe
) -> dict[CVTrial, Setting]:
    """Return the trials of a round; settings that differ in `VARIANT_KEYS` share their stacks.

    Stacks depend on the round's settings alone, not on the trials that remain after a kill.
    """
    objectives = [o for column in column_alternatives(recipe).values() for o in column]
    trials = {}
    groups = group_stackable([s.protocol for s in settings])
    # in no order, so that those already trained tell how long the others will take
    generator(0, "order of a search").shuffle(groups)
    for group in groups:
        for dataset in datasets:
            size = max_variants(dataset, settings[group[0]].protocol)
            for first in range(0, len(group), size):
                stacked = [settings[i] for i in group[first : first + size]]
                batched_with = tuple(s.protocol for s in stacked) if len(stacked) > 1 else ()
                columns = itertools.product(dict.fromkeys(objectives), recipe.seeds, stacked)
                for objective, seed, setting in columns:
                    protocol = setting.protocol
                    trial = CVTrial(dataset, objective, protocol, seed, None, batched_with)
                    trials[trial] = setting
    return trials


class RoundPart(NamedTuple):
    """The numbers of a round and of its part, and how many parts the round has."""

    round: int
    part: int
    parts: int


Train = Callable[[dict[CVTrial, Setting], RoundPart], Mapping[CVTrial, CVResult]]


def halve(
    recipe: UciCvRecipe, datasets: Sequence[TabularDataset], published: Cells, train: Train
) -> SearchResult:
    """Run all rounds, each in parts, and keep in memory only the nearest of millions of trials."""
    assert recipe.search is not None
    criterion = recipe.search.nearest_by
    grid = Grid(recipe.search, recipe.protocol)
    alternatives, splits = column_alternatives(recipe), selections([d.name for d in datasets])
    remaining, rounds, networks = grid.sample(), [], 0
    selected: dict[str, set[int]] | None = None  # setting numbers of each selection; None: all
    for number, stage in enumerate(recipe.search.rounds, 1):
        ranked: dict[str, list[Match]] = {key: [] for key in splits}
        parts = split_round(grid, remaining, trials_per_setting(recipe, datasets))
        for i, part in enumerate(parts, 1):
            settings = [grid.setting(n).with_repeats(stage.repeats) for n in part.tolist()]
            trials = round_trials(settings, datasets, recipe)
            measured = evaluate(trials, train(trials, RoundPart(number, i, len(parts))))
            networks += sum(trial.networks for trial in trials)
            for key, (selected_on, _) in splits.items():
                matches = ranked[key] + [
                    match(s, measured[s.number], alternatives, published, selected_on)
                    for s in settings
                    if selected is None or s.number in selected[key]
                ]
                matches.sort(key=lambda m: m.sort_key(criterion))
                ranked[key] = matches[: max(stage.keep, MAX_LISTED)]
        rounds.append({"repeats": stage.repeats, "settings": len(remaining)})
        selected = {
            key: {m.setting.number for m in matches[: stage.keep]}
            for key, matches in ranked.items()
        }
        remaining = np.array(sorted(set().union(*selected.values()))) - 1
    held_out = []
    for key, (selected_on, scored_on) in splits.items():
        if key != ALL:
            best = ranked[key][0]
            names = (selected_on, scored_on)
            scored = match(best.setting, best.measured, alternatives, published, *names)
            held_out.append((scored_on, scored))
    return SearchResult(rounds, ranked[ALL], held_out, networks)


def trials_per_setting(recipe: UciCvRecipe, datasets: Sequence[TabularDataset]) -> int:
    objectives = {o for column in column_alternatives(recipe).values() for o in column}
    return len(datasets) * len(objectives) * len(recipe.seeds)


def split_round(grid: Grid, indices: IntArray, trials_each: int) -> list[IntArray]:
    """Split a round's settings into parts of about `TRIALS_PER_PART` trials, by whole stacks."""
    parts: list[list[IntArray]] = []
    room = 0
    for group in grid.stackable_groups(indices):
        if room <= 0:
            parts.append([])
            room = TRIALS_PER_PART
        parts[-1].append(group)
        room -= len(group) * trials_each
    return [np.concatenate(part) for part in parts]


def evaluate(
    trials: Mapping[CVTrial, Setting], records: Mapping[CVTrial, CVResult]
) -> dict[int, Cells]:
    """Return the cells of each setting, by its number, over all seeds."""
    accuracies: dict[int, dict[tuple[str, str], list[float]]] = {}
    for trial, setting in trials.items():
        cells = accuracies.setdefault(setting.number, {})
        values = cells.setdefault((trial.dataset.name, str(trial.objective)), [])
        values += [a for repeat in records[trial].accuracies for a in repeat]
    return {
        number: {
            key: PublishedMean(statistics.fmean(a), statistics.stdev(a), len(a))
            for key, a in cells.items()
        }
        for number, cells in accuracies.items()
    }


# Called with a part of a round, all its trials, and the cost of those that are to be trained.
Begin = Callable[[RoundPart, Mapping[CVTrial, Setting], float], None]


@dataclass(frozen=True)
class SearchPlan:
    """An upper bound of what a search does, and an estimate of its time."""

    grid: int  # settings of the grid
    settings: int  # settings that are tried
    networks: int
    workers: int
    seconds: float
    folder: str
    costs: Sequence[float]  # of the rounds, as `Stack.cost`


def published_cells(session: UciCvSession) -> Cells:
    """Return the published cells that the search compares with, by data set and column."""
    recipe = session.recipe
    if recipe.search is None:
        raise RequestError(
            f"--search: the recipe {session.name} has no section 'search': add one with the "
            "values to try (see marginctl recipes show arcgrad/table1-search)"
        )
    published = published_means(recipe.paper, recipe.table)
    columns = {objective for _, objective in published}
    requested = [str(objective) for objective in recipe.objectives]
    missing = [o for o in [*requested, *recipe.search.options] if o not in columns]
    if not published or missing:
        name = f"'{missing[0]}'" if published else f"paper {recipe.paper}, table {recipe.table}"
        raise RequestError(
            f"--search: no published values for {name}: expected an available table, such as "
            "paper: arcgrad, table: I, and its columns"
        )
    names = {d.name for d in session.datasets}
    if not any(dataset in names for dataset, _ in published):
        raise RequestError(
            "--search: none of the table's data sets is available: run marginctl data fetch uci"
        )
    return {key: cell for key, cell in published.items() if key[1] in requested}


def plan(session: UciCvSession, workers: int) -> SearchPlan:
    """Return what the search would do at most, for --dry-run."""
    recipe = session.recipe
    assert recipe.search is not None
    grid = Grid(recipe.search, recipe.protocol)
    remaining = sampled = grid.sample()
    networks, costs = 0, []
    selected = len(selections([d.name for d in session.datasets]))
    trials_per_dataset = trials_per_setting(recipe, session.datasets) // len(session.datasets)
    for stage in recipe.search.rounds:
        cost = 0.0
        for (example, variants), count in _count_kinds(grid, remaining).items():
            protocol = grid.setting(example).with_repeats(stage.repeats).protocol
            for dataset in session.datasets:
                size = num_folds(dataset, protocol) * protocol.repeats
                networks += count * variants * trials_per_dataset * size
                stacks = variants_cost(dataset, recipe.objectives[0], protocol, variants)
                cost += count * trials_per_dataset * stacks
                cost += SAVE_SECONDS * count * variants * trials_per_dataset
        costs.append(cost)
        most = selected * stage.keep  # each selection may keep different settings
        remaining = remaining[:: max(1, len(remaining) // most)][:most]  # from the whole grid
    seconds, folder = cost_seconds(sum(costs), workers), str(session.folder)
    return SearchPlan(grid.size, len(sampled), networks, workers, seconds, folder, costs)


def _count_kinds(grid: Grid, indices: IntArray) -> Counter[tuple[int, int]]:
    """Count the stackable groups by cost and size: (index of an example, size) -> groups."""
    group = grid.group_ids(indices, STACK_KEYS)
    _, first, sizes = np.unique(group, return_index=True, return_counts=True)
    cost = grid.group_ids(indices[first], COST_KEYS)
    examples: dict[int, int] = {}
    for key, index in zip(cost.tolist(), indices[first].tolist(), strict=True):
        examples.setdefault(key, index)
    pairs = zip(cost.tolist(), sizes.tolist(), strict=True)
    return Counter((examples[key], variants) for key, variants in pairs)


def search(
    session: UciCvSession,
    published: Cells,
    *,
    workers: int,
    callback: Callback,
    begin: Begin,
    cluster: DaskExecutor | None = None,
) -> SearchResult:
    """Run the rounds of a search; trials with a result are not trained again."""

    def train(trials: dict[CVTrial, Setting], part: RoundPart) -> Mapping[CVTrial, CVResult]:
        part_session = replace(session, trials=list(trials))
        begin(part, trials, total_cost(part_session.unfinished()))
        outcome = part_session.run(workers, callback, cluster or pool)
        if outcome.failed:
            raise MarginctlError(*outcome.failed.values())
        return outcome.results

    # the rounds share their workers, which take seconds to start
    pool = ProcessExecutor(workers) if cluster is None and workers > 1 else None
    try:
        return halve(session.recipe, session.datasets, published, train)
    finally:
        if pool is not None:
            pool.shutdown()
