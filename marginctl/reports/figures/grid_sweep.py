"""Accuracy along a setting of a grid: Large Margin's Table 3, ArcGrad's Table VII."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from marginctl.reports.figures.learning_curves import (
    Group,
    Reasons,
    is_number,
    number,
    seeds_text,
    spread,
    spread_text,
)
from marginctl.reports.figures.panels import add_head, looks, sheet, title_of, too_many
from marginctl.reports.figures.style import legend_text, line
from marginctl.results.collect import Trained

PANEL = (4.6, 3.2)  # inches
APART = 0.05  # inches between the error bars of two lines
MANY_TIMES = 20  # the largest value over the smallest, above which an axis is logarithmic
UNITS = {
    "data.subset_fraction": "share of the training images",
    "data.label_noise": "share of wrong labels",
    "data.subset_size": "training images",
    "train.epochs": "epochs of training",
    "train.batch_size": "images a batch",
}


# a number in a run's result
Measure = Callable[[Mapping[str, Any]], float | None]


@dataclass(frozen=True)
class Along:
    """One panel: what is alike in it, and its groups by the value of the key that varies."""

    held: str
    key: str
    groups: Mapping[str, Mapping[float, Group]]  # objective -> value -> seeds


def sweep(table: Trained, groups: Sequence[Group], said: Reasons) -> Figure | None:
    """Test top-1 of the last epoch along every numeric key of the grid, a line an objective.

    Args:
        table: whose runs are drawn.
        groups: of them.
        said: gets a reason for what could not be drawn.

    Returns:
        None where nothing can be drawn.
    """
    panels = along(groups)
    if not panels:
        said.add("no key of a grid has two numbers or more")
    if not panels or too_many(len(panels), said):
        return None
    shown = [g for panel in panels for of in panel.groups.values() for g in of.values()]
    look = looks(groups)
    blocks: dict[str, float] = {}
    for panel in panels:
        together = [g for of in panel.groups.values() for g in of.values()]
        blocks[f"{panel.held}; along {panel.key}; {seeds_text(together)}"] = PANEL[1]
    bar = spread_text("error bar", (len(g.runs) for g in shown))
    caption = (
        f"Test top-1 of the last epoch, mean over the seeds; {bar}. Objectives at one setting "
        "stand side by side."
    )
    figure, made = sheet(caption, blocks, PANEL[0] * 1.5)
    for block, panel in zip(made, panels, strict=True):
        _panel(block.subplots(), panel, look)
    add_head(figure, title_of(table), (axes for block in made for axes in block.axes))
    return figure


def along(groups: Sequence[Group]) -> list[Along]:
    """The panels: for each numeric key, one for each combination of all else."""
    whole = [g for g in groups if g.runs and all(top1(run.record) is not None for run in g.runs)]
    settings = [group.runs[0].record["setting"] for group in whole]
    panels = []
    for key in dict.fromkeys(key for setting in settings for key in setting):
        values = {s[key] for s in settings if key in s and is_number(s[key])}
        if len(values) < 2:
            continue
        found: dict[str, dict[str, dict[float, Group]]] = {}
        for group, setting in zip(whole, settings, strict=True):
            if not is_number(setting.get(key)):
                continue
            recipe = group.runs[0].about["recipe"]
            others = {k: v for k, v in setting.items() if k not in (key, "data.name", "model")}
            held = ", ".join(
                [recipe["data"]["name"], str(recipe.get("model"))]
                + [f"{k.partition('.')[2]}={v}" for k, v in others.items()]
            )
            of = found.setdefault(held, {}).setdefault(group.objective, {})
            of[float(setting[key])] = group
        panels += [
            Along(held, key, {name: dict(sorted(of.items())) for name, of in by_objective.items()})
            for held, by_objective in found.items()
            if any(len(of) > 1 for of in by_objective.values())
        ]
    return panels


def top1(record: Mapping[str, Any]) -> float | None:
    """Test top-1 of the last epoch of a result, in percent."""
    return number(record, "last", "top1")


def draw_along(
    axes: Any,
    by_value: Mapping[float, Group],
    measure: Measure,
    label: str,
    look: int,
    place: float,
    *,
    joined: bool = True,
) -> None:
    """A line through the means over the seeds, with error bars where there are several.

    Args:
        axes: a panel.
        by_value: the seeds at each value on the horizontal axis, all with the number.
        measure: the number in a result.
        label: for the legend.
        look: the line's number, by which it looks as it does.
        place: how many steps beside the value its points stand, so that no bar hides another.
        joined: whether the line is drawn, and not the points alone.
    """
    points = [
        spread(np.array([[measure(run.record)] for run in group.runs], float))
        for group in by_value.values()
    ]
    mean, low, high = (
        np.array([getattr(point, name)[0] for point in points]) for name in ("mean", "low", "high")
    )
    several = any(len(group.runs) > 1 for group in by_value.values())
    points_and_bars = axes.errorbar(
        list(by_value),
        mean,
        yerr=np.stack([mean - low, high - mean]) if several else None,
        label=label,
        elinewidth=0.8,
        **line(look, len(by_value)) | ({} if joined else {"linestyle": "none"}),
    )
    # on the paper, not in the data
    moved = ScaledTranslation(APART * place, 0, axes.figure.dpi_scale_trans)
    for artist in points_and_bars.get_children():
        artist.set_transform(axes.transData + moved)


def spaced(axes: Any, values: Collection[float]) -> None:
    """A logarithmic horizontal axis where the values need one."""
    if min(values) > 0 and max(values) > MANY_TIMES * min(values):
        axes.set_xscale("log")


def _panel(axes: Any, panel: Along, look: Mapping[str, int]) -> None:
    middle = (len(panel.groups) - 1) / 2
    for i, (objective, by_value) in enumerate(panel.groups.items()):
        label = legend_text(objective)
        draw_along(axes, by_value, top1, label, look[objective], i - middle)
    spaced(axes, [value for of in panel.groups.values() for value in of])
    axes.set_xlabel(f"{UNITS[panel.key]} ({panel.key})" if panel.key in UNITS else panel.key)
    axes.set_ylabel("test top-1 (%)")
