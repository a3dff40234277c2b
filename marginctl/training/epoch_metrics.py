"""What an epoch records of the test images and of the objective's own state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from marginctl.metrics import detection, long_tail
from marginctl.metrics.accuracy import top_k_accuracy
from marginctl.metrics.angles import histogram, mean_bias
from marginctl.metrics.network_metrics import classification_metrics
from marginctl.metrics.scoring_rules import nll
from marginctl.objectives.module import Objective
from marginctl.training.trainer import Predictions

BIN = 10  # degrees of the recorded histogram
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def accuracy_record(tested: Predictions) -> dict[str, Any]:
    """Accuracy in percent and the mean negative log-likelihood; null where it is not finite."""
    logits, labels = tested.logits.double().numpy(), tested.labels.numpy()
    scores = tested.similarities.numpy()
    record: dict[str, Any] = {
        "top1": 100 * top_k_accuracy(scores, labels, 1),
        "nll": nll(logits, labels) if np.isfinite(logits).all() else None,
        "n": len(labels),
        "collapsed": bool((tested.similarities.argmax(1) == tested.similarities[0].argmax()).all()),
    }
    if tested.logits.shape[1] > 5:
        record["top5"] = 100 * top_k_accuracy(scores, labels, 5)
    return record


def classification_record(
    objective: Objective, tested: Predictions, classes: Sequence[str], bins: int = 15
) -> dict[str, Any]:
    """All that `evaluation.document.measured` says of a network with its objective.

    Args:
        objective: its class weights give the angles.
        tested: on test images.
        classes: their names.
        bins: of the calibration.
    """
    gaussian = objective.spec.similarity.kind == "gaussian"
    return classification_metrics(
        tested.features.double().numpy(),
        tested.logits.double().numpy(),
        tested.similarities.double().numpy(),
        tested.labels.numpy(),
        classes,
        bins,
        "a gaussian similarity has means, no directions"
        if gaussian
        else objective.weight.detach().cpu().double().numpy(),
    )


@dataclass(frozen=True)
class OODPredictions:
    """What a network makes of images of none of its classes.

    Attributes:
        name: the image set's.
        group: `near`, `far` or None.
        digest: of its test part.
        tested: its labels are those of its own classes, and are not read.
    """

    name: str
    group: str | None
    digest: str
    tested: Predictions


def detection_record(
    tested: Predictions,
    foreign: Sequence[OODPredictions] = (),
    n_bootstrap: int = detection.N_BOOTSTRAP,
    *,
    curves: bool = False,
) -> dict[str, Any]:
    """Return the metrics of misclassification and OOD detection of a network.

    Args:
        tested: on its own test images.
        foreign: on other images.
        n_bootstrap: of each interval.
        curves: whether histograms and ROC curves are in it.
    """
    others = [
        detection.OODOutputs(one.name, one.group, one.digest, _outputs(one.tested))
        for one in foreign
    ]
    labels = tested.labels.numpy()
    return detection.detection_metrics(_outputs(tested), labels, others, n_bootstrap, curves=curves)


def _outputs(tested: Predictions) -> detection.Outputs:
    return detection.Outputs(
        tested.features.double().numpy(),
        tested.logits.double().numpy(),
        tested.similarities.double().numpy(),
    )


def long_tail_record(tested: Predictions, train_y: NDArray[np.int64]) -> dict[str, Any]:
    """`shots`, as `evaluation.shots.long_tail_accuracy` has it; nothing where that has nothing.

    Args:
        tested: on test images of the classes.
        train_y: (n,) classes of the training images.
    """
    counts = np.bincount(train_y, minlength=tested.similarities.shape[1])
    predicted = tested.similarities.argmax(1).numpy()
    found = long_tail.long_tail_accuracy(counts, tested.labels.numpy(), predicted)
    return {} if found is None else {"long_tail": found}


def evaluation_record(
    objective: Objective,
    tested: Predictions,
    classes: Sequence[str],
    train_y: NDArray[np.int64],
    foreign: Sequence[OODPredictions] = (),
) -> dict[str, Any]:
    """How calibrated the network is and how its features lie, at the end of a training.

    Args:
        objective, tested, classes: as `classification_record` takes them.
        train_y: as `long_tail_record` takes it.
        foreign: other images.

    Returns:
        `calibration`, of 15 bins, `angles`, which ArcGrad's Table VI has, the Brier score,
        `detection` of what is misclassified or foreign, and `shots` of a long tail; null with its
        reason under `reasons`.
    """
    whole = classification_record(objective, tested, classes)
    kept = {key: whole[key] for key in ("brier", "calibration", "angles", "reasons")}
    kept |= long_tail_record(tested, train_y)
    return kept | {"detection": detection_record(tested, foreign)}


def example_record(objective: Objective, tested: Predictions) -> dict[str, Any] | None:
    """How the least-squares scale sees one test image, the first one (which one is our choice).

    Returns:
        `image`, its place among the test images, `label`, `kappa`, its kappa*, and `cosines` to the
        C class weights, to 6 places (Temperature, Fig. 5); None for another scale.
    """
    if objective.spec.scale.kind != "least-squares":
        return None
    with torch.no_grad():
        kappa = objective.optimal_scale(tested.features[:1].to(objective.weight.device)).item()
    return {
        "image": 0,
        "label": int(tested.labels[0]),
        "kappa": kappa,
        "cosines": [round(z, 6) for z in tested.similarities[0].tolist()],
    }


def objective_record(objective: Objective, tested: Predictions) -> dict[str, Any]:
    """The objective's state as the test images show it.

    `scale` where it is learned or moves; `optimal_scale`, the least-squares kappa* of the samples;
    `rho`, the mean bias (Large Margin, eq. 7); `target_angle` in degrees, on cosines and angles.
    """
    record: dict[str, Any] = {}
    states = dict(objective.named_parameters()) | dict(objective.named_buffers())
    if "log_scale" in states:
        record["scale"] = states["log_scale"].exp().item()
    elif "scale" in states:
        record["scale"] = states["scale"].item()
    kind, scale = objective.spec.similarity.kind, objective.spec.scale.kind
    if scale == "least-squares":
        with torch.no_grad():
            device = objective.weight.device
            kappa = objective.optimal_scale(tested.features.to(device)).cpu().double()
        values = kappa.quantile(torch.tensor(QUANTILES, dtype=torch.float64)).tolist()
        quantiles = {f"{q:g}": value for q, value in zip(QUANTILES, values, strict=True)}
        record["optimal_scale"] = {"mean": kappa.mean().item(), "quantiles": quantiles}
    if bool(tested.logits.isfinite().all()):
        record["rho"] = mean_bias(tested.logits.numpy(), tested.labels.numpy())
    if kind == "angle" or (kind == "cosine" and scale != "feature-norm-weight-norm"):
        own = tested.similarities.gather(1, tested.labels[:, None])[:, 0].double().numpy()
        theta = -own if kind == "angle" else np.arccos(np.clip(own, -1, 1))
        degrees = np.clip(np.degrees(theta), 0, 180)
        record["target_angle"] = {
            "mean": float(degrees.mean()),
            "histogram": histogram(degrees).reshape(-1, BIN).sum(1).tolist(),
            "bin": BIN,
        }
    return record
