"""The cells of a cross-validation table, with the published ones."""

import bisect
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marginctl.experiments.records import CVResult
from marginctl.objectives.parts import two_class_remark, untrainable_reason
from marginctl.papers import PublishedMean
from marginctl.results.statistics import DECIMALS

CellKey = tuple[str, str]  # row and objective


@dataclass(frozen=True)
class Cell:
    """The mean accuracy of one objective in one row over all folds.

    Attributes:
        dataset: the row: a data set, or a data set and a setting of the grid.
        mean, std: in percent; std over the n fold accuracies (folds x repeats x seeds), ddof 1.
        seconds: training time of the cell's networks, summed over workers.
        paper: the published cell, None if there is none.
        untrained: why the method cannot learn here, None if it can.
        diverged, collapsed: how many of the n networks had a loss that was not finite, and how
            many predict one class for every row.
        chosen: of a tuned objective, each candidate and how many networks chose it, most first.
    """

    dataset: str
    objective: str
    mean: float
    std: float
    n: int
    seconds: float
    paper: PublishedMean | None
    untrained: str | None
    diverged: int
    collapsed: int
    remark: str | None = None
    chosen: tuple[tuple[str, int], ...] = ()

    @property
    def note(self) -> str | None:
        """Return all notes on the cell in one line, None without notes."""
        parts = [text for text in (self.untrained, self.remark) if text]
        if self.diverged:
            parts.append(f"{self.diverged} of {self.n} networks diverged and were frozen")
        if self.collapsed:
            parts.append(f"{self.collapsed} of {self.n} networks predict one class")
        return "; ".join(parts) or None


def cell(row: str, results: Sequence[CVResult], paper: PublishedMean | None) -> Cell:
    """Return the cell of the results of one row and objective, one for each seed."""
    accuracies = [a for result in results for repeat in result.accuracies for a in repeat]
    first = results[0]
    spec = first.parsed_objective.spec
    return Cell(
        dataset=row,
        objective=first.objective,
        mean=statistics.fmean(accuracies),
        std=statistics.stdev(accuracies),
        n=len(accuracies),
        seconds=sum(result.timing.seconds for result in results),
        paper=paper,
        untrained=untrainable_reason(spec, first.classes),
        remark=two_class_remark(spec) if first.classes == 2 else None,
        diverged=sum(len(result.diverged) for result in results),
        collapsed=sum(len(result.collapsed) for result in results),
        chosen=_chosen(results),
    )


def _chosen(results: Iterable[CVResult]) -> tuple[tuple[str, int], ...]:
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.chosen)
    return tuple((candidate, n) for candidate, n in counts.most_common() if n)


class Collector:
    """Collects results into a grid.

    Args:
        seeds: how many results make a cell.
        published: cells by (data set, objective).
        skipped: (data set, reason) of the rows that are skipped.
        settings: of a grid, each row's data set and setting; `datasets` are these rows then.
        row_of: the row of each trial by its id; other trials are in the row of their data set.
    """

    def __init__(
        self,
        datasets: Iterable[str],
        objectives: Iterable[str],
        *,
        seeds: int,
        published: Mapping[CellKey, PublishedMean],
        skipped: Iterable[tuple[str, str]] = (),
        settings: Mapping[str, tuple[str, dict[str, Any]]] | None = None,
        row_of: Mapping[str, str] | None = None,
    ) -> None:
        self._seeds, self._published, self._row_of = seeds, published, row_of or {}
        self.results: dict[CellKey, list[CVResult]] = {}
        self._cells: dict[CellKey, Cell] = {}
        self.grid = Grid(
            tuple(datasets), tuple(objectives), self._cells, tuple(skipped), settings or {}
        )

    def add(self, result: CVResult) -> Cell | None:
        """Add the result of a trial; return the cell if this result completes it."""
        key = self._add(result)
        return None if len(self.results[key]) < self._seeds else self._make_cell(key)

    def add_all(self, results: Iterable[CVResult]) -> None:
        """Add all results that there are, and make each cell once from however many it has."""
        for result in results:
            self._add(result)
        for key in self.results:
            self._make_cell(key)

    def _add(self, result: CVResult) -> CellKey:
        key = (self._row_of.get(result.trial, result.dataset), result.objective)
        bisect.insort(self.results.setdefault(key, []), result, key=lambda r: r.seed)
        return key

    def _make_cell(self, key: CellKey) -> Cell:
        self._cells[key] = cell(key[0], self.results[key], self._published.get(key))
        return self._cells[key]


@dataclass(frozen=True)
class Grid:
    """A table: a row for each data set, a column for each objective; cells may be missing."""

    datasets: tuple[str, ...]
    objectives: tuple[str, ...]
    cells: Mapping[CellKey, Cell]
    skipped: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def in_order(self) -> list[Cell]:
        """Return the cells row by row, in whatever order they came."""
        keys = ((d, o) for d in self.datasets for o in self.objectives)
        return [self.cells[key] for key in keys if key in self.cells]

    def complete_rows(self, published: bool = False) -> list[list[float]]:
        """Return the means of the rows without missing cells, in the order of the objectives.

        Empty for a grid of settings, whose rows are not independent data sets.
        """
        rows = []
        for dataset in self.datasets if not self.settings else ():
            cells = [c for o in self.objectives if (c := self.cells.get((dataset, o)))]
            means = [c.mean for c in cells]
            if published:
                means = [c.paper.mean for c in cells if c.paper]
            if len(means) == len(self.objectives):
                rows.append(means)
        return rows

    def averages(self, published: bool = False) -> list[float] | None:
        """Return the mean of each column over the complete rows, None without complete rows."""
        rows = self.complete_rows(published)
        return [statistics.fmean(column) for column in zip(*rows, strict=True)] if rows else None

    def wins(self, published: bool = False) -> list[float] | None:
        """Return in how many complete rows each objective is best; a tie of k counts 1/k each."""
        rows = self.complete_rows(published)
        if not rows:
            return None
        means = np.round(rows, DECIMALS)
        best = means == means.max(1, keepdims=True)
        wins: list[float] = (best / best.sum(1, keepdims=True)).sum(0).tolist()
        return wins
