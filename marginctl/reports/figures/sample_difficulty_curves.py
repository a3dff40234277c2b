"""What becomes of easy and hard training images by epoch, and how far an image moves the loss."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure, SubFigure

from marginctl.reports.figures.curves import by_epoch, draw_series, epoch_axis
from marginctl.reports.figures.learning_curves import (
    Group,
    Reasons,
    Series,
    by_row,
    inside,
    spread_text,
)
from marginctl.reports.figures.panels import add_head, blocks_of, sheet, title_of, too_many
from marginctl.reports.figures.style import legend_text
from marginctl.results.collect import Trained

PANEL = (3.0, 2.3)  # inches
COLUMNS = 4
QUANTITIES = {"confidence": "mean confidence", "gradient_share": "share of the gradient"}

_GROUPS = ("sample_difficulty", "groups")
_NORM = ("input_gradient_norm", "mean")


def curriculum(table: Trained, groups: Sequence[Group], said: Reasons) -> Figure | None:
    """Mean confidence of training images by epoch, a line a group of equal difficulty.

    A panel an objective, and below each the groups' shares of the gradient.

    Args:
        table: whose runs are drawn.
        groups: of them; those without a reference are left out.
        said: gets a reason for what could not be drawn.

    Returns:
        None where nothing can be drawn.
    """
    found: dict[tuple[str, str], dict[tuple[str, str], Series]] = {}
    for group in groups:
        series = _series(group)
        if series:
            found[group.row, group.objective] = series
        else:
            said.add("no curriculum by epoch: train.reference_run records it", group)
    rows = by_row(g for g in groups if (g.row, g.objective) in found)
    if not found or too_many(2 * len(found), said):
        return None
    columns, heights = blocks_of(rows, COLUMNS, 2 * PANEL[1])
    counts = [len(one.values) for of_group in found.values() for one in of_group.values()]
    caption = (
        f"Mean over the seeds; {spread_text('band', counts)}. Training images in groups of equal "
        "size by their loss under a trained reference network. Confidence: the probability of "
        "their own class, without margin. Share of the gradient: the sum over the group's images "
        "of |dJ/dx| by the feature x, with the margin, by the sum over all."
    )
    figure, blocks = sheet(caption, heights, PANEL[0] * max(columns, 2))
    every: list[Any] = []
    for block, (row, together) in zip(blocks, rows.items(), strict=True):
        drawn = {g.objective: found[row, g.objective] for g in together}
        every += _block(block, drawn, columns)
    add_head(figure, title_of(table), every)
    return figure


def lipschitz(table: Trained, groups: Sequence[Group], said: Reasons) -> Figure | None:
    """The norm of the loss's gradient by training image, by epoch: a local Lipschitz estimate.

    Arguments and result as for `curriculum`.
    """
    caption = (
        "The Euclidean norm of the gradient of an image's loss, with the margin, with respect to "
        "the normalised image, in evaluation mode: the mean over the same training images."
    )
    return by_epoch(table, groups, said, {"mean |dJ(x)/dx| (nats)": _NORM}, caption)


def _series(group: Group) -> dict[tuple[str, str], Series]:
    """By (quantity, number of the group); the groups are those of the first line that has any."""
    lines = [line for of_seed in group.lines for line in of_seed]
    numbers = next((n for line in lines if isinstance(n := inside(line, *_GROUPS), dict)), {})
    return {
        (quantity, number): series
        for quantity in QUANTITIES
        for number in numbers
        if (series := group.by_epoch(*_GROUPS, number, quantity)) is not None
    }


def _block(
    block: SubFigure, drawn: dict[str, dict[tuple[str, str], Series]], columns: int
) -> list[Any]:
    rows = -(-len(drawn) // columns)
    grid = block.subplots(2 * rows, columns, squeeze=False, sharey="row")
    for i in range(rows * columns - len(drawn)):
        for panel in (grid[-2, columns - 1 - i], grid[-1, columns - 1 - i]):
            panel.set_visible(False)
    for j, (name, of_group) in enumerate(drawn.items()):
        row, column = divmod(j, columns)
        grid[2 * row, column].set_title(legend_text(name))
        for i, (quantity, label) in enumerate(QUANTITIES.items()):
            panel = grid[2 * row + i, column]
            epoch_axis(panel)
            panel.set_ylim(0, 1)
            if column == 0:
                panel.set_ylabel(label)
            numbers = [number for of, number in of_group if of == quantity]
            for look, number in enumerate(numbers):
                draw_series(panel, of_group[quantity, number], _group_text(number, numbers), look)
    return list(grid.flat)


def _group_text(number: str, numbers: Sequence[str]) -> str:
    """The name of a group in the legend."""
    ends = {numbers[0]: ", the easiest", numbers[-1]: ", the hardest"}
    return f"group {number}{ends.get(number, '')}"
