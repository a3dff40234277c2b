"""Accuracy, calibration and detection along a number in which runs differ.

The number is a key of a recipe's grid (Large Margin's Table 3, ArcGrad's Table VII), or an option
of an objective: beta of gradient decay, the scale of a cosine softmax.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from marginctl.metrics.registry import (
    DETECTION_METRICS,
    DETECTION_SCORES,
    MISS,
    detection_metric,
    detection_sets,
)
from marginctl.objectives.options import format_options
from marginctl.objectives.parsing import ParsedObjective
from marginctl.objectives.presets import PRESETS
from marginctl.objectives.schedules import Schedule
from marginctl.reports.figures.layout import Block, compose, objective_indices
from marginctl.reports.figures.seed_groups import (
    Omissions,
    SeedGroup,
    SeedTable,
    available,
    by_row,
    is_number,
    number,
    seeds_text,
    spread,
    spread_text,
)
from marginctl.reports.figures.style import legend_text, line_style

GRID_PANEL = (6.9, 3.2)  # inches
OPTION_PANEL = (3.9, 3.0)  # inches
DETECTION_PANEL = (3.1, 2.5)  # inches
DODGE = 0.05  # inches between the error bars of two lines at one value
LOG_AXIS_FROM = 20  # the largest value over the smallest, above which an axis is logarithmic
TICK_LETTERS = 24  # of a line of an objective below an axis
AXIS_LABELS = {
    "data.subset_fraction": "fraction of the training images",
    "data.label_noise": "fraction of wrong labels",
    "data.subset_size": "training images",
    "train.epochs": "epochs",
    "train.batch_size": "batch size",
}

Measure = Callable[[Any], float | None]  # a number of a result record
ByValue = Mapping[float, SeedGroup]  # the groups at each value on the horizontal axis


@dataclass(frozen=True)
class Sweep:
    """Groups that differ in one number alone.

    Attributes:
        title: what they have in common.
        key: the recipe key or the option that varies.
        lines: by objective or by row.
    """

    title: str
    key: str
    lines: Mapping[str, ByValue]

    @property
    def groups(self) -> list[SeedGroup]:
        return [group for by_value in self.lines.values() for group in by_value.values()]

    @property
    def values(self) -> list[float]:
        return [value for by_value in self.lines.values() for value in by_value]


def grid_sweep(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw test top-1 of the last epoch along each numeric grid key, a line per objective."""
    sweeps = grid_sweeps(table.groups)
    if not sweeps:
        omissions.add("no key of a grid has two numbers or more")
    indices = objective_indices(table.groups)
    blocks = []
    for sweep in sweeps:

        def draw(panels: Any, sweep: Sweep = sweep) -> None:
            label = AXIS_LABELS.get(sweep.key)
            _draw_sweep(panels[0, 0], sweep, top1, indices)
            panels[0, 0].set_xlabel(f"{label} ({sweep.key})" if label else sweep.key)
            panels[0, 0].set_ylabel("test top-1 (%)")

        title = f"{sweep.title}; along {sweep.key}; {seeds_text(sweep.groups)}"
        blocks.append(Block(title, (1, 1), draw, GRID_PANEL[1]))
    caption = f"{_last_epoch(sweeps)} Objectives at one value are drawn side by side."
    return compose(table.title, caption, blocks, GRID_PANEL[0], omissions, min_columns=1)


def option_sweep(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw test top-1 and ECE of the last epoch along each numeric option, a line per row."""
    sweeps = option_sweeps(table.groups, omissions)
    if not sweeps:
        omissions.add("no two objectives differ in one option that is a number")
    indices = {row: i for i, row in enumerate(by_row(table.groups))}
    blocks = []
    for sweep in sweeps:
        for group in sweep.groups:
            if not _has(group, ece):
                omissions.add("no evaluation.calibration in result.json: no ECE is drawn", group)

        def draw(panels: Any, sweep: Sweep = sweep) -> None:
            for panel, measure, label in zip(
                panels[0], (top1, ece), ("test top-1 (%)", "ECE (%)"), strict=True
            ):
                _draw_sweep(panel, sweep, measure, indices)
                panel.set_xlabel(sweep.key)
                panel.set_ylabel(label)

        title = f"{sweep.title} along {sweep.key}; {seeds_text(sweep.groups)}"
        blocks.append(Block(title, (1, 2), draw, OPTION_PANEL[1]))
    caption = (
        f"{_last_epoch(sweeps)} ECE: expected calibration error of the test images. Rows at one "
        "value are drawn side by side."
    )
    return compose(table.title, caption, blocks, OPTION_PANEL[0], omissions)


def detection_sweep(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw misclassification and OOD detection along each numeric option, or by objective.

    A row of the table has a block for each option in which its objectives differ, and one for the
    others, side by side. The metrics are rows of panels, the detection tasks columns, the scores
    lines.
    """
    tasks = detection_sets([run.result for group in table.groups for run in group.runs])
    values = {
        (task, metric, score): detection_metric(task, metric, score).value
        for task in tasks
        for metric in DETECTION_METRICS
        for score in DETECTION_SCORES
    }

    def is_recorded(group: SeedGroup) -> bool:
        return any(_has(group, value) for value in values.values())

    reason = "no evaluation.detection in result.json"
    groups = list(available(table.groups, is_recorded, omissions, reason))
    blocks = []
    for title, (label, by_value) in _detection_sweeps(groups).items():

        def draw(panels: Any, label: str = label, by_value: Mapping[Any, Any] = by_value) -> None:
            for j, task in enumerate(tasks):
                for i, (metric, metric_label) in enumerate(DETECTION_METRICS.items()):
                    panel = panels[i, j]
                    scores = {s: values[task, metric, s] for s in DETECTION_SCORES}
                    _draw_detection(panel, by_value, scores)
                    panel.set_ylabel(metric_label)
                is_miss = task == MISS
                panels[0, j].set_title("misclassified" if is_miss else f"OOD {legend_text(task)}")
                panels[-1, j].set_xlabel(label)

        shape = (len(DETECTION_METRICS), len(tasks))
        blocks.append(Block(title, shape, draw, DETECTION_PANEL[1], {"sharex": True}))
    bar = spread_text("error bar", (len(group.runs) for group in groups))
    caption = (
        f"After the last epoch, mean over the seeds; {bar}. Positive class: correctly classified "
        "test images (misclassification detection), or all test images (OOD detection). Scores: "
        f"{', '.join(DETECTION_SCORES.values())}."
    )
    return compose(table.title, caption, blocks, DETECTION_PANEL[0], omissions)


def top1(record: Mapping[str, Any]) -> float | None:
    """Return test top-1 of the last epoch of a result, in percent."""
    return number(record, "last", "top1")


def ece(record: Mapping[str, Any]) -> float | None:
    """Return the expected calibration error of a result, in percent."""
    fraction = number(record, "evaluation", "calibration", "ece")
    return None if fraction is None else 100 * fraction


def grid_sweeps(groups: Sequence[SeedGroup]) -> list[Sweep]:
    """Return a sweep for each numeric grid key and each combination of all other settings."""
    finished = [group for group in groups if _has(group, top1)]
    settings = [group.runs[0].training_result.setting for group in finished]
    sweeps = []
    for key in dict.fromkeys(key for setting in settings for key in setting):
        values = {s[key] for s in settings if key in s and is_number(s[key])}
        if len(values) < 2:
            continue
        by_common: dict[str, dict[str, dict[float, SeedGroup]]] = {}
        for group, setting in zip(finished, settings, strict=True):
            if not is_number(setting.get(key)):
                continue
            recipe = group.runs[0].info.recipe
            others = {k: v for k, v in setting.items() if k not in (key, "data.name", "model")}
            common = ", ".join(
                [recipe["data"]["name"], str(recipe.get("model"))]
                + [f"{k.partition('.')[2]}={v}" for k, v in others.items()]
            )
            lines = by_common.setdefault(common, {}).setdefault(group.objective, {})
            lines[float(setting[key])] = group
        sweeps += [_sweep(common, key, lines) for common, lines in by_common.items()]
    return [sweep for sweep in sweeps if sweep is not None]


def option_sweeps(groups: Sequence[SeedGroup], omissions: Omissions) -> list[Sweep]:
    """Return a sweep for each option with two numbers in a row and each set of other options.

    An option that a name leaves out has its default. A schedule is no number: it is omitted, with a
    reason where a sweep could have had it.
    """
    by_key: dict[tuple[str, str], dict[str, dict[float, SeedGroup]]] = {}
    scheduled: dict[tuple[str, str], list[SeedGroup]] = {}
    for group in groups:
        if not _has(group, top1):
            continue
        name = group.runs[0].result.parsed_objective
        if name.preset is None:
            continue
        for option, value in name.options.items():
            key = (_name_without(name, option), option)
            if is_number(value):
                by_key.setdefault(key, {}).setdefault(group.row, {})[float(value)] = group
            elif isinstance(value, Schedule):
                scheduled.setdefault(key, []).append(group)
    sweeps = []
    for key, lines in by_key.items():
        sweep = _sweep(*key, lines)
        if sweep is not None:
            sweeps.append(sweep)
            for group in scheduled.get(key, []):
                omissions.add(f"{key[1]} is a schedule, not a number", group)
    return sweeps


def _sweep(title: str, key: str, lines: Mapping[str, dict[float, SeedGroup]]) -> Sweep | None:
    """Return the sweep of some lines, None where none of them has two values."""
    if all(len(by_value) < 2 for by_value in lines.values()):
        return None
    return Sweep(title, key, {name: dict(sorted(g.items())) for name, g in lines.items()})


def _name_without(name: ParsedObjective, option: str) -> str:
    """Return an objective's name without one option: what all of the option's values share."""
    assert name.preset is not None
    options = PRESETS[name.preset].options
    others = {key: one for key, one in options.items() if key != option}
    written = format_options(others, {key: name.options[key] for key in others})
    return name.preset + (f":{written}" if written else "")


def _detection_sweeps(groups: Sequence[SeedGroup]) -> dict[str, tuple[str, Mapping[Any, Any]]]:
    """Return the axis label and the groups of each block by its title."""
    blocks: dict[str, tuple[str, Mapping[Any, Any]]] = {}
    swept: set[SeedGroup] = set()
    for sweep in option_sweeps(groups, Omissions()):
        for row, by_value in sweep.lines.items():
            if len(by_value) > 1:
                seeds = seeds_text(by_value.values())
                title = f"{row}: {sweep.title} along {sweep.key}; {seeds}"
                blocks[title] = (sweep.key, by_value)
                swept.update(by_value.values())
    for row, members in by_row(groups).items():
        if not swept.issuperset(members):
            by_name = {group.objective: group for group in members}
            blocks[f"{row}; {seeds_text(members)}"] = ("", by_name)
    return blocks


def _has(group: SeedGroup, measure: Measure) -> bool:
    return bool(group.runs) and all(measure(run.result) is not None for run in group.runs)


def _last_epoch(sweeps: Sequence[Sweep]) -> str:
    counts = [len(group.runs) for sweep in sweeps for group in sweep.groups]
    return f"After the last epoch, mean over the seeds; {spread_text('error bar', counts)}."


def _draw_sweep(panel: Any, sweep: Sweep, measure: Measure, indices: Mapping[str, int]) -> None:
    middle = (len(sweep.lines) - 1) / 2
    for i, (name, by_value) in enumerate(sweep.lines.items()):
        _draw_points(panel, by_value, measure, legend_text(name), indices[name], i - middle)
    set_spacing(panel, sweep.values)


def _draw_detection(
    panel: Any, by_value: Mapping[Any, SeedGroup], scores: Mapping[str, Measure]
) -> None:
    by_objective = any(isinstance(value, str) for value in by_value)
    positions = {
        float(i if by_objective else value): group
        for i, (value, group) in enumerate(by_value.items())
    }
    middle = (len(scores) - 1) / 2
    for i, (score, measure) in enumerate(scores.items()):
        _draw_points(
            panel,
            positions,
            measure,
            DETECTION_SCORES[score],
            i,
            i - middle,
            joined=not by_objective,
        )
    if by_objective:
        labels = [legend_text(str(name), TICK_LETTERS) for name in by_value]
        panel.set_xticks(list(positions), labels, rotation=90, fontsize=7)
        panel.set_xlim(-0.5, len(labels) - 0.5)
    else:
        set_spacing(panel, positions)


def _draw_points(
    panel: Any,
    by_value: ByValue,
    measure: Measure,
    label: str,
    index: int,
    steps: float,
    *,
    joined: bool = True,
) -> None:
    """Draw the means over the seeds, with error bars where there are several.

    Args:
        panel: the axes.
        by_value: the groups at each value; those without the number are left out.
        measure: the number of a result record.
        label: for the legend.
        index: of the line style.
        steps: how many times `DODGE` the points are moved aside, so that no bar hides another.
        joined: whether a line joins them.
    """
    groups = {value: group for value, group in by_value.items() if _has(group, measure)}
    if not groups:
        return
    points = [
        spread(np.array([[measure(run.result)] for run in group.runs], float))
        for group in groups.values()
    ]
    mean, low, high = (
        np.array([getattr(point, name)[0] for point in points]) for name in ("mean", "low", "high")
    )
    several = any(len(group.runs) > 1 for group in groups.values())
    container = panel.errorbar(
        list(groups),
        mean,
        yerr=np.stack([mean - low, high - mean]) if several else None,
        label=label,
        elinewidth=0.8,
        **line_style(index, len(groups)) | ({} if joined else {"linestyle": "none"}),
    )
    # on the paper, not in the data
    moved = ScaledTranslation(DODGE * steps, 0, panel.figure.dpi_scale_trans)
    for artist in container.get_children():
        artist.set_transform(panel.transData + moved)


def set_spacing(panel: Any, values: Collection[float]) -> None:
    """Make the horizontal axis logarithmic where the values need it."""
    if min(values) > 0 and max(values) > LOG_AXIS_FROM * min(values):
        panel.set_xscale("log")
