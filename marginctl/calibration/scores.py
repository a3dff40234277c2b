"""What a map is worth on samples that it was not fitted on, each number with its interval."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from marginctl.calibration.outputs import Labels, Predicted
from marginctl.metrics import calibration_error, scoring_rules
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.calibration_error import Reliability
from marginctl.utils.seed import generator

METRICS = ("accuracy", "ece", "mce", "adaptive_ece", "classwise_ece", "nll", "brier")
LEVEL = 0.95

TOP_ALONE = "the map gives a probability to the predicted class alone"

_AT_ONCE = 2**22  # counts of bootstrap draws: 32 MiB


@dataclass(frozen=True)
class Measured:
    """Numbers of one map on one set of samples; shares, and the NLL in nats.

    Attributes:
        values: by metric; None with its reason.
        intervals: (low, high) by metric, where draws were asked for.
        reasons: by metric.
        reliability: bins of equal width, for a diagram.
        classes: (N,) predicted.
    """

    values: dict[str, float | None]
    intervals: dict[str, tuple[float, float]]
    reasons: dict[str, str]
    reliability: Reliability
    classes: Labels


@dataclass(frozen=True)
class Bootstrap:
    """How often samples are drawn anew, with replacement; 0 for no intervals."""

    draws: int
    seed: int

    def counts(self, n: int) -> Iterator[FloatArray]:
        """(D, N) blocks of how often a draw has each of n samples; the same for every map."""
        stream = generator(self.seed, "calibrate", "bootstrap")
        at_once = max(1, _AT_ONCE // n)
        for start in range(0, self.draws, at_once):
            drawn = stream.integers(0, n, size=(min(at_once, self.draws - start), n))
            yield np.stack([np.bincount(row, minlength=n) for row in drawn]).astype(np.float64)


def measure(said: Predicted, labels: Labels, bins: int, bootstrap: Bootstrap) -> Measured:
    """All metrics, with the percentile interval of `LEVEL` over the draws.

    The interval speaks of other samples for this map, not of maps fitted on others. The errors of
    calibration are sums of absolute gaps, to which a draw adds noise: their intervals lie somewhat
    high, and the number itself may lie at the lower end.

    Args:
        said: of N samples.
        labels: (N,).
        bins: of every calibration error.
        bootstrap: for the intervals.
    """
    samples = _samples(said, labels)
    once = _of_draws(samples, bins, calibration_error.unit_weights(len(labels)))
    found = [_of_draws(samples, bins, counts) for counts in bootstrap.counts(len(labels))]
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    intervals = {}
    for name in once if found else ():
        low, high = np.quantile(np.concatenate([f[name] for f in found]), ends).tolist()
        intervals[name] = (low, high)
    return Measured(
        {name: float(once[name][0]) if name in once else None for name in METRICS},
        intervals,
        samples.reasons,
        calibration_error.bin_by_confidence(said.confidence, samples.correct, bins),
        said.classes,
    )


@dataclass(frozen=True)
class _Samples:
    said: Predicted
    labels: Labels
    correct: np.ndarray[tuple[int], np.dtype[np.bool_]]
    terms: dict[str, FloatArray]  # metrics that are means: (N,)
    reasons: dict[str, str] = field(default_factory=dict)


def _samples(said: Predicted, labels: Labels) -> _Samples:
    correct = np.asarray(said.classes == labels)
    found = _Samples(said, labels, correct, {"accuracy": correct.astype(np.float64)})
    p = said.probabilities
    if p is None:
        found.reasons.update(dict.fromkeys(("classwise_ece", "nll", "brier"), TOP_ALONE))
        return found
    found.terms["brier"] = scoring_rules.brier_per_sample(p, labels)
    if said.logits is not None:
        nll = scoring_rules.nll_per_sample(said.logits, labels)
    else:
        with np.errstate(divide="ignore"):
            nll = -np.log(p[np.arange(len(p)), labels])
    infinite = int(np.isinf(nll).sum())
    if infinite:
        found.reasons["nll"] = f"infinite: {infinite} of {len(nll)} labels have probability 0"
    else:
        found.terms["nll"] = nll
    return found


def _of_draws(samples: _Samples, bins: int, counts: FloatArray) -> dict[str, FloatArray]:
    """(D,) of each metric that there is."""
    n, said = len(samples.labels), samples.said
    found = {name: counts @ terms / n for name, terms in samples.terms.items()}
    found["ece"], found["mce"] = calibration_error.ece_and_mce(
        said.confidence, samples.correct, bins, counts
    )
    found["adaptive_ece"] = calibration_error.adaptive_ece(
        said.confidence, samples.correct, bins, counts
    )
    if said.probabilities is not None:
        found["classwise_ece"] = calibration_error.classwise_ece(
            said.probabilities, samples.labels, bins, counts
        )
    return found
