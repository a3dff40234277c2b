"""Histograms of the angle to the target's class weight over training: ArcGrad's Fig. 4."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from marginctl.metrics.registry import lookup
from marginctl.reports.figures.layout import compose, objective_indices, row_block
from marginctl.reports.figures.seed_groups import (
    FloatArray,
    Omissions,
    SeedGroup,
    SeedTable,
    available,
    by_row,
)
from marginctl.reports.figures.style import COLORS, legend_text

PANEL = (3.1, 1.75)  # inches
ROW_LETTERS = 20  # maximum length of an objective's name next to its row


@dataclass(frozen=True)
class Histogram:
    """Angles of test images in degrees: edges (B + 1,), percent of the images (B,), mean."""

    edges: FloatArray
    percent: FloatArray
    mean: float


def angle_histograms(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw the first, the middle and the last epoch in columns, the objectives in rows.

    As ArcGrad's Fig. 4: histograms of the angle to the target's class weight over training.
    """
    reason = (
        "no objective.target_angle by epoch: all objectives but those with class means record it"
    )
    by_group = available(table.groups, _first_middle_last, omissions, reason)
    columns = max(map(len, by_group.values()), default=0)
    highest = max((h.percent.max() for by in by_group.values() for h in by.values()), default=0.0)
    indices = objective_indices(table.groups)

    def draw(groups: Sequence[SeedGroup], panels: Any) -> None:
        for line, group in zip(panels, groups, strict=True):
            color = COLORS[indices[group.objective] % len(COLORS)]
            line[0].set_ylabel(f"{legend_text(group.objective, ROW_LETTERS)}\nimages (%)")
            for panel, (epoch, histogram) in zip(line, by_group[group].items(), strict=False):
                _draw_histogram(panel, epoch, histogram, color)
        for panel in panels[-1]:
            panel.set_xlabel("angle to the target's class weight (degrees)")
        panels[0, 0].set(xlim=(0, 180), ylim=(0, 1.05 * highest), xticks=range(0, 181, 45))

    blocks = [
        row_block(row, groups, (len(groups), columns), draw, PANEL[1], sharex=True, sharey=True)
        for row, groups in by_row(by_group).items()
    ]
    caption = "Percentages are means over the seeds; the dashed line is the mean angle."
    return compose(table.title, caption, blocks, PANEL[0], omissions)


def _draw_histogram(panel: Any, epoch: int, histogram: Histogram, color: str) -> None:
    edges: Any = {"align": "edge", "edgecolor": "white", "linewidth": 0.5}
    left, width = histogram.edges[:-1], np.diff(histogram.edges)
    panel.bar(left, histogram.percent, width, color=color, **edges)
    panel.axvline(histogram.mean, color="0.35", linestyle="--", linewidth=1.2)
    panel.set_title(f"epoch {epoch}: mean {histogram.mean:.1f}°", fontsize=8)


def _first_middle_last(group: SeedGroup) -> dict[int, Histogram]:
    """Return the histograms of three epochs of those that all seeds have."""
    recorded = group.by_epoch(_histogram)
    common = recorded[0] if recorded else ()
    epochs = [e for e in common if len({len(seed[e].edges) for seed in recorded}) == 1]
    if not epochs:
        return {}
    histograms = {}
    for epoch in dict.fromkeys((epochs[0], epochs[(len(epochs) - 1) // 2], epochs[-1])):
        each = [seed[epoch] for seed in recorded]
        percent = np.stack([h.percent for h in each]).mean(0)
        histograms[epoch] = Histogram(each[0].edges, percent, sum(h.mean for h in each) / len(each))
    return histograms


def _histogram(record: dict[str, Any]) -> Histogram | None:
    """Return the histogram of one record of metrics.jsonl, None where it has none."""
    angle = lookup(record, "objective", "target_angle")
    if angle is None:
        return None
    counts = np.array(angle["histogram"], np.float64)
    edges = np.linspace(0, 180, len(counts) + 1)
    return Histogram(edges, 100 * counts / counts.sum(), angle["mean"])
