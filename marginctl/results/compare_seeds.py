"""Methods against a baseline over the seeds that both were trained with."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from marginctl.experiments.records import TrainingResult
from marginctl.metrics.registry import metric_named
from marginctl.results import statistics as tests
from marginctl.results.compare_folds import SIGNIFICANT
from marginctl.results.statistics import Test


@dataclass(frozen=True)
class SeedComparison:
    """One objective against the baseline in one row, by one measure of the last epoch.

    A seed gives both the same initial backbone and the same batches, so that they are paired by it.

    Attributes:
        measure: as `metric_named` takes it.
        difference: the mean over the shared seeds, in the measure's unit; None without one.
        low, high: its 95 % interval by t, None for fewer than two seeds or equal differences.
        bootstrap: its 95 % percentile interval over 10,000 draws of the seeds, None alike.
        test: the paired t-test.
        wins, ties, losses: of the shared seeds.
    """

    measure: str
    row: str
    objective: str
    n: int
    difference: float | None
    low: float | None
    high: float | None
    bootstrap: tuple[float, float] | None
    test: Test
    p_holm: float | None
    wins: int
    ties: int
    losses: int

    @property
    def direction(self) -> int:
        """1 significantly better, -1 significantly worse, else 0."""
        if self.p_holm is None or self.p_holm >= SIGNIFICANT:
            return 0
        return (
            1
            if ((self.difference or 0) > 0) == (metric_named(self.measure).direction == "higher")
            else -1
        )

    def as_json(self, baseline: str) -> dict[str, Any]:
        """The entry of a document's `tests`."""
        return {
            "test": "paired t over seeds",
            "measure": self.measure,
            "row": self.row,
            "objective": self.objective,
            "baseline": baseline,
            "n": self.n,
            "difference": self.difference,
            "interval": None if self.low is None else [self.low, self.high],
            "bootstrap_interval": None if self.bootstrap is None else list(self.bootstrap),
            "statistic": self.test.statistic,
            "df": self.test.df,
            "p": self.test.p,
            "p_holm": self.p_holm,
            "effect": self.test.effect,
            "wins": self.wins,
            "ties": self.ties,
            "losses": self.losses,
            "reason": self.test.reason,
        }


def compare_seeds(
    results: Iterable[TrainingResult], baseline: str, measure: str = "top1"
) -> list[SeedComparison]:
    """Compares every objective with the baseline in each row where both have results.

    Args:
        results: of trainings; diverged ones have no number and are left out.
        baseline: canonical name of an objective.
        measure: as `metric_named` takes it; records without it are left out.
    """
    read = metric_named(measure)
    rows: dict[str, dict[str, dict[int, float]]] = {}
    for result in results:
        values = rows.setdefault(result.row, {}).setdefault(result.objective, {})
        value = None if result.diverged else read.value(result)
        if value is not None:
            values[result.seed] = value
    compared = []
    for row, of_row in rows.items():
        if baseline not in of_row:
            continue
        differences = {
            objective: [
                value - of_row[baseline][seed]
                for seed, value in sorted(values.items())
                if seed in of_row[baseline]
            ]
            for objective, values in of_row.items()
            if objective != baseline
        }
        made = {objective: tests.paired_t(d) for objective, d in differences.items()}
        adjusted = tests.holm([test.p for test in made.values()])
        for (objective, d), p in zip(differences.items(), adjusted, strict=True):
            test = made[objective]
            # no variance among the seeds says nothing of how large it is
            low, high = (None if test.p is None else tests.mean_interval(d)) or (None, None)
            drawn = None if test.p is None else tests.bootstrap_interval(d)
            better, ties, worse = tests.wins_ties_losses(d)
            won, lost = (better, worse) if read.direction == "higher" else (worse, better)
            compared.append(
                SeedComparison(
                    *(measure, row, objective, len(d), statistics.fmean(d) if d else None),
                    *(low, high, drawn, test, p),
                    *(won, ties, lost),
                )
            )
    return compared
