"""Reliability diagrams: accuracy by confidence, with a histogram of the confidence."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from marginctl.metrics.calibration_error import Bin, Reliability
from marginctl.metrics.registry import lookup
from marginctl.reports.figures.layout import Block, compose, group_blocks
from marginctl.reports.figures.seed_groups import Omissions, SeedGroup, SeedTable, available, number
from marginctl.reports.figures.style import COLORS, legend_text, save, styled

WIDTH = 2.9  # inches of a panel
HEIGHTS = (2.5, 1.1)  # inches of a diagram and its histogram
COLUMNS = 4


@dataclass(frozen=True)
class Diagram:
    """The bins of one diagram, and its expected calibration error."""

    reliability: Reliability
    ece: float


def reliability_diagrams(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw a diagram per objective, of the last epoch, with the histogram of the confidence."""
    reason = "no evaluation.calibration in result.json"
    by_group = available(table.groups, pooled, omissions, reason)
    highest = _highest(by_group.values())

    def draw(panels: Sequence[Any], group: SeedGroup, diagram: Diagram, first: bool) -> None:
        _draw(panels, group.objective, diagram, highest, "images" if first else None)

    blocks = group_blocks(by_group, draw, HEIGHTS, COLUMNS, sharex=True)
    caption = (
        "After the last epoch, the test images of all seeds pooled. Confidence: the largest "
        "probability. ECE: expected calibration error, the mean over the seeds."
    )
    return compose(table.title, caption, blocks, WIDTH, omissions)


@styled()
def draw_calibration(
    title: str, before: Reliability, after: Mapping[str, Reliability], path: Path
) -> None:
    """Write the diagrams of `calibrate`: before, and after each method but `none`.

    Raises:
        RequestError: the file cannot be written.
    """
    methods = {name: one for name, one in after.items() if name != "none"}
    diagrams = {name: Diagram(r, r.ece) for name, r in ({"before": before} | methods).items()}
    highest = _highest(diagrams.values())
    columns = min(COLUMNS, len(diagrams))
    rows = -(-len(diagrams) // columns)

    def draw(panels: Any) -> None:
        for i, (name, diagram) in enumerate(diagrams.items()):
            row, column = divmod(i, columns)
            unit = None if column else "samples"
            _draw(panels[2 * row : 2 * row + 2, column], name, diagram, highest, unit)

    options = {"height_ratios": [*HEIGHTS] * rows, "sharex": True}
    block = Block("", (2 * rows, columns), draw, sum(HEIGHTS) / 2, options)
    caption = (
        "First split, held-out samples. Confidence: the probability of the predicted class. ECE: "
        "expected calibration error."
    )
    save(compose(title, caption, [block], WIDTH, Omissions()), path)


def pooled(group: SeedGroup) -> Diagram | None:
    """Return the bins of all seeds' images pooled, and the mean of the seeds' errors.

    Seeds without a diagram, or with other bins than the first, are left out.
    """
    diagrams = [
        (bins, ece)
        for run in group.runs
        if (bins := _bins(run.result)) is not None
        and (ece := number(run.result, "evaluation", "calibration", "ece")) is not None
    ]
    diagrams = [(bins, ece) for bins, ece in diagrams if _edges(bins) == _edges(diagrams[0][0])]
    if not diagrams:
        return None
    merged = tuple(_merged(same) for same in zip(*(bins for bins, _ in diagrams), strict=True))
    return Diagram(Reliability(merged), float(np.mean([ece for _, ece in diagrams])))


def _bins(record: Any) -> tuple[Bin, ...] | None:
    """Return the bins of a result, None where it has none or they are empty."""
    written = lookup(record, "evaluation", "calibration", "reliability")
    try:
        bins = tuple(
            Bin(b["lo"], b["hi"], b["count"], b["confidence"], b["accuracy"]) for b in written
        )
        return bins if sum(b.count for b in bins) > 0 else None
    except (TypeError, KeyError):
        return None


def _edges(bins: Sequence[Bin]) -> list[tuple[float, float]]:
    return [(b.lo, b.hi) for b in bins]


def _merged(bins: tuple[Bin, ...]) -> Bin:
    """Return one bin with the samples of the same bin of several seeds."""
    together = Reliability(bins)
    if not together.n:
        return bins[0]
    return Bin(bins[0].lo, bins[0].hi, together.n, together.confidence, together.accuracy)


def _highest(diagrams: Iterable[Diagram]) -> float:
    """Return the percentage of the samples in the fullest bin of all diagrams."""
    percents = [100 * b.count / d.reliability.n for d in diagrams for b in d.reliability.bins]
    return max(percents, default=0.0)


def _draw(
    panels: Sequence[Any], name: str, diagram: Diagram, highest: float, unit: str | None
) -> None:
    """Draw a diagram and its histogram; `unit`, of the samples, labels a first column."""
    above, below = panels
    above.set_title(f"{legend_text(name)}\nECE {100 * diagram.ece:.2f} %")
    _draw_bins(above, diagram.reliability)
    _draw_histogram(below, diagram.reliability)
    below.set_ylim(0, 1.1 * highest)
    if unit is not None:
        above.set_ylabel("accuracy (%)")
        below.set_ylabel(f"{unit} (%)")


def _draw_bins(panel: Any, reliability: Reliability) -> None:
    bins = [b for b in reliability.bins if b.accuracy is not None and b.confidence is not None]
    left, width = [100 * b.lo for b in bins], [100 * (b.hi - b.lo) for b in bins]
    accuracy = np.array([100 * (b.accuracy or 0) for b in bins])
    gap = np.array([100 * (b.confidence or 0) for b in bins]) - accuracy
    filled: Any = {"color": COLORS[5], "edgecolor": "white", "linewidth": 0.5}
    hatched: Any = {"color": "none", "edgecolor": "0.1", "linewidth": 0.8, "hatch": "////"}
    panel.bar(left, accuracy, width, align="edge", label="accuracy", **filled)
    panel.bar(left, gap, width, accuracy, align="edge", label="calibration gap", **hatched)
    ideal: Any = {"color": "0.2", "linestyle": "--", "linewidth": 1}
    panel.plot([0, 100], [0, 100], label="perfect calibration", **ideal)
    panel.set(xlim=(0, 100), ylim=(0, 100), xticks=range(0, 101, 25), yticks=range(0, 101, 25))


def _draw_histogram(panel: Any, reliability: Reliability) -> None:
    panel.bar(
        [100 * b.lo for b in reliability.bins],
        [100 * b.count / reliability.n for b in reliability.bins],
        [100 * (b.hi - b.lo) for b in reliability.bins],
        align="edge",
        color="0.55",
        edgecolor="white",
        linewidth=0.5,
    )
    panel.set_xlabel("confidence (%)")
    panel.tick_params(labelbottom=True)
