"""Dot plots of own comparisons: the mean of each method with its 95 % interval."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from marginctl.metrics.registry import FOLD_METRICS
from marginctl.reports.figures.seed_groups import Omissions, SeedTable, seeds_text
from marginctl.reports.figures.style import COLORS, legend_text
from marginctl.results.answers import Estimate, fold_estimates, seed_estimates
from marginctl.results.cv_cells import Grid

ROW_HEIGHT, HEAD, WIDTH = 0.28, 0.9, 6.4  # inches
MAX_METHODS = 200  # in one figure


def comparison(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Return the dot plot of trainings with two objectives or more; intervals by Student's t."""
    if len({group.objective for group in table.groups}) < 2:
        omissions.add("one objective: nothing to compare")
        return None
    metric = table.metric
    results = (run.training_result for group in table.groups for run in group.runs)
    caption = f"95 % interval of the mean over the seeds, {seeds_text(table.groups)}"
    return _draw(seed_estimates(results, metric), table.title, f"test {metric.heading}", caption)


def fold_comparison(grid: Grid, title: str) -> Figure | None:
    """Return the dot plot of a cross-validation, with scikit-learn's baselines as squares."""
    metric = FOLD_METRICS[grid.metric]
    caption = "95 % interval of the mean over the folds (corrected resampled t)"
    return _draw(fold_estimates(grid), title, metric.heading, caption)


def _draw(estimates: Sequence[Estimate], title: str, axis: str, caption: str) -> Figure | None:
    """Return a panel for each row, with a line for each method."""
    rows = list(dict.fromkeys(e.row for e in estimates))
    if not rows or len(estimates) > MAX_METHODS:
        return None
    counts = [sum(e.row == row for e in estimates) for row in rows]
    height = HEAD + sum(ROW_HEIGHT * n + 0.5 for n in counts)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    panels: Any = figure.subplots(len(rows), 1, squeeze=False, height_ratios=counts)
    for row, panel in zip(rows, panels[:, 0], strict=True):
        shown = [e for e in estimates if e.row == row]
        for i, one in enumerate(shown):
            color = COLORS[0] if one.is_baseline else COLORS[2]
            low, high = one.interval or (one.mean, one.mean)
            errors = [[one.mean - low], [high - one.mean]] if one.interval else None
            marker = "s" if one.is_baseline else "o"
            panel.errorbar(one.mean, i, xerr=errors, fmt=marker, color=color)
        panel.set_yticks(range(len(shown)), [legend_text(e.method) for e in shown])
        panel.set_ylim(len(shown) - 0.5, -0.5)
        panel.set_title(row, loc="left")
        panel.grid(axis="y", visible=False)
    panels[-1, 0].set_xlabel(f"{axis}; {caption}", fontsize=8, wrap=True)
    figure.suptitle(title, x=0.01, ha="left")
    return figure
