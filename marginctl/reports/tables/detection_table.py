"""What `evaluation.detection` found, for a reader: a table for each pair of sides."""

from collections.abc import Mapping
from typing import Any

from marginctl.metrics.detection import METRICS

HEADS = ("AP-in", "AP-out", "AUROC", "FPR95")  # of METRICS
LEGEND = (
    "AP-in, AP-out: average precision, in or out the positive class; FPR95: the share of out "
    "that passes where 95 % of in do"
)


def as_text(detection: Mapping[str, Any]) -> list[str]:
    """A line a score: MISS, each foreign set, and the mean of a group's sets where it has several.

    Below them stands what there is no number of.
    """
    tables = {title: part["scores"] for title, part in titled(detection).items()}
    for group, scores in detection["groups"].items():
        count = sum(one["group"] == group for one in detection["ood"])
        if count > 1:
            tables[f"OOD {group}: mean of {count} sets"] = scores
    lines = []
    for title, scores in tables.items():
        shown = {name: score for name, score in scores.items() if score is not None}
        if shown:
            lines.append(f"{title:<46}" + "".join(f"{head:>8}" for head in HEADS))
        lines += [
            f"  {name:<44}" + "".join(f"{score[metric]:8.4f}" for metric in METRICS)
            for name, score in shown.items()
        ]
    if lines:
        lines.append(LEGEND)
    return [*lines, *(f"{what}: {why}" for what, why in detection["reasons"].items())]


def titled(detection: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Every pair of sides by its name, with how many images are in and out."""
    miss = detection["misclassification"]
    found = {f"MISS: {miss['n_in']} right (in), {miss['n_out']} wrong (out)": miss}
    for one in detection["ood"]:
        group = "" if one["group"] is None else f" ({one['group']})"
        found[f"OOD {one['name']}{group}: {one['n_in']} in, {one['n_out']} out"] = one
    return found
