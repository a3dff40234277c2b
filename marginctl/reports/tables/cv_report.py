"""The report of a cross-validation, and the tables of an own comparison: methods and classes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from marginctl.metrics.registry import FOLD_METRICS
from marginctl.reports.answer_text import answer_lines, budget_notes
from marginctl.reports.tables.class_tables import ClassCounts, class_tables
from marginctl.reports.tables.cv_table import (
    Place,
    best_text,
    cv_document,
    cv_table,
    format_value,
    metric_cell,
)
from marginctl.reports.tables.table import (
    Cell,
    Report,
    Table,
    flat_record,
    number_range,
    table_of_texts,
)
from marginctl.results.answers import Answer
from marginctl.results.collect import Run
from marginctl.results.compare import Comparisons
from marginctl.results.cv_cells import Grid


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
    cells = grid.row(row)
    best = {name: best_text([c.of(name).mean for c in cells], FOLD_METRICS[name]) for name in names}
    rows: list[list[str | Cell]] = []
    for cell in cells:
        first = FOLD_METRICS[grid.metric]
        shown = [metric_cell(cell, first, best[grid.metric], comparisons, runs or {}, {})]
        for name in names[1:]:
            text = format_value(cell.of(name).mean, FOLD_METRICS[name])
            shown.append(Cell(text, best=text == best[name]))
        rows.append([cell.objective, *shown, str(cell.n)])
    headings = [FOLD_METRICS[name].short_heading for name in names]
    return table_of_texts(_own_caption(grid, row), ["method", *headings, "n"], rows, key=row)


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
    yield from class_tables(row, counts, best, "rows", "folds")


def _own_caption(grid: Grid, row: str) -> str:
    cells = grid.row(row)
    label = FOLD_METRICS[grid.metric].label
    n = number_range(cell.n for cell in cells)
    if cells[0].fixed:
        over = f"one test set; mean ± standard deviation over n = {n} initializations"
    else:
        over = f"mean over n = {n} folds, of {label} with the standard deviation"
    return f"{row}: {over}; best per column in bold."
