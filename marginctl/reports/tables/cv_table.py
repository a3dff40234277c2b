"""A cross-validation table as CSV, as JSON, and while it grows."""

import csv
import io
from collections.abc import Iterable
from typing import Any

from rich.table import Table
from rich.text import Text

from marginctl.reports.formats.terminal import heading, plain_table
from marginctl.results import compare_folds
from marginctl.results.compare_folds import Comparisons
from marginctl.results.cv_cells import Grid
from marginctl.utils.text import plain


def live_table(grid: Grid) -> Table:
    """One line a data set, means alone: small enough to redraw while cells finish."""
    table = plain_table()
    table.add_column("data set", no_wrap=True, overflow="ellipsis", min_width=10)
    for objective in grid.objectives:
        table.add_column(Text(heading(objective)), justify="right", min_width=5)
    for dataset in grid.datasets:
        cells = [grid.cells.get((dataset, o)) for o in grid.objectives]
        table.add_row(Text(dataset), *(f"{c.mean:.2f}" if c else "·" for c in cells))
    return table


def as_csv(grid: Grid) -> str:
    """One line a cell, numbers in full."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["dataset", "objective", "mean", "std", "n", "seconds", "paper_mean", "paper_std", "note"]
    )
    for cell in grid.in_order():
        paper = (cell.paper.mean, cell.paper.std) if cell.paper else ("", "")
        row = (cell.dataset, cell.objective, cell.mean, cell.std, cell.n, round(cell.seconds, 3))
        writer.writerow([*row, *paper, cell.note or ""])
    return out.getvalue().rstrip("\n")


def as_json(
    grid: Grid,
    protocol: dict[str, Any],
    made: Comparisons,
    failed: Iterable[str] = (),
) -> dict[str, Any]:
    """The document of `uci-cv --json`; `failed` has a line for each trial without a result."""
    cells = [
        {
            **_place(grid, cell.dataset),
            "objective": cell.objective,
            "mean": cell.mean,
            "std": cell.std,
            "n": cell.n,
            "seconds": cell.seconds,
            "paper": {"mean": cell.paper.mean, "std": cell.paper.std} if cell.paper else None,
            "note": cell.note,
        }
        for cell in grid.in_order()
    ]
    wins = grid.wins()
    compared = compare_folds.as_json(made)
    compared["tests"] = [t | _place(grid, t["dataset"]) for t in compared["tests"]]
    return {
        "schema": 1,
        "command": "uci-cv",
        "protocol": protocol,
        "cells": cells,
        "skipped": [{"dataset": d, "reason": reason} for d, reason in grid.skipped],
        "failed": list(failed),
        **compared,
        "wins": dict(zip(grid.objectives, wins, strict=True)) if wins else {},
    }


def _place(grid: Grid, row: str | None) -> dict[str, Any]:
    """A row's data set; of a grid, its setting too."""
    if row is None or row not in grid.settings:
        return {"dataset": row}
    dataset, setting = grid.settings[row]
    return {"dataset": dataset, "setting": setting}


def title(recipe: str, paper: str | None, number: str | None, protocol: dict[str, Any]) -> str:
    """One line on a table: its recipe, the published table, and the protocol."""
    settings = ", ".join(f"{k}={plain(v)}" for k, v in protocol.items())
    source = f" ({paper}, table {number})" if paper and number else ""
    return f"{recipe}{source}: {settings}"
