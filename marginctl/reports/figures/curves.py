"""Curves by epoch, a line an objective: loss and accuracy, and the mean bias rho."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from marginctl.reports.figures.learning_curves import (
    Group,
    Reasons,
    Series,
    by_row,
    spread,
    spread_text,
)
from marginctl.reports.figures.panels import add_head, block_title, looks, sheet, title_of, too_many
from marginctl.reports.figures.style import legend_text, line
from marginctl.results.collect import Trained

PANEL = (4.6, 2.7)  # inches

_LOSS = ("train", "loss")
_TOP1 = ("test", "top1")
_RHO = ("objective", "rho")


def curves(table: Trained, groups: Sequence[Group], said: Reasons) -> Figure | None:
    """Training loss and test top-1 by epoch, with its error on the right-hand axis.

    Args:
        table: whose runs are drawn.
        groups: of them, a line each.
        said: gets a reason for what could not be drawn.

    Returns:
        None where nothing can be drawn.
    """
    caption = (
        "Losses with other margins, scales or regularisers do not compare; the accuracy is of the "
        "test images."
    )
    quantities = {"training loss (nats)": _LOSS, "test top-1 (%)": _TOP1}
    figure = by_epoch(table, groups, said, quantities, caption)
    for block in figure.subfigs if figure else ():
        right = block.axes[1].secondary_yaxis("right", functions=(_rest, _rest))
        right.set_ylabel("test error (%)")
    return figure


def rho(table: Trained, groups: Sequence[Group], said: Reasons) -> Figure | None:
    """The mean bias rho of the test images by epoch (Large Margin, eq. 7 and Fig. 3).

    Arguments and result as for `curves`.
    """
    caption = (
        "rho: the mean over the test images of ln sum exp(f_c - max f_c) over the classes but the "
        "target's: from 0 to ln(C - 1), where they are alike (Large Margin in Softmax, eq. 7)."
    )
    return by_epoch(table, groups, said, {"mean bias rho (nats)": _RHO}, caption)


def _rest(percent: Any) -> Any:
    return 100 - percent


def by_epoch(
    table: Trained,
    groups: Sequence[Group],
    said: Reasons,
    quantities: Mapping[str, tuple[str, ...]],
    caption: str,
) -> Figure | None:
    """A block a row with a panel for each quantity, in which every objective has its line.

    Args:
        table, groups, said: as for `curves`.
        quantities: axis label -> path in a line of metrics.jsonl.
        caption: after what the lines and bands are.
    """
    found: dict[tuple[str, str, str], Series] = {}
    for group in groups:
        for label, path in quantities.items():
            series = group.by_epoch(*path)
            if series is None:
                name = ".".join(path)
                said.add(f"no {name} by epoch", group)
            else:
                found[group.row, group.objective, label] = series
    rows = {row: g for row, g in by_row(groups).items() if any(at[0] == row for at in found)}
    if not found or too_many(len(rows) * len(quantities), said):
        return None
    counts = [len(series.values) for series in found.values()]
    look = looks(groups)
    figure, blocks = sheet(
        f"Mean over the seeds; {spread_text('band', counts)}. {caption}",
        {block_title(row, together): PANEL[1] for row, together in rows.items()},
        PANEL[0] * max(2, len(quantities)),
    )
    for block, (row, together) in zip(blocks, rows.items(), strict=True):
        panels = block.subplots(1, len(quantities), squeeze=False)[0]
        for panel, label in zip(panels, quantities, strict=True):
            for group in together:
                series = found.get((row, group.objective, label))
                if series is not None:
                    draw_series(panel, series, legend_text(group.objective), look[group.objective])
            epoch_axis(panel)
            panel.set_ylabel(label)
    add_head(figure, title_of(table), (panel for block in blocks for panel in block.axes))
    return figure


def draw_series(panel: Any, series: Series, label: str, look: int) -> None:
    """A line of the mean over the seeds, and a band around it where there are several."""
    drawn = spread(series.values)
    style = line(look, len(series.epochs))
    panel.plot(series.epochs, drawn.mean, label=label, **style)
    if len(series.values) > 1:
        panel.fill_between(
            series.epochs, drawn.low, drawn.high, color=style["color"], alpha=0.15, linewidth=0
        )


def epoch_axis(panel: Any) -> None:
    """The horizontal axis of epochs: whole numbers."""
    panel.set_xlabel("epoch")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
