"""Compares the cells of a grid: methods with a baseline, and ours with the published values."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from marginctl.errors import RequestError
from marginctl.experiments.records import CVResult
from marginctl.objectives.parsing import parse
from marginctl.results import statistics as tests
from marginctl.results.cv_cells import Grid
from marginctl.results.statistics import Test
from marginctl.utils.text import did_you_mean

SIGNIFICANT = 0.05
Place = tuple[str, str]  # data set, objective


@dataclass(frozen=True)
class Comparison:
    """One method against the baseline: on one data set, or (`dataset` None) over all of them.

    Attributes:
        difference: in points, the method's mean less the baseline's; over data sets, the median.
        wins, ties, losses: of the folds; over data sets, of the means on each. A tie is equal but
            for the rounding of floats, not what is shown as equal.
        mean: of the differences over data sets, in points.
        interval: its 95 % percentile interval over 10,000 draws of the data sets, None for fewer
            than two.
    """

    dataset: str | None
    objective: str
    difference: float | None
    test: Test
    p_holm: float | None
    wins: int = 0
    ties: int = 0
    losses: int = 0
    mean: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def direction(self) -> int:
        """1 significantly better, -1 significantly worse, else 0."""
        if self.p_holm is None or self.p_holm >= SIGNIFICANT:
            return 0
        return 1 if (self.difference or 0) > 0 else -1


@dataclass(frozen=True)
class Comparisons:
    """All comparisons of a grid."""

    baseline: str
    cells: dict[Place, Comparison] = field(default_factory=dict)
    overall: list[Comparison] = field(default_factory=list)
    ranks: dict[str, float] = field(default_factory=dict)
    friedman: Test = field(default_factory=lambda: Test(None, None))
    overlapping: bool = False  # some rows are tested by several folds of a repeat
    datasets: int = 0  # with every cell there: those that ranks and tests over data sets use


def chosen_baseline(objectives: Sequence[str], asked: str | None) -> str:
    """The baseline that was asked for; else plain softmax where it is among them; else the first.

    Plain softmax is `soft`, `soft` with options such as a bias, or `gradient-decay` with beta 1.

    Raises:
        RequestError: it is not among the objectives.
    """
    if asked is None:
        with_options = [o for o in objectives if o.startswith("soft:")]
        plain = ["soft", *with_options, "gradient-decay"]
        return next((o for o in plain if o in objectives), objectives[0])
    name = str(parse(asked))
    if name not in objectives:
        raise RequestError(
            f"--baseline {asked}: not an objective here: expected one of {', '.join(objectives)}."
            + did_you_mean(name, objectives)
        )
    return name


def baselines(tables: Sequence[Sequence[str]], asked: str | None) -> list[str]:
    """The baseline of each table: the one that was asked for where it has it.

    Raises:
        RequestError: no table has it.
    """
    if asked is not None and tables:
        name = str(parse(asked))
        if not any(name in objectives for objectives in tables):
            chosen_baseline([o for objectives in tables for o in objectives], asked)
        return [chosen_baseline(t, asked if name in t else None) for t in tables]
    return [chosen_baseline(t, None) for t in tables]


def compare(
    grid: Grid,
    results: Mapping[Place, Sequence[CVResult]],
    baseline: str,
) -> Comparisons:
    """Makes every test that the cells allow.

    Args:
        grid: the cells.
        results: of each cell, one for each seed, in the order of the seeds.
        baseline: the objective that the others are compared with.
    """
    others = [o for o in grid.objectives if o != baseline]
    overlapping = any(sum(r.tested[0]) > r.rows for of_cell in results.values() for r in of_cell)
    made = Comparisons(baseline, overlapping=overlapping)
    for dataset in grid.datasets:
        pairs = {
            o: _paired(results[dataset, o], results[dataset, baseline])
            for o in others
            if (dataset, o) in grid.cells and (dataset, baseline) in grid.cells
        }
        fixed = any(r.split == "fixed" for r in results.get((dataset, baseline), []))
        outcomes = [
            Test(None, None, reason="a fixed test set: repeats differ in initial weights alone")
            if fixed
            else tests.corrected_resampled_t(d, r)
            for d, r in pairs.values()
        ]
        adjusted = tests.holm([t.p for t in outcomes])
        for (objective, (d, _)), test, p in zip(pairs.items(), outcomes, adjusted, strict=True):
            made.cells[dataset, objective] = Comparison(
                *(dataset, objective, statistics.fmean(d) if d else None, test, p),
                *tests.wins_ties_losses(d),
            )
    rows = grid.complete_rows()
    if not rows or not others:
        why = "no data set has every cell" if not rows else "one objective: nothing to compare"
        if grid.settings:
            why = "rows are settings of one protocol, not independent data sets"
        return replace(made, friedman=Test(None, None, reason=why))
    column = {o: [row[i] for row in rows] for i, o in enumerate(grid.objectives)}
    differences = {
        o: [a - b for a, b in zip(column[o], column.get(baseline, []), strict=True)]
        for o in others
        if baseline in column
    }
    signed = [tests.wilcoxon(d) for d in differences.values()]
    overall = [
        Comparison(
            *(None, objective, statistics.median(d), test, p),
            *(*tests.wins_ties_losses(d), statistics.fmean(d), tests.bootstrap_interval(d)),
        )
        for (objective, d), test, p in zip(
            differences.items(), signed, tests.holm([t.p for t in signed]), strict=True
        )
    ]
    return replace(
        made,
        overall=overall,
        ranks=dict(zip(grid.objectives, tests.ranks(rows), strict=True)),
        friedman=tests.friedman(rows),
        datasets=len(rows),
    )


def _paired(a: Sequence[CVResult], b: Sequence[CVResult]) -> tuple[list[float], float]:
    """Differences of the accuracies fold by fold, and n_test/n_train.

    Seeds that only one of the two has are left out.
    """
    differences: list[float] = []
    ratios: list[float] = []
    other = {result.seed: result for result in b}
    for first in a:
        if first.seed not in other:
            continue
        second = other[first.seed]
        for mine, theirs, tested in zip(
            first.accuracies, second.accuracies, first.tested, strict=True
        ):
            differences += [x - y for x, y in zip(mine, theirs, strict=True)]
            ratios += [n / (first.rows - n) for n in tested]
    ratio = statistics.fmean(ratios) if ratios else 0.0
    return differences, ratio


def as_json(made: Comparisons) -> dict[str, Any]:
    """The keys `tests` and `ranks` of a document."""
    entries: list[dict[str, Any]] = []
    for comparison in [*made.cells.values(), *made.overall]:
        over_data_sets = comparison.dataset is None
        entry = {
            "test": "wilcoxon signed-rank" if over_data_sets else "corrected resampled t",
            "dataset": comparison.dataset,
            "objective": comparison.objective,
            "baseline": made.baseline,
            "difference": comparison.difference,
            **_numbers(comparison.test),
            "p_holm": comparison.p_holm,
            "wins": comparison.wins,
            "ties": comparison.ties,
            "losses": comparison.losses,
        }
        if over_data_sets:
            between = comparison.interval
            entry["mean_difference"] = comparison.mean
            entry["bootstrap_interval"] = None if between is None else list(between)
        entries.append(entry)
    return {
        "tests": entries,
        "ranks": {
            "average": made.ranks,
            "datasets": made.datasets,
            "friedman": _numbers(made.friedman),
        },
    }


def _numbers(test: Test) -> dict[str, Any]:
    return {
        "statistic": test.statistic,
        "df": test.df,
        "p": test.p,
        "effect": test.effect,
        "reason": test.reason,
    }
