"""One test image by the least-squares scale: its cosines, and what softmax makes of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from marginctl.metrics.reliability import softmax
from marginctl.reports.figures.learning_curves import Group, Reasons, inside, is_number
from marginctl.reports.figures.panels import add_head, sheet, title_of, too_many
from marginctl.reports.figures.style import COLORS, legend_text
from marginctl.results.collect import Trained

SIZE = (7.2, 4.4)  # inches of a block
HALF = 0.5  # of the softmax: the classes that hold it together are circled
MOST = 10  # circles: more of them hide the points

FloatArray = NDArray[np.float64]


def example(table: Trained, groups: Sequence[Group], said: Reasons) -> Figure | None:
    """One test image after the first and the last evaluated epoch (Temperature, Fig. 5).

    A block an objective, of its first seed: the logits z_c, cosines to the class weights, by class,
    and below them softmax(kappa* z). The fewest classes that hold half of the softmax are circled,
    at most `MOST`; the image's own class is a square.

    Args:
        table: whose runs are drawn.
        groups: of them; those without least-squares scale are left out.
        said: gets a reason for what could not be drawn.

    Returns:
        None where nothing can be drawn.
    """
    blocks: list[tuple[Group, list[tuple[int, dict[str, Any]]]]] = []
    for group in groups:
        found = _recorded(group)
        if found:
            blocks.append((group, found))
        else:
            said.add("no example: objectives with the least-squares scale record one", group)
    if not blocks or too_many(4 * len(blocks), said):
        return None
    caption = (
        "The first test image under the network of the first seed. (a) Cosines z to the class "
        "weights. (b) softmax(kappa* z). Circles: the fewest classes that hold half of the "
        f"softmax, at most {MOST}."
    )
    heights = {
        f"{group.row}; {group.objective}; seed {group.runs[0].record['seed']}": SIZE[1]
        for group, _ in blocks
    }
    figure, made = sheet(caption, heights, SIZE[0])
    every: list[Any] = []
    for block, (_, found) in zip(made, blocks, strict=True):
        every += _block(block, found)
    add_head(figure, legend_text(title_of(table), 70), every)
    return figure


def _recorded(group: Group) -> list[tuple[int, dict[str, Any]]]:
    """(epoch, example) of the first and the last epoch of the first seed that have one."""
    lines = group.lines[0] if group.lines else []
    found = [(int(line["epoch"]), line["example"]) for line in lines if _is_whole(line)]
    return [found[0], found[-1]] if len(found) > 1 else found


def _is_whole(line: dict[str, Any]) -> bool:
    cosines, label = inside(line, "example", "cosines"), inside(line, "example", "label")
    return (
        isinstance(cosines, list)
        and len(cosines) > 1
        and all(map(is_number, cosines))
        and is_number(inside(line, "example", "kappa"))
        and isinstance(label, int)
        and 0 <= label < len(cosines)
    )


def _block(block: SubFigure, found: Sequence[tuple[int, dict[str, Any]]]) -> list[Any]:
    panels = block.subplots(2, len(found), squeeze=False, sharex=True)
    for column, (epoch, shown) in enumerate(found):
        z, kappa, label = np.array(shown["cosines"], float), float(shown["kappa"]), shown["label"]
        weight = softmax(kappa * z[None])[0]
        first = column == 0
        panels[0, column].set_title(f"epoch {epoch}: kappa* = {kappa:.4g}")
        _points(panels[0, column], z, label, holders(weight))
        _points(panels[1, column], weight, label, holders(weight))
        panels[1, column].set_ylim(-0.05 * weight.max(), 1.12 * weight.max())
        panels[1, column].set_xlabel("class")
        panels[0, column].set_ylabel("(a) logit z (no unit)" if first else "")
        panels[1, column].set_ylabel("(b) softmax (share)" if first else "")
    return list(panels.flat)


def holders(weight: FloatArray) -> NDArray[np.int64]:
    """The fewest classes whose softmax (C,) is half of it together, the largest first."""
    order = np.argsort(-weight, kind="stable")
    count = int(np.searchsorted(np.cumsum(weight[order]), HALF)) + 1
    return order[: min(count, MOST)].astype(np.int64)


def _points(axes: Any, values: FloatArray, label: int, circled: NDArray[np.int64]) -> None:
    classes = np.arange(len(values))
    size = 4.5 if len(values) <= 100 else 2.0
    axes.vlines(classes, 0, values, color="0.75", linewidth=0.8)
    axes.plot(classes, values, "o", color=COLORS[2], markersize=size, label="a class")
    axes.plot(
        *([label], [values[label]], "s"), color=COLORS[1], markersize=6, label="the image's own"
    )
    axes.plot(
        *(circled, values[circled], "o"),
        markersize=11,
        markerfacecolor="none",
        markeredgecolor=COLORS[0],
        label="half of the softmax",
    )
    axes.axhline(0, color="0.4", linewidth=0.6)
