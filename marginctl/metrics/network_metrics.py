"""All that is said of a network on test images, from what it makes of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.metrics import accuracy, angles, long_tail, reliability
from marginctl.reports.tables import detection_table

Floats = NDArray[np.float64]

MOST_CONFUSED = 2000  # classes, of a confusion matrix


def classification_metrics(
    features: Floats,
    logits: Floats,
    similarities: Floats,
    labels: NDArray[np.int64],
    classes: Sequence[str],
    bins: int,
    weight: Floats | str,
) -> dict[str, Any]:
    """Accuracy with its interval, likelihood, calibration, angles, and each class by itself.

    Args:
        features: (N, d), finite; (N, 0) where the network has none.
        logits: (N, C).
        similarities: (N, C), whose largest is what is predicted.
        labels: (N,).
        classes: C names.
        bins: of the calibration.
        weight: (C, d) class weights, for the angles; or why there are none.

    Returns:
        A JSON document; null with its reason under `reasons`, never NaN.
    """
    predicted = similarities.argmax(1)
    right, n, count = int((predicted == labels).sum()), len(labels), len(classes)
    document: dict[str, Any] = {
        "n": n,
        "top1": 100 * right / n,
        "top1_interval": [100 * end for end in accuracy.wilson_interval(right, n)],
        "top5": 100 * accuracy.top_k(similarities, labels, 5) if count > 5 else None,
        "rho": None,
        "nll": None,
        "brier": None,
        "calibration": None,
        "angles": None,
        "reasons": {},
    }
    if count <= 5:
        document["reasons"]["top5"] = f"{count} classes"
    if np.isfinite(logits).all():
        probabilities = reliability.softmax(logits)
        document["nll"] = reliability.nll(logits, labels)
        document["brier"] = reliability.brier(probabilities, labels)
        document["calibration"] = reliability.reliability(probabilities, labels, bins).as_json()
        document["rho"] = angles.mean_bias(logits, labels)
    else:
        for key in ("nll", "brier", "calibration", "rho"):
            document["reasons"][key] = "logits are not finite"
    if isinstance(weight, str):
        document["reasons"]["angles"] = weight
    else:
        document["angles"] = angles.compute_angles(features, labels, weight).as_json()
    document["per_class"] = [
        {"name": classes[row["class"]], **row}
        for row in accuracy.per_class_accuracy(labels, predicted, count)
    ]
    document["confusion"] = None
    if count > MOST_CONFUSED:  # of a hundred thousand identities it would be 80 GB
        document["reasons"]["confusion"] = f"{count} classes, more than {MOST_CONFUSED}"
    else:
        document["confusion"] = accuracy.confusion_matrix(labels, predicted, count).tolist()
    return document


def as_text(title: str, document: dict[str, Any]) -> list[str]:
    """The numbers of `eval` for a reader, a line each, under a title."""
    low, high = document["top1_interval"]
    lines = [
        title,
        f"top-1     {document['top1']:.2f} %  (95 %: {low:.2f} to {high:.2f}, Wilson, "
        f"n = {document['n']})",
    ]
    if document["top5"] is not None:
        lines.append(f"top-5     {document['top5']:.2f} %")
    if "shots" in document:
        lines += long_tail.as_text(document["shots"])
    if document["nll"] is not None:
        found = document["calibration"]
        lines += [
            f"NLL       {document['nll']:.4f}",
            f"Brier     {document['brier']:.4f}",
            f"ECE, MCE  {100 * found['ece']:.2f} %, {100 * found['mce']:.2f} %  "
            f"({found['bins']} bins)",
            f"mean bias rho  {document['rho']:.4f}",
        ]
    if document["angles"] is not None:
        found = document["angles"]
        shown = {
            "W-Inter": found["w_inter"],
            "C-Inter (centers)": found["c_inter_centers"],
            "C-Inter (centers and weights)": found["c_inter_weights"],
            "WC-Intra": found["wc_intra"],
            "to the own weight": found["intra_weight"],
            "to the own center": found["intra_center"],
        }
        said = [f"{name} {v:.2f}" for name, v in shown.items() if v is not None]
        lines.append("angles in degrees: " + ", ".join(said))
    rows = sorted(
        (r for r in document["per_class"] if r["accuracy"] is not None),
        key=lambda r: (r["accuracy"], r["class"]),
    )
    worst = ", ".join(f"{r['name']} {100 * r['accuracy']:.1f} % of {r['n']}" for r in rows[:5])
    lines.append(f"lowest classes: {worst}")
    lines += [f"{key}: {why}" for key, why in document["reasons"].items()]
    lines += detection_table.as_text(document["detection"])
    if "calibrated" in document:
        from marginctl.calibration import apply

        lines += apply.as_text(document["calibrated"])
    return lines
