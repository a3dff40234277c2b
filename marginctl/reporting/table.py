"""A grid of cells as a terminal table, Markdown, CSV and JSON."""

import csv
import io
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from marginctl.reporting.cells import Cell, Grid

DATASET_WIDTH = 21
# One character a note in the table, explained below it.
UNTRAINED, DIVERGED, COLLAPSED = "u", "d", "c"


def marks(cell: Cell) -> str:
    return (
        (UNTRAINED if cell.untrained else "")
        + (DIVERGED if cell.diverged else "")
        + (COLLAPSED if cell.collapsed else "")
    )


def legend(grid: Grid) -> list[str]:
    """The notes, a line each, and the data sets that were left out."""
    cells = list(grid.cells.values())
    lines = []
    for reason in dict.fromkeys(c.untrained for c in cells if c.untrained):
        where = _by_objective([(c, "") for c in cells if c.untrained == reason])
        lines.append(f"{UNTRAINED}  {reason}: {where}")
    diverged = [(c, f" {c.diverged}/{c.n}") for c in cells if c.diverged]
    if diverged:
        lines.append(
            f"{DIVERGED}  loss not finite, network frozen before: {_by_objective(diverged)}"
        )
    collapsed = [(c, f" {c.collapsed}/{c.n}") for c in cells if c.collapsed]
    if collapsed:
        lines.append(f"{COLLAPSED}  one class predicted for every row: {_by_objective(collapsed)}")
    return lines


def _by_objective(cells: Iterable[tuple[Cell, str]]) -> str:
    groups: dict[str, list[str]] = {}
    for cell, text in cells:
        groups.setdefault(cell.objective, []).append(cell.dataset + text)
    return "; ".join(f"{objective} on {', '.join(where)}" for objective, where in groups.items())


def _skipped(grid: Grid) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for dataset, reason in grid.skipped:
        reasons.setdefault(reason, []).append(dataset)
    return [f"skipped {len(d)}: {', '.join(d)}: {reason}" for reason, d in reasons.items()]


def caption(grid: Grid) -> str:
    has_paper = any(c.paper for c in grid.cells.values())
    counts = sorted({c.n for c in grid.cells.values()})
    n = f"{counts[0]}" if len(set(counts)) == 1 else f"{counts[0]} to {counts[-1]}"
    text = (
        f"Accuracy in percent: mean ± standard deviation over n = {n} folds; best of a row in bold"
    )
    return text + ("; published values below ours." if has_paper else ".")


def rich_table(grid: Grid, width: int) -> RenderableType:
    """The table for a terminal of this width; columns that do not fit go into further tables."""
    if not grid.cells:
        return Group(*(Text(line) for line in _skipped(grid)))
    cell_width = max(len(_ours(c)) for c in grid.cells.values())
    a_column = max(cell_width, *(len(part) for o in grid.objectives for part in o.split(":"))) + 1
    at_once = max(1, (width - DATASET_WIDTH - 1) // a_column)
    blocks: list[RenderableType] = []
    for first in range(0, len(grid.objectives), at_once):
        blocks.append(_block(grid, range(first, min(first + at_once, len(grid.objectives)))))
    below = [caption(grid), *legend(grid), *_skipped(grid)]
    return Group(*blocks, *(Text(line) for line in below))


def _block(grid: Grid, columns: range) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("data set", width=DATASET_WIDTH)
    for i in columns:
        table.add_column(
            Text(grid.objectives[i].replace(":", ":\n"), justify="right"), justify="right"
        )
    for dataset in grid.datasets:
        row = [grid.cells.get((dataset, o)) for o in grid.objectives]
        best = max((round(c.mean, 2) for c in row if c), default=None)
        texts = [_cell_text(row[i], best) for i in columns]
        if any(row[i] for i in columns):
            table.add_row(_wrapped(dataset), *texts)
    for name, of in (("average", grid.averages), ("wins", grid.wins)):
        ours, paper = of(), of(published=True)
        if ours is None or len(grid.datasets) < 2:
            continue
        paper = (
            paper if paper and len(grid.complete_rows(True)) == len(grid.complete_rows()) else None
        )
        if name == "average":
            table.add_section()
        table.add_row(
            Text(name, style="bold"),
            *(
                Text(_number(ours[i], name))
                + (Text("\n" + _number(paper[i], name), style="dim") if paper else Text(""))
                for i in columns
            ),
        )
    return table


def _wrapped(dataset: str) -> str:
    """The name over lines that break after a hyphen."""
    lines = [""]
    for part in dataset.replace("-", "-\n").split("\n"):
        if len(lines[-1] + part) > DATASET_WIDTH:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _number(value: float, row: str) -> str:
    return f"{value:.2f}" if row == "average" else f"{value:.4g}"


def _ours(cell: Cell) -> str:
    return f"{marks(cell)} {cell.mean:.2f}±{cell.std:.2f}".strip()


def _cell_text(cell: Cell | None, best: float | None) -> Text:
    if cell is None:
        return Text("")
    mark = marks(cell)
    text = Text(f"{mark} " if mark else "", style="yellow")
    text.append(f"{cell.mean:.2f}", style="bold" if round(cell.mean, 2) == best else "default")
    text.append(f"±{cell.std:.2f}", style="default")
    if cell.paper:
        text.append(f"\n{cell.paper.mean:.2f}±{cell.paper.std:.2f}", style="dim")
    return text


def live_table(grid: Grid) -> Table:
    """One line a data set, means alone: small enough to redraw while cells finish."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("data set", no_wrap=True, overflow="ellipsis", min_width=10)
    for objective in grid.objectives:
        table.add_column(Text(objective.replace(":", ":\n")), justify="right", min_width=5)
    for dataset in grid.datasets:
        cells = [grid.cells.get((dataset, o)) for o in grid.objectives]
        table.add_row(dataset, *(f"{c.mean:.2f}" if c else "·" for c in cells))
    return table


def markdown(grid: Grid) -> str:
    """GitHub's table, with the notes below."""
    if not grid.cells:
        return "\n".join(_skipped(grid))
    lines = [
        "| data set | " + " | ".join(f"`{o}`" for o in grid.objectives) + " |",
        "|---|" + "---:|" * len(grid.objectives),
    ]
    for dataset in grid.datasets:
        row = [grid.cells.get((dataset, o)) for o in grid.objectives]
        best = max((round(c.mean, 2) for c in row if c), default=None)
        lines.append(f"| {dataset} | " + " | ".join(_markdown_cell(c, best) for c in row) + " |")
    for name, of in (("average", grid.averages), ("wins", grid.wins)):
        ours = of()
        if ours is not None and len(grid.datasets) > 1:
            lines.append(f"| {name} | " + " | ".join(_number(v, name) for v in ours) + " |")
    notes = [f"- {line}" for line in [*legend(grid), *_skipped(grid)]]
    return "\n".join(
        [*lines, "", caption(grid).replace("below ours", "in brackets"), "", *notes]
    ).rstrip()


def _markdown_cell(cell: Cell | None, best: float | None) -> str:
    if cell is None:
        return ""
    mean = f"{cell.mean:.2f}"
    text = f"**{mean}**" if round(cell.mean, 2) == best else mean
    mark = marks(cell)
    text = f"{text} ± {cell.std:.2f}" + (f" <sup>{mark}</sup>" if mark else "")
    return text + (f" ({cell.paper.mean:.2f} ± {cell.paper.std:.2f})" if cell.paper else "")


def as_csv(grid: Grid) -> str:
    """One line a cell, numbers in full."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["dataset", "objective", "mean", "std", "n", "seconds", "paper_mean", "paper_std", "note"]
    )
    for cell in in_order(grid):
        paper = (cell.paper.mean, cell.paper.std) if cell.paper else ("", "")
        row = (cell.dataset, cell.objective, cell.mean, cell.std, cell.n, round(cell.seconds, 3))
        writer.writerow([*row, *paper, cell.note or ""])
    return out.getvalue().rstrip("\n")


def in_order(grid: Grid) -> list[Cell]:
    """The cells that are there, row by row."""
    places = ((d, o) for d in grid.datasets for o in grid.objectives)
    return [grid.cells[place] for place in places if place in grid.cells]


def as_json(grid: Grid, protocol: dict[str, Any]) -> dict[str, Any]:
    """The document of `uci-cv --json`."""
    cells = [
        {
            "dataset": cell.dataset,
            "objective": cell.objective,
            "mean": cell.mean,
            "std": cell.std,
            "n": cell.n,
            "seconds": cell.seconds,
            "paper": {"mean": cell.paper.mean, "std": cell.paper.std} if cell.paper else None,
            "note": cell.note,
        }
        for cell in in_order(grid)
    ]
    wins = grid.wins()
    return {
        "schema": 1,
        "command": "uci-cv",
        "protocol": protocol,
        "cells": cells,
        "skipped": [{"dataset": d, "reason": reason} for d, reason in grid.skipped],
        "tests": [],
        "ranks": {},
        "wins": dict(zip(grid.objectives, wins, strict=True)) if wins else {},
    }


def print_table(grid: Grid) -> None:
    """Prints the table on stdout: as wide as the terminal, or as wide as it is in a file."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, no_color=True, width=10_000)
    console.print(rich_table(grid, console.width), soft_wrap=not console.is_terminal)
