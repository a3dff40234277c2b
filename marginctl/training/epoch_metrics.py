"""Metrics of a network on the test images, and of its objective's state, for metrics.jsonl."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from marginctl.metrics.accuracy import top_k_accuracy
from marginctl.metrics.angles import histogram, mean_bias, target_angles
from marginctl.metrics.arrays import FloatArray, IntArray
from marginctl.metrics.detection import OODOutputs, detection_metrics
from marginctl.metrics.long_tail import long_tail_accuracy
from marginctl.metrics.network_metrics import (
    MAX_RECALL_CLASSES,
    MAX_SHOWN_CONFUSION_CLASSES,
    classification_metrics,
)
from marginctl.metrics.scoring_rules import nll
from marginctl.objectives.module import Objective
from marginctl.training.trainer import Predictions

BIN_WIDTH = 10  # degrees, of the recorded histogram
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def accuracy_record(predictions: Predictions) -> dict[str, Any]:
    """Return accuracy in percent and mean NLL (null where a logit is not finite)."""
    logits, labels = predictions.logits.double().numpy(), predictions.labels.numpy()
    scores = predictions.similarities
    predicted = scores.argmax(1).numpy()
    record: dict[str, Any] = {
        "top1": 100 * top_k_accuracy(scores.numpy(), labels, 1),
        "nll": nll(logits, labels) if np.isfinite(logits).all() else None,
        "n": len(labels),
        # the test images may be of one class alone: all right is no collapse
        "collapsed": bool((predicted == predicted[0]).all() and (predicted != labels).any()),
    }
    if logits.shape[1] > 5:
        record["top5"] = 100 * top_k_accuracy(scores.numpy(), labels, 5)
    return record


def selection_score(record: Mapping[str, Any]) -> tuple[float, float]:
    """Return what epochs are compared by: the larger is better: top-1, then the NLL."""
    nll = record["nll"]
    return float(record["top1"]), -math.inf if nll is None else -float(nll)


def classification_record(
    objective: Objective, predictions: Predictions, classes: Sequence[str], bins: int = 15
) -> dict[str, Any]:
    """Return `classification_metrics` of a network with its objective."""
    gaussian = objective.spec.similarity.kind == "gaussian"
    return classification_metrics(
        predictions.outputs,
        predictions.labels.numpy(),
        classes,
        bins,
        "a Gaussian similarity has class means, not directions"
        if gaussian
        else objective.weight.detach().cpu().double().numpy(),
    )


def long_tail_record(predictions: Predictions, train_y: IntArray) -> dict[str, Any]:
    """Return {"long_tail": `long_tail_accuracy`}, or {} where all classes are in one group."""
    counts = np.bincount(train_y, minlength=predictions.similarities.shape[1])
    predicted = predictions.similarities.argmax(1).numpy()
    record = long_tail_accuracy(counts, predictions.labels.numpy(), predicted)
    return {} if record is None else {"long_tail": record}


def evaluation_record(
    objective: Objective,
    predictions: Predictions,
    classes: Sequence[str],
    train_y: IntArray,
    ood_outputs: Sequence[OODOutputs] = (),
) -> dict[str, Any]:
    """Return the metrics at the end of training that go beyond accuracy.

    Returns:
        `brier`, `calibration` with 15 bins, `angles` (ArcGrad's Table VI), `detection`,
        `per_class` and `confusion` of few classes, and `long_tail` where there is one; numbers
        that are null have a reason under `reasons`.
    """
    metrics = classification_record(objective, predictions, classes)
    record = {key: metrics[key] for key in ("brier", "calibration", "angles", "reasons")}
    if len(classes) <= MAX_RECALL_CLASSES:
        record["per_class"] = metrics["per_class"]
    if len(classes) <= MAX_SHOWN_CONFUSION_CLASSES:
        record["confusion"] = metrics["confusion"]
    if "metrics" in metrics:  # of plug-ins
        record["metrics"] = metrics["metrics"]
    record |= long_tail_record(predictions, train_y)
    labels = predictions.labels.numpy()
    return record | {"detection": detection_metrics(predictions.outputs, labels, ood_outputs)}


def example_record(
    objective: Objective, predictions: Predictions, classes: Sequence[str]
) -> dict[str, Any] | None:
    """Return the least-squares scale of the first test image; None for another scale.

    Returns:
        `image`, its index among the test images (our choice), `label`, `class`, the name of its
        class, `classes`, the names of few classes, `kappa`, its kappa*, and its `cosines` to the C
        class weights, to 6 places (Temperature, Fig. 5).
    """
    if objective.spec.scale.kind != "least-squares":
        return None
    with torch.no_grad():
        first = predictions.features[:1].to(objective.weight.device)
        kappa = objective.optimal_scale(first).item()
    label = int(predictions.labels[0])
    return {
        "image": 0,
        "label": label,
        "class": classes[label],
        "classes": list(classes) if len(classes) <= MAX_SHOWN_CONFUSION_CLASSES else [],
        "kappa": kappa,
        "cosines": [round(z, 6) for z in predictions.similarities[0].tolist()],
    }


def objective_record(objective: Objective, predictions: Predictions) -> dict[str, Any]:
    """Return the state of the objective on the test images.

    `scale` where it is learned or scheduled; `optimal_scale`, the least-squares kappa* of the
    samples; `rho`, the mean bias (Large Margin, eq. 7); `target_angle` in degrees, but for class
    means; both where all logits are finite.
    """
    record: dict[str, Any] = {}
    state = dict(objective.named_parameters()) | dict(objective.named_buffers())
    if "log_scale" in state:
        record["scale"] = state["log_scale"].exp().item()
    elif "scale" in state:
        record["scale"] = state["scale"].item()
    similarity, scale = objective.spec.similarity.kind, objective.spec.scale.kind
    if scale == "least-squares":
        with torch.no_grad():
            features = predictions.features.to(objective.weight.device)
            kappa = objective.optimal_scale(features).cpu().double()
        values = kappa.quantile(torch.tensor(QUANTILES, dtype=torch.float64)).tolist()
        quantiles = {f"{q:g}": value for q, value in zip(QUANTILES, values, strict=True)}
        record["optimal_scale"] = {"mean": kappa.mean().item(), "quantiles": quantiles}
    if bool(predictions.logits.isfinite().all()):
        record["rho"] = mean_bias(predictions.logits.numpy(), predictions.labels.numpy())
        if similarity != "gaussian" and len(degrees := _target_angles(objective, predictions)):
            record["target_angle"] = {
                "mean": float(degrees.mean()),
                "histogram": histogram(degrees).reshape(-1, BIN_WIDTH).sum(1).tolist(),
                "bin": BIN_WIDTH,
            }
    return record


def _target_angles(objective: Objective, predictions: Predictions) -> FloatArray:
    """Return the angles to the class weight in degrees, read off cosines and angles."""
    similarity, scale = objective.spec.similarity.kind, objective.spec.scale.kind
    if similarity == "linear" or scale == "feature-norm-weight-norm":
        weights = objective.weight.detach().cpu().double().numpy()
        return target_angles(predictions.features.numpy(), predictions.labels.numpy(), weights)
    labels = predictions.labels[:, None]
    target = predictions.similarities.gather(1, labels)[:, 0].double().numpy()
    theta = -target if similarity == "angle" else np.arccos(np.clip(target, -1, 1))
    return np.asarray(np.clip(np.degrees(theta), 0, 180))
