"""The scale by epoch: least-squares kappa* of the test images, and scales that move."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure, SubFigure

from marginctl.reports.figures.curves import draw_series, epoch_axis
from marginctl.reports.figures.learning_curves import Group, Reasons, Series, by_row, spread_text
from marginctl.reports.figures.panels import add_head, blocks_of, sheet, title_of, too_many
from marginctl.reports.figures.style import legend_text, line
from marginctl.results.collect import Trained

PANEL = (3.6, 2.7)  # inches
COLUMNS = 3
BANDS = (("0.05", "0.95", "5 to 95 % of the images"), ("0.25", "0.75", "25 to 75 % of the images"))

_KAPPA = ("objective", "optimal_scale")
_SCALE = ("objective", "scale")


def kappa(table: Trained, groups: Sequence[Group], said: Reasons) -> Figure | None:
    """kappa* of the test images by epoch (Temperature, Fig. 1), or the one scale that moves.

    A panel an objective: for kappa* its mean, median and quantiles of 5, 25, 75 and 95 % over the
    images, each the mean over the seeds; for a scale that is learned or AdaCos's the mean and the
    band over the seeds.

    Args:
        table: whose runs are drawn.
        groups: of them; those with a fixed scale, or none, are left out.
        said: gets a reason for what could not be drawn.

    Returns:
        None where nothing can be drawn.
    """
    drawn = [g for g in groups if g.by_epoch(*_KAPPA, "mean") or g.by_epoch(*_SCALE)]
    for group in groups:
        if group not in drawn:
            said.add("no scale by epoch: least-squares, learned and AdaCos's scales have it", group)
    rows = by_row(drawn)
    if not drawn or too_many(len(drawn), said):
        return None
    counts = [len(s.values) for g in drawn if (s := g.by_epoch(*_SCALE))]
    caption = "Means over the seeds."
    if any(g.by_epoch(*_KAPPA, "mean") for g in drawn):
        caption += " kappa*: mean and quantiles over the test images."
    if counts:
        caption += f" Scale: {spread_text('band', counts)}."
    columns, heights = blocks_of(rows, COLUMNS, PANEL[1])
    figure, blocks = sheet(caption, heights, PANEL[0] * max(columns, 2))
    every: list[Any] = []
    for block, together in zip(blocks, rows.values(), strict=True):
        every += _block(block, together, columns)
    add_head(figure, title_of(table), every)
    return figure


def _block(block: SubFigure, together: Sequence[Group], columns: int) -> list[Any]:
    rows = -(-len(together) // columns)
    panels = list(block.subplots(rows, columns, squeeze=False).flat)
    for panel in panels[len(together) :]:
        panel.set_visible(False)
    for panel, group in zip(panels, together, strict=False):
        panel.set_title(legend_text(group.objective))
        epoch_axis(panel)
        mean, scale = group.by_epoch(*_KAPPA, "mean"), group.by_epoch(*_SCALE)
        if mean is not None:
            panel.set_ylabel("kappa* (no unit)")
            _kappa(panel, group, mean)
        elif scale is not None:
            panel.set_ylabel("scale (no unit)")
            draw_series(panel, scale, "scale, the same for all images", 1)
    return panels[: len(together)]


def _kappa(panel: Any, group: Group, mean: Series) -> None:
    for (low, high, label), shade in zip(BANDS, ("0.85", "0.68"), strict=True):
        lower, upper = _quantile(group, low), _quantile(group, high)
        if lower is not None and upper is not None and len(lower.epochs) == len(upper.epochs):
            panel.fill_between(
                lower.epochs,
                lower.values.mean(0),
                upper.values.mean(0),
                color=shade,
                linewidth=0,
                label=label,
            )
    median = _quantile(group, "0.5")
    if median is not None:
        look = line(2, len(median.epochs))
        panel.plot(median.epochs, median.values.mean(0), label="kappa*, median image", **look)
    look = line(0, len(mean.epochs))
    panel.plot(mean.epochs, mean.values.mean(0), label="kappa*, mean of the images", **look)


def _quantile(group: Group, name: str) -> Series | None:
    return group.by_epoch(*_KAPPA, "quantiles", name)
