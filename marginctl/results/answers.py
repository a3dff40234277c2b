"""The answer of a comparison: the best method of each row, and how sure that is."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from marginctl.experiments.records import CVResult, TrainingResult
from marginctl.metrics.registry import FOLD_METRICS, METRICS, Metric
from marginctl.results import statistics as tests
from marginctl.results.compare import SIGNIFICANT, Comparison, Comparisons, Interval, paired_folds
from marginctl.results.cv_cells import Cell, Grid

NEAR_CHANCE = 1.0  # percentage points above the largest class; our choice


@dataclass(frozen=True)
class Answer:
    """The best objective of a row, and its comparison with another one.

    The other one is the objective that all are compared with, or the second best where that one is
    itself the best.

    Attributes:
        mean, interval: of the best objective, 95 %; over folds by the corrected resampled t-test,
            over seeds by Student's t. None for a single value.
        other, other_mean: the objective that it is compared with, None without another one.
        p: adjusted by Holm's procedure over the objectives of the row; None where no test is.
        reason: why there is no test.
        comparable: whether the two chose from equally many candidates.
        n, counted: how many folds, seeds, test rows or test images the comparison has.
        references: the means of scikit-learn's baselines.
        unreliable: what is wrong with the objective that all are compared with, in words.
    """

    row: str
    metric: Metric
    best: str
    mean: float
    interval: Interval | None
    n: int
    counted: str
    other: str | None = None
    other_mean: float | None = None
    p: float | None = None
    reason: str | None = None
    comparable: bool = True
    references: Mapping[str, float] = field(default_factory=dict)
    unreliable: str | None = None

    @property
    def significant(self) -> bool:
        """Whether the best one is significantly better than the other."""
        return self.comparable and self.p is not None and self.p < SIGNIFICANT

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"metric": self.metric.name, "significant": self.significant}


@dataclass(frozen=True)
class Estimate:
    """The mean of a method in a row, with its 95 % interval; None for a single value."""

    row: str
    method: str
    mean: float
    interval: Interval | None
    is_baseline: bool = False


def fold_estimates(grid: Grid) -> list[Estimate]:
    """Return the estimates of a cross-validation row by row, those of the baselines last."""
    estimates = []
    for row in grid.datasets:
        for cell in grid.row(row):
            mean = cell.of(grid.metric).mean
            if mean is not None:
                interval = _fold_interval(grid.results[row, cell.objective], grid.metric)
                is_baseline = cell.objective in grid.baselines
                estimates.append(Estimate(row, cell.objective, mean, interval, is_baseline))
    return estimates


def _fold_interval(runs: Sequence[CVResult], metric: str) -> Interval | None:
    """Return the interval of the corrected resampled t-test; None for a fixed test set."""
    if any(r.split == "fixed" for r in runs):
        return None
    values = [v for r in runs for repeat in r.values(metric) for v in repeat if v is not None]
    return tests.corrected_interval(values, paired_folds(runs, runs, metric)[1])


def fold_answers(grid: Grid, comparisons: Comparisons) -> list[Answer]:
    """Return the answer of each row of a cross-validation."""
    metric, answers = FOLD_METRICS[grid.metric], []
    for row in grid.datasets:
        cells = [grid.cells[row, o] for o in grid.objectives if (row, o) in grid.cells]
        means = {c.objective: m for c in cells if (m := c.of(grid.metric).mean) is not None}
        if not means:
            continue
        compared = {o: c for (r, o), c in comparisons.cells.items() if r == row}
        best, other, comparison = _best(means, comparisons.baseline, compared, metric)
        first = grid.cells[row, best]
        interval = _fold_interval(grid.results[row, best], grid.metric)
        references = {
            c.objective: m
            for c in grid.baseline_cells()
            if c.dataset == row and (m := c.of(grid.metric).mean) is not None
        }
        baseline = grid.cells.get((row, comparisons.baseline))
        n, counted = first.n, "fold"
        if first.fixed:
            n, counted = first.test_rows, "test row"
        answers.append(
            Answer(
                row=row,
                metric=metric,
                best=best,
                mean=means[best],
                interval=interval,
                n=n,
                counted=counted,
                other=other,
                other_mean=means.get(other or ""),
                p=comparison.p_holm if comparison else None,
                reason=comparison.test.reason if comparison else None,
                comparable=comparison is None or comparison.equal_budgets,
                references=references,
                unreliable=None if baseline is None else _unreliable_cell(baseline),
            )
        )
    return answers


def seed_answers(
    results: Iterable[TrainingResult],
    comparisons: Sequence[Comparison],
    baseline: str,
    metric: Metric = METRICS["top1"],
) -> list[Answer]:
    """Return the answer of each row of trainings by a metric of their test images."""
    rows: dict[str, dict[str, list[TrainingResult]]] = {}
    for result in results:
        rows.setdefault(result.row, {}).setdefault(result.objective, []).append(result)
    answers = []
    for row, by_objective in rows.items():
        values = {
            o: v
            for o, group in by_objective.items()
            if (v := metric.values(r for r in group if not r.diverged))
        }
        if not values:
            continue
        means = {objective: statistics.fmean(v) for objective, v in values.items()}
        compared = {c.objective: c for c in comparisons if c.row == row and c.metric == metric.name}
        best, other, comparison = _best(means, baseline, compared, metric)
        n, counted = len(values[best]), "seed"
        if comparison is not None and comparison.fixed:
            n, counted = comparison.n, "test image"
        answers.append(
            Answer(
                row=row,
                metric=metric,
                best=best,
                mean=means[best],
                interval=tests.mean_interval(values[best]),
                n=n,
                counted=counted,
                other=other,
                other_mean=means.get(other or ""),
                p=comparison.p_holm if comparison else None,
                reason=comparison.test.reason if comparison else None,
                comparable=comparison is None or comparison.equal_budgets,
                unreliable=_unreliable_training(by_objective.get(baseline, ())),
            )
        )
    return answers


def _unreliable_cell(cell: Cell) -> str | None:
    return unreliable(cell.mean, cell.chance, cell.diverged, cell.collapsed, cell.n)


def _unreliable_training(group: Sequence[TrainingResult]) -> str | None:
    finite = [r for r in group if not r.diverged and r.last]
    means = [r.last.top1 for r in finite if r.last]
    chance = next((r.largest_class for r in finite if r.largest_class is not None), None)
    return unreliable(
        statistics.fmean(means) if means else None,
        chance,
        len(group) - len(finite),
        sum(r.collapsed for r in finite),
        len(group),
    )


def unreliable(
    mean: float | None, chance: float | None, diverged: int, collapsed: int, n: int
) -> str | None:
    """Return what is wrong with an objective that others are compared with, None if nothing is."""
    if diverged:
        return f"diverged in {diverged} of {n} networks"
    if collapsed:
        return f"predicts one class in {collapsed} of {n} networks"
    if mean is not None and chance is not None and mean < chance + NEAR_CHANCE:
        return (
            f"is near chance ({mean:.1f} %; always naming the largest class gives {chance:.1f} %)"
        )
    return None


def _best(
    means: Mapping[str, float],
    baseline: str,
    compared: Mapping[str, Comparison],
    metric: Metric,
) -> tuple[str, str | None, Comparison | None]:
    """Return the best objective, the one that it is compared with, and that comparison."""
    sign = -1 if metric.direction == "lower" else 1
    ranked = sorted(means, key=lambda o: -sign * means[o])
    best = ranked[0]
    other = baseline if best != baseline else next(iter(ranked[1:]), "")
    if other not in means:
        return best, None, None
    return best, other, compared.get(best if best != baseline else other)
