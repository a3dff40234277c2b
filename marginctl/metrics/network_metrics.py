"""All that is said of a network on test images, from what it makes of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.metrics import accuracy, angles, reliability

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
