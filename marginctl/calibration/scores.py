"""Scores of predictions on held-out samples, with bootstrap intervals."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from marginctl.calibration.outputs import Labels, Predictions
from marginctl.metrics import calibration_error, scoring_rules
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.calibration_error import Reliability
from marginctl.utils.seed import generator

METRICS = ("accuracy", "ece", "mce", "adaptive_ece", "classwise_ece", "nll", "brier")
LEVEL = 0.95

_BLOCK_SIZE = 2**22  # counts of bootstrap samples: 32 MiB


@dataclass(frozen=True)
class Scores:
    """Scores of one calibrator on one set of samples; fractions, and the NLL in nats."""

    values: dict[str, float | None]  # by metric; None with its reason
    intervals: dict[str, tuple[float, float]]  # (low, high) by metric, with bootstrap samples
    reasons: dict[str, str]  # of missing values, by metric
    reliability: Reliability  # bins of equal width, for a diagram
    classes: Labels  # (N,) predicted


def bootstrap_weights(n: int, n_bootstrap: int, seed: int) -> Iterator[FloatArray]:
    """Yield (D, N) blocks: how often each bootstrap sample has each of n samples.

    They are the same for every calibrator.
    """
    stream = generator(seed, "calibrate", "bootstrap")
    block = max(1, _BLOCK_SIZE // n)
    for start in range(0, n_bootstrap, block):
        drawn = stream.integers(0, n, size=(min(block, n_bootstrap - start), n))
        yield np.stack([np.bincount(row, minlength=n) for row in drawn]).astype(np.float64)


def score(
    predictions: Predictions, labels: Labels, bins: int, n_bootstrap: int = 0, seed: int = 0
) -> Scores:
    """Return all metrics, with percentile intervals of `LEVEL` over the bootstrap samples.

    An interval covers other samples for this calibrator, not calibrators fitted on others. The
    calibration errors are sums of absolute gaps, to which resampling adds noise: their intervals
    are biased upwards, and the number itself may lie at the lower end.
    """
    correct = np.asarray(predictions.classes == labels)
    terms = {
        "accuracy": correct.astype(np.float64),
        "brier": scoring_rules.brier_per_sample(predictions.probabilities, labels),
    }
    if predictions.logits is not None:
        nll = scoring_rules.nll_per_sample(predictions.logits, labels)
    else:
        with np.errstate(divide="ignore"):
            nll = -np.log(predictions.probabilities[np.arange(len(labels)), labels])
    reasons = {}
    infinite = int(np.isinf(nll).sum())
    if infinite:
        reasons["nll"] = f"infinite: {infinite} of {len(nll)} labels have probability 0"
    else:
        terms["nll"] = nll

    def resampled(weights: FloatArray) -> dict[str, FloatArray]:
        metrics = {name: weights @ values / len(labels) for name, values in terms.items()}
        binned = (predictions.confidence, correct, bins, weights)
        metrics["ece"], metrics["mce"] = calibration_error.ece_and_mce(*binned)
        metrics["adaptive_ece"] = calibration_error.adaptive_ece(*binned)
        metrics["classwise_ece"] = calibration_error.classwise_ece(
            predictions.probabilities, labels, bins, weights
        )
        return metrics

    once = resampled(calibration_error.unit_weights(len(labels)))
    samples = [resampled(weights) for weights in bootstrap_weights(len(labels), n_bootstrap, seed)]
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    intervals = {}
    for name in once if samples else ():
        low, high = np.quantile(np.concatenate([s[name] for s in samples]), ends).tolist()
        intervals[name] = (low, high)
    return Scores(
        {name: float(once[name][0]) if name in once else None for name in METRICS},
        intervals,
        reasons,
        calibration_error.bin_by_confidence(predictions.confidence, correct, bins),
        predictions.classes,
    )
