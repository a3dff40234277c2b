"""The cells of a cross-validation table: ours beside the published ones."""

import bisect
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from marginctl.objectives.parsing import parse
from marginctl.objectives.parts import two_class_remark, untrainable_reason
from marginctl.papers import PublishedMean
from marginctl.results.statistics import DECIMALS


@dataclass(frozen=True)
class Cell:
    """One number of the table: the mean accuracy over all fold accuracies.

    Attributes:
        mean, std: in percent; std over the n fold accuracies with ddof 1.
        n: fold accuracies: folds x repeats x seeds.
        seconds: training time of the cell's networks, summed over workers.
        paper: the published cell, if there is one.
        untrained: why the method cannot learn here, if it cannot.
        remark: what else there is to say of the method here.
        diverged, collapsed: of the n networks, how many had a loss that was not finite, and how
            many predict one class for every row.
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

    @property
    def note(self) -> str | None:
        """What a reader must know of the cell, in one line."""
        parts = [text for text in (self.untrained, self.remark) if text]
        if self.diverged:
            parts.append(f"{self.diverged} of {self.n} networks diverged and were frozen")
        if self.collapsed:
            parts.append(f"{self.collapsed} of {self.n} networks predict one class")
        return "; ".join(parts) or None


def cell(records: Iterable[Mapping[str, Any]], paper: PublishedMean | None) -> Cell:
    """The cell that the records of one data set and objective (one a seed) make together."""
    records = list(records)
    accuracies = [a for record in records for repeat in record["accuracies"] for a in repeat]
    first = records[0]
    spec = parse(first["objective"]).spec
    two = first["classes"] == 2
    return Cell(
        dataset=first["dataset"],
        objective=first["objective"],
        mean=statistics.fmean(accuracies),
        std=statistics.stdev(accuracies),
        n=len(accuracies),
        seconds=sum(record["timing"]["seconds"] for record in records),
        paper=paper,
        untrained=untrainable_reason(spec, first["classes"]),
        remark=two_class_remark(spec) if two else None,
        diverged=sum(len(record["diverged"]) for record in records),
        collapsed=sum(len(record["collapsed"]) for record in records),
    )


class Collector:
    """Gathers records into a grid as they come.

    Args:
        datasets, objectives: rows and columns, in order.
        seeds: how many records make a cell.
        published: cells by (data set, objective).
        skipped: (data set, reason) of the rows that are left out.
        settings: of a grid, each row's data set and setting; `datasets` are these rows then.
        row_of: the row of each trial, by its id; a trial that is not there has its data set's.
    """

    def __init__(
        self,
        datasets: Iterable[str],
        objectives: Iterable[str],
        *,
        seeds: int,
        published: Mapping[tuple[str, str], PublishedMean],
        skipped: Iterable[tuple[str, str]] = (),
        settings: Mapping[str, tuple[str, dict[str, Any]]] | None = None,
        row_of: Mapping[str, str] | None = None,
    ) -> None:
        self._seeds, self._published, self._row_of = seeds, published, row_of or {}
        self.records: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        self._cells: dict[tuple[str, str], Cell] = {}
        self.grid = Grid(
            *(tuple(datasets), tuple(objectives), self._cells, tuple(skipped)), settings or {}
        )

    def add(self, record: Mapping[str, Any]) -> Cell | None:
        """Takes a trial's record; the cell, where this one completes it."""
        place = self._take(record)
        records = self.records[place]
        if len(records) < self._seeds:
            return None
        self._cells[place] = cell(records, self._published.get(place))
        return self._cells[place]

    def _take(self, record: Mapping[str, Any]) -> tuple[str, str]:
        record = {**record, "dataset": self._row_of.get(record.get("trial", ""), record["dataset"])}
        place = (record["dataset"], record["objective"])
        bisect.insort(self.records.setdefault(place, []), record, key=lambda r: int(r["seed"]))
        return place

    def add_all(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Takes all the records that there are: each cell is made once, of however many."""
        for record in records:
            self._take(record)
        for place, own in self.records.items():
            self._cells[place] = cell(own, self._published.get(place))


@dataclass(frozen=True)
class Grid:
    """A table: a row a data set, a column an objective; cells may be missing."""

    datasets: tuple[str, ...]
    objectives: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    skipped: tuple[tuple[str, str], ...] = ()  # (data set, reason)
    # of a grid of settings, each row's data set and what is set
    settings: Mapping[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def in_order(self) -> list[Cell]:
        """The cells that are there, row by row, in whatever order they came."""
        places = ((d, o) for d in self.datasets for o in self.objectives)
        return [self.cells[place] for place in places if place in self.cells]

    def complete_rows(self, published: bool = False) -> list[list[float]]:
        """Means of the rows in which no cell is missing, in the order of the objectives.

        None in a grid of settings, whose rows are no independent data sets.
        """
        rows: list[list[float]] = []
        if self.settings:
            return rows
        for dataset in self.datasets:
            row = [self.cells.get((dataset, o)) for o in self.objectives]
            if published:
                means = [c.paper.mean for c in row if c is not None and c.paper is not None]
            else:
                means = [c.mean for c in row if c is not None]
            if len(means) == len(self.objectives):
                rows.append(means)
        return rows

    def averages(self, published: bool = False) -> list[float] | None:
        """The mean of each column over the complete rows."""
        rows = self.complete_rows(published)
        return [statistics.fmean(column) for column in zip(*rows, strict=True)] if rows else None

    def wins(self, published: bool = False) -> list[float] | None:
        """In how many complete rows each objective is the best; a tie of k counts 1/k for each."""
        rows = self.complete_rows(published)
        if not rows:
            return None
        wins = [0.0] * len(self.objectives)
        for row in rows:
            equal = [round(mean, DECIMALS) for mean in row]
            best = [i for i, mean in enumerate(equal) if mean == max(equal)]
            for i in best:
                wins[i] += 1 / len(best)
        return wins
