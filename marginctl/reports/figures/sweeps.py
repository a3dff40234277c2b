"""Accuracy and calibration along a number in which runs differ.

The number is a key of a recipe's grid (Large Margin's Table 3, ArcGrad's Table VII), or an option
of an objective: beta of gradient decay, the scale of a cosine softmax.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
from matplotlib.transforms import ScaledTranslation

from marginctl.metrics.registry import METRICS
from marginctl.objectives.options import format_options
from marginctl.objectives.parsing import ParsedObjective
from marginctl.objectives.presets import PRESETS
from marginctl.objectives.schedules import Schedule
from marginctl.reports.figures.layout import Block, compose, objective_indices
from marginctl.reports.figures.seed_groups import (
    Omissions,
    SeedGroup,
    SeedTable,
    by_row,
    is_number,
    seeds_text,
    spread,
    spread_text,
)
from marginctl.reports.figures.style import legend_text, line_style

OPTION_PANEL = (3.9, 3.0)  # inches
DODGE = 0.05  # inches between the error bars of two lines at one value
LOG_AXIS_FROM = 20  # the largest value over the smallest, above which an axis is logarithmic
AXIS_LABELS = {
    "data.subset_fraction": "fraction of the training images",
    "data.label_noise": "fraction of wrong labels",
    "data.subset_size": "training images",
    "train.epochs": "epochs",
    "train.batch_size": "batch size",
}

Measure = Callable[[Any], float | None]  # a number of a result record
ByValue = Mapping[float, SeedGroup]  # the groups at each value on the horizontal axis
Point = tuple[str, str, str, float, SeedGroup]  # title, key and line of a sweep, value

top1, ece = METRICS["top1"].value, METRICS["ece"].value


@dataclass(frozen=True)
class Sweep:
    """Groups that differ in one number alone."""

    title: str  # what they have in common
    key: str  # the recipe key or the option that varies
    lines: Mapping[str, ByValue]  # by objective or by row; one of them has two values at least

    @property
    def groups(self) -> list[SeedGroup]:
        return [group for by_value in self.lines.values() for group in by_value.values()]


def grid_sweep(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw test top-1 of the last epoch along each numeric grid key, a line per objective."""
    sweeps = grid_sweeps(table.groups)
    if not sweeps:
        omissions.add("no key of a grid has two numbers or more")
    indices = objective_indices(table.groups)
    return _sweep_figure(table, omissions, sweeps, {"test top-1 (%)": top1}, indices)


def option_sweep(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw test top-1 and ECE of the last epoch along each numeric option, a line per row."""
    sweeps = option_sweeps(table.groups, omissions)
    if not sweeps:
        omissions.add("no two objectives differ in one option that is a number")
    for sweep in sweeps:
        for group in sweep.groups:
            if not _has(group, ece):
                omissions.add("no evaluation.calibration in result.json: no ECE is drawn", group)
    indices = {row: i for i, row in enumerate(by_row(table.groups))}
    measures = {"test top-1 (%)": top1, "ECE (%)": ece}
    return _sweep_figure(table, omissions, sweeps, measures, indices)


def _sweep_figure(
    table: SeedTable,
    omissions: Omissions,
    sweeps: Sequence[Sweep],
    measures: Mapping[str, Measure],
    indices: Mapping[str, int],
) -> Figure | None:
    """Return a block per sweep, with a panel per measure; `indices` of the lines' styles."""

    def draw(sweep: Sweep, panels: Any) -> None:
        words = AXIS_LABELS.get(sweep.key)
        middle = (len(sweep.lines) - 1) / 2
        for panel, (label, measure) in zip(panels[0], measures.items(), strict=True):
            for i, (name, by_value) in enumerate(sweep.lines.items()):
                text = legend_text(name)
                _draw_points(panel, by_value, measure, text, indices[name], i - middle)
            set_spacing(panel, [value for by_value in sweep.lines.values() for value in by_value])
            panel.set_xlabel(f"{words} ({sweep.key})" if words else sweep.key)
            panel.set_ylabel(label)

    blocks = [
        Block(
            f"{sweep.title} along {sweep.key}; {seeds_text(sweep.groups)}",
            (1, len(measures)),
            partial(draw, sweep),
            OPTION_PANEL[1],
        )
        for sweep in sweeps
    ]
    seeds = (len(group.runs) for sweep in sweeps for group in sweep.groups)
    caption = (
        f"After the last epoch, mean over the seeds; {spread_text('error bar', seeds)}. Lines at "
        "one value are drawn side by side."
    )
    if "ECE (%)" in measures:
        caption += " ECE: expected calibration error of the test images."
    return compose(table.title, caption, blocks, OPTION_PANEL[0], omissions)


def grid_sweeps(groups: Sequence[SeedGroup]) -> list[Sweep]:
    """Return a sweep for each numeric grid key and each combination of all other settings."""
    settings = {g: g.runs[0].training_result.setting for g in groups if _has(g, top1)}
    points: list[Point] = []
    for key in dict.fromkeys(key for setting in settings.values() for key in setting):
        for group, setting in settings.items():
            recipe = group.runs[0].info.recipe
            common = [recipe["data"]["name"], str(recipe.get("model"))] + [
                f"{k.partition('.')[2]}={v}"
                for k, v in setting.items()
                if k not in (key, "data.name", "model")
            ]
            if is_number(setting.get(key)):
                points.append((", ".join(common), key, group.objective, float(setting[key]), group))
    return _sweeps(points)


def option_sweeps(groups: Sequence[SeedGroup], omissions: Omissions) -> list[Sweep]:
    """Return a sweep for each option with two numbers in a row and each set of other options.

    An option that a name leaves out has its default. A schedule is no number: it is omitted, with a
    reason where a sweep could have had it.
    """
    points: list[Point] = []
    scheduled: list[tuple[str, str, SeedGroup]] = []
    for group in groups:
        if not _has(group, top1):
            continue
        name = group.runs[0].result.parsed_objective
        for option, value in name.options.items() if name.preset else ():
            title = _name_without(name, option)
            if is_number(value):
                points.append((title, option, group.row, float(value), group))
            elif isinstance(value, Schedule):
                scheduled.append((title, option, group))
    sweeps = _sweeps(points)
    for title, option, group in scheduled:
        if any((sweep.title, sweep.key) == (title, option) for sweep in sweeps):
            omissions.add(f"{option} is a schedule, not a number", group)
    return sweeps


def _sweeps(points: Iterable[Point]) -> list[Sweep]:
    """Return the sweeps of which a line has two values or more."""
    by_key: dict[tuple[str, str], dict[str, dict[float, SeedGroup]]] = {}
    for title, key, line, value, group in points:
        by_key.setdefault((title, key), {}).setdefault(line, {})[value] = group
    return [
        Sweep(*key, {name: dict(sorted(by_value.items())) for name, by_value in lines.items()})
        for key, lines in by_key.items()
        if any(len(by_value) > 1 for by_value in lines.values())
    ]


def _name_without(name: ParsedObjective, option: str) -> str:
    """Return an objective's name without one option: what all of the option's values share."""
    assert name.preset is not None
    options = PRESETS[name.preset].options
    others = {key: one for key, one in options.items() if key != option}
    written = format_options(others, {key: name.options[key] for key in others})
    return name.preset + (f":{written}" if written else "")


def _has(group: SeedGroup, measure: Measure) -> bool:
    return bool(group.runs) and all(measure(run.result) is not None for run in group.runs)


def _draw_points(
    panel: Any, by_value: ByValue, measure: Measure, label: str, index: int, steps: float
) -> None:
    """Draw the means over the seeds, with error bars where there are several.

    Groups without the number are left out. The points are moved `steps` times `DODGE` aside, so
    that no bar hides another.
    """
    groups = {value: group for value, group in by_value.items() if _has(group, measure)}
    if not groups:
        return
    values = [np.array([measure(run.result) for run in g.runs], float) for g in groups.values()]
    mean, low, high = np.array([spread(one[:, None]) for one in values])[..., 0].T
    several = any(len(group.runs) > 1 for group in groups.values())
    container = panel.errorbar(
        list(groups),
        mean,
        yerr=np.stack([mean - low, high - mean]) if several else None,
        label=label,
        elinewidth=0.8,
        **line_style(index, len(groups)),
    )
    move_aside(panel, container.get_children(), DODGE * steps)


def move_aside(panel: Any, artists: Iterable[Any], inches: float) -> None:
    """Move drawn artists sideways on the paper, not in the data."""
    moved = panel.transData + ScaledTranslation(inches, 0, panel.figure.dpi_scale_trans)
    for artist in artists:
        artist.set_transform(moved)


def set_spacing(panel: Any, values: Collection[float]) -> None:
    """Make the horizontal axis logarithmic where the values need it."""
    if min(values) > 0 and max(values) > LOG_AXIS_FROM * min(values):
        panel.set_xscale("log")
        for place in (panel.xaxis.set_major_formatter, panel.xaxis.set_minor_formatter):
            place(LogFormatter())  # the default writes its numbers as formulas
