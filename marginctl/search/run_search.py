"""`uci-cv --search`: the published table, the plan, and the rounds over the session's executor."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from marginctl.crossval.dask_executor import DaskExecutor
from marginctl.crossval.search_space import VARIANT_KEYS, Grid, IntArray, Setting
from marginctl.crossval.stack import COST_KEYS, num_folds, variants_cost
from marginctl.errors import MarginctlError, RequestError
from marginctl.experiments.records import CVResult
from marginctl.experiments.uci_cv_execution import Callback
from marginctl.experiments.uci_cv_session import UciCvSession
from marginctl.experiments.uci_cv_trial import CVTrial, cost_seconds, total_cost
from marginctl.papers import PublishedMean, published_means
from marginctl.search.successive_halving import Part, SearchResult, halve, trials_per_setting

# Called with a part of a round, all its trials, and the cost of those that are to be trained.
Begin = Callable[[Part, Mapping[CVTrial, Setting], float], None]


@dataclass(frozen=True)
class SearchPlan:
    """An upper bound of what a search does, and an estimate of its time."""

    grid: int  # settings of the grid
    settings: int  # settings that are tried
    networks: int
    workers: int
    seconds: float
    folder: str


def published_cells(session: UciCvSession) -> dict[tuple[str, str], PublishedMean]:
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
    networks, cost = 0, 0.0
    trials_per_dataset = trials_per_setting(recipe, session.datasets) // len(session.datasets)
    for stage in recipe.search.rounds:
        for (example, variants), count in _count_kinds(grid, remaining).items():
            protocol = grid.setting(example).with_repeats(stage.repeats).protocol
            for dataset in session.datasets:
                size = num_folds(dataset, protocol) * protocol.repeats
                networks += count * variants * trials_per_dataset * size
                cost += count * trials_per_dataset * variants_cost(dataset, protocol, variants)
        # each of the four selections may keep different settings
        remaining = remaining[: 4 * stage.keep]
    seconds = cost_seconds(cost, workers)
    return SearchPlan(grid.size, len(sampled), networks, workers, seconds, str(session.folder))


def _count_kinds(grid: Grid, indices: IntArray) -> Counter[tuple[int, int]]:
    """Count the stackable groups by cost and size: (index of an example, size) -> groups."""
    group = grid.group_ids(indices, exclude=VARIANT_KEYS)
    _, first, sizes = np.unique(group, return_index=True, return_counts=True)
    cost = grid.group_ids(indices[first], include=COST_KEYS)
    examples: dict[int, int] = {}
    for key, index in zip(cost.tolist(), indices[first].tolist(), strict=True):
        examples.setdefault(key, index)
    pairs = zip(cost.tolist(), sizes.tolist(), strict=True)
    return Counter((examples[key], variants) for key, variants in pairs)


def search(
    session: UciCvSession,
    published: Mapping[tuple[str, str], PublishedMean],
    *,
    workers: int,
    callback: Callback,
    begin: Begin,
    cluster: DaskExecutor | None = None,
) -> SearchResult:
    """Run the rounds of a search; trials with a result are not trained again."""

    def train(trials: dict[CVTrial, Setting], part: Part) -> Mapping[CVTrial, CVResult]:
        part_session = replace(session, trials=list(trials))
        begin(part, trials, total_cost(part_session.unfinished()))
        outcome = part_session.run(workers, callback, cluster)
        if outcome.failed:
            raise MarginctlError(*outcome.failed.values())
        return outcome.results

    return halve(session.recipe, session.datasets, published, train)
