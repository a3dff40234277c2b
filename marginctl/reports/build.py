"""Builds the report of runs: their tables with tests, and the published tables with verdicts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from marginctl.errors import RequestError
from marginctl.metrics.registry import METRICS, metrics_in, network_metric
from marginctl.objectives.parsing import ParsedObjective
from marginctl.papers import PublishedTable, published_means, published_table
from marginctl.papers import papers as all_papers
from marginctl.recipe.train import TrainRecipe
from marginctl.reports.answer_text import answer_lines
from marginctl.reports.tables import cv_table, training_table
from marginctl.reports.tables.published_table import published_table as table_of_verdicts
from marginctl.reports.tables.published_table import quantity_json, verdict_notes
from marginctl.reports.tables.table import Report, Table
from marginctl.results import compare
from marginctl.results.answers import Answer, fold_answers
from marginctl.results.collect import Collected, CVRuns, Run, TrainingRuns
from marginctl.results.cv_cells import Grid
from marginctl.results.verdict import CellVerdict, TableVerdicts, judge_table
from marginctl.utils.text import format_setting

Place = tuple[str, str]  # row, objective


@dataclass(frozen=True)
class CVReport:
    """Cross-validation runs with their tests, their table, and verdicts on published cells."""

    runs: CVRuns
    grid: Grid
    comparisons: compare.Comparisons
    verdicts: Mapping[Place, CellVerdict]
    table: Table
    answers: Sequence[Answer] = ()

    def as_json(self) -> dict[str, Any]:
        answers = {"answers": [answer.as_json() for answer in self.answers]}
        protocol = cv_table.cv_document(self.grid, self.runs.protocol, self.comparisons)
        names = compare.attributes(self.runs, "recipe", "paper", "table")
        return names | {"schema": 1, "command": "uci-cv"} | protocol | answers | {"failed": []}

    def records(self) -> Iterator[dict[str, Any]]:
        for cell in (*self.grid.in_order(), *self.grid.baseline_cells()):
            place = (cell.dataset, cell.objective)
            numbers = (cell.mean, cell.std, cell.n)
            verdict = self.verdicts.get(place)
            record = _record(self.runs, self.table, place, numbers, cell.note, cell.paper, verdict)
            for name, values in cell.metrics.items() if cell.is_measured else ():
                record |= {f"{name}_{key}": value for key, value in values._asdict().items()}
            yield record


@dataclass(frozen=True)
class TrainingReport:
    """Training runs with their tests and their table."""

    runs: TrainingRuns
    cells: Sequence[training_table.TrainingCell]
    baseline: str
    comparisons: Sequence[compare.Comparison]
    table: Table
    metric: str = "accuracy"  # of `--metric`, which own comparisons are ranked by
    answers: Sequence[Answer] = ()

    def as_json(self) -> dict[str, Any]:
        source = self.runs.source_model
        return {
            **compare.attributes(self.runs, "recipe", "paper", "table"),
            **self.runs.training,
            **({"source_model": {"weights_sha256": source.weights_sha256}} if source else {}),
            "cells": [cell.as_json() for cell in self.cells],
            "tests": [compare.seeds_document(c, self.baseline) for c in self.comparisons],
            "answers": [answer.as_json() for answer in self.answers],
        }

    def records(self) -> Iterator[dict[str, Any]]:
        for cell in self.cells:
            last = training_table.mean_std_json(cell.last)
            numbers = (last["mean"], last["std"], len(cell.last))
            note = "diverged" if cell.diverged else None
            record = _record(self.runs, self.table, (cell.row, cell.objective), numbers, note)
            for name, values in cell.metrics.items():
                if name != "top1":
                    metric = training_table.mean_std_json(values)
                    record |= {f"{name}_{key}": metric[key] for key in ("mean", "std")}
            yield record


@dataclass(frozen=True)
class PublishedReport:
    """A published table that some runs were made for, with verdicts."""

    compared: TableVerdicts
    table: Table

    def as_json(self) -> dict[str, Any]:
        return {
            "paper": self.compared.table.paper,
            "table": self.compared.table.number,
            "counts": {str(verdict): count for verdict, count in self.compared.counts().items()},
            "cells": [_verdict_json(cell) for cell in self.compared.cells.values()],
        }

    def records(self) -> Iterator[dict[str, Any]]:
        for place, cell in self.compared.cells.items():
            if cell.mean is not None:
                numbers, table = (cell.mean, cell.std, cell.n), self.compared.table
                yield _record(table, self.table, place, numbers, cell.reason, cell.published, cell)


def _verdict_json(cell: CellVerdict) -> dict[str, Any]:
    published = cell.published
    fields = ("row", "column", "mean", "std", "n", "difference", "verdict", "reason", "best")
    return {
        **compare.attributes(cell, *fields),
        **quantity_json(cell.quantity),
        "published": published and compare.attributes(published, "mean", "std", "n"),
        "interval": cell.interval,
        "differing": {k: list(v) for k, v in cell.differences.items()},
    }


def _record(
    runs: CVRuns | TrainingRuns | PublishedTable,
    table: Table,
    place: Place,
    numbers: tuple[float | None, float | None, int],
    note: str | None,
    published: Any = None,
    verdict: CellVerdict | None = None,
) -> dict[str, Any]:
    """Return a cell as a line of CSV; its title tells the tables of one recipe apart."""
    if isinstance(runs, PublishedTable):
        names: tuple[str | None, ...] = (None, runs.paper, runs.number)
    else:
        names = (runs.recipe, runs.paper, runs.table)
    keys = ("recipe", "paper", "table", "row", "objective", "mean", "std", "n")
    low, high = (verdict and verdict.interval) or (None, None)
    return {
        **dict(zip(keys, (*names, *place, *numbers), strict=True)),
        **{f"published_{k}": getattr(published, k, None) for k in ("mean", "std")},
        "difference": verdict and verdict.difference,
        "low": low,
        "high": high,
        "verdict": verdict and verdict.verdict,
        "note": note,
        "title": table.title,
    }


@dataclass(frozen=True)
class RunsReport(Report):
    """The report of runs; its `tables` are those of the results that stand for themselves."""

    cross_validation: Sequence[CVReport] = ()
    training: Sequence[TrainingReport] = ()
    published: Sequence[PublishedReport] = ()


def build_report(
    collected: Collected,
    *,
    paper: str | None = None,
    number: str | None = None,
    baseline: ParsedObjective | None = None,
    metric: str = "accuracy",
    sources: Sequence[str] = (),
) -> RunsReport:
    """Return the report of runs: of a paper, or of its table of a number, where these are given.

    Args:
        metric: of own comparisons; other tables have the accuracy.

    Raises:
        RequestError: the baseline is in no table; no such table of the paper; a metric of own
            comparisons, of which there are none.
    """
    if paper is not None and number is not None:
        published_table(paper, number)
    runs = collected.runs
    compared = [
        judge_table(table, runs)
        for one in all_papers()
        for table in one.tables.values()
        if paper in (None, one.name) and number in (None, table.number) and table.recipes
    ]
    published = [
        PublishedReport(j, table_of_verdicts(j, key=f"{j.table.paper}-{j.table.number}"))
        for j in compared
        if j.shown
    ]
    cv_runs = [r for r in collected.cv_runs if _belongs(r, paper, number)]
    training_runs = [r for r in collected.training_runs if _belongs(r, paper, number)]
    papers = [r.paper for r in cv_runs] + [r.paper for r in training_runs]
    if metric != "accuracy" and papers and None not in papers:
        raise RequestError(
            f"--metric {metric}: none of these runs is a comparison of your own: expected --metric "
            "accuracy"
        )
    grids = [r.cv_grid(metric if r.paper is None else "accuracy") for r in cv_runs]
    cells = [
        training_table.training_cells(run.training_result for run in r.in_order())
        for r in training_runs
    ]
    objectives = [tuple(grid.objectives) for grid in grids]
    objectives += [tuple(dict.fromkeys(cell.objective for cell in group)) for group in cells]
    chosen = iter(compare.resolve_baselines(objectives, baseline))
    keys = iter(_keys([r.recipe for r in cv_runs] + [r.recipe for r in training_runs]))
    by_table = {(p.compared.table.paper, p.compared.table.number): p.compared for p in published}
    cross_validation = [
        _cv_result(r, grid, next(chosen), by_table.get((r.paper or "", r.table or "")), next(keys))
        for r, grid in zip(cv_runs, grids, strict=True)
    ]
    training = [
        _training_result(r, group, next(chosen), next(keys), metric)
        for r, group in zip(training_runs, cells, strict=True)
    ]
    # the tables of cross-validation have the published values in their cells
    separate = [p for k, p in zip(by_table, published, strict=True) if not published_means(*k)]
    results: list[CVReport | PublishedReport | TrainingReport] = []
    results += [*cross_validation, *separate, *training]
    return RunsReport(
        tables=[result.table for result in results],
        records=[record for result in results for record in result.records()],
        document={
            "schema": 1,
            "command": "report",
            "tables": [result.as_json() for result in cross_validation],
            "trained": [result.as_json() for result in training],
            "published": [result.as_json() for result in published],
            "problems": list(collected.problems),
        },
        sources=sources,
        problems=collected.problems,
        cross_validation=cross_validation,
        training=training,
        published=published,
    )


def _belongs(runs: CVRuns | TrainingRuns, paper: str | None, number: str | None) -> bool:
    return paper in (None, runs.paper) and number in (None, runs.table)


def _cv_result(
    runs: CVRuns, grid: Grid, baseline: str, compared: TableVerdicts | None, key: str
) -> CVReport:
    comparisons = compare.compare_folds(grid, baseline)
    by_place = _by_place(runs)
    verdicts = _verdicts(compared, by_place) if compared else {}
    protocol = _protocol(runs)
    if all(cell.fixed for cell in grid.cells.values()):  # there are no folds
        protocol = {k: v for k, v in protocol.items() if k not in ("folds", "stratified")}
    title = _title(runs.recipe, runs.paper, runs.table, protocol)
    options: dict[str, Any] = {"key": key, "title": title, "runs": by_place}
    if runs.paper is None and not runs.grid:
        answers = fold_answers(grid, comparisons)
        lines = answer_lines(answers, baseline)
        table = cv_table.own_table(grid, comparisons, lines, by_class=True, **options)
        return CVReport(runs, grid, comparisons, verdicts, table, answers)
    notes = verdict_notes(compared) if compared and verdicts else ()
    table = cv_table.cv_table(grid, comparisons, verdicts=verdicts, notes=notes, **options)
    return CVReport(runs, grid, comparisons, verdicts, table)


def _verdicts(
    compared: TableVerdicts, runs: Mapping[Place, tuple[Run, ...]]
) -> dict[Place, CellVerdict]:
    """Return the compared cells whose numbers come from these runs, by data set and objective."""
    verdicts = {}
    for place, cell in compared.cells.items():
        selection = compared.table.selections[place]
        ours = (str(selection.get("dataset")), str(selection.get("objective")))
        if cell.runs and {r.path for r in cell.runs} <= {r.path for r in runs.get(ours, ())}:
            verdicts[ours] = cell
    return verdicts


def _protocol(runs: CVRuns) -> dict[str, Any]:
    """Return the protocol without the settings that nested cross-validation chooses."""
    if not (tune := runs.tune):
        return runs.protocol
    chosen = list(dict.fromkeys(["lr", *tune["protocol"], "options"]))
    if tune["options"] or "lr" in tune["protocol"]:  # a grid
        chosen = [*tune["protocol"], *(["options"] if tune["options"] else [])]
    fixed = {k: v for k, v in runs.protocol.items() if k not in chosen}
    return fixed | {"tuned": "+".join(chosen)}


_DEFAULTS = TrainRecipe(task="train").model_dump(include={"data", "optim", "train"})


def _training_result(
    runs: TrainingRuns,
    cells: Sequence[training_table.TrainingCell],
    baseline: str,
    key: str,
    metric: str,
) -> TrainingReport:
    ranked_by = METRICS["top1"] if runs.paper else network_metric(metric)
    results = [run.training_result for run in runs.in_order()]
    compared = [m.name for m in metrics_in(results).values() if m.direction != "none"]
    comparisons = [c for name in compared for c in compare.compare_seeds(results, baseline, name)]
    settings = {
        key: value
        for section, defaults in _DEFAULTS.items()
        for key, value in runs.training[section].items()
        if value != defaults.get(key)
    }
    title = _title(runs.recipe, runs.paper, runs.table, settings)
    if runs.source_model is not None:  # by its path: a digest tells a reader nothing
        title += f", source_model={runs.source_model.path}"
    table = training_table.training_table(
        cells,
        training_table.source_cells(results),
        comparisons,
        baseline,
        key=key,
        title=title,
        runs=_by_place(runs),
        metric=ranked_by,
    )
    if runs.paper is not None:
        return TrainingReport(runs, cells, baseline, comparisons, table)
    table, answers = training_table.own_table(
        table, results, cells, comparisons, baseline, ranked_by
    )
    table = replace(
        table, details=(*table.details, *training_table.own_class_tables(results, cells, ranked_by))
    )
    return TrainingReport(runs, cells, baseline, comparisons, table, metric, answers)


def _title(recipe: str, paper: str | None, number: str | None, settings: Mapping[str, Any]) -> str:
    """Return the recipe, the published table, and the settings in a line."""
    source = f" ({paper}, table {number})" if paper and number else ""
    return f"{recipe}{source}: " + ", ".join(
        f"{k}={format_setting(v)}" for k, v in settings.items()
    )


def _by_place(table: CVRuns | TrainingRuns) -> dict[Place, tuple[Run, ...]]:
    runs: dict[Place, tuple[Run, ...]] = {}
    for (row, objective, _), run in table.runs.items():
        runs[row, objective] = (*runs.get((row, objective), ()), run)
    return runs


def _keys(recipes: Iterable[str]) -> list[str]:
    """Return a name for each table, numbered where a recipe has several."""
    keys: list[str] = []
    counts: Counter[str] = Counter()
    for recipe in recipes:
        counts[recipe] += 1
        number = f"-{counts[recipe]}" if counts[recipe] > 1 else ""
        keys.append(recipe.replace("/", "-") + number)
    return keys
