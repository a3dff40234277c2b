"""Reliability diagrams: accuracy by confidence, and how many images have it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure, SubFigure

from marginctl.metrics.reliability import Bin, Reliability
from marginctl.reports.figures.learning_curves import Group, Reasons, by_row, inside, number
from marginctl.reports.figures.panels import add_head, blocks_of, sheet, title_of, too_many
from marginctl.reports.figures.style import COLORS, legend_text
from marginctl.results.collect import Trained

PANEL = (2.9, 3.6)  # inches, with the histogram
COLUMNS = 4


@dataclass(frozen=True)
class Pooled:
    """The bins of all seeds' images together, and the mean of the seeds' own errors."""

    reliability: Reliability
    ece: float


def reliability(table: Trained, groups: Sequence[Group], said: Reasons) -> Figure | None:
    """A diagram an objective, of the last epoch, with the histogram of the confidence below.

    Args:
        table: whose runs are drawn.
        groups: of them.
        said: gets a reason for what could not be drawn.

    Returns:
        None where nothing can be drawn.
    """
    found = {}
    for group in groups:
        one = pooled(group)
        if one is None:
            said.add("no evaluation.calibration in result.json", group)
        else:
            found[group.row, group.objective] = one
    rows = by_row(g for g in groups if (g.row, g.objective) in found)
    if not found or too_many(2 * len(found), said):
        return None
    columns, heights = blocks_of(rows, COLUMNS, PANEL[1])
    caption = (
        "After the last epoch; the test images of all seeds together. Confidence: the largest "
        "probability. ECE: expected calibration error, the mean of the seeds' own."
    )
    figure, blocks = sheet(caption, heights, PANEL[0] * max(columns, 2))
    every: list[Any] = []
    most = fullest(one.reliability for one in found.values())
    for block, (row, together) in zip(blocks, rows.items(), strict=True):
        drawn = {g.objective: found[row, g.objective] for g in together}
        every += add_diagrams(block, drawn, columns, most)
    add_head(figure, title_of(table), every)
    return figure


def fullest(diagrams: Iterable[Reliability]) -> float:
    """Percent of the images in the fullest bin of all diagrams."""
    return 100 * max(b.count / one.n for one in diagrams for b in one.bins)


def pooled(group: Group) -> Pooled | None:
    """The seeds' diagrams in one; seeds without one, or with other bins, are left out."""
    made = [
        (bins, ece)
        for run in group.runs
        if (bins := _bins(run.record)) is not None
        and (ece := number(run.record, "evaluation", "calibration", "ece")) is not None
    ]
    made = [(bins, ece) for bins, ece in made if _edges(bins) == _edges(made[0][0])]
    if not made:
        return None
    together = tuple(_together(same) for same in zip(*(bins for bins, _ in made), strict=True))
    return Pooled(Reliability(together), float(np.mean([ece for _, ece in made])))


def _bins(record: Any) -> tuple[Bin, ...] | None:
    """The bins in a result, None where it has none or a count does not fit them."""
    written = inside(record, "evaluation", "calibration", "reliability")
    try:
        bins = tuple(
            Bin(b["lo"], b["hi"], b["count"], b["confidence"], b["accuracy"]) for b in written
        )
        return bins if sum(b.count for b in bins) > 0 else None
    except (TypeError, KeyError):
        return None


def _edges(bins: Sequence[Bin]) -> list[tuple[float, float]]:
    return [(b.lo, b.hi) for b in bins]


def _together(same: Sequence[Bin]) -> Bin:
    """One bin of several seeds: its samples together."""
    count = sum(b.count for b in same)
    confidence = sum(b.count * b.confidence for b in same if b.confidence is not None)
    accuracy = sum(b.count * b.accuracy for b in same if b.accuracy is not None)
    if not count:
        return Bin(same[0].lo, same[0].hi, 0, None, None)
    return Bin(same[0].lo, same[0].hi, count, confidence / count, accuracy / count)


def add_diagrams(
    block: SubFigure, drawn: dict[str, Pooled], columns: int, most: float, unit: str = "images"
) -> list[Any]:
    """The diagrams of a row; `most`: percent of the images in the fullest bin of the figure."""
    rows = -(-len(drawn) // columns)
    grid = block.subplots(
        2 * rows, columns, squeeze=False, height_ratios=[3, 1.3] * rows, sharex=True
    )
    places = [(grid[2 * i, j], grid[2 * i + 1, j]) for i in range(rows) for j in range(columns)]
    for place in places[len(drawn) :]:
        for panel in place:
            panel.set_visible(False)
    for j, ((above, below), (name, one)) in enumerate(zip(places, drawn.items(), strict=False)):
        above.set_title(f"{legend_text(name)}\nECE {100 * one.ece:.2f} %")
        _diagram(above, one.reliability)
        _histogram(below, one.reliability)
        below.set_ylim(0, 1.1 * most)
        if j % columns == 0:
            above.set_ylabel("accuracy (%)")
            below.set_ylabel(f"{unit} (%)")
    return [above for above, _ in places[: len(drawn)]]


def _diagram(panel: Any, found: Reliability) -> None:
    bins = [b for b in found.bins if b.accuracy is not None and b.confidence is not None]
    left, width = [100 * b.lo for b in bins], [100 * (b.hi - b.lo) for b in bins]
    accuracy = np.array([100 * (b.accuracy or 0) for b in bins])
    gap = np.array([100 * (b.confidence or 0) for b in bins]) - accuracy
    panel.bar(
        left,
        accuracy,
        width,
        align="edge",
        color=COLORS[5],
        edgecolor="white",
        linewidth=0.5,
        label="accuracy in the bin",
    )
    panel.bar(
        left,
        gap,
        width,
        bottom=accuracy,
        align="edge",
        color="none",
        edgecolor="0.1",
        hatch="////",
        linewidth=0.8,
        label="from it to the mean confidence",
    )
    panel.plot([0, 100], [0, 100], color="0.2", linestyle="--", linewidth=1, label="calibrated")
    panel.set(xlim=(0, 100), ylim=(0, 100), xticks=range(0, 101, 25), yticks=range(0, 101, 25))


def _histogram(panel: Any, found: Reliability) -> None:
    panel.bar(
        [100 * b.lo for b in found.bins],
        [100 * b.count / found.n for b in found.bins],
        [100 * (b.hi - b.lo) for b in found.bins],
        align="edge",
        color="0.55",
        edgecolor="white",
        linewidth=0.5,
    )
    panel.set_xlabel("confidence (%)")
    panel.tick_params(labelbottom=True)
