"""One test image under the least-squares scale: its cosines and its softmax."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread
from numpy.typing import NDArray

from marginctl.metrics.scoring_rules import softmax
from marginctl.reports.figures.layout import Block, compose
from marginctl.reports.figures.seed_groups import (
    FloatArray,
    Omissions,
    SeedGroup,
    SeedTable,
    available,
)
from marginctl.reports.figures.style import COLORS, legend_text
from marginctl.runs.run_dir import EXAMPLE_IMAGE
from marginctl.utils.text import printable

PANEL = (3.6, 2.2)  # inches
PROBABILITY = 0.5  # of the circled classes together
MAX_CIRCLES = 10  # more would hide the points

Example = tuple[int, dict[str, Any]]  # epoch, record


def example_image(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw one test image after the first and the last evaluated epoch (Temperature, Fig. 5).

    A block per objective, of its first seed: the image, the logits z_c, cosines to the class
    weights, by class, and below them softmax(kappa* z).
    """
    reason = "no example: objectives with the least-squares scale record one"

    def draw(image: Path, examples: Sequence[Example], panels: Any) -> None:
        first, *columns = panels.T
        _draw_image(first[0], image, examples[-1][1])
        for column, (epoch, example) in zip(columns, examples, strict=True):
            _draw_example(column, epoch, example)
        columns[0][0].set_ylabel("(a) logit z (no unit)")
        columns[0][1].set_ylabel("(b) softmax (probability)")

    blocks = []
    for group, examples in available(table.groups, _examples, omissions, reason).items():
        run = group.runs[0]
        title = f"{group.row}; {group.objective}; seed {run.result.seed}"
        shape = 2, 1 + len(examples)
        drawn = partial(draw, run.path / EXAMPLE_IMAGE, examples)
        options = {"width_ratios": [0.5] + [1] * len(examples)}
        blocks.append(Block(title, shape, drawn, PANEL[1], options))
    caption = (
        "The first test image under the network of the first seed. (a) Cosines z to the class "
        "weights. (b) softmax(kappa* z). Circles: the smallest set of classes with 50 % "
        f"probability, at most {MAX_CIRCLES}."
    )
    return compose(table.title, caption, blocks, PANEL[0], omissions)


def _draw_image(panel: Any, path: Path, example: Mapping[str, Any]) -> None:
    """Show the image and its class; runs of earlier versions have no image."""
    if path.is_file():
        panel.imshow(imread(path), cmap="gray", vmin=0, vmax=1)
        name = printable(str(example.get("class", example["label"])))
        panel.set_title(f"class: {legend_text(name)}")
        panel.axis("off")


def _examples(group: SeedGroup) -> list[Example]:
    """Return the first and the last example of the first seed."""
    records = group.epochs[0] if group.epochs else []
    examples = [(r["epoch"], r["example"]) for r in records if r.get("example")]
    return [examples[0], examples[-1]] if len(examples) > 1 else examples


def _draw_example(panels: Sequence[Any], epoch: int, example: dict[str, Any]) -> None:
    z, kappa = np.array(example["cosines"], float), float(example["kappa"])
    probabilities = softmax(kappa * z[None])[0]
    circled = smallest_set(probabilities)
    panels[0].set_title(f"epoch {epoch}: kappa* = {kappa:.4g}")
    for panel, values in zip(panels, (z, probabilities), strict=True):
        _draw_classes(panel, values, example["label"], circled)
    panels[1].set_ylim(-0.05 * probabilities.max(), 1.12 * probabilities.max())
    names = [*map(printable, example.get("classes", ()))]
    for panel in panels if names else ():
        panel.set_xticks(range(len(names)), [""] * len(names))
    if names:
        panels[1].set_xticklabels(names, rotation=0 if max(map(len, names)) < 3 else 90)
    panels[1].set_xlabel("class" if names else "number of the class")


def smallest_set(probabilities: FloatArray) -> NDArray[np.int64]:
    """Return the fewest classes with 50 % of probabilities (C,), the most probable first."""
    order = np.argsort(-probabilities, kind="stable")
    count = int(np.searchsorted(np.cumsum(probabilities[order]), PROBABILITY)) + 1
    return order[: min(count, MAX_CIRCLES)].astype(np.int64)


def _draw_classes(panel: Any, values: FloatArray, target: int, circled: NDArray[np.int64]) -> None:
    classes = np.arange(len(values))
    size = 4.5 if len(values) <= 100 else 2.0
    panel.vlines(classes, 0, values, color="0.75", linewidth=0.8)
    panel.plot(classes, values, "o", color=COLORS[2], markersize=size, label="class")
    panel.plot([target], [values[target]], "s", color=COLORS[1], markersize=6, label="true class")
    circle: Any = {"markersize": 11, "markerfacecolor": "none", "markeredgecolor": COLORS[0]}
    label = "smallest set with 50 % probability"
    panel.plot(circled, values[circled], "o", label=label, **circle)
    panel.axhline(0, color="0.4", linewidth=0.6)
