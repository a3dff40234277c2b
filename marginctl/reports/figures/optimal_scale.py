"""The scale by epoch and by the number of classes: kappa*, learned and AdaCos's scales."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from marginctl.reports.figures.layout import Block, compose, group_blocks
from marginctl.reports.figures.learning_curves import draw_series, set_epoch_axis
from marginctl.reports.figures.seed_groups import (
    Omissions,
    SeedGroup,
    SeedTable,
    Series,
    available,
    number,
    seeds_text,
    spread_text,
)
from marginctl.reports.figures.style import legend_text, line_style
from marginctl.reports.figures.sweeps import move_aside, set_spacing
from marginctl.results.collect import Run

PANEL = (3.6, 2.7)  # inches
COLUMNS = 3
BANDS = (
    ("0.05", "0.95", "5 to 95 % of the images", "0.85"),
    ("0.25", "0.75", "25 to 75 % of the images", "0.68"),
)

CLASSES_PANEL = (6.5, 3.6)  # inches
DODGE = 0.2  # inches between data sets with equally many classes
MAX_POINTS = 30  # a longer legend is taller than its figure
THIN: Any = {"linewidth": 1.2}
# the ends are visible even where both quantiles are the same candidate of kappa
THICK: Any = {"linewidth": 4, "marker": "_", "markersize": 12, "markeredgewidth": 1.5}

_KAPPA = ("objective", "optimal_scale")
_SCALE = ("objective", "scale")


def scale_by_epoch(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw kappa* of the test images by epoch (Temperature, Fig. 1), or a scale that changes.

    A panel per objective: for kappa* its mean, median and quantiles of 5, 25, 75 and 95 % over the
    images, each a mean over the seeds; for a learned scale or AdaCos's the mean and the band over
    the seeds.
    """
    reason = "no scale of two epochs: least-squares, learned and AdaCos's scales record it"

    def scale(group: SeedGroup) -> Series | None:
        series = group.series(*_KAPPA, "mean") or group.series(*_SCALE)
        return series if series is not None and len(series.epochs) > 1 else None

    by_group = available(table.groups, scale, omissions, reason)
    caption = "Mean over the seeds."
    if any(group.series(*_KAPPA, "mean") for group in by_group):
        caption += " kappa*: mean and quantiles over the test images."
    counts = [len(series.values) for group in by_group if (series := group.series(*_SCALE))]
    if counts:
        caption += f" Scale: {spread_text('band', counts)}."
    blocks = group_blocks(by_group, _draw_scale, PANEL[1:], COLUMNS)
    return compose(table.title, caption, blocks, PANEL[0], omissions)


def _draw_scale(panels: Sequence[Any], group: SeedGroup, series: Series, _: bool) -> None:
    (panel,) = panels
    set_epoch_axis(panel)
    if group.series(*_KAPPA, "mean") is None:
        panel.set_ylabel("scale (no unit)")
        draw_series(panel, series, "scale, the same for all images", 1)
        return
    panel.set_ylabel("kappa* (no unit)")
    for low, high, label, shade in BANDS:
        lower, upper = _quantile(group, low), _quantile(group, high)
        if lower is not None and upper is not None and len(lower.epochs) == len(upper.epochs):
            edges = lower.values.mean(0), upper.values.mean(0)
            panel.fill_between(lower.epochs, *edges, color=shade, linewidth=0, label=label)
    median = _quantile(group, "0.5")
    for line, label, index in ((median, "median image", 2), (series, "mean of the images", 0)):
        if line is not None:
            style = line_style(index, len(line.epochs))
            panel.plot(line.epochs, line.values.mean(0), label=f"kappa*, {label}", **style)


def _quantile(group: SeedGroup, name: str) -> Series | None:
    return group.series(*_KAPPA, "quantiles", name)


@dataclass(frozen=True)
class Point:
    """The least-squares scale of one row and objective after the last epoch."""

    label: str
    classes: int
    mean: float  # of kappa* over the test images, the mean over the seeds
    # quantiles of 5 and 95 % and of 25 and 75 % over the test images, None where they were not
    # recorded
    wide: tuple[float, float] | None
    narrow: tuple[float, float] | None
    group: SeedGroup  # the runs that have kappa*


def scale_by_classes(tables: Sequence[SeedTable], omissions: Omissions) -> Figure | None:
    """Draw kappa* of all tables' last epochs against the number of classes (Temperature, Fig. 6).

    It needs two numbers of classes; a point is a row and objective.
    """
    points = scale_points(tables, omissions)
    counts = sorted({point.classes for point in points})
    many = f"{len(points)} points: a figure has at most {MAX_POINTS}: name fewer folders as RUNS"
    if not points:
        omissions.add("no run has state.optimal_scale and its number of classes: cosine-ls has")
        return None
    if len(counts) < 2 or len(points) > MAX_POINTS:
        few = f"all runs with kappa* have {counts[0]} classes: expected two numbers"
        omissions.add(few if len(counts) < 2 else many)
        return None

    def draw(panels: Any) -> None:
        axes = panels[0, 0]
        _draw_points(axes, points)
        set_spacing(axes, counts)
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.minorticks_off()
        axes.set_xlabel("classes")
        axes.set_ylabel("kappa* (no unit)")

    caption = (
        "After the last epoch, mean over the seeds. Point: mean of the test images. Thick bar: 25 "
        "to 75 % of them; thin bar: 5 to 95 %. Points with the same number of classes are drawn "
        "side by side."
    )
    legend_height = 0.17 * (-(-len(points) // 2)) * 2  # inches; a label may take two lines
    title = f"test images; {seeds_text(point.group for point in points)}"
    return compose(
        "kappa* by the number of classes (temperature, Fig. 6)",
        caption,
        [Block(title, (1, 1), draw, CLASSES_PANEL[1] + legend_height)],
        CLASSES_PANEL[0],
        omissions,
        min_columns=1,
        legend_columns=2,
    )


def scale_points(tables: Sequence[SeedTable], omissions: Omissions) -> list[Point]:
    """Return the points in the order of their numbers of classes."""
    named_points: list[tuple[str, Point]] = []
    for table in tables:
        for group in table.groups:
            runs = [run for run in group.runs if _mean([run], "mean") is not None]
            classes = [number(run.result, "evaluation", "angles", "classes") for run in runs]
            if None in classes:
                omissions.add("no evaluation.angles.classes in result.json", group)
            elif runs:
                point = Point(
                    f"{group.row}; {group.objective}",
                    int(max(filter(None, classes))),
                    _mean(runs, "mean") or 0.0,
                    _quantiles(runs, "0.05", "0.95"),
                    _quantiles(runs, "0.25", "0.75"),
                    replace(group, runs=runs),
                )
                named_points.append((table.recipe, point))
    uses = Counter(point.label for _, point in named_points)
    points = [
        replace(point, label=f"{recipe}: {point.label}") if uses[point.label] > 1 else point
        for recipe, point in named_points
    ]
    return sorted(points, key=lambda point: point.classes)


def _mean(runs: Sequence[Run], *path: str) -> float | None:
    """Return the mean over the seeds, None where a seed has no number."""
    values = [number(run.result, "state", "optimal_scale", *path) for run in runs]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _quantiles(runs: Sequence[Run], *names: str) -> tuple[float, float] | None:
    low, high = (_mean(runs, "quantiles", name) for name in names)
    return None if low is None or high is None else (low, high)


def _draw_points(axes: Any, points: Sequence[Point]) -> None:
    by_classes: dict[int, list[Point]] = {}
    for point in points:
        by_classes.setdefault(point.classes, []).append(point)
    for i, point in enumerate(points):
        same = by_classes[point.classes]
        steps = same.index(point) - (len(same) - 1) / 2
        style = line_style(i, 1)
        artists: list[Any] = []
        for span, bar in ((point.wide, THIN), (point.narrow, THICK)):
            if span is not None:
                artists += axes.plot([point.classes] * 2, span, color=style["color"], **bar)
        style |= {"linestyle": "none", "markersize": 7, "markeredgecolor": "white"}
        artists += axes.plot(point.classes, point.mean, label=legend_text(point.label), **style)
        move_aside(axes, artists, DODGE * steps)
    axes.margins(0.12, 0.08)
