"""Histograms of the angle to the own class weight as training goes on: ArcGrad's Fig. 4."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from marginctl.reports.figures.learning_curves import (
    FloatArray,
    Group,
    Reasons,
    by_row,
    inside,
    is_number,
    number,
)
from marginctl.reports.figures.panels import add_head, block_title, looks, sheet, title_of, too_many
from marginctl.reports.figures.style import COLORS, legend_text
from marginctl.results.collect import Trained

PANEL = (3.1, 1.75)  # inches
ROW_NAME = 20  # letters beside a row


@dataclass(frozen=True)
class Histogram:
    """Angles of the test images, mean over the seeds.

    Attributes:
        edges: (B + 1,) in degrees, from 0 to 180.
        shares: (B,) in percent of the images.
        mean: in degrees.
    """

    edges: FloatArray
    shares: FloatArray
    mean: float


def angles(table: Trained, groups: Sequence[Group], said: Reasons) -> Figure | None:
    """Columns for the first, the middle and the last epoch; rows for the objectives.

    Args:
        table: whose runs are drawn.
        groups: of them; those on no cosine or angle are left out.
        said: gets a reason for what could not be drawn.

    Returns:
        None where nothing can be drawn.
    """
    found = {}
    for group in groups:
        by_epoch = histograms(group)
        if by_epoch:
            found[group.row, group.objective] = first_middle_last(by_epoch)
        else:
            said.add(
                "no objective.target_angle by epoch: objectives on a cosine or an angle have it",
                group,
            )
    rows = {
        row: [g for g in together if (row, g.objective) in found]
        for row, together in by_row(groups).items()
    }
    rows = {row: together for row, together in rows.items() if together}
    columns = max(map(len, found.values()), default=0)
    if not found or too_many(len(found) * columns, said):
        return None
    highest = max(h.shares.max() for shown in found.values() for h in shown.values())
    look = looks(groups)
    figure, blocks = sheet(
        "Shares are means over the seeds; the dashed line is the mean angle.",
        {block_title(row, together): PANEL[1] * len(together) for row, together in rows.items()},
        PANEL[0] * max(columns, 2),
    )
    for block, (row, together) in zip(blocks, rows.items(), strict=True):
        panels = block.subplots(len(together), columns, squeeze=False, sharex=True, sharey=True)
        for line, group in zip(panels, together, strict=True):
            shown = found[row, group.objective]
            line[0].set_ylabel(f"{legend_text(group.objective, ROW_NAME)}\nimages (%)")
            for panel in line[len(shown) :]:
                panel.set_visible(False)
            for panel, (epoch, histogram) in zip(line, shown.items(), strict=False):
                panel.bar(
                    histogram.edges[:-1],
                    histogram.shares,
                    width=np.diff(histogram.edges),
                    align="edge",
                    color=COLORS[look[group.objective] % len(COLORS)],
                    edgecolor="white",
                    linewidth=0.5,
                )
                panel.axvline(histogram.mean, color="0.35", linestyle="--", linewidth=1.2)
                panel.set_title(f"epoch {epoch}: mean {histogram.mean:.1f}°", fontsize=8)
        for panel in panels[-1]:
            panel.set_xlabel("angle to the own class (degrees)")
        panels[0, 0].set(xlim=(0, 180), ylim=(0, 1.05 * highest), xticks=range(0, 181, 45))
    add_head(figure, title_of(table), ())
    return figure


def first_middle_last(by_epoch: dict[int, Histogram]) -> dict[int, Histogram]:
    """Of the epochs, in their order, the first, the middle one and the last."""
    epochs = list(by_epoch)
    chosen = dict.fromkeys((epochs[0], epochs[(len(epochs) - 1) // 2], epochs[-1]))
    return {epoch: by_epoch[epoch] for epoch in chosen}


def histograms(group: Group) -> dict[int, Histogram]:
    """By epoch, for the epochs that all seeds have; seeds without any are left out."""
    of_seeds = [
        {line["epoch"]: h for line in lines if (h := _read(line)) is not None}
        for lines in group.lines
    ]
    having = [seed for seed in of_seeds if seed]
    common = sorted(set.intersection(*map(set, having))) if having else []
    made = {}
    for epoch in common:
        each = [seed[epoch] for seed in having]
        if len({len(h.edges) for h in each}) == 1:
            shares = np.stack([h.shares for h in each]).mean(0)
            mean = sum(h.mean for h in each) / len(each)
            made[epoch] = Histogram(each[0].edges, shares, mean)
    return made


def _read(line: dict[str, object]) -> Histogram | None:
    """The histogram of one line of one seed."""
    record = inside(line, "objective", "target_angle")
    counts, mean, width = inside(record, "histogram"), number(record, "mean"), number(record, "bin")
    whole = isinstance(counts, list) and all(map(is_number, counts)) and sum(counts) > 0
    if not whole or mean is None or width is None or width * len(counts) != 180:
        return None
    shares: FloatArray = 100 * np.array(counts, np.float64) / sum(counts)
    return Histogram(np.linspace(0, 180, len(counts) + 1), shares, mean)
