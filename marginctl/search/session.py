"""A call of `uci-cv --search`: its rounds over worker processes, in the run store."""

from collections.abc import Mapping
from typing import Any

from marginctl.crossval.session import Session
from marginctl.crossval.space import Setting, grid_size, settings_of
from marginctl.crossval.trial import Trial, cost_of, estimated_seconds
from marginctl.errors import MarginctlError, RequestError
from marginctl.papers import Published, table
from marginctl.search.leaderboard import Leaderboard
from marginctl.search.rounds import SearchResult, run, trials_of


def published_for(session: Session) -> dict[tuple[str, str], Published]:
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
    found = table(recipe.paper, recipe.table)
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
    """What the search would do, at most, and about how long it would take: for --dry-run."""
    search = session.recipe.search
    assert search is not None
    settings = settings_of(search, session.recipe.protocol)
    left, networks, seconds = settings, 0, 0.0
    for stage in search.rounds:
        trials = trials_of(
            [s.repeated(stage.repeats) for s in left], session.datasets, session.recipe
        )
        networks += sum(trial.networks for trial in trials)
        seconds += estimated_seconds(trials, workers)
        # each of the selections may keep other settings
        left = left[: 4 * stage.keep]
    return {
        "grid": grid_size(search),
        "settings": len(settings),
        "networks": networks,
        "workers": workers,
        "seconds": seconds,
        "folder": str(session.folder),
    }


def search(
    session: Session,
    published: Mapping[tuple[str, str], Published],
    *,
    workers: int,
    board: Leaderboard,
) -> SearchResult:
    """Runs the rounds; what is in the run store is not trained again.

    Raises:
        MarginctlError: a trial failed.
    """

    def train(trials: dict[Trial, Setting], number: int) -> Mapping[Trial, Mapping[str, Any]]:
        of_round = session.with_trials(list(trials))
        board.begin(number, trials, cost_of(of_round.unfinished()))
        outcome = of_round.execute(workers, board)
        if outcome.failed:
            raise MarginctlError(*outcome.failed.values())
        return outcome.records

    return run(session.recipe, session.datasets, published, train)
