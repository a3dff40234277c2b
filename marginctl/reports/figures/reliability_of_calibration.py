"""Reliability diagrams of `calibrate`: before, and after each method."""

from pathlib import Path
from typing import Any

from marginctl.metrics.reliability import Reliability
from marginctl.reports.figures.panels import add_head, sheet
from marginctl.reports.figures.reliability_diagram import (
    COLUMNS,
    PANEL,
    Pooled,
    add_diagrams,
    fullest,
)
from marginctl.reports.figures.style import save, styled


@styled()
def draw(title: str, before: Reliability, after: dict[str, Reliability], path: Path) -> None:
    """Draws the diagrams with the histograms of the confidence.

    Args:
        title: above all.
        before: without any map.
        after: by method; `none` is what is before.
        path: a file of one of `FORMATS`.

    Raises:
        RequestError: the file cannot be written.
    """
    found = {"before": before} | {name: one for name, one in after.items() if name != "none"}
    drawn = {name: Pooled(one, one.ece) for name, one in found.items()}
    columns = min(COLUMNS, len(drawn))
    caption = (
        "The samples that are measured, of several splits the first one's. Confidence: the "
        "probability of the predicted class. ECE: expected calibration error."
    )
    height = PANEL[1] * -(-len(drawn) // columns)
    figure, (block,) = sheet(caption, {"": height}, PANEL[0] * max(columns, 2))
    panels: list[Any] = add_diagrams(block, drawn, columns, fullest(found.values()), "samples")
    add_head(figure, title, panels)
    save(figure, path)
