"""The figure of `eval`: score histograms and ROC curves of misclassification and OOD detection."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from marginctl.reports.figures.layout import Block, compose
from marginctl.reports.figures.seed_groups import Omissions
from marginctl.reports.figures.style import COLORS, line_style, save, styled
from marginctl.reports.tables.evaluation_table import detection_parts

PANEL = (3.3, 2.7)  # inches
HISTOGRAMS = {"max_similarity": "max similarity", "feature_norm": "feature norm ||x||"}
# in colours that no ROC curve has, and two line styles: they differ in grey, too
CLASSES = {
    "inside": ("positive: correct, or in-distribution", COLORS[5], "-"),
    "outside": ("negative: misclassified, or OOD", COLORS[6], "--"),
}


@styled()
def draw(title: str, detection: Mapping[str, Any], path: Path) -> str | None:
    """Write a row of panels per detection task: two score histograms and the ROC of all scores.

    `detection` is `evaluation.detection` with curves.

    Returns:
        Why nothing could be drawn, else None.

    Raises:
        RequestError: the file cannot be written.
    """
    tasks = {
        name: {score: content for score, content in task["scores"].items() if content is not None}
        for name, task in detection_parts(detection).items()
    }
    blocks = [
        Block(name, (1, 3), partial(_draw_row, scores), PANEL[1])
        for name, scores in tasks.items()
        if scores
    ]
    if not blocks:
        return "; ".join(f"{task}: {reason}" for task, reason in detection["reasons"].items())
    caption = (
        "Left: histograms of the scores, each class 100 %. Right: true against false positive rate "
        "at every threshold."
    )
    figure = compose(title, caption, blocks, PANEL[0], Omissions(), legend_columns=4)
    save(figure, path)
    return None


def _draw_row(scores: Mapping[str, Any], panels: Any) -> None:
    *histograms, roc = panels[0]
    for panel, (score, label) in zip(histograms, HISTOGRAMS.items(), strict=True):
        panel.set(xlabel=label, ylabel="images (%)")
        if score in scores:
            _draw_histogram(panel, scores[score]["histogram"])
    _draw_roc(roc, scores)


def _draw_histogram(panel: Any, histogram: Mapping[str, Any]) -> None:
    for key, (label, color, line) in CLASSES.items():
        percent, edges = 100 * np.array(histogram[key]) / sum(histogram[key]), histogram["edges"]
        panel.stairs(percent, edges, fill=True, color=color, alpha=0.35)
        panel.stairs(percent, edges, color=color, linestyle=line, label=label, linewidth=1.2)


def _draw_roc(panel: Any, scores: Mapping[str, Any]) -> None:
    for i, (name, score) in enumerate(scores.items()):
        tpr = 100 * np.array([0, *score["roc"]])
        fpr = np.concatenate([[0], np.linspace(0, 100, len(score["roc"]))])
        label = "MSP" if name == "msp" else name.replace("_", " ")
        panel.plot(fpr, tpr, label=label, **line_style(i))
    panel.plot([0, 100], [0, 100], color="0.6", linewidth=0.8, label="chance")
    panel.set(xlim=(-2, 102), ylim=(-2, 102), xticks=range(0, 101, 25), yticks=range(0, 101, 25))
    panel.set(xlabel="FPR (%)", ylabel="TPR (%)")
