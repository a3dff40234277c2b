"""The cells of a cross-validation table, with the published ones."""

import bisect
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marginctl.experiments.records import CVResult
from marginctl.metrics.registry import FOLD_METRICS
from marginctl.objectives.parts import two_class_remark, untrainable_reason
from marginctl.papers import PublishedMean
from marginctl.recipe.uci_cv import BASELINES
from marginctl.results.statistics import DECIMALS, MeanStd, mean_and_std

CellKey = tuple[str, str]  # row and objective, or baseline


@dataclass(frozen=True)
class Cell:
    """The metrics of one objective or baseline in one row over all folds."""

    dataset: str  # the row: a data set, or a data set and a setting of the grid
    objective: str  # the objective, or the name of a baseline
    # of the accuracy in percent; std over the n folds (folds x repeats x seeds) with ddof 1
    mean: float
    std: float
    n: int
    seconds: float  # training time of the cell's networks, summed over workers
    paper: PublishedMean | None  # the published cell, None if there is none
    untrained: str | None  # why the method cannot learn here, None if it can
    # how many of the n networks had a loss that was not finite, and how many predict one class for
    # every row
    diverged: int
    collapsed: int
    remark: str | None = None
    # mean and standard deviation of every metric that was measured, by name; accuracy is one of
    # them. None where no fold defines a metric.
    metrics: Mapping[str, MeanStd] = field(default_factory=dict)
    # how many networks chose each setting, the most frequent first
    chosen: tuple[tuple[str, int], ...] = ()
    candidates: int = 0  # how many settings each network chose from; 0 if the protocol is not tuned
    inner_accuracy: float | None = None  # in percent, of the chosen settings on the inner folds
    fixed: bool = False  # one fixed test set
    test_rows: int = 0  # of a repeat
    chance: float | None = None  # accuracy in percent of always naming the largest class
    confusion: list[list[int]] | None = None  # (C, C), summed over the seeds
    class_names: Sequence[str] = ()

    @property
    def is_measured(self) -> bool:
        """Whether there are more metrics than the accuracy."""
        return len(self.metrics) > 1

    def of(self, metric: str) -> MeanStd:
        """Return the mean and standard deviation of a metric; None where it was not measured."""
        if metric == "accuracy":
            return MeanStd(self.mean, self.std)
        return self.metrics.get(metric, MeanStd(None, None))

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
    accuracies = known_values(results, "accuracy")
    first = results[0]
    spec = None if first.objective in BASELINES else first.parsed_objective.spec
    inner = [r.inner_accuracy for r in results if r.inner_accuracy is not None]
    matrices = [np.array(r.confusion) for r in results if r.confusion]
    class_sizes = [sum(row) for row in first.confusion or ()]
    chosen: Counter[str] = Counter()
    for result in results:
        chosen.update(result.chosen)
    return Cell(
        dataset=row,
        objective=first.objective,
        mean=statistics.fmean(accuracies),
        std=statistics.stdev(accuracies),
        n=len(accuracies),
        seconds=sum(result.timing.seconds for result in results),
        paper=paper,
        untrained=untrainable_reason(spec, first.classes) if spec else None,
        remark=two_class_remark(spec) if spec and first.classes == 2 else None,
        diverged=sum(len(result.diverged) for result in results),
        collapsed=sum(len(result.collapsed) for result in results),
        chosen=tuple((candidate, n) for candidate, n in chosen.most_common() if n),
        metrics={
            name: mean_and_std(known_values(results, name))
            for name in FOLD_METRICS
            if first.values(name)
        },
        candidates=first.candidates,
        inner_accuracy=statistics.fmean(inner) if inner else None,
        fixed=first.split == "fixed",
        test_rows=sum(first.tested[0]),
        chance=100 * max(class_sizes) / sum(class_sizes) if class_sizes else None,
        confusion=np.sum(matrices, axis=0).tolist() if len(matrices) == len(results) else None,
        class_names=first.class_names,
    )


def known_values(results: Iterable[CVResult], metric: str) -> list[float]:
    """Return the values of a metric of all folds that define it."""
    return [v for r in results for repeat in r.values(metric) for v in repeat if v is not None]


@dataclass
class Grid:
    """A table: a row for each data set, a column for each objective; cells may be missing.

    Attributes:
        published: cells by (data set, objective).
        seeds: how many results make a cell.
        skipped: (data set, reason) of the rows that are skipped.
        settings: of a grid, each row's data set and setting; `datasets` are these rows then.
        row_of: the row of each trial by its id; other trials are in the row of their data set.
        baselines: the names of scikit-learn's classifiers.
        metric: what is compared and ranked, one of `FOLD_METRICS`.
        results: of each cell, one for each seed, in the order of the seeds.
    """

    datasets: Sequence[str]
    objectives: Sequence[str]
    published: Mapping[CellKey, PublishedMean]
    seeds: int = 1
    skipped: Sequence[tuple[str, str]] = ()
    settings: Mapping[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    row_of: Mapping[str, str] = field(default_factory=dict)
    baselines: Sequence[str] = ()
    metric: str = "accuracy"
    results: dict[CellKey, list[CVResult]] = field(default_factory=dict, init=False)
    cells: dict[CellKey, Cell] = field(default_factory=dict, init=False)

    def add(self, result: CVResult) -> Cell | None:
        """Add the result of a trial; return the cell if this result completes it."""
        key = self._add(result)
        return None if len(self.results[key]) < self.seeds else self._make_cell(key)

    def add_all(self, results: Iterable[CVResult]) -> None:
        """Add all results that there are, and make each cell once from however many it has."""
        for result in results:
            self._add(result)
        for key in self.results:
            self._make_cell(key)

    def _add(self, result: CVResult) -> CellKey:
        key = (self.row_of.get(result.trial, result.dataset), result.objective)
        bisect.insort(self.results.setdefault(key, []), result, key=lambda r: r.seed)
        return key

    def _make_cell(self, key: CellKey) -> Cell:
        self.cells[key] = cell(key[0], self.results[key], self.published.get(key))
        return self.cells[key]

    def in_order(self) -> list[Cell]:
        """Return the cells of the objectives row by row, in whatever order they came."""
        return [c for d in self.datasets for c in self.row(d) if c.objective in self.objectives]

    def baseline_cells(self) -> list[Cell]:
        return [c for d in self.datasets for c in self.row(d) if c.objective in self.baselines]

    def row(self, dataset: str) -> list[Cell]:
        """Return the cells of a row, those of the baselines last."""
        columns = (*self.objectives, *self.baselines)
        return [self.cells[dataset, c] for c in columns if (dataset, c) in self.cells]

    @property
    def higher_is_better(self) -> bool:
        return FOLD_METRICS[self.metric].direction == "higher"

    def complete_rows(self, published: bool = False) -> list[list[float]]:
        """Return the means of the rows without missing cells, in the order of the objectives.

        Empty for a grid of settings, whose rows are not independent data sets.
        """
        rows = []
        for dataset in self.datasets if not self.settings else ():
            cells = [c for o in self.objectives if (c := self.cells.get((dataset, o)))]
            means = [m for c in cells if (m := c.of(self.metric).mean) is not None]
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
        largest, smallest = means.max(1, keepdims=True), means.min(1, keepdims=True)
        best = means == (largest if self.higher_is_better else smallest)
        wins: list[float] = (best / best.sum(1, keepdims=True)).sum(0).tolist()
        return wins
