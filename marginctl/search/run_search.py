"""A call of `uci-cv --search`: its rounds over worker processes, in the run store."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from marginctl.crossval.dask_executor import Cluster
from marginctl.crossval.search_space import LANE_KEYS, Grid, IntArray, Setting
from marginctl.crossval.stack import COST_KEYS, cost_side_by_side, folds_of
from marginctl.errors import MarginctlError, RequestError
from marginctl.experiments.uci_cv_session import Session
from marginctl.experiments.uci_cv_trial import Trial, cost_of, seconds_of
from marginctl.papers import PublishedMean, published_means
from marginctl.reports.tables.search_table import Leaderboard
from marginctl.search.successive_halving import Part, SearchResult, a_setting, run


def published_for(session: Session) -> dict[tuple[str, str], PublishedMean]:
    """The table that the search is to come near.

    Raises:
        RequestError: the recipe has no search, names no table that we hold, or a column or an
            option that the table has not.
    """
    recipe = session.recipe
    if recipe.search is None:
        raise RequestError(
            f"--search: the recipe {session.name} has no section 'search': add one with the "
            "values to try (see marginctl recipes show arcgrad/table1-search)"
        )
    found = published_means(recipe.paper, recipe.table)
    columns = {objective for _, objective in found}
    missing = [o for o in [*recipe.objectives, *recipe.search.options] if o not in columns]
    if not found or missing:
        named = f"'{missing[0]}'" if found else f"paper {recipe.paper}, table {recipe.table}"
        raise RequestError(
            f"--search: nothing published for {named}: expected a table that we hold, such as "
            "paper: arcgrad, table: I, and its columns"
        )
    names = {d.name for d in session.datasets}
    if not any(dataset in names for dataset, _ in found):
        raise RequestError("--search: none of the table's data sets is here: run data fetch uci")
    return {place: cell for place, cell in found.items() if place[1] in recipe.objectives}


def plan(session: Session, workers: int) -> dict[str, Any]:
    """What the search would do, at most, and about how long it would take: for --dry-run.

    Raises:
        RequestError: more settings than can be tried.
    """
    recipe = session.recipe
    assert recipe.search is not None
    grid = Grid(recipe.search, recipe.protocol)
    left = numbers = grid.drawn()
    networks, seconds = 0, 0.0
    ways = a_setting(recipe, session.datasets) // len(session.datasets)
    for stage in recipe.search.rounds:
        for (first, lanes), count in _kinds(grid, left).items():
            protocol = grid.setting(first).repeated(stage.repeats).protocol
            for dataset in session.datasets:
                size = folds_of(dataset, protocol) * protocol.repeats
                networks += count * lanes * ways * size
                seconds += count * ways * cost_side_by_side(dataset, protocol, lanes)
        # each of the selections may keep other settings
        left = left[: 4 * stage.keep]
    return {
        "grid": grid.size,
        "settings": len(numbers),
        "networks": networks,
        "workers": workers,
        "seconds": seconds_of(seconds, workers),
        "folder": str(session.folder),
    }


def _kinds(grid: Grid, numbers: IntArray) -> Counter[tuple[int, int]]:
    """Settings of one cost and in companies of one size: an example and that size, how many."""
    company = grid.index(numbers, exclude=LANE_KEYS)
    _, first, members = np.unique(company, return_index=True, return_counts=True)
    cost = grid.index(numbers[first], include=COST_KEYS)
    examples: dict[int, int] = {}
    for key, number in zip(cost.tolist(), numbers[first].tolist(), strict=True):
        examples.setdefault(key, number)
    pairs = zip(cost.tolist(), members.tolist(), strict=True)
    return Counter((examples[key], lanes) for key, lanes in pairs)


def search(
    session: Session,
    published: Mapping[tuple[str, str], PublishedMean],
    *,
    workers: int,
    board: Leaderboard,
    cluster: Cluster | None = None,
) -> SearchResult:
    """Runs the rounds; what is in the run store is not trained again.

    Raises:
        MarginctlError: a trial failed.
    """

    def train(trials: dict[Trial, Setting], part: Part) -> Mapping[Trial, Mapping[str, Any]]:
        of_round = session.with_trials(list(trials))
        board.begin(part, trials, cost_of(of_round.unfinished()))
        outcome = of_round.execute(workers, board, cluster)
        if outcome.failed:
            raise MarginctlError(*outcome.failed.values())
        return outcome.records

    return run(session.recipe, session.datasets, published, train)
