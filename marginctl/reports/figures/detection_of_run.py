"""The figure of `eval`: how well a network tells its errors, and foreign images, from the rest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from marginctl.reports.figures.panels import add_head, sheet
from marginctl.reports.figures.style import COLORS, line, save, styled
from marginctl.reports.tables.detection_table import titled

PANEL = (3.3, 2.7)  # inches
SHOWN = {"max_similarity": "max similarity", "feature_norm": "feature_norm: ||x||"}
# in colours that no score has
SIDES = {"inside": ("in: right, or its own", COLORS[5]), "outside": ("out", COLORS[6])}


@styled()
def draw(title: str, detection: Mapping[str, Any], path: Path) -> str | None:
    """Draws a row for MISS and for each foreign set: two histograms, and the ROC of all scores.

    Args:
        title: above all.
        detection: of `evaluation.detection`, with curves.
        path: a file of one of `FORMATS`.

    Returns:
        Why nothing could be drawn, else None.

    Raises:
        RequestError: the file cannot be written.
    """
    parts = {
        said: {name: score for name, score in part["scores"].items() if score is not None}
        for said, part in titled(detection).items()
    }
    parts = {said: scores for said, scores in parts.items() if scores}
    if not parts:
        return "; ".join(f"{what}: {why}" for what, why in detection["reasons"].items())
    caption = (
        "Left: how the scores of both sides lie, each side 100 %. Right: the share of both sides "
        "that passes a threshold, for every threshold, in is positive."
    )
    figure, blocks = sheet(caption, dict.fromkeys(parts, PANEL[1]), 3 * PANEL[0])
    panels: list[Any] = []
    for block, scores in zip(blocks, parts.values(), strict=True):
        *histograms, roc = block.subplots(1, 3)
        for panel, (name, label) in zip(histograms, SHOWN.items(), strict=True):
            panel.set_visible(name in scores)
            panel.set(xlabel=label, ylabel="images (%)")
            if name in scores:
                _histogram(panel, scores[name]["histogram"])
        _roc(roc, scores)
        panels += [*histograms, roc]
    add_head(figure, title, panels, columns=4)
    save(figure, path)
    return None


def _histogram(panel: Any, found: Mapping[str, Any]) -> None:
    for i, (side, (label, color)) in enumerate(SIDES.items()):
        share = 100 * np.array(found[side]) / sum(found[side])
        panel.stairs(share, found["edges"], fill=True, color=color, alpha=0.35)
        # lines of two kinds: the sides differ in grey, too
        panel.stairs(
            share, found["edges"], color=color, linestyle=("-", "--")[i], label=label, linewidth=1.2
        )


def _roc(panel: Any, scores: Mapping[str, Any]) -> None:
    for i, (name, score) in enumerate(scores.items()):
        tpr = 100 * np.array([0, *score["roc"]])
        fpr = np.concatenate([[0], np.linspace(0, 100, len(score["roc"]))])
        panel.plot(fpr, tpr, label=name, **line(i))
    panel.plot([0, 100], [0, 100], color="0.6", linewidth=0.8, label="chance")
    panel.set(xlim=(-2, 102), ylim=(-2, 102), xticks=range(0, 101, 25), yticks=range(0, 101, 25))
    panel.set(xlabel="out that passes (%)", ylabel="in that passes (%)")
