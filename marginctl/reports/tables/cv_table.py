"""Reports and tables of cross-validation, and tables of an own comparison by method and class."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.table import Table as RichTable
from rich.text import Text

from marginctl.metrics.registry import FOLD_METRICS, Metric
from marginctl.reports.answer_text import answer_lines, budget_notes, unpaired_notes
from marginctl.reports.formats.terminal import heading, plain_table
from marginctl.reports.tables.class_tables import ClassCounts, class_tables
from marginctl.reports.tables.published_table import SYMBOLS, verdict_text
from marginctl.reports.tables.table import (
    COLLAPSED,
    DIRECTIONS,
    DIVERGED,
    Cell,
    Report,
    Row,
    Table,
    directions_note,
    flat_record,
    format_mean_std,
    format_p,
    group_by_text,
    number_range,
    table_of_texts,
)
from marginctl.results import cv_cells
from marginctl.results.answers import Answer
from marginctl.results.collect import Run
from marginctl.results.compare import Comparison, Comparisons, attributes, folds_document
from marginctl.results.cv_cells import Grid
from marginctl.results.verdict import CellVerdict
from marginctl.utils.text import count_noun

Place = tuple[str, str]  # data set, objective

UNTRAINED = "u"  # the footnote of an objective that cannot learn the data set


def cv_report(
    grid: Grid,
    protocol: Mapping[str, Any],
    comparisons: Comparisons,
    failed: Iterable[str] = (),
    answers: Sequence[Answer] = (),
) -> Report:
    """Return what `uci-cv` prints; `failed` has a line for each trial without a result."""
    document = {"schema": 1, "command": "uci-cv", **cv_document(grid, protocol, comparisons)}
    document["answers"] = [answer.as_json() for answer in answers]
    no_paper = {"mean": None, "std": None}
    records = [
        flat_record(
            {k: v for k, v in cell.items() if k not in ("chosen", "confusion", "class_names")}
            | {"seconds": round(cell["seconds"], 3), "paper": cell["paper"] or no_paper}
            | ({"chosen": cell["chosen"][0]["candidate"]} if "chosen" in cell else {})
        )
        for cell in (*document["cells"], *document["baselines"])
    ]
    lines = answer_lines(answers, comparisons.baseline)
    table = own_table(grid, comparisons, lines) if answers else cv_table(grid, comparisons)
    return Report([table], records, document | {"failed": list(failed)})


def cv_document(
    grid: Grid, protocol: Mapping[str, Any], comparisons: Comparisons
) -> dict[str, Any]:
    """Return the JSON object of a table, with its tests."""
    wins = grid.wins()
    compared = folds_document(comparisons)
    compared["tests"] = [t | _row_json(grid, t["dataset"]) for t in compared["tests"]]
    return {
        "protocol": protocol,
        "metric": grid.metric,
        "cells": [_cell_json(grid, cell) for cell in grid.in_order()],
        "baselines": [_cell_json(grid, cell) for cell in grid.baseline_cells()],
        "skipped": [{"dataset": d, "reason": reason} for d, reason in grid.skipped],
        **compared,
        "wins": dict(zip(grid.objectives, wins, strict=True)) if wins else {},
    }


def _cell_json(grid: Grid, cell: cv_cells.Cell) -> dict[str, Any]:
    document = {
        **_row_json(grid, cell.dataset),
        **attributes(cell, "objective", "mean", "std", "n", "seconds"),
        "paper": attributes(cell.paper, "mean", "std") if cell.paper else None,
        "note": cell.note,
    }
    if cell.is_measured:
        measured = ("candidates", "inner_accuracy", "confusion", "class_names")
        document["metrics"] = {name: value._asdict() for name, value in cell.metrics.items()}
        document |= attributes(cell, *measured)
    if cell.chosen:
        document["chosen"] = [{"candidate": c, "networks": n} for c, n in cell.chosen]
    return document


def _row_json(grid: Grid, row: str | None) -> dict[str, Any]:
    """Return the data set of a row; of a grid of settings, the setting too."""
    if row is None or row not in grid.settings:
        return {"dataset": row}
    dataset, setting = grid.settings[row]
    return {"dataset": dataset, "setting": setting}


def cv_table(
    grid: Grid,
    comparisons: Comparisons,
    *,
    key: str = "table",
    title: str = "",
    runs: Mapping[Place, tuple[Run, ...]] | None = None,
    verdicts: Mapping[Place, CellVerdict] | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """Return a cross-validation table with the runs and the verdicts of its cells.

    The baselines of scikit-learn are the last columns.
    """
    metric, rows = FOLD_METRICS[grid.metric], []
    columns = (*grid.objectives, *grid.baselines)
    for dataset in grid.datasets:
        cells = grid.row(dataset)
        best = best_text((c.of(grid.metric).mean for c in cells), metric)
        shown = {
            c.objective: metric_cell(c, metric, best, comparisons, runs or {}, verdicts or {})
            for c in cells
        }
        if shown:
            rows.append(Row(dataset, tuple(map(shown.get, columns))))
    return Table(
        key=key,
        title=title,
        caption=_caption(grid) if grid.cells else "",
        label_heading="data set",
        columns=columns,
        rows=(*rows, *_feet(grid)),
        notes=(
            *_chosen_most(grid),
            *_footnotes(grid, comparisons),
            *_tests_over_datasets(grid, comparisons),
            *(
                f"skipped {len(names)}: {', '.join(names)}: {reason}"
                for reason, names in group_by_text(grid.skipped).items()
            ),
            *notes,
        ),
    )


def live_table(grid: Grid) -> RichTable:
    """Return the means of the finished cells, a line for each data set: fast to redraw."""
    table = plain_table()
    table.add_column("data set", no_wrap=True, overflow="ellipsis", min_width=10)
    for objective in grid.objectives:
        table.add_column(Text(heading(objective)), justify="right", min_width=5)
    for dataset in grid.datasets:
        cells = [grid.cells.get((dataset, o)) for o in grid.objectives]
        table.add_row(Text(dataset), *(f"{c.mean:.2f}" if c else "·" for c in cells))
    return table


def metric_cell(
    cell: cv_cells.Cell,
    metric: Metric,
    best: str | None,
    comparisons: Comparisons,
    runs: Mapping[Place, tuple[Run, ...]],
    verdicts: Mapping[Place, CellVerdict],
) -> Cell:
    """Return mean and standard deviation of a metric, marked where they are the best ones."""
    place = (cell.dataset, cell.objective)
    comparison = comparisons.cells.get(place)
    compared = verdicts.get(place)
    remarks = [cell.note, verdict_text(compared) if compared else None]
    value = cell.of(metric.name)
    return Cell(
        format_mean_std(*value, metric.decimals),
        best=format_value(value.mean, metric) == best,
        footnotes=(UNTRAINED if cell.untrained else "")
        + (DIVERGED if cell.diverged else "")
        + (COLLAPSED if cell.collapsed else "")
        + DIRECTIONS[comparison.direction if comparison else 0],
        below=f"{cell.paper.mean:.2f} ± {cell.paper.std:.2f}" if cell.paper else "",
        below_footnotes=SYMBOLS[compared.verdict] if compared else "",
        verdict=compared.verdict if compared else None,
        remark="; ".join(filter(None, remarks)) or None,
        runs=runs.get(place, ()),
    )


def format_value(value: float | None, metric: Metric) -> str:
    """Return a number with the decimals of its metric, `-` for none."""
    return format_mean_std(value, None, metric.decimals)


def best_text(values: Iterable[float | None], metric: Metric) -> str | None:
    """Return the best of the values as it is shown; None without values."""
    best = metric.best(v for v in values if v is not None)
    return None if best is None else format_value(best, metric)


def _feet(grid: Grid) -> Iterable[Row]:
    """Yield averages and wins over the complete rows, and the paper's where it has the same."""
    if len(grid.datasets) < 2:
        return
    complete, total = len(grid.complete_rows()), len(grid.datasets)
    complete_of_total = "" if complete == total else f" ({complete} of {total})"
    paper_complete = len(grid.complete_rows(True)) == complete
    for name, numbers, number_format in (
        ("average", grid.averages, ".2f"),
        ("wins", grid.wins, ".4g"),
    ):
        ours, paper = numbers(), numbers(published=True)
        if ours is not None:
            published = paper if paper and paper_complete else [None] * len(ours)
            cells = (
                Cell(format(a, number_format), below="" if b is None else format(b, number_format))
                for a, b in zip(ours, published, strict=True)
            )
            empty = (None,) * len(grid.baselines)
            yield Row(name + complete_of_total, (*cells, *empty), foot=True)


def _caption(grid: Grid) -> str:
    n = number_range(c.n for c in grid.cells.values())
    published = any(c.paper for c in grid.cells.values())
    metric = FOLD_METRICS[grid.metric]
    name = f"{metric.label.capitalize()}{' in percent' if metric.unit else ''}"
    counted = "folds"
    if all(c.fixed for c in grid.cells.values()):
        counted = "initializations, on one test set"
    return f"{name}: mean ± standard deviation over n = {n} {counted}; best per row in bold" + (
        "; published values below ours." if published else "."
    )


def _footnotes(grid: Grid, comparisons: Comparisons) -> list[str]:
    """Return what the footnotes mean, a line each."""
    lines = []
    compared = list(comparisons.cells.values())
    if any(c.p_holm is not None and c.equal_budgets for c in compared):
        test = "corrected resampled t-test over the folds"
        if all(c.fixed for c in grid.cells.values()):
            test = "paired test over the test rows"
        lines.append(directions_note(comparisons.baseline, test))
    if comparisons.overlapping:
        lines.append(
            "folds overlap (stratified: equal-test-counts): n counts some rows twice, and the "
            "tests are anti-conservative"
        )
    lines += unpaired_notes(compared, comparisons.baseline)
    cells = grid.in_order()
    for reason in dict.fromkeys(c.untrained for c in cells if c.untrained):
        places = [(c.objective, c.dataset) for c in cells if c.untrained == reason]
        lines.append(f"{UNTRAINED}  {reason}: {_by_objective(places)}")
    remarks = [(f"{c.objective} on {c.dataset}", c.remark) for c in cells if c.remark]
    lines += [f"{', '.join(places)}: {text}" for text, places in group_by_text(remarks).items()]
    for mark, attribute, meaning in (
        (DIVERGED, "diverged", "loss not finite, network frozen before"),
        (COLLAPSED, "collapsed", "collapsed (constant prediction)"),
    ):
        counts = [(c, getattr(c, attribute)) for c in cells]
        places = [(c.objective, f"{c.dataset} {count}/{c.n}") for c, count in counts if count]
        if places:
            lines.append(f"{mark}  {meaning}: {_by_objective(places)}")
    return lines


def _chosen_most(grid: Grid) -> list[str]:
    """Return what each objective chose most often: a line each, or one for each of several rows."""
    by_row: dict[str, list[str]] = {}
    for cell in grid.in_order():
        if cell.chosen:
            (candidate, count), *_ = cell.chosen
            by_row.setdefault(cell.dataset, []).append(f"{candidate} ({count} of {cell.n})")
    if len(by_row) == 1:
        (choices,) = by_row.values()
        return [f"chosen most often: {choice}" for choice in choices]
    return [f"chosen most often on {row}: {'; '.join(choices)}" for row, choices in by_row.items()]


def _by_objective(places: Iterable[tuple[str, str]]) -> str:
    groups = group_by_text((dataset, objective) for objective, dataset in places)
    return "; ".join(f"{objective} on {', '.join(where)}" for objective, where in groups.items())


def _tests_over_datasets(grid: Grid, comparisons: Comparisons) -> list[str]:
    """Return the tests over data sets, a line each; nothing for fewer than two data sets."""
    if grid.settings or min(len(grid.datasets), len(grid.objectives)) < 2:
        return []
    complete, lines = comparisons.datasets, []
    if complete < len(grid.datasets):
        lines.append(f"over data sets: {complete} of {len(grid.datasets)} have every cell")
    test = comparisons.friedman
    if test.p is not None:
        lines.append(
            f"Friedman test over {complete} data sets: chi2 = {test.statistic:.2f}, "
            f"df = {test.df:.0f}, p = {format_p(test.p)}"
        )
    return lines + [_comparison_text(c, comparisons) for c in comparisons.overall]


def _comparison_text(comparison: Comparison, comparisons: Comparisons) -> str:
    """Return the comparison of a method with the baseline over data sets as a sentence."""
    low, high = comparison.bootstrap_interval or (None, None)
    interval = "" if low is None else f" (95 % bootstrap interval {low:+.2f} to {high:+.2f})"
    record = (
        f"W/T/L {comparison.wins}/{comparison.ties}/{comparison.losses} over "
        f"{count_noun(comparisons.datasets, 'data set')}, mean difference "
        f"{comparison.mean or 0:+.2f} percentage points{interval}"
    )
    names = f"{comparison.objective} against {comparisons.baseline}"
    if comparison.test.p is None:
        return f"{names}: {record}"
    return (
        f"Wilcoxon test, {names}: median difference {comparison.difference or 0:+.2f} percentage "
        f"points, rank-biserial r = {comparison.test.effect:+.2f}, Holm-adjusted "
        f"p = {format_p(comparison.p_holm)}; {record}"
    )


def own_table(
    grid: Grid,
    comparisons: Comparisons,
    answers: Sequence[str],
    *,
    by_class: bool = False,
    **options: Any,
) -> Table:
    """Return the table of an own comparison, with the answers above it.

    Of one data set it has a row for each method and a column for each metric; of several it is
    `cv_table`, with these tables as details. `options` are those of `cv_table`.

    Args:
        by_class: whether to add the results of each class.
    """
    per_row = [
        method_table(grid, row, comparisons, options.get("runs"))
        for row in grid.datasets
        if any(cell.is_measured for cell in grid.row(row))
    ]
    classes = [t for row in grid.datasets for t in _class_tables(grid, row)] if by_class else []
    table, details = cv_table(grid, comparisons, **options), (*per_row, *classes)
    budgets = budget_notes([cell.candidates for cell in grid.in_order()], "inner folds")
    notes = (*budgets, *table.notes)
    if len(grid.datasets) == 1 and per_row:
        table = replace(per_row[0], key=table.key, title=table.title)
        details = tuple(classes)
    return replace(table, answers=tuple(answers), notes=notes, details=details)


def method_table(
    grid: Grid,
    row: str,
    comparisons: Comparisons,
    runs: Mapping[Place, tuple[Run, ...]] | None = None,
) -> Table:
    """Return the methods of one data set, a row each, with all their metrics.

    The baselines of scikit-learn come last. The metric that is compared is the first column.
    """
    names = [grid.metric, *(name for name in FOLD_METRICS if name != grid.metric)]
    cells, first = grid.row(row), FOLD_METRICS[grid.metric]
    best = {name: best_text([c.of(name).mean for c in cells], FOLD_METRICS[name]) for name in names}
    rows: list[list[str | Cell]] = []
    for cell in cells:
        shown = [metric_cell(cell, first, best[grid.metric], comparisons, runs or {}, {})]
        for name in names[1:]:
            text = format_value(cell.of(name).mean, FOLD_METRICS[name])
            shown.append(Cell(text, best=text == best[name]))
        rows.append([cell.objective, *shown, str(cell.n)])
    headings = [FOLD_METRICS[name].short_heading for name in names]
    n = number_range(cell.n for cell in cells)
    over = f"mean over n = {n} folds, of {first.label} with the standard deviation"
    if cells[0].fixed:
        over = f"one test set; mean ± standard deviation over n = {n} initializations"
    caption = f"{row}: {over}; best per column in bold."
    return table_of_texts(caption, ["method", *headings, "n"], rows, key=row)


def _class_tables(grid: Grid, row: str) -> Iterator[Table]:
    cells = [cell for cell in grid.row(row) if cell.confusion]
    means = {c.objective: m for c in cells if (m := c.of(grid.metric).mean) is not None}
    sign = 1 if grid.higher_is_better else -1
    best = max(
        (o for o in grid.objectives if o in means), key=lambda o: sign * means[o], default=""
    )
    counts = [
        ClassCounts(cell.objective, cell.class_names, matrix.sum(1), matrix.diagonal(), matrix)
        for cell in cells
        for matrix in [np.array(cell.confusion)]
    ]
    networks = "initializations" if cells and cells[0].fixed else "folds"
    yield from class_tables(row, counts, best, "rows", networks)
