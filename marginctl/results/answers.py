"""The answer of a comparison: the best method of each row, and how sure that is."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from marginctl.experiments.records import TrainingResult
from marginctl.metrics.registry import FOLD_METRICS, METRICS, Metric
from marginctl.results import statistics as tests
from marginctl.results.compare import SIGNIFICANT, Comparison, Comparisons, paired_folds
from marginctl.results.cv_cells import Grid, known_values
from marginctl.results.statistics import Interval

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
    """The mean of a method in a row, with its 95 % interval; None for a single value.

    Attributes:
        n, counted: how many folds, test rows of a fixed test set, or seeds it has.
    """

    row: str
    method: str
    mean: float
    interval: Interval | None
    n: int
    counted: str
    is_baseline: bool = False


def fold_estimates(grid: Grid) -> list[Estimate]:
    """Return the estimates of a cross-validation row by row, those of the baselines last.

    The intervals are of the corrected resampled t-test; None for a fixed test set.
    """
    metric, estimates = grid.metric, []
    for row in grid.datasets:
        for cell in grid.row(row):
            mean, runs = cell.of(metric).mean, grid.results[row, cell.objective]
            if mean is None:
                continue
            n, counted, interval = cell.test_rows, "test row", None
            if not cell.fixed:
                values, ratio = known_values(runs, metric), paired_folds(runs, runs, metric)[1]
                interval = tests.corrected_interval(values, ratio)
                n, counted = cell.n, "fold"
            place = (row, cell.objective, mean, interval, n, counted)
            estimates.append(Estimate(*place, cell.objective in grid.baselines))
    return estimates


def seed_estimates(results: Iterable[TrainingResult], metric: Metric) -> list[Estimate]:
    """Return the estimates of trainings by a metric of their test images, by Student's t."""
    values: dict[tuple[str, str], list[float]] = {}
    for result in results:
        numbers = values.setdefault((result.row, result.objective), [])
        numbers += [] if result.diverged else metric.values([result])
    return [
        Estimate(*place, statistics.fmean(v), tests.mean_interval(v), len(v), "seed")
        for place, v in values.items()
        if v
    ]


def fold_answers(grid: Grid, comparisons: Comparisons) -> list[Answer]:
    estimates, answers = fold_estimates(grid), []
    for row in grid.datasets:
        shown = [e for e in estimates if e.row == row]
        if all(e.is_baseline for e in shown):
            continue
        compared = [c for (name, _), c in comparisons.cells.items() if name == row]
        answer = _answer(shown, compared, comparisons.baseline, FOLD_METRICS[grid.metric])
        if cell := grid.cells.get((row, comparisons.baseline)):
            reason = unreliable(cell.mean, cell.chance, cell.diverged, cell.collapsed, cell.n)
            answer = replace(answer, unreliable=reason)
        answers.append(answer)
    return answers


def seed_answers(
    results: Iterable[TrainingResult],
    comparisons: Sequence[Comparison],
    baseline: str,
    metric: Metric = METRICS["top1"],
) -> list[Answer]:
    """Return the answer of each row of trainings by a metric of their test images."""
    results, answers = list(results), []
    estimates = seed_estimates(results, metric)
    for row in dict.fromkeys(e.row for e in estimates):
        shown = [e for e in estimates if e.row == row]
        compared = [c for c in comparisons if c.row == row and c.metric == metric.name]
        group = [r for r in results if (r.row, r.objective) == (row, baseline)]
        finite = [r for r in group if not r.diverged and r.last]
        mean = tests.mean_and_std([r.last.top1 for r in finite if r.last]).mean
        chance = next((r.largest_class for r in finite if r.largest_class is not None), None)
        collapsed = sum(r.collapsed for r in finite)
        reason = unreliable(mean, chance, len(group) - len(finite), collapsed, len(group))
        answer = _answer(shown, compared, baseline, metric)
        answers.append(replace(answer, unreliable=reason))
    return answers


def _answer(
    estimates: Sequence[Estimate], comparisons: Iterable[Comparison], baseline: str, metric: Metric
) -> Answer:
    sign = -1 if metric.direction == "lower" else 1
    ranked = sorted(estimates, key=lambda e: -sign * e.mean)
    best, *others = (e for e in ranked if not e.is_baseline)
    if best.method != baseline:
        others = [e for e in others if e.method == baseline]
    other, n, counted = next(iter(others), None), best.n, best.counted
    against = best if other is None or best.method != baseline else other
    compared = {c.objective: c for c in comparisons if other is not None}
    comparison = compared.get(against.method)
    if comparison is not None and comparison.fixed and counted == "seed":
        n, counted = comparison.n, "test image"
    return Answer(
        row=best.row,
        metric=metric,
        best=best.method,
        mean=best.mean,
        interval=best.interval,
        n=n,
        counted=counted,
        other=None if other is None else other.method,
        other_mean=None if other is None else other.mean,
        p=comparison.p_holm if comparison else None,
        reason=comparison.test.reason if comparison else None,
        comparable=comparison is None or comparison.equal_budgets,
        references={e.method: e.mean for e in estimates if e.is_baseline},
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
        largest = f"always naming the largest class gives {chance:.1f} %"
        return f"is near chance ({mean:.1f} %; {largest})"
    return None
