"""How well networks tell their errors (MISS), and foreign images (OOD), by objective and scale."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from marginctl.metrics.registry import METRICS, MISS, SCORES, Measure, detection_of, sides_of
from marginctl.reports.figures.grid_sweep import draw_along, spaced
from marginctl.reports.figures.learning_curves import (
    Group,
    Reasons,
    by_row,
    seeds_text,
    spread_text,
)
from marginctl.reports.figures.option_sweep import along
from marginctl.reports.figures.panels import add_head, block_title, sheet, title_of, too_many
from marginctl.reports.figures.style import legend_text
from marginctl.results.collect import Trained

PANEL = (3.1, 2.5)  # inches
LETTERS = 24  # of a line of an objective below an axis


def detection(table: Trained, groups: Sequence[Group], said: Reasons) -> Figure | None:
    """AUROC and AP-in of MISS and of each foreign set, a line a score.

    A block for each row of the table has its objectives side by side; a block for each numeric
    option in which objectives differ, as kappa of a cosine softmax, has them along it.

    Args:
        table: whose runs are drawn.
        groups: of them.
        said: gets a reason for what could not be drawn.

    Returns:
        None where nothing can be drawn.
    """
    sides = sides_of([run.record for group in groups for run in group.runs])
    having = [g for g in groups if any(_has(g, m) for s in sides for m in detection_of(s).values())]
    for group in groups:
        if group not in having:
            said.add("no number of evaluation.detection in result.json", group)
    if not having:
        return None
    blocks = _blocks(having)
    if too_many(len(METRICS) * len(sides) * len(blocks), said):
        return None
    bar = spread_text("error bar", (len(g.runs) for g in having))
    caption = (
        f"After the last epoch, mean over the seeds; {bar}. In, the correctly classified (MISS) or "
        "all test images (OOD), is the positive class. max similarity: the largest, without scale; "
        "norm: the feature's."
    )
    heights = {name: len(METRICS) * PANEL[1] for name in blocks}
    figure, made = sheet(caption, heights, PANEL[0] * max(2, len(sides)))
    for block, (label, of) in zip(made, blocks.values(), strict=True):
        panels = block.subplots(len(METRICS), len(sides), squeeze=False)
        for j, side in enumerate(sides):
            for i, metric in enumerate(METRICS):
                _panel(panels[i, j], side, metric, of)
            panels[0, j].set_title("MISS" if side == MISS else f"OOD {legend_text(side)}")
            panels[-1, j].set_xlabel(label)
    add_head(figure, title_of(table), (panel for block in made for panel in block.axes))
    return figure


Places = Mapping[float, Group] | Mapping[str, Group]


def _blocks(groups: Sequence[Group]) -> dict[str, tuple[str, Places]]:
    """By their titles: what varies, and the group of each value; no block of one group."""
    found: dict[str, tuple[str, Places]] = {}
    alone: set[tuple[str, str]] = set()
    for block in along(groups, Reasons()):
        for row, by_value in block.rows.items():
            if len(by_value) > 1:
                together = list(by_value.values())
                title = f"{row}: {block.objective} along {block.option}; {seeds_text(together)}"
                found[title] = (block.option, by_value)
                alone |= {(row, group.objective) for group in together}
    for row, together in by_row(groups).items():
        if any((row, group.objective) not in alone for group in together):
            named = {group.objective: group for group in together}
            found[block_title(row, together)] = ("", named)
    return found


def _has(group: Group, measure: Measure) -> bool:
    return bool(group.runs) and all(measure.of(run.record) is not None for run in group.runs)


def _panel(panel: Any, side: str, metric: str, of: Places) -> None:
    measures = detection_of(side)
    names = [legend_text(value, LETTERS) for value in of if isinstance(value, str)]
    places = range(len(of)) if names else [float(value) for value in of]
    for look, (score, label) in enumerate(SCORES.items()):
        measure = measures[f"{side} {metric} {score}"]
        drawn = {
            float(place): group
            for place, group in zip(places, of.values(), strict=True)
            if _has(group, measure)
        }
        if drawn:
            beside = look - (len(SCORES) - 1) / 2
            draw_along(panel, drawn, measure.of, label, look, beside, joined=not names)
    panel.set_ylabel(METRICS[metric])
    if names:
        panel.set_xticks(places, names, rotation=90, fontsize=7)
        panel.set_xlim(-0.5, len(names) - 0.5)
    else:
        spaced(panel, places)
