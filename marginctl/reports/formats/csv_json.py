"""A report as data: JSON and CSV, numbers in full."""

from typing import Any

from marginctl.reports.build import Assembled, is_of_folds
from marginctl.reports.tables import cv_table as tables
from marginctl.results.verdict import Judged, JudgedTable


def as_json(assembled: Assembled) -> dict[str, Any]:
    """The document of `report --format json`."""
    return {
        "schema": 1,
        "command": "report",
        "tables": [
            {"recipe": t.table.recipe, "paper": t.table.paper, "table": t.table.table}
            | tables.as_json(t.collector.grid, t.table.protocol, t.compared)
            for t in assembled.tables
        ],
        "trained": [
            {
                "recipe": t.trained.recipe,
                "paper": t.trained.paper,
                "table": t.trained.table,
                **t.trained.training,
                "cells": [c.as_json() for c in t.cells],
                "tests": [c.as_json(t.baseline) for c in t.compared],
            }
            for t in assembled.trained
        ],
        "published": [_published_json(p.judged) for p in assembled.papers],
        "problems": list(assembled.problems),
    }


def _published_json(judged: JudgedTable) -> dict[str, Any]:
    cells = [
        {
            "row": c.row,
            "column": c.column,
            "metric": c.quantity.metric,
            "unit": c.quantity.unit,
            "direction": c.quantity.direction,
            "delta": c.quantity.delta,
            "published": None
            if c.published is None
            else {"mean": c.published.mean, "std": c.published.std, "n": c.published.n},
            "mean": c.mean,
            "std": c.std,
            "n": c.n,
            "difference": c.difference,
            "interval": None if c.low is None else [c.low, c.high],
            "verdict": c.verdict,
            "reason": c.reason,
            "differing": {k: list(v) for k, v in c.differing.items()},
            "best": c.best,
        }
        for c in judged.cells.values()
    ]
    counts = {str(verdict): count for verdict, count in judged.counts().items()}
    return {
        "paper": judged.table.paper,
        "table": judged.table.number,
        "counts": counts,
        "cells": cells,
    }


def csv_rows(assembled: Assembled) -> list[list[Any]]:
    """One line a cell of every table, numbers in full; the first row is the heading.

    `title` tells the tables of one recipe apart: by the protocol, or by the network they start at.
    """
    heading = ["recipe", "paper", "table", "row", "objective", "mean", "std", "n"]
    heading += [
        "published_mean",
        "published_std",
        "difference",
        "low",
        "high",
        "verdict",
        "note",
        "title",
    ]
    rows: list[list[Any]] = [heading]
    for t in assembled.tables:
        for cell in t.collector.grid.in_order():
            paper = (cell.paper.mean, cell.paper.std) if cell.paper else (None, None)
            judged = t.verdicts.get((cell.dataset, cell.objective))
            rows.append(
                [
                    *(t.table.recipe, t.table.paper, t.table.table, cell.dataset, cell.objective),
                    *(
                        cell.mean,
                        cell.std,
                        cell.n,
                        *paper,
                        *_verdict_of(judged),
                        cell.note,
                        t.shown.title,
                    ),
                ]
            )
    for p in assembled.papers:
        for c in p.judged.cells.values() if not is_of_folds(p.judged) else ():
            if c.mean is not None:
                published = (c.published.mean, c.published.std) if c.published else (None, None)
                rows.append(
                    [
                        *(None, p.judged.table.paper, p.judged.table.number, c.row, c.column),
                        *(c.mean, c.std, c.n, *published, *_verdict_of(c), c.reason, p.shown.title),
                    ]
                )
    for of in assembled.trained:
        for own in of.cells:
            numbers = own.as_json()["last"]
            rows.append(
                [
                    *(of.trained.recipe, of.trained.paper, of.trained.table, own.row),
                    *(own.objective, numbers["mean"], numbers["std"], len(own.last)),
                    *(None, None, *_verdict_of(None), "diverged" if own.diverged else None),
                    of.shown.title,
                ]
            )
    return [["" if value is None else value for value in row] for row in rows]


def _verdict_of(judged: Judged | None) -> tuple[Any, ...]:
    """Difference, the ends of its interval, and the verdict."""
    if judged is None:
        return None, None, None, None
    return judged.difference, judged.low, judged.high, judged.verdict
