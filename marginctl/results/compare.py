"""Comparing objectives with a baseline: over folds, over data sets, and over seeds."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from marginctl.errors import RequestError
from marginctl.experiments.records import CVResult, TrainingResult
from marginctl.metrics.accuracy import unpack_correct
from marginctl.metrics.registry import metric_named
from marginctl.objectives.parsing import ParsedObjective
from marginctl.results import statistics as tests
from marginctl.results.cv_cells import CellKey, Grid
from marginctl.results.statistics import Interval, Test
from marginctl.utils.text import did_you_mean

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Comparison:
    """One objective against the baseline in one row of a table, or over all rows."""

    metric: str
    row: str | None  # a data set, or data and model; None over all data sets
    objective: str
    n: int  # how many pairs: folds, samples of one test set, data sets, or seeds that both have
    # the objective minus the baseline in the metric's unit: the mean over the pairs; over data sets
    # the median. None without pairs.
    difference: float | None
    test: Test  # Wilcoxon's over data sets, a t-test otherwise
    p_holm: float | None  # its p-value with Holm's adjustment over the objectives of the row
    # of the pairs. A tie is equal except for the rounding of floats, whatever a table shows.
    wins: int
    ties: int
    losses: int
    mean: float | None = None  # of the differences
    # of the mean over folds or seeds, at the level at which Holm's procedure tests it, so that it
    # excludes 0 exactly if p_holm is below 0.05; None where no test is
    interval: Interval | None = None
    # of the mean over data sets or seeds, 95 % percentiles of 10,000 draws
    bootstrap_interval: Interval | None = None
    higher_is_better: bool = True
    equal_budgets: bool = True  # whether both chose from equally many candidates
    unpaired_seeds: tuple[int, ...] = ()  # of the objective, without a run of the baseline
    fixed: bool = False  # whether the pairs are the samples of one test set

    @property
    def direction(self) -> int:
        """Return 1 if significantly better, -1 if significantly worse, else 0.

        Methods with different tuning budgets are not judged.
        """
        if self.p_holm is None or self.p_holm >= SIGNIFICANT or not self.equal_budgets:
            return 0
        return 1 if ((self.difference or 0) > 0) == self.higher_is_better else -1


@dataclass(frozen=True)
class Comparisons:
    """All comparisons of a cross-validation grid."""

    baseline: str
    cells: dict[CellKey, Comparison] = field(default_factory=dict)  # on each data set
    # over the data sets that have every cell, `datasets` in number
    overall: list[Comparison] = field(default_factory=list)
    # the average rank of each objective over these data sets
    ranks: dict[str, float] = field(default_factory=dict)
    friedman: Test = field(default_factory=Test)
    overlapping: bool = False  # whether several folds of a repeat test the same rows
    datasets: int = 0


def resolve_baseline(objectives: Sequence[str], requested: ParsedObjective | None) -> str:
    """Return the requested baseline; by default plain softmax, or the first objective.

    Plain softmax is `soft`, `soft` with options such as a bias, or `gradient-decay` with beta 1;
    among new classifiers of a source model it is the probe.

    Raises:
        RequestError: the requested baseline is not among the objectives.
    """
    if requested is None:
        with_options = [o for o in objectives if o.startswith("soft:")]
        plain = ["soft", *with_options, "gradient-decay", "probe"]
        return next((o for o in plain if o in objectives), objectives[0])
    name = str(requested)
    if name not in objectives:
        raise RequestError(
            f"--baseline {name}: not an objective here: expected one of {', '.join(objectives)}."
            + did_you_mean(name, objectives)
        )
    return name


def resolve_baselines(
    tables: Sequence[Sequence[str]], requested: ParsedObjective | None
) -> list[str]:
    """Return the baseline of each table: the requested one if the table has it.

    Raises:
        RequestError: no table has it.
    """
    name = str(requested)
    if requested is not None and tables and not any(name in table for table in tables):
        resolve_baseline([o for table in tables for o in table], requested)
    return [resolve_baseline(t, requested if name in t else None) for t in tables]


def compare_folds(grid: Grid, baseline: str) -> Comparisons:
    """Run every test that the cells of a grid allow."""
    results = grid.results
    others = [o for o in grid.objectives if o != baseline]
    overlapping = any(sum(r.tested[0]) > r.rows for cell in results.values() for r in cell)
    comparisons = Comparisons(baseline, overlapping=overlapping)
    for dataset in grid.datasets:
        if (dataset, baseline) not in grid.cells:
            continue
        reference = results[dataset, baseline]
        columns = {o: results[dataset, o] for o in others if (dataset, o) in grid.cells}
        fixed = any(r.split == "fixed" for r in reference)
        pairs = {o: paired_folds(runs, reference, grid.metric) for o, runs in columns.items()}
        outcomes = [
            _fixed_split_test(columns[o], reference, grid.metric)
            if fixed
            else tests.corrected_resampled_t(d, ratio)
            for o, (d, ratio) in pairs.items()
        ]
        levels = tests.holm_levels([test.p for test in outcomes])
        differences = {objective: d for objective, (d, _) in pairs.items()}
        compared = _compare(grid.metric, dataset, differences, outcomes, grid.higher_is_better)
        for comparison, level in zip(compared, levels, strict=True):
            name, interval = comparison.objective, None
            if level is not None and not fixed:
                interval = tests.corrected_interval(*pairs[name], level)
            comparisons.cells[dataset, name] = replace(
                comparison,
                n=sum(reference[0].tested[0]) if fixed else comparison.n,
                fixed=fixed,
                interval=interval,
                equal_budgets=columns[name][0].candidates == reference[0].candidates,
                unpaired_seeds=tuple(
                    sorted({r.seed for r in columns[name]} - {r.seed for r in reference})
                ),
            )
    return _over_datasets(grid, comparisons, others)


def _fixed_split_test(a: Sequence[CVResult], b: Sequence[CVResult], metric: str) -> Test:
    """Return the test over the rows of a fixed test set, from the mean over all networks."""
    if metric != "accuracy":
        return Test(reason="a fixed test set is tested by its accuracy")
    if not all(r.row_correct for r in (*a, *b)):
        return Test(reason="a fixed test set without the results of its rows")
    means = [
        np.mean([np.divide(r.row_correct, len(r.accuracies)) for r in runs], axis=0).tolist()
        for runs in (a, b)
    ]
    return tests.paired_rows_test(*means)


def _over_datasets(grid: Grid, comparisons: Comparisons, others: Sequence[str]) -> Comparisons:
    rows = grid.complete_rows()
    if not rows or not others:
        reason = "no data set has every cell" if not rows else "one objective: nothing to compare"
        if grid.settings:
            reason = "rows are settings of one protocol, not independent data sets"
        return replace(comparisons, friedman=Test(reason=reason))
    columns = {o: [row[i] for row in rows] for i, o in enumerate(grid.objectives)}
    baseline = columns.get(comparisons.baseline)
    differences = {
        o: [a - b for a, b in zip(columns[o], baseline, strict=True)]
        for o in others
        if baseline is not None
    }
    outcomes = [tests.wilcoxon(d) for d in differences.values()]
    sign = 1 if grid.higher_is_better else -1  # ranks are of larger values first
    return replace(
        comparisons,
        overall=[
            replace(
                comparison,
                difference=statistics.median(differences[comparison.objective]),
                bootstrap_interval=tests.bootstrap_interval(differences[comparison.objective]),
            )
            for comparison in _compare(
                grid.metric, None, differences, outcomes, grid.higher_is_better
            )
        ],
        ranks=dict(zip(grid.objectives, tests.ranks(sign * np.array(rows)), strict=True)),
        friedman=tests.friedman(rows),
        datasets=len(rows),
    )


def paired_folds(
    a: Sequence[CVResult], b: Sequence[CVResult], metric: str = "accuracy"
) -> tuple[list[float], float]:
    """Return the differences of a metric fold by fold, and the mean of n_test/n_train.

    Seeds that only one of the two has are skipped, and folds where one has no value.
    """
    differences: list[float] = []
    ratios: list[float] = []
    by_seed = {result.seed: result for result in b}
    for first in a:
        if (second := by_seed.get(first.seed)) is None:
            continue
        for ours, theirs, tested in zip(
            first.values(metric), second.values(metric), first.tested, strict=False
        ):
            for x, y, n in zip(ours, theirs, tested, strict=True):
                if x is not None and y is not None:
                    differences.append(x - y)
                    ratios.append(n / (first.rows - n))
    return differences, statistics.fmean(ratios) if ratios else 0.0


def compare_seeds(
    results: Iterable[TrainingResult], baseline: str, metric: str = "top1"
) -> list[Comparison]:
    """Compare every objective with the baseline in each row that has both.

    Networks of one seed have the same initial backbone and the same batches, so that they are
    paired by their seed. The accuracies of a single pair are tested over their test images, which
    tells nothing about other seeds. Results that diverged, or do not have the metric, are skipped.
    """
    measured = metric_named(metric)
    rows: dict[str, dict[str, dict[int, float]]] = {}
    budgets: dict[tuple[str, str], int] = {}
    networks: dict[tuple[str, str, int], TrainingResult] = {}
    for result in results:
        networks[result.row, result.objective, result.seed] = result
        budgets[result.row, result.objective] = result.candidates
        values = rows.setdefault(result.row, {}).setdefault(result.objective, {})
        value = None if result.diverged else measured.value(result)
        if value is not None:
            values[result.seed] = value
    comparisons = []
    for row, objectives in rows.items():
        if (reference := objectives.get(baseline)) is None:
            continue
        differences = {
            objective: [v - reference[s] for s, v in sorted(values.items()) if s in reference]
            for objective, values in objectives.items()
            if objective != baseline
        }
        outcomes, images = [], {}
        for objective, d in differences.items():
            test, images[objective] = tests.paired_t(d), 0
            if len(d) == 1 and metric == "top1":
                (seed,) = objectives[objective].keys() & reference.keys()
                pair = (networks[row, o, seed] for o in (objective, baseline))
                test, images[objective] = _single_network_test(*pair) or (test, 0)
            outcomes.append(test)
        levels = tests.holm_levels([test.p for test in outcomes])
        compared = _compare(metric, row, differences, outcomes, measured.direction == "higher")
        for one, level in zip(compared, levels, strict=True):
            name, d = one.objective, differences[one.objective]
            if level is not None:  # equal differences do not show how much they vary
                intervals = tests.mean_interval(d, level), tests.bootstrap_interval(d)
                one = replace(one, interval=intervals[0], bootstrap_interval=intervals[1])
            one = replace(
                one,
                n=images[name] or one.n,
                fixed=images[name] > 0,
                equal_budgets=budgets[row, name] == budgets[row, baseline],
                unpaired_seeds=tuple(sorted(objectives[name].keys() - reference.keys())),
            )
            comparisons.append(one)
    return comparisons


def _single_network_test(a: TrainingResult, b: TrainingResult) -> tuple[Test, int] | None:
    """Return McNemar's test of two networks and the number of its test images, 0 without a p-value.

    None where the results do not record which images are classified correctly.
    """
    if not (a.correct and b.correct and a.last and b.last and a.last.n == b.last.n):
        return None
    n = a.last.n
    test = tests.paired_rows_test(*(unpack_correct(text, n) for text in (a.correct, b.correct)))
    return test, 0 if test.p is None else n


def _compare(
    metric: str,
    row: str | None,
    differences: Mapping[str, Sequence[float]],
    outcomes: Sequence[Test],
    higher_is_better: bool = True,
) -> list[Comparison]:
    """Return the comparison of each objective in a row, from its differences and their test."""
    adjusted = tests.holm([test.p for test in outcomes])
    comparisons = []
    for (objective, d), test, p in zip(differences.items(), outcomes, adjusted, strict=True):
        wins, ties, losses = tests.wins_ties_losses(d if higher_is_better else [-x for x in d])
        mean = statistics.fmean(d) if d else None
        comparisons.append(
            Comparison(
                metric=metric,
                row=row,
                objective=objective,
                n=len(d),
                difference=mean,
                test=test,
                p_holm=p,
                wins=wins,
                ties=ties,
                losses=losses,
                mean=mean,
                higher_is_better=higher_is_better,
            )
        )
    return comparisons


def folds_document(comparisons: Comparisons) -> dict[str, Any]:
    """Return the keys `tests` and `ranks` of the JSON document of a cross-validation."""
    entries: list[dict[str, Any]] = []
    for comparison in [*comparisons.cells.values(), *comparisons.overall]:
        test = "paired test rows" if comparison.fixed else "corrected resampled t"
        entry = {
            "test": test if comparison.row is not None else "wilcoxon signed-rank",
            "dataset": comparison.row,
            "objective": comparison.objective,
            "baseline": comparisons.baseline,
            **attributes(comparison, "metric", "difference", "interval", "n"),
            **_outcome(comparison),
        }
        if comparison.row is None:
            entry["mean_difference"] = comparison.mean
            entry["bootstrap_interval"] = comparison.bootstrap_interval
        entries.append(entry)
    datasets, friedman = comparisons.datasets, asdict(comparisons.friedman)
    ranks = {"average": comparisons.ranks, "datasets": datasets, "friedman": friedman}
    return {"tests": entries, "ranks": ranks}


def seeds_document(comparison: Comparison, baseline: str) -> dict[str, Any]:
    """Return the entry of `tests` in the JSON document of trainings."""
    return {
        "test": "McNemar over test images" if comparison.fixed else "paired t over seeds",
        **attributes(comparison, "metric", "row", "objective"),
        "baseline": baseline,
        **attributes(comparison, "n", "difference", "interval", "bootstrap_interval"),
        **_outcome(comparison),
    }


def _outcome(comparison: Comparison) -> dict[str, Any]:
    keys = ("p_holm", "equal_budgets", "wins", "ties", "losses")
    return asdict(comparison.test) | attributes(comparison, *keys)


def attributes(record: object, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}
