"""All metrics of a network on test images or on the test rows of a fold, from its outputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from marginctl.metrics import accuracy, angles, scoring_rules
from marginctl.metrics.arrays import FloatArray, IntArray
from marginctl.metrics.calibration_error import reliability
from marginctl.metrics.detection import Outputs
from marginctl.metrics.registry import compute_metrics
from marginctl.utils.text import join_names

MAX_CONFUSION_CLASSES = 2000  # the matrix of 100,000 identities would take 80 GB
# Recall by class and the confusion matrix are recorded and shown for at most this many classes
# (our choice):
MAX_RECALL_CLASSES = 100
MAX_SHOWN_CONFUSION_CLASSES = 30


def fold_metrics(logits: FloatArray, labels: IntArray) -> dict[str, float | None]:
    """Return the metrics of `FOLD_METRICS`, without accuracy, of logits (n, C) and labels (n,).

    None where a metric is not defined: the AUROC where a class has no test row, and all others but
    the first two where a logit is not finite.
    """
    outputs: dict[str, Any] = dict.fromkeys(("features", "logits", "similarities"), logits)
    outputs["labels"] = labels
    values: dict[str, float | None] = {
        "balanced_accuracy": accuracy.balanced_accuracy(**outputs),
        "macro_f1": accuracy.macro_f1(**outputs),
        **dict.fromkeys(("auroc", "log_loss", "ece")),
    }
    if not np.isfinite(logits).all():
        return values
    if (np.bincount(labels, minlength=logits.shape[1]) > 0).all():
        values["auroc"] = accuracy.auroc(**outputs)
    log_loss = scoring_rules.nll(logits, labels)
    values["log_loss"] = log_loss if np.isfinite(log_loss) else None
    values["ece"] = reliability(scoring_rules.softmax(logits), labels).ece
    return values


def classification_metrics(
    outputs: Outputs, labels: IntArray, classes: Sequence[str], bins: int, weight: FloatArray | str
) -> dict[str, Any]:
    """Return accuracy with its interval, likelihood, calibration, angles and per-class accuracy.

    Args:
        outputs: with finite features; the largest similarity is the prediction.
        classes: C names.
        weight: (C, d) class weights, for the angles; or the reason why there are none.

    Returns:
        A JSON document; numbers that are null have a reason under `reasons`. `metrics` has the
        numbers of `compute_metrics`, where there are some.
    """
    logits, predicted = outputs.logits, outputs.similarities.argmax(1)
    correct, n, num_classes = int((predicted == labels).sum()), len(labels), len(classes)
    reasons: dict[str, str] = {}
    document: dict[str, Any] = {
        "n": n,
        "top1": 100 * correct / n,
        "top1_interval": [100 * end for end in accuracy.wilson_interval(correct, n)],
        **dict.fromkeys(("top5", "rho", "nll", "brier", "calibration", "angles")),
        "reasons": reasons,
    }
    if num_classes > 5:
        document["top5"] = 100 * accuracy.top_k_accuracy(outputs.similarities, labels, 5)
    else:
        reasons["top5"] = f"{num_classes} classes"
    if np.isfinite(logits).all():
        probabilities = scoring_rules.softmax(logits)
        document["nll"] = scoring_rules.nll(logits, labels)
        document["brier"] = scoring_rules.brier(probabilities, labels)
        document["calibration"] = reliability(probabilities, labels, bins).as_json()
        document["rho"] = angles.mean_bias(logits, labels)
    else:
        reasons |= dict.fromkeys(("nll", "brier", "calibration", "rho"), "logits are not finite")
    if isinstance(weight, str):
        reasons["angles"] = weight
    else:
        document["angles"] = angles.compute_angles(outputs.features, labels, weight)
    computed, missing = compute_metrics(**vars(outputs), labels=labels)
    absent = np.flatnonzero(np.bincount(labels, minlength=num_classes) == 0)
    if "auroc" in missing and len(absent):
        names = join_names([classes[number] for number in absent.tolist()])
        missing["auroc"] = f"no test sample of class {names}"
    if computed:
        document["metrics"] = computed
        reasons |= missing
    document["per_class"] = [
        {"name": classes[row["class"]], **row}
        for row in accuracy.per_class_accuracy(labels, predicted, num_classes)
    ]
    if num_classes > MAX_CONFUSION_CLASSES:
        document["confusion"] = None
        reasons["confusion"] = f"{num_classes} classes, more than {MAX_CONFUSION_CLASSES}"
    else:
        matrix = accuracy.confusion_matrix(labels, predicted, num_classes)
        document["confusion"] = matrix.tolist()
    return document
