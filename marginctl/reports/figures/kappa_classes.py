"""kappa* by the number of classes, of all tables together (Temperature, Fig. 6)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from marginctl.reports.figures.grid_sweep import spaced
from marginctl.reports.figures.learning_curves import Group, Reasons, groups, number, seeds_text
from marginctl.reports.figures.panels import add_head, sheet
from marginctl.reports.figures.style import legend_text, line
from marginctl.results.collect import Run, Trained

SIZE = (6.5, 3.6)  # inches
APART = 0.2  # inches between data sets with equally many classes
MOST = 30  # points: a longer legend is taller than its figure
TITLE = "kappa* by the number of classes (temperature, Fig. 6)"
WIDE, NARROW = ("0.05", "0.95"), ("0.25", "0.75")
THIN: Any = {"linewidth": 1.2}
# ends that are seen where both quantiles are one of the few candidates of kappa, too
THICK: Any = {"linewidth": 4, "marker": "_", "markersize": 12, "markeredgewidth": 1.5}

_KAPPA = ("state", "optimal_scale")


@dataclass(frozen=True)
class Point:
    """The least-squares scale of one row and objective after the last epoch.

    Attributes:
        label: data, model, setting and objective.
        classes: C.
        mean: of kappa* over the test images, the mean over the seeds.
        wide, narrow: the quantiles of 5 and 95 %, and of 25 and 75 %, alike; None without them.
    """

    label: str
    classes: int
    mean: float
    wide: tuple[float, float] | None
    narrow: tuple[float, float] | None
    group: Group


def kappa_classes(tables: Sequence[Trained], said: Reasons) -> Figure | None:
    """kappa* of the test images after the last epoch against C, a point a row and objective.

    Args:
        tables: whose runs are drawn, in one figure.
        said: gets a reason for what could not be drawn.

    Returns:
        None where nothing can be drawn: it needs two numbers of classes.
    """
    points = points_of(tables, said)
    counts = sorted({point.classes for point in points})
    if not points:
        said.add("no run has state.optimal_scale and its number of classes: cosine-ls has them")
    elif len(counts) < 2:
        said.add(f"all runs with kappa* have {counts[0]} classes: two numbers of them are needed")
    elif len(points) > MOST:
        said.add(f"{len(points)} points: at most {MOST} are drawn: name fewer folders as STORE")
    if len(counts) < 2 or len(points) > MOST:
        return None
    caption = (
        "After the last epoch; each a mean over the seeds. Point: mean of the test images. Thick "
        "bar: 25 to 75 % of them; thin bar: 5 to 95 %. Those with equally many classes stand side "
        "by side."
    )
    legend = 0.17 * (-(-len(points) // 2)) * 2  # inches; a label may take two lines
    head = f"test images; {seeds_text(point.group for point in points)}"
    figure, (block,) = sheet(caption, {head: SIZE[1] + legend}, SIZE[0])
    axes = block.subplots()
    _draw(axes, points)
    spaced(axes, counts)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_xlabel("classes")
    axes.set_ylabel("kappa* (no unit)")
    add_head(figure, TITLE, [axes], columns=2)
    return figure


def points_of(tables: Sequence[Trained], said: Reasons) -> list[Point]:
    """The points, by their number of classes; what lacks a number is said."""
    found: list[tuple[str, Point]] = []
    for table in tables:
        for group in groups(table):
            having = [run for run in group.runs if number(run.record, *_KAPPA, "mean") is not None]
            if not having:
                continue
            sizes = {number(run.record, "evaluation", "angles", "classes") for run in having}
            if None in sizes:
                said.add("no number of classes: evaluation.angles in result.json is null", group)
                continue
            label = f"{group.row}; {group.objective}"
            point = Point(
                label,
                int(max(size for size in sizes if size is not None)),
                _mean(having, "mean") or 0.0,
                _between(having, WIDE),
                _between(having, NARROW),
                Group(group.row, group.objective, having, group.diverged),
            )
            found.append((table.recipe, point))
    return sorted(_told_apart(found), key=lambda point: point.classes)


def _told_apart(found: Sequence[tuple[str, Point]]) -> list[Point]:
    """Points of several tables under one label have their recipe in it."""
    shared = Counter(point.label for _, point in found)
    return [
        Point(**{**vars(point), "label": f"{recipe}: {point.label}"})
        if shared[point.label] > 1
        else point
        for recipe, point in found
    ]


def _mean(runs: Sequence[Run], *path: str) -> float | None:
    """The mean over the seeds, None where one lacks the number."""
    values = [number(run.record, *_KAPPA, *path) for run in runs]
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if len(there) == len(values) else None


def _between(runs: Sequence[Run], names: tuple[str, str]) -> tuple[float, float] | None:
    low, high = (_mean(runs, "quantiles", name) for name in names)
    return None if low is None or high is None else (low, high)


def _draw(axes: Any, points: Sequence[Point]) -> None:
    beside: dict[int, list[Point]] = {}
    for point in points:
        beside.setdefault(point.classes, []).append(point)
    for i, point in enumerate(points):
        together = beside[point.classes]
        step = together.index(point) - (len(together) - 1) / 2
        moved = axes.transData + ScaledTranslation(APART * step, 0, axes.figure.dpi_scale_trans)
        look = line(i, 1)
        artists: list[Any] = []
        for span, bar in ((point.wide, THIN), (point.narrow, THICK)):
            if span is not None:
                artists += axes.plot([point.classes] * 2, span, color=look["color"], **bar)
        artists += axes.plot(
            *(point.classes, point.mean),
            color=look["color"],
            marker=look["marker"],
            linestyle="none",
            markersize=7,
            markeredgecolor="white",
            label=legend_text(point.label),
        )
        for artist in artists:  # after they are there: so the axes still span them
            artist.set_transform(moved)
    axes.margins(0.12, 0.08)
