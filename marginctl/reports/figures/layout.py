"""Figures of titled blocks of panels, with one title and one legend."""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from marginctl.reports.figures.seed_groups import Omissions, SeedGroup, by_row, seeds_text
from marginctl.reports.figures.style import legend_text

T = TypeVar("T")

MAX_PANELS = 120  # viewers do not open a taller file
HEAD = 0.8  # inches for title and legend
BLOCK_TITLE = 0.35  # inches
LETTER = 0.075  # inches


@dataclass(frozen=True)
class Block:
    """A titled grid of panels."""

    title: str
    shape: tuple[int, int]  # rows and columns of panels; panels without data are hidden
    draw: Callable[[Any], None]  # called with the panels, an array of that shape
    row_height: float  # in inches
    options: Mapping[str, Any] = field(default_factory=dict)  # of `Figure.subplots`


def compose(
    title: str,
    caption: str,
    blocks: Sequence[Block],
    panel_width: float,
    omissions: Omissions,
    *,
    min_columns: int = 2,
    legend_columns: int = 3,
) -> Figure | None:
    """Return a figure of blocks below each other, None where there is nothing to draw.

    Args:
        caption: becomes the label of the figure, which is not drawn.
        panel_width: in inches.
        omissions: gets a line where the figure would have more than `MAX_PANELS` panels.
        min_columns: the figure is at least this many panels wide, for its texts.
    """
    count = sum(block.shape[0] * block.shape[1] for block in blocks)
    if count > MAX_PANELS:
        omissions.add(
            f"{count} panels: a figure has at most {MAX_PANELS}: name fewer folders as RUNS"
        )
    if not 0 < count <= MAX_PANELS:
        return None
    width = panel_width * max(min_columns, *(block.shape[1] for block in blocks))
    heights = [block.shape[0] * block.row_height + BLOCK_TITLE for block in blocks]
    figure = Figure(
        figsize=(width, sum(heights) + HEAD), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06)
    )
    letters = int(width / LETTER)
    figure.set_label(caption)
    parts = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)[:, 0]
    panels: list[Any] = []
    for part, block in zip(parts, blocks, strict=True):
        part.suptitle(textwrap.fill(block.title, letters), fontsize=9)
        axes = part.subplots(*block.shape, squeeze=False, **block.options)
        block.draw(axes)
        for panel in axes.flat:
            panel.set_visible(panel.has_data())
        panels += list(axes.flat)
    _add_head(figure, title, panels, legend_columns)
    return figure


def row_block(
    row: str,
    groups: Sequence[SeedGroup],
    shape: tuple[int, int],
    draw: Callable[[Sequence[SeedGroup], Any], None],
    row_height: float,
    **options: Any,
) -> Block:
    """Return the block of a row's groups; `draw` is called with them and the panels."""
    return Block(f"{row}; {seeds_text(groups)}", shape, partial(draw, groups), row_height, options)


def group_blocks(
    contents: Mapping[SeedGroup, T],
    draw: Callable[[Sequence[Any], SeedGroup, T, bool], None],
    row_heights: Sequence[float],
    max_columns: int,
    **options: Any,
) -> list[Block]:
    """Return a block per row of a table, with a column of panels per group.

    Args:
        contents: what is drawn of each group.
        draw: called with a group's panels from the top, the group, its content, and
            whether the panels are the first of their row.
        row_heights: of a group's panels, in inches.
    """
    rows = by_row(contents)
    columns = min(max_columns, max(map(len, rows.values()), default=1))
    depth = len(row_heights)

    def draw_row(groups: Sequence[SeedGroup], panels: Any) -> None:
        for i, group in enumerate(groups):
            line, column = divmod(i, columns)
            own_panels = panels[depth * line : depth * (line + 1), column]
            own_panels[0].set_title(legend_text(group.objective))
            draw(own_panels, group, contents[group], column == 0)

    blocks = []
    for row, groups in rows.items():
        lines = -(-len(groups) // columns)
        shape, ratios = (depth * lines, columns), [*row_heights] * lines
        height = float(np.mean(row_heights))
        blocks.append(
            row_block(row, groups, shape, draw_row, height, height_ratios=ratios, **options)
        )
    return blocks


def _add_head(figure: Figure, title: str, panels: Iterable[Any], columns: int) -> None:
    """Add the title, and below it one legend for all that the panels label."""
    handles: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, _standalone(handle))
    letters = int(0.8 * figure.get_figwidth() / LETTER)  # bold letters are wider
    # as the legend's own title: constrained layout would draw two artists above the panels over
    # each other
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside upper center",
        ncols=max(1, min(columns, len(handles))),
        frameon=False,
        title=textwrap.fill(title, letters),
        title_fontproperties={"weight": "bold", "size": 10},
    )


def _standalone(handle: Any) -> Any:
    """Return a legend handle of no subfigure: matplotlib before 3.11 refuses a band's own."""
    if not isinstance(handle, PolyCollection):
        return handle
    face, width = (np.asarray(v)[0] for v in (handle.get_facecolor(), handle.get_linewidth()))
    return Patch(facecolor=tuple(face), linewidth=float(width))


def objective_indices(groups: Iterable[SeedGroup]) -> dict[str, int]:
    """Return an index per objective, for one line style in all panels."""
    return {name: i for i, name in enumerate(dict.fromkeys(g.objective for g in groups))}
