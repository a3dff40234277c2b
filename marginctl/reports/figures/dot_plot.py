"""Comparisons of methods: dot plots of means with intervals, and critical-difference diagrams."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from marginctl.errors import RequestError
from marginctl.metrics.registry import FOLD_METRICS
from marginctl.reports.figures.seed_groups import Omissions, SeedTable, seeds_text
from marginctl.reports.figures.style import COLORS, legend_text, save, styled
from marginctl.results.answers import Estimate, fold_estimates, seed_estimates
from marginctl.results.compare import Comparisons
from marginctl.results.cv_cells import Grid
from marginctl.results.statistics import critical_difference

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


RANK_HEIGHT = 0.32  # inches per method


def cliques(ranks: Mapping[str, float], difference: float) -> list[tuple[float, float]]:
    """Return (lowest, highest) of the largest groups of ranks that do not differ significantly.

    A group has two methods or more, with average ranks at most `difference` apart; it has the same
    rank twice for methods that share it and differ from all others.
    """
    values = sorted(ranks.values())
    spans: list[tuple[float, float]] = []
    for i, low in enumerate(values[:-1]):
        high = max(v for v in values[i:] if v - low <= difference)
        several = high > low or values[i + 1] == low
        if several and not any(a <= low and high <= b for a, b in spans):
            spans.append((low, high))
    return spans


@styled()
def draw_ranks(compared: Comparisons, path: Path) -> None:
    """Write the diagram of average ranks over the complete data sets, with Nemenyi's difference.

    Raises:
        RequestError: fewer than three methods or five data sets, or a file that cannot be written.
    """
    methods, datasets = len(compared.ranks), compared.datasets
    if methods < 3 or datasets < 5:
        raise RequestError(
            f"--figure: {methods} methods on {datasets} complete data sets: expected at least 3 on "
            "5"
        )
    difference = critical_difference(methods, datasets)
    ordered = sorted(compared.ranks.items(), key=lambda item: (item[1], item[0]))
    groups = cliques(compared.ranks, difference)
    bars = 0.25 * len(groups) + 0.3
    rows = (methods + 1) // 2
    figure = Figure(figsize=(8.5, 1.3 + bars + RANK_HEIGHT * rows), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(1, methods), ylim=(bars + RANK_HEIGHT * rows, -0.7))
    axes.axis("off")
    axes.hlines(0, 1, methods, color="black", linewidth=1)
    for tick in range(1, methods + 1):
        axes.vlines(tick, -0.06, 0, color="black", linewidth=1)
        axes.text(tick, -0.1, str(tick), ha="center", va="bottom", fontsize=9)
    axes.text(methods, -0.45, "average rank (1 = best)", ha="right", va="bottom", fontsize=9)
    axes.hlines(-0.45, 1, 1 + difference, color="black", linewidth=2)
    text = f"critical difference {difference:.2f} (Nemenyi, p = 0.05, {datasets} data sets)"
    axes.text(1, -0.52, text, ha="left", va="bottom", fontsize=9)
    for i, (low, high) in enumerate(groups):
        axes.hlines(0.2 + 0.25 * i, low - 0.03, high + 0.03, color="black", linewidth=3)
    for i, (name, rank) in enumerate(ordered):
        left = i < rows
        height = bars + RANK_HEIGHT * (i if left else methods - 1 - i) + 0.1
        edge = 1 if left else methods
        axes.plot([rank, rank, edge], [0, height, height], color="0.45", linewidth=0.8)
        text = f"{name}  {rank:.2f}" if left else f"{rank:.2f}  {name}"
        x, side = (edge - 0.05, "right") if left else (edge + 0.05, "left")
        axes.text(x, height, text, ha=side, va="center", fontsize=9)
    save(figure, path)
