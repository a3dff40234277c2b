"""Training runs grouped over their seeds, and what they recorded by epoch."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from marginctl.metrics.registry import METRICS, Metric, lookup
from marginctl.reports.tables.table import number_range
from marginctl.results.collect import Run, TrainingRuns
from marginctl.results.load_run import read_metrics
from marginctl.runs.run_dir import digest

T = TypeVar("T")
FloatArray = NDArray[np.float64]

FEW_SEEDS = 5  # with fewer, a standard deviation says little: their range is shown


class Series(NamedTuple):
    """A number by epoch: epochs (E,), those that all seeds have; values (n, E), a row per seed."""

    epochs: NDArray[np.int64]
    values: FloatArray


class Spread(NamedTuple):
    """Mean and band over n seeds: the range where n < `FEW_SEEDS`, else +- std (ddof 1)."""

    mean: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class SeedGroup:
    """The runs of one row and objective, one per seed."""

    row: str  # data, model and setting
    objective: str
    runs: Sequence[Run]  # by seed, without diverged ones
    diverged: int  # number of runs whose loss was not finite

    @cached_property
    def epochs(self) -> list[list[dict[str, Any]]]:
        """Return the records of metrics.jsonl, a list per run."""
        return [read_metrics(run.path / "metrics.jsonl") for run in self.runs]

    def by_epoch(self, read: Callable[[dict[str, Any]], T | None]) -> list[dict[int, T]]:
        """Return what `read` returns of each seed's epochs, of those that all seeds have.

        Seeds without any are left out; the list is empty where no epoch is common.
        """
        by_seed = [
            {record["epoch"]: value for record in records if (value := read(record)) is not None}
            for records in self.epochs
        ]
        recorded = [seed for seed in by_seed if seed]
        common = sorted(set.intersection(*map(set, recorded))) if recorded else []
        return [{epoch: seed[epoch] for epoch in common} for seed in recorded if common]

    def series(self, *path: str) -> Series | None:
        """Return the number below `path` by epoch, None where no epoch has it.

        Seeds that never recorded it are left out; epochs that another seed does not have, too.
        """
        recorded = self.by_epoch(lambda record: number(record, *path))
        if not recorded:
            return None
        common = list(recorded[0])
        values = np.array([[seed[epoch] for epoch in common] for seed in recorded])
        return Series(np.array(common, np.int64), values)


@dataclass(frozen=True, eq=False)
class SeedTable:
    """The groups of one recipe: rows by their settings, objectives in the recipe's order.

    `metric` is what an own comparison is ranked by.
    """

    recipe: str
    title: str
    file_name: str
    groups: Sequence[SeedGroup]
    metric: Metric = METRICS["top1"]


@dataclass
class Omissions:
    """What a figure leaves out: each reason once, with the groups that it concerns."""

    groups_by_reason: dict[str, list[SeedGroup]] = field(default_factory=dict)

    def add(self, reason: str, group: SeedGroup | None = None) -> None:
        """Add a reason; without a group it concerns the whole figure."""
        self.groups_by_reason.setdefault(reason, []).extend([group] if group else [])

    def lines(self) -> list[str]:
        """Return a line per reason, which names the objectives."""
        lines = []
        for reason, groups in self.groups_by_reason.items():
            names = ", ".join(dict.fromkeys(group.objective for group in groups))
            rows = len({group.row for group in groups})
            where = f" (in {rows} rows)" if rows > 1 else ""
            lines.append(f"{names}{where}: {reason}" if names else reason)
        return lines


def seed_tables(
    tables: Sequence[TrainingRuns], metric: Metric = METRICS["top1"]
) -> list[SeedTable]:
    """Return the seed groups of each table; tables of one recipe differ in their file names."""
    results = []
    names = file_names([(table.recipe, table.training) for table in tables])
    for name, table in zip(names, tables, strict=True):
        reference = f", table {table.table}" if table.table else ""
        title = table.recipe + (f" ({table.paper}{reference})" if table.paper else "")
        groups = seed_groups(table.in_order())
        ranked_by = METRICS["top1"] if table.paper else metric
        results.append(SeedTable(table.recipe, title, name, groups, ranked_by))
    return results


def file_names(tables: Sequence[tuple[str, Any]]) -> list[str]:
    """Return the beginning of a file name for each table, given its recipe and settings."""
    names = [re.sub(r"[^\w.]+", "-", recipe).strip("-.") or "runs" for recipe, _ in tables]
    uses = Counter(names)
    return [
        f"{name}-{digest(list(table))[:8]}" if uses[name] > 1 else name
        for name, table in zip(names, tables, strict=True)
    ]


def seed_groups(runs: Iterable[Run]) -> list[SeedGroup]:
    """Return the groups of runs by row and objective, in the order of the runs."""
    runs_by_key: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        runs_by_key.setdefault((run.training_result.row, run.result.objective), []).append(run)
    groups = []
    for (row, objective), members in runs_by_key.items():
        finite = [run for run in members if run.training_result.diverged is None]
        groups.append(SeedGroup(row, objective, finite, len(members) - len(finite)))
    return groups


def available(
    groups: Iterable[SeedGroup],
    read: Callable[[SeedGroup], T | None],
    omissions: Omissions,
    reason: str,
) -> dict[SeedGroup, T]:
    """Return what `read` finds for each group; groups without it are omitted for `reason`."""
    contents = {}
    for group in groups:
        content = read(group)
        if content:
            contents[group] = content
        else:
            omissions.add(reason, group)
    return contents


def by_row(groups: Iterable[SeedGroup]) -> dict[str, list[SeedGroup]]:
    rows: dict[str, list[SeedGroup]] = {}
    for group in groups:
        rows.setdefault(group.row, []).append(group)
    return rows


def number(record: Any, *path: str) -> float | None:
    """Return the finite number below nested keys of a record, else None."""
    value = lookup(record, *path)
    return float(value) if is_number(value) else None


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def spread(values: FloatArray) -> Spread:
    """Return mean and band over the seeds of values (n, E)."""
    mean = values.mean(0)
    if len(values) < FEW_SEEDS:
        return Spread(mean, values.min(0), values.max(0))
    std = values.std(0, ddof=1)
    return Spread(mean, mean - std, mean + std)


def spread_text(mark: str, seed_counts: Iterable[int]) -> str:
    """Return what a mark (`band` or `error bar`) shows for means over this number of seeds."""
    several = [n for n in seed_counts if n > 1]
    if not several:
        return f"one seed: no {mark}"
    few, many = "lowest to highest seed", "± standard deviation over the seeds"
    if min(several) < FEW_SEEDS <= max(several):
        return f"{mark}: {few} (n < {FEW_SEEDS}); {many} (n ≥ {FEW_SEEDS})"
    return f"{mark}: {few if several[0] < FEW_SEEDS else many}"


def seeds_text(groups: Iterable[SeedGroup]) -> str:
    """Return `n = 3 seeds`, or the range of the seed counts, and how many runs diverged."""
    groups = list(groups)
    n = number_range(len(group.runs) for group in groups)
    diverged = sum(group.diverged for group in groups)
    omitted = f", {diverged} diverged (not drawn)" if diverged else ""
    return f"n = {n} seed{'s' if n != '1' else ''}{omitted}"
