"""Sheets: a figure with a block for each row of a table, one title, one caption, one legend."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from marginctl.reports.figures.learning_curves import Group, Reasons, seeds_text
from marginctl.results.collect import Trained

MOST_PANELS = 120  # a taller file opens nowhere
HEAD = 1.0  # inches for title, legend and caption
TITLE = 0.35  # inches for the title of a block
LETTER = 0.075  # inches
SMALL = 7.5  # points of the caption


def title_of(table: Trained) -> str:
    """A table's recipe, and what it reproduces."""
    number = f", table {table.table}" if table.table else ""
    return table.recipe + (f" ({table.paper}{number})" if table.paper else "")


def block_title(row: str, groups: Iterable[Group]) -> str:
    """Data, model and setting of a row, and its seeds."""
    return f"{row}; {seeds_text(groups)}"


def too_many(panels: int, said: Reasons) -> bool:
    """Whether one figure cannot hold so many panels; then it says so."""
    if panels > MOST_PANELS:
        said.add(
            f"{panels} panels: at most {MOST_PANELS} are drawn in one figure: name fewer folders "
            "as STORE"
        )
    return panels > MOST_PANELS


def sheet(
    caption: str, blocks: Mapping[str, float], width: float
) -> tuple[Figure, list[SubFigure]]:
    """An empty sheet.

    Args:
        caption: below all, broken into lines.
        blocks: their titles, and their heights in inches.
        width: in inches.

    Returns:
        The figure, and its blocks from the top.
    """
    letters = int(width / LETTER)
    heights = [height + TITLE for height in blocks.values()]
    figure = Figure(
        figsize=(width, sum(heights) + HEAD), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06)
    )
    figure.supxlabel(textwrap.fill(caption, int(1.15 * letters)), fontsize=SMALL, color="0.25")
    made = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for block, above in zip(made, blocks, strict=True):
        block.suptitle(textwrap.fill(above, letters), fontsize=9)
    return figure, list(made)


def blocks_of(
    rows: Mapping[str, Sequence[Group]], most: int, height: float
) -> tuple[int, dict[str, float]]:
    """In how many columns panels stand, and the heights of the rows' blocks by their titles.

    Args:
        rows: a panel for each of a row's groups.
        most: columns.
        height: of a panel.
    """
    columns = min(most, max(map(len, rows.values())))
    return columns, {
        block_title(row, together): height * -(-len(together) // columns)
        for row, together in rows.items()
    }


def add_head(figure: Figure, title: str, panels: Iterable[Any], columns: int = 3) -> None:
    """The title above all, with one legend under it for all that the panels name."""
    handles: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, _of_no_figure(handle))
    letters = int(0.8 * figure.get_figwidth() / LETTER)  # bold ones are wider
    # as the legend's own title: two artists above a figure would lie on each other
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside upper center",
        ncols=max(1, min(columns, len(handles))),
        frameon=False,
        title=textwrap.fill(title, letters),
        title_fontproperties={"weight": "bold", "size": 10},
    )


def _of_no_figure(handle: Any) -> Any:
    """What stands for a band in a legend: before 3.11 matplotlib takes none from a part of it."""
    if not isinstance(handle, PolyCollection):
        return handle
    face, width = (np.asarray(of)[0] for of in (handle.get_facecolor(), handle.get_linewidth()))
    return Patch(facecolor=tuple(face), linewidth=float(width))


def looks(groups: Sequence[Group]) -> dict[str, int]:
    """Each objective's number, by which it looks alike in all panels."""
    return {name: i for i, name in enumerate(dict.fromkeys(g.objective for g in groups))}
