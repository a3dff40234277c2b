"""Misclassification and out-of-distribution (OOD) detection from confidence scores.

The temperature paper (supplement, Table 10) reports average precisions of the largest similarity
and of the feature norm. It does not say which side is the positive class: AUPR-In and AUPR-Out are
both here. So are FPR95-In, as in most papers, and FPR95-Out, as in OpenOOD 1.5 (arXiv 2306.09301),
whose AUPR is the trapezoidal area under the curve instead of the average precision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from marginctl.metrics.arrays import FloatArray, IntArray
from marginctl.metrics.registry import DETECTION_METRICS
from marginctl.metrics.scoring_rules import softmax
from marginctl.utils.seed import generator

SCORES = ("max_similarity", "feature_norm", "msp", "negative_entropy", "energy")
METRICS = tuple(DETECTION_METRICS)
N_BOOTSTRAP = 200
LEVEL = 0.95  # of the intervals
HISTOGRAM_BINS = 40
ROC_POINTS = 101

Scores = Mapping[str, FloatArray | None]  # by name; None where a score is not finite


@dataclass(frozen=True)
class Outputs:
    """The outputs of a network for N images: features (N, d), logits and similarities (N, C).

    d is 0 for a network without features.
    """

    features: FloatArray
    logits: FloatArray
    similarities: FloatArray


@dataclass(frozen=True)
class OODOutputs:
    """The outputs of a network for an OOD data set; `group` is near, far or None."""

    name: str
    group: str | None
    digest: str
    outputs: Outputs


def confidence_scores(outputs: Outputs) -> dict[str, FloatArray | None]:
    """Return the confidence scores of N images by name, (N,) each; None where one is not finite.

    - max_similarity: the largest similarity, without scale: the largest cosine of a cosine
      objective.
    - feature_norm: the Euclidean norm of the feature; absent where the network has no features.
    - msp: the maximum softmax probability.
    - negative_entropy: sum of p ln p of the softmax, in nats.
    - energy: ln sum exp(logits), the negative free energy of Liu et al. 2020.
    """
    scores = {"max_similarity": outputs.similarities.max(1)}
    if outputs.features.shape[1]:
        scores["feature_norm"] = np.linalg.norm(outputs.features, axis=1)
    logits = outputs.logits
    probabilities = softmax(np.where(np.isfinite(logits), logits, 0))
    probabilities[~np.isfinite(logits).all(1)] = np.nan
    log_probabilities = np.log(np.where(probabilities > 0, probabilities, 1.0))
    scores |= {
        "msp": probabilities.max(1),
        "negative_entropy": (probabilities * log_probabilities).sum(1),
        "energy": logsumexp(logits, axis=1),
    }
    return {name: s if bool(np.isfinite(s).all()) else None for name, s in scores.items()}


def detection_metrics(
    outputs: Outputs,
    labels: IntArray,
    ood_sets: Sequence[OODOutputs],
    n_bootstrap: int = N_BOOTSTRAP,
    *,
    curves: bool = False,
) -> dict[str, Any]:
    """Return how well the confidence scores separate errors, and OOD images, from the rest.

    Misclassification: "in" are the correctly classified test images, "out" the others. OOD: "in"
    are all test images, "out" the images of the OOD data set.

    With `curves` each score has its `histogram` and `roc`, for figures.

    Returns:
        A JSON document: `misclassification`, `ood` (a list), `groups` (means over the near and the
        far sets) and `n_bootstrap`; numbers that are null have a reason under `reasons`.
    """
    reasons: dict[str, str] = {}
    scores = confidence_scores(outputs)
    correct = outputs.similarities.argmax(1) == labels

    def compare(key: str, inside: Scores, outside: Scores, n_in: int, n_out: int) -> dict[str, Any]:
        document, missing = _compare(inside, outside, n_in, n_out, n_bootstrap, curves=curves)
        reasons.update({f"{key} {name}".strip(): reason for name, reason in missing.items()})
        return document

    right, wrong = (
        {name: None if s is None else s[rows] for name, s in scores.items()}
        for rows in (correct, ~correct)
    )
    counts = int(correct.sum()), int((~correct).sum())
    misclassification = compare("misclassification", right, wrong, *counts)
    ood = []
    for ood_set in ood_sets:
        outside, n_out = confidence_scores(ood_set.outputs), len(ood_set.outputs.logits)
        document = compare(f"ood {ood_set.name}", scores, outside, len(labels), n_out)
        about = {"name": ood_set.name, "group": ood_set.group, "digest": ood_set.digest}
        ood.append(about | document)
    return {
        "misclassification": misclassification,
        "ood": ood,
        "groups": _group_means(ood),
        "n_bootstrap": n_bootstrap,
        "reasons": reasons,
    }


def _compare(
    inside: Scores, outside: Scores, n_in: int, n_out: int, n_bootstrap: int, *, curves: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the metrics of all scores, and the reasons of missing ones by the score's name."""
    document: dict[str, Any] = {"n_in": n_in, "n_out": n_out, "scores": dict.fromkeys(SCORES)}
    if not n_in or not n_out:
        missing = "misclassified" if n_in else "correctly classified"
        return document, {"": f"no image is {missing}: one side is empty"}
    reasons, pairs = {}, {}
    for name in SCORES:
        if name not in inside:
            reasons[name] = "the network has no features"
            continue
        a, b = inside[name], outside[name]
        if a is None or b is None:
            reasons[name] = "a score is not finite"
        else:
            pairs[name] = (a, b)
    document["scores"] |= bootstrap_metrics(pairs, n_bootstrap)
    if curves:
        for name, pair in pairs.items():
            document["scores"][name] |= _curves(*pair)
    return document, reasons


def bootstrap_metrics(
    pairs: Mapping[str, tuple[FloatArray, FloatArray]], n_bootstrap: int
) -> dict[str, dict[str, Any]]:
    """Return the metrics of each score with 95 % percentile bootstrap intervals.

    - aupr_in: average precision with "in" as the positive class, ranked by the score.
    - aupr_out: average precision with "out" as the positive class, ranked by the negated score.
    - auroc: the fraction of pairs in which "in" has the larger score; a tie counts half.
    - fpr95_in: the fraction of "out" at or above the largest threshold that keeps 95 % of "in".
    - fpr95_out: the fraction of "in" at or below the smallest threshold that keeps 95 % of "out".

    The two sides are resampled separately from one fixed seed; all scores share the draws. `pairs`
    are the finite scores (n_in,) and (n_out,), neither empty, of the same images in the same order.

    Returns:
        By name: METRIC and METRIC_interval ([low, high]) of every metric.
    """
    if not pairs:
        return {}
    inside, outside = next(iter(pairs.values()))
    ranked = {name: RankedScores(*pair) for name, pair in pairs.items()}
    ones = np.ones(len(inside) + len(outside), np.int64)
    draws: dict[str, list[FloatArray]] = {name: [] for name in pairs}
    # one draw after the other: the scores share its weights, which stay in the processor's cache
    stream, sizes = generator(0, "detection", "bootstrap"), (len(inside), len(outside))
    for _ in range(n_bootstrap):
        drawn = [np.bincount(stream.integers(n, size=n), minlength=n) for n in sizes]
        weights = np.concatenate(drawn)  # how often each image is drawn
        for name, scores in ranked.items():
            draws[name].append(scores.metrics(weights))
    tail = (1 - LEVEL) / 2
    documents: dict[str, dict[str, Any]] = {}
    for name, scores in ranked.items():
        ends = np.quantile(np.stack(draws[name]), (tail, 1 - tail), axis=0).T.tolist()
        documents[name] = {}
        for metric, value, interval in zip(METRICS, scores.metrics(ones), ends, strict=True):
            documents[name] |= {metric: float(value), f"{metric}_interval": interval}
    return documents


class RankedScores:
    """The scores of both sides, sorted once, for the metrics under any weights of the images.

    With T_k and F_k the weight of "in" and "out" at or above the k-th largest distinct score,
    P and Q their totals, and t_k, f_k the weights at exactly that score:

        aupr_in  = sum_k t_k/P * T_k/(T_k + F_k)
        aupr_out = sum_k f_k/Q * (Q - F_{k-1})/(Q - F_{k-1} + P - T_{k-1})
        auroc    = sum_k f_k (T_{k-1} + t_k/2)/(P Q)
    """

    def __init__(self, inside: FloatArray, outside: FloatArray) -> None:
        values = np.concatenate([inside, outside])
        self._order = np.argsort(-values, kind="stable")
        self._inside = self._order < len(inside)
        falling = values[self._order]
        self._ends = np.append(np.flatnonzero(falling[1:] != falling[:-1]), len(values) - 1)

    def curve(self, weights: IntArray) -> tuple[IntArray, IntArray]:
        """Return T and F, (K,) each, under weights (n,)."""
        ordered = weights[self._order]
        t = (ordered * self._inside).cumsum()[self._ends]
        return t, ordered.cumsum()[self._ends] - t

    def metrics(self, weights: IntArray) -> FloatArray:
        """Return (5,) metrics in the order of METRICS under weights (n,)."""
        t, f = self.curve(weights)
        p, q = t[-1], f[-1]
        t_before, f_before = (np.append(0, x[:-1]) for x in (t, f))
        t_here, f_here = t - t_before, f - f_before
        # an empty denominator has an empty numerator: 0/1
        aupr_in = (t_here * t / np.maximum(t + f, 1)).sum() / p
        t_below, f_below = p - t_before, q - f_before
        aupr_out = (f_here * f_below / np.maximum(t_below + f_below, 1)).sum() / q
        auroc = (f_here * (t_before + t_here / 2)).sum() / (p * q)
        # the first threshold that keeps 95 % above it, and the last that does below, in integers
        fpr95_in = f[(20 * t >= 19 * p).argmax()] / q
        fpr95_out = t_below[np.flatnonzero(20 * f_below >= 19 * q)[-1]] / p
        return np.array([aupr_in, aupr_out, auroc, fpr95_in, fpr95_out])  # as in METRICS


def _curves(inside: FloatArray, outside: FloatArray) -> dict[str, Any]:
    """Return `histogram`, counts in common bins, and `roc`, the TPR at FPR = 0, 0.01 .. 1."""
    edges = np.histogram_bin_edges(np.concatenate([inside, outside]), HISTOGRAM_BINS)
    ones = np.ones(len(inside) + len(outside), np.int64)
    t, f = RankedScores(inside, outside).curve(ones)
    fpr, tpr = (np.append(0, x) / x[-1] for x in (f, t))
    return {
        "histogram": {
            "edges": edges.tolist(),
            "inside": np.histogram(inside, edges)[0].tolist(),
            "outside": np.histogram(outside, edges)[0].tolist(),
        },
        "roc": np.interp(np.linspace(0, 1, ROC_POINTS), fpr, tpr).tolist(),
    }


def _group_means(ood: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float] | None]]:
    """Return each metric's mean over the sets of a group; None where a set lacks the score."""
    groups: dict[str, dict[str, dict[str, float] | None]] = {}
    for group in dict.fromkeys(one["group"] for one in ood if one["group"] is not None):
        members = [one["scores"] for one in ood if one["group"] == group]
        groups[group] = {
            name: {m: float(np.mean([scores[name][m] for scores in members])) for m in METRICS}
            if all(scores[name] is not None for scores in members)
            else None
            for name in SCORES
        }
    return groups
