"""What a search shows: while it runs, and at its end."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table

from marginctl.console.progress import LOG_EVERY, SILENT_AT_MOST, Display
from marginctl.crossval.search_space import Setting, variants_of
from marginctl.experiments.uci_cv_trial import Trial
from marginctl.papers import PublishedMean
from marginctl.recipe import Recipe
from marginctl.reports.formats.text_table import print_rows
from marginctl.search.distance import Distance, distance, row_medians
from marginctl.search.successive_halving import Match, Part, SearchResult, gather, match

SHOWN = 10
SHOWN_AS = {"points": "points", "effects": "points of effect", "stds": "points of deviation"}


class Leaderboard(Display):
    """Shows the nearest settings so far, and about how long a round takes.

    Hears of trials as `execute`'s listener. A setting enters the board when all its trials are in.

    Args:
        recipe: with the search.
        published: the table to come near.
        quiet: whether to leave out all but messages.
    """

    def __init__(
        self, recipe: Recipe, published: Mapping[tuple[str, str], PublishedMean], *, quiet: bool
    ) -> None:
        super().__init__(shown=not quiet)
        self._published, self._quiet = published, quiet
        assert recipe.search is not None
        self._by, self._variants = recipe.search.nearest_by, variants_of(recipe)
        self._said = time.monotonic()
        self._title = ""
        self._trials: Mapping[Trial, Setting] = {}
        self._by_id: dict[str, Trial] = {}
        self._records: dict[Trial, Mapping[str, Any]] = {}
        self._left: dict[int, int] = {}
        self._matches: list[Match] = []
        self._tried, self._done, self._total, self._cost = 0, 0, 0.0, 0.0
        self._started = time.monotonic()

    def begin(self, part: Part, trials: Mapping[Trial, Setting], cost: float) -> None:
        """A part of a round begins.

        Args:
            trials: all of the part.
            cost: of those that are to be trained.
        """
        self._by_id = {trial.id: trial for trial in trials}
        self._trials = trials
        self._records, self._left = {}, {}
        for setting in trials.values():
            self._left[setting.number] = self._left.get(setting.number, 0) + 1
        repeats = next(iter(trials.values())).protocol.repeats
        number = f"round {part.round}"
        if part.parts > 1:
            number += f", part {part.part} of {part.parts}"
        self._title = f"{number}: {len(self._left)} settings at {repeats} repeats"
        if part.part == 1:
            self._matches = []
        self._tried, self._done, self._total, self._cost = 0, 0, cost, 0.0
        self._started = time.monotonic()
        if not self._quiet:
            self.message(f"{self._title}: {len(trials)} trials")

    def done(self, record: dict[str, Any], *, reused: bool) -> None:
        """A trial is done."""
        trial = self._by_id[record["trial"]]
        self._records[trial] = record
        self._done += 1
        setting = self._trials[trial]
        self._left[setting.number] -= 1
        if self._left[setting.number]:
            return
        own = {t: s for t, s in self._trials.items() if s.number == setting.number}
        datasets = list(dict.fromkeys(t.dataset.name for t in own))
        found = match(
            gather(own, self._records)[setting.number], self._variants, self._published, datasets
        )
        self._tried += 1
        self._matches = sorted([*self._matches, found], key=lambda m: m.away(self._by))[:SHOWN]
        now = time.monotonic()
        if not (reused or self._quiet or self._live) and now - self._said > LOG_EVERY:
            self._said = now
            best = self._matches[0]
            self.message(
                f"{self._tried}/{len(self._left)} settings, {self._time_left()}; nearest: "
                f"{best.away(self._by)[0]:.2f} {SHOWN_AS[self._by]} with {best.setting}"
            )

    def progress(self, cost: float) -> None:
        self._cost = cost
        now = time.monotonic()
        if not (self._live or self._quiet) and now - self._said > SILENT_AT_MOST:
            self._said = now
            share = cost / self._total if self._total else 1.0
            self.message(f"{share:.0%} of the round trained, {self._time_left()}")

    def _time_left(self) -> str:
        gone = time.monotonic() - self._started
        if self._cost <= 0 or self._cost >= self._total:
            return f"{gone / 60:.1f} min gone"
        left = gone / self._cost * (self._total - self._cost)
        return f"{gone / 60:.1f} min gone, about {left / 60:.1f} left"

    def _render(self) -> Group:
        table = Table(box=box.SIMPLE_HEAD, title=self._title, pad_edge=False)
        for column in ("nearest settings", "points", "effects", "stds"):
            table.add_column(column, justify="left" if column[0] == "n" else "right")
        for found in self._matches:
            d = found.distance
            numbers = (d.mean_absolute, d.effects_mean_absolute, d.std_mean_absolute)
            table.add_row(str(found.setting), *(f"{number:.2f}" for number in numbers))
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=max(self._total, 1.0), completed=self._cost, width=30),
            f"{self._done}/{len(self._by_id)} trials",
            self._time_left(),
        )
        return Group(table, bar)


def comparisons(
    published: Mapping[tuple[str, str], PublishedMean], datasets: Sequence[str]
) -> dict[str, Distance]:
    """What the distances are to be read beside: a table that knows nothing of the methods."""
    of_rows = {place: cell for place, cell in published.items() if place[0] in datasets}
    return {"each row at its own median": distance(row_medians(of_rows), of_rows)}


def as_json(
    recipe: Recipe,
    result: SearchResult,
    published: Mapping[tuple[str, str], PublishedMean],
    datasets: Sequence[str],
    skipped: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """The document that --json prints."""
    beside = comparisons(published, datasets)
    return {
        "schema": 1,
        "command": "uci-cv --search",
        "protocol": recipe.protocol.model_dump(),
        "search": recipe.search.model_dump() if recipe.search else None,
        "rounds": result.rounds,
        "networks": result.trained,
        "leaderboard": [found.as_json() for found in result.matches],
        "residuals": _residuals(result.matches[0], published),
        "held_out": [{"datasets": held, **found.as_json()} for held, found in result.held_out],
        "held_out_mean": _held_out_mean(result),
        "compared_with": {name: d.as_json() for name, d in beside.items()},
        "skipped": [{"dataset": d, "reason": r} for d, r in skipped],
    }


def _residuals(
    found: Match, published: Mapping[tuple[str, str], PublishedMean]
) -> list[dict[str, Any]]:
    """The nearest setting cell by cell: what is left, to suggest the next space."""
    return [
        {
            "dataset": dataset,
            "objective": objective,
            "mean": round(cell.mean, 3),
            "std": round(cell.std, 3),
            "n": cell.n,
            "difference": round(cell.mean - published[dataset, objective].mean, 3),
        }
        for (dataset, objective), cell in sorted(found.cells.items())
        if (dataset, objective) in published
    ]


def _held_out_mean(result: SearchResult) -> dict[str, float] | None:
    """Of all held-out cells together: points, and effects."""
    if not result.held_out:
        return None
    cells = sum(found.distance.cells for _, found in result.held_out)
    return {
        key: sum(getattr(f.distance, key) * f.distance.cells for _, f in result.held_out) / cells
        for key in ("mean_absolute", "effects_mean_absolute", "std_mean_absolute")
    }


def print_result(
    recipe: Recipe,
    result: SearchResult,
    published: Mapping[tuple[str, str], PublishedMean],
    datasets: Sequence[str],
) -> None:
    """Prints the settings of the last round, the held-out score, and what to read them beside."""
    rows = [{**_row(found.distance), "setting": str(found.setting)} for found in result.matches]
    for name, d in comparisons(published, datasets).items():
        rows.append({**_row(d), "stds": "", "setting": f"({name})"})  # the paper's own stds
    columns = ["points", "rms", "z", "effects", "stds", "rank corr.", "same best", "setting"]
    print_rows(rows, columns)
    best = result.matches[0]
    ways = {c: n for c, n in best.objectives.items() if c != n}
    if ways:
        print("nearest: " + ", ".join(f"{c} as {n}" for c, n in ways.items()))
    mean = _held_out_mean(result)
    if mean is not None:
        for held, found in result.held_out:
            print(
                f"held out {', '.join(held)}: {found.distance.mean_absolute:.2f} points, effects "
                f"{found.distance.effects_mean_absolute:.2f}; chosen on the others: {found.setting}"
            )
        print(
            f"held out in all: {mean['mean_absolute']:.2f} points, effects "
            f"{mean['effects_mean_absolute']:.2f}"
        )
    noise = best.distance.noise
    print(
        f"{result.trained} networks; two runs of one protocol differ by about {noise:.2f} points. "
        "points: mean absolute difference of the cells; effects: the same of each cell less its "
        "row's median"
    )


def _row(d: Distance) -> dict[str, str]:
    return {
        "points": f"{d.mean_absolute:.2f}",
        "rms": f"{d.rms:.2f}",
        "z": f"{d.mean_absolute_z:.2f}",
        "effects": f"{d.effects_mean_absolute:.2f}",
        "stds": f"{d.std_mean_absolute:.2f}",
        "rank corr.": "" if d.rank_correlation is None else f"{d.rank_correlation:.2f}",
        "same best": f"{d.best_agree:.1f}",
    }
