"""A grid of cells as a terminal table, Markdown, CSV and JSON."""

import csv
import io
import re
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from marginctl.reporting import compare
from marginctl.reporting.cells import Cell, Grid
from marginctl.reporting.compare import Comparisons, differs

DATASET_WIDTH = 21
HEADING_WIDTH = 16
# One character a note in the table, explained below it.
UNTRAINED, DIVERGED, COLLAPSED = "u", "d", "c"
BETTER, WORSE, DIFFERS = "▲", "▼", "≠"


def marks(cell: Cell, made: Comparisons | None) -> str:
    """The notes of a cell, and whether it is significantly better or worse than the baseline."""
    comparison = made.cells.get((cell.dataset, cell.objective)) if made else None
    return (
        (UNTRAINED if cell.untrained else "")
        + (DIVERGED if cell.diverged else "")
        + (COLLAPSED if cell.collapsed else "")
        + {1: BETTER, -1: WORSE, 0: ""}[comparison.direction if comparison else 0]
    )


def _paper_mark(cell: Cell, made: Comparisons | None) -> str:
    return DIFFERS if made and differs(made.published.get((cell.dataset, cell.objective))) else ""


def legend(grid: Grid, made: Comparisons | None) -> list[str]:
    """The notes and tests, a line each."""
    cells = grid.in_order()
    lines = []
    if made and made.cells:
        lines.append(
            f"{BETTER} {WORSE}  better or worse than {made.baseline}: corrected resampled t-test "
            "over the folds, p < 0.05 after Holm's correction over the methods of a row"
        )
    if made and made.published:
        count = sum(differs(test) for test in made.published.values())
        lines.append(
            f"{DIFFERS}  differs from the published value: z-test (approximate), p < 0.05: "
            f"{count} of {len(made.published)} cells"
        )
    if made and made.cells and made.overlapping:
        lines.append(
            "folds overlap (stratified: rounded-up): n counts some rows twice, and these tests are "
            "too sure of themselves"
        )
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


def conclusions(grid: Grid, made: Comparisons | None) -> list[str]:
    """What the tests over data sets say, a line each; nothing for fewer than two data sets."""
    if made is None or grid.settings or len(grid.datasets) < 2 or len(grid.objectives) < 2:
        return []
    if made.datasets < len(grid.datasets):
        lines = [f"over data sets: {made.datasets} of {len(grid.datasets)} have every cell"]
    else:
        lines = []
    test = made.friedman
    if test.p is None:
        lines.append(f"Friedman over data sets: not made: {test.reason}")
    else:
        lines.append(
            f"Friedman over {made.datasets} data sets: chi2 = {test.statistic:.2f}, "
            f"df = {test.df:.0f}, p = {formatted_p(test.p)}"
        )
    tested = [c for c in made.overall if c.test.p is not None]
    for c in tested:
        lines.append(
            f"Wilcoxon, {c.objective} against {made.baseline}: median {c.difference or 0:+.2f} "
            f"points, rank-biserial r = {c.test.effect:+.2f}, "
            f"p = {formatted_p(c.p_holm)} after Holm"
        )
    if made.overall and not tested:
        lines.append(f"Wilcoxon against {made.baseline}: not made: {made.overall[0].test.reason}")
    return lines


def formatted_p(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"


def power_rows(grid: Grid, made: Comparisons | None) -> list[list[str]]:
    """Repeats needed to see the asked difference; the first row is the heading."""
    if made is None or made.power is None or not made.cells:
        return []
    others = [o for o in grid.objectives if o != made.baseline]
    rows = [["data set", *others]]
    for dataset in grid.datasets:
        row = [made.cells.get((dataset, o)) for o in others]
        if any(row):
            rows.append([dataset, *(_needed(c) for c in row)])
    return rows


def _needed(comparison: compare.Comparison | None) -> str:
    if comparison is None or comparison.smallest_visible is None:
        return "-"
    if comparison.repeats_needed is not None:
        return str(comparison.repeats_needed)
    return f"none ({comparison.smallest_visible:.2f})"


def power_caption(made: Comparisons) -> str:
    return (
        f"Repeats to see a difference of {made.power:g} points from {made.baseline} (p < 0.05, "
        "power 80 %, one comparison: before Holm's correction), over all seeds together, from the "
        "observed variance; none: no number of repeats would do, and in brackets the difference "
        "that endless ones could see"
    )


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


def rich_table(grid: Grid, width: int, made: Comparisons | None = None) -> RenderableType:
    """The table for a terminal of this width; columns that do not fit go into further tables."""
    if not grid.cells:
        return Group(*(Text(line) for line in _skipped(grid)))
    cell_width = max(len(_ours(c, made)) for c in grid.cells.values())
    widest = max(len(line) for o in grid.objectives for line in heading(o).split("\n"))
    a_column = max(cell_width, widest) + 1
    fitting = max(1, (width - DATASET_WIDTH - 1) // a_column)
    number = -(-len(grid.objectives) // fitting)
    at_once = -(-len(grid.objectives) // number)  # tables of nearly equal width
    blocks: list[RenderableType] = []
    for first in range(0, len(grid.objectives), at_once):
        last = min(first + at_once, len(grid.objectives))
        blocks += [Text("")] * bool(first) + [_block(grid, range(first, last), made)]
    below = [caption(grid), *legend(grid, made), *conclusions(grid, made), *_skipped(grid)]
    blocks += [Text(line) for line in below]
    power = power_rows(grid, made)
    if power and made:
        table = _plain_table()
        for title in power[0]:
            table.add_column(Text(heading(title)))
        for row in power[1:]:
            table.add_row(*row)
        blocks += [Text(""), Text(power_caption(made)), table]
    return Group(*blocks)


def _plain_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)


def _block(grid: Grid, columns: range, made: Comparisons | None) -> Table:
    table = _plain_table()
    table.add_column("data set", width=DATASET_WIDTH)
    for i in columns:
        table.add_column(Text(heading(grid.objectives[i]), justify="right"), justify="right")
    for dataset in grid.datasets:
        row = [grid.cells.get((dataset, o)) for o in grid.objectives]
        best = max((round(c.mean, 2) for c in row if c), default=None)
        texts = [_cell_text(row[i], best, made) for i in columns]
        if any(row[i] for i in columns):
            table.add_row(Text(_wrapped(dataset)), *texts)
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
            Text(name + _of_how_many(grid), style="bold"),
            *(
                Text(_number(ours[i], name))
                + (Text("\n" + _number(paper[i], name), style="dim") if paper else Text(""))
                for i in columns
            ),
        )
    return table


def _of_how_many(grid: Grid) -> str:
    """` (k of N)` where only k rows have every cell: averages and wins are over these."""
    complete, rows = len(grid.complete_rows()), len(grid.datasets)
    return "" if complete == rows else f" ({complete} of {rows})"


def heading(objective: str) -> str:
    """An objective over short lines: options and parts below the name."""
    name, colon, options = objective.partition(":")
    lines = [name + colon] if colon else [""]
    for piece in re.findall(r"[^;,(+=]*[;,(+=)]*", options if colon else objective):
        if len(lines[-1] + piece) > HEADING_WIDTH or (colon and len(lines) == 1):
            lines.append("")
        lines[-1] += piece
    return "\n".join(line for line in lines if line)


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


def _ours(cell: Cell, made: Comparisons | None) -> str:
    return f"{marks(cell, made)} {cell.mean:.2f}±{cell.std:.2f}".strip()


def _cell_text(cell: Cell | None, best: float | None, made: Comparisons | None) -> Text:
    if cell is None:
        return Text("")
    mark = marks(cell, made)
    text = Text(f"{mark} " if mark else "", style="yellow")
    text.append(f"{cell.mean:.2f}", style="bold" if round(cell.mean, 2) == best else "default")
    text.append(f"±{cell.std:.2f}", style="default")
    if cell.paper:
        mark = _paper_mark(cell, made)
        text.append(f"\n{mark} " if mark else "\n", style="yellow")
        text.append(f"{cell.paper.mean:.2f}±{cell.paper.std:.2f}", style="dim")
    return text


def live_table(grid: Grid) -> Table:
    """One line a data set, means alone: small enough to redraw while cells finish."""
    table = _plain_table()
    table.add_column("data set", no_wrap=True, overflow="ellipsis", min_width=10)
    for objective in grid.objectives:
        table.add_column(Text(heading(objective)), justify="right", min_width=5)
    for dataset in grid.datasets:
        cells = [grid.cells.get((dataset, o)) for o in grid.objectives]
        table.add_row(Text(dataset), *(f"{c.mean:.2f}" if c else "·" for c in cells))
    return table


def markdown(grid: Grid, made: Comparisons | None = None) -> str:
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
        cells = " | ".join(_markdown_cell(c, best, made) for c in row)
        lines.append(f"| {_escaped(dataset)} | {cells} |")
    for name, of in (("average", grid.averages), ("wins", grid.wins)):
        ours = of()
        if ours is not None and len(grid.datasets) > 1:
            label = name + _of_how_many(grid)
            lines.append(f"| {label} | " + " | ".join(_number(v, name) for v in ours) + " |")
    below = [*legend(grid, made), *conclusions(grid, made), *_skipped(grid)]
    notes = [f"- {line}" for line in below]
    power = power_rows(grid, made)
    if power and made:
        notes += ["", power_caption(made) + ":", ""]
        notes += ["| " + " | ".join(row) + " |" for row in power]
        notes.insert(-len(power) + 1, "|---|" + "---|" * (len(power[0]) - 1))
    return "\n".join(
        [*lines, "", caption(grid).replace("below ours", "in brackets"), "", *notes]
    ).rstrip()


def _escaped(name: str) -> str:
    """A name in a Markdown table."""
    return name.replace("|", "\\|")


def _markdown_cell(cell: Cell | None, best: float | None, made: Comparisons | None) -> str:
    if cell is None:
        return ""
    mean = f"{cell.mean:.2f}"
    text = f"**{mean}**" if round(cell.mean, 2) == best else mean
    mark = marks(cell, made)
    text = f"{text} ± {cell.std:.2f}" + (f" <sup>{mark}</sup>" if mark else "")
    if cell.paper is None:
        return text
    mark = _paper_mark(cell, made)
    return f"{text} ({mark + ' ' if mark else ''}{cell.paper.mean:.2f} ± {cell.paper.std:.2f})"


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
    compared = compare.as_json(made)
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
    settings = ", ".join(f"{k}={str(v).replace(' ', '')}" for k, v in protocol.items())
    source = f" ({paper}, table {number})" if paper and number else ""
    return f"{recipe}{source}: {settings}"


def print_as(table_format: str, grid: Grid, made: Comparisons) -> None:
    """Prints the grid on stdout as `table`, `markdown` or `csv`."""
    if table_format == "markdown":
        print(markdown(grid, made))
    elif table_format == "csv":
        print(as_csv(grid))
    else:
        print_table(grid, made)


def print_table(grid: Grid, made: Comparisons | None = None) -> None:
    """Prints the table on stdout: as wide as the terminal, or as wide as it is in a file."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, no_color=True, width=10_000)
    console.print(rich_table(grid, console.width, made), soft_wrap=not console.is_terminal)
