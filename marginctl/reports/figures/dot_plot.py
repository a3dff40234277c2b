"""Dot plots: the mean of each method, with its interval or with the published value."""

import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from matplotlib.figure import Figure

from marginctl.metrics.registry import FOLD_METRICS
from marginctl.papers.published import PublishedValue
from marginctl.reports.figures.seed_groups import Omissions, SeedTable, seeds_text
from marginctl.reports.figures.style import COLORS, legend_text
from marginctl.results.answers import Estimate, fold_estimates, seed_estimates
from marginctl.results.cv_cells import Grid
from marginctl.results.verdict import TableVerdicts, Verdict

ROW_HEIGHT, HEAD, WIDTH = 0.28, 0.9, 6.4  # inches
PUBLISHED_OFFSET = 0.3  # lines below ours
TITLE_LETTERS = 80
ROWS_PER_COLUMN, MAX_COLUMNS = 5, 3  # of panels
MAX_METHODS = 200  # in one figure


def comparison(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Return the dot plot of trainings with two objectives or more; intervals by Student's t."""
    if len({group.objective for group in table.groups}) < 2:
        omissions.add("one objective: nothing to compare")
        return None
    metric = table.metric
    results = (run.training_result for group in table.groups for run in group.runs)
    estimates, n = seed_estimates(results, metric), seeds_text(table.groups)
    caption = f"95 % interval of the mean over the seeds, {n}"
    if not any(one.interval for one in estimates):
        caption = f"{n}: no interval"
    return _draw(estimates, table.title, f"test {metric.heading}", caption)


def fold_comparison(grid: Grid, title: str) -> Figure | None:
    """Return the dot plot of a cross-validation, with scikit-learn's baselines as squares."""
    metric = FOLD_METRICS[grid.metric]
    caption = "95 % interval of the mean over the folds (corrected resampled t)"
    return _draw(fold_estimates(grid), title, metric.heading, caption)


def published_values(compared: TableVerdicts, omissions: Omissions) -> Figure | None:
    """Return our numbers of a published table, each in one line with the paper's."""
    published, estimates = {}, []
    for cell in compared.cells.values():
        if cell.mean is not None and cell.published is not None:
            row = f"{cell.row}: {cell.quantity.metric}, {cell.quantity.unit}"
            published[row, cell.column] = cell.published
            spread = None if cell.std is None else (cell.mean - cell.std, cell.mean + cell.std)
            place = (row, cell.column, cell.mean, spread, cell.n, "run")
            estimates.append(Estimate(*place, cell.verdict == Verdict.not_comparable))
    table = compared.table
    if len(estimates) > MAX_METHODS:
        omissions.add(f"{len(estimates)} cells: a figure has at most {MAX_METHODS}")
    return _draw(
        estimates,
        f"{table.paper}, table {table.number}: {table.caption}",
        "mean ± standard deviation",
        "ours: circles, or squares where our runs differ; published: diamonds",
        published,
    )


def _draw(
    estimates: Sequence[Estimate],
    title: str,
    axis: str,
    caption: str,
    published: Mapping[tuple[str, str], PublishedValue] = MappingProxyType({}),
) -> Figure | None:
    """Return a panel for each row, with a line for each method; baselines are squares."""
    rows = list(dict.fromkeys(e.row for e in estimates))
    if not rows or len(estimates) > MAX_METHODS:
        return None
    counts = [sum(e.row == row for e in estimates) for row in rows]
    columns = min(MAX_COLUMNS, -(-len(rows) // ROWS_PER_COLUMN))
    lines = -(-len(rows) // columns)  # of panels
    longest = [max(counts[columns * i : columns * (i + 1)]) for i in range(lines)]
    height = HEAD + sum(ROW_HEIGHT * n + 0.5 for n in longest)
    figure = Figure(figsize=(WIDTH * columns, height), layout="constrained")
    panels: Any = figure.subplots(lines, columns, squeeze=False, height_ratios=longest).flat
    for panel in panels[len(rows) :]:
        panel.axis("off")
    for row, panel in zip(rows, panels, strict=False):
        shown = [e for e in estimates if e.row == row]
        for i, one in enumerate(shown):
            color = COLORS[0] if one.is_baseline else COLORS[2]
            low, high = one.interval or (one.mean, one.mean)
            errors = [[one.mean - low], [high - one.mean]] if one.interval else None
            marker = "s" if one.is_baseline else "o"
            panel.errorbar(one.mean, i, xerr=errors, fmt=marker, color=color)
            if theirs := published.get((row, one.method)):
                hollow = {"color": COLORS[1], "fmt": "D", "markerfacecolor": "none"}
                panel.errorbar(theirs.mean, i + PUBLISHED_OFFSET, xerr=theirs.std, **hollow)
        panel.set_yticks(range(len(shown)), [legend_text(e.method) for e in shown])
        panel.set_ylim(len(shown) - 0.5, -0.5)
        panel.set_title(row, loc="left", wrap=True)
        panel.grid(axis="y", visible=False)
    figure.supxlabel(textwrap.fill(f"{axis}; {caption}", TITLE_LETTERS * columns), fontsize=8)
    figure.suptitle(textwrap.fill(title, TITLE_LETTERS * columns), x=0.01, ha="left")
    return figure
