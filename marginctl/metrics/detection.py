"""Detection of misclassified (MISS) and of foreign images (OOD) by how confident a network is.

The temperature paper (supplement, Table 10) gives average precisions of the largest similarity and
of the feature's norm. It does not say which side is the positive one: both are here, each by name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from marginctl.metrics.reliability import softmax
from marginctl.utils.seed import generator

Floats = NDArray[np.float64]

METRICS = ("aupr_in", "aupr_out", "auroc", "fpr95")
RESAMPLES = 200
LEVEL = 0.95  # of the intervals
BINS = 40  # of the histograms
POINTS = 101  # of the ROC curves


@dataclass(frozen=True)
class Outputs:
    """What a network makes of N images: features (N, d), d = 0 where it has none, and (N, C)."""

    features: Floats
    logits: Floats
    similarities: Floats


@dataclass(frozen=True)
class OODOutputs:
    """A network's outputs on images of none of its classes, `near` to those, `far` or neither."""

    name: str
    group: str | None
    digest: str
    outputs: Outputs


def confidence_scores(outputs: Outputs) -> dict[str, Floats | None]:
    """The scores of N images by name, (N,) each; a larger one says a more confident network.

    A score is None where it is not finite of every image.

    - max_similarity: the largest, without scale: the largest cosine of a cosine objective.
    - feature_norm: the feature's Euclidean norm; left out where the network has no features.
    - msp: the largest of softmax(logits).
    - negative_entropy: sum of p ln p of those probabilities, in nats: the entropy, negated.
    - energy: ln sum exp(logits), which is the free energy of Liu 2020, negated.
    """
    found = {"max_similarity": outputs.similarities.max(1)}
    if outputs.features.shape[1]:
        found["feature_norm"] = np.linalg.norm(outputs.features, axis=1)
    logits = outputs.logits
    # a softmax of what is not finite is none
    probabilities = softmax(np.where(np.isfinite(logits), logits, 0))
    probabilities[~np.isfinite(logits).all(1)] = np.nan
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
    found |= {
        "msp": probabilities.max(1),
        "negative_entropy": (probabilities * logs).sum(1),
        "energy": logsumexp(logits, axis=1),
    }
    return {name: s if bool(np.isfinite(s).all()) else None for name, s in found.items()}


SCORES = ("max_similarity", "feature_norm", "msp", "negative_entropy", "energy")


def detection_metrics(
    inside: Outputs,
    labels: NDArray[np.int64],
    foreign: Sequence[OODOutputs],
    resamples: int = RESAMPLES,
    *,
    curves: bool = False,
) -> dict[str, Any]:
    """How well a network's scores tell its errors, and foreign images, from the rest.

    MISS: inside are the test images whose largest similarity is their label's, outside the others.
    OOD: inside are all test images, outside the foreign ones.

    Args:
        inside: of N test images.
        labels: (N,) theirs.
        foreign: other sets of images, their names all different.
        resamples: of each interval.
        curves: whether each score has its `histogram` and `roc`, for figures.

    Returns:
        A JSON document: `miss`, `ood` (a list), `groups` (means over the sets of a group) and
        `n_bootstrap`; null with its reason under `reasons`, never NaN.
    """
    reasons: dict[str, str] = {}
    own = confidence_scores(inside)
    right = inside.similarities.argmax(1) == labels
    miss = _part(
        _rows(own, right), _rows(own, ~right), int(right.sum()), int((~right).sum()), resamples,
        curves, "misclassification", reasons,
    )  # fmt: skip
    ood = []
    for one in foreign:
        n_out = len(one.outputs.logits)
        found = _part(
            own, confidence_scores(one.outputs), len(labels), n_out, resamples,
            curves, f"ood {one.name}", reasons,
        )  # fmt: skip
        ood.append({"name": one.name, "group": one.group, "digest": one.digest, **found})
    return {
        "misclassification": miss,
        "ood": ood,
        "groups": _groups(ood),
        "n_bootstrap": resamples,
        "reasons": reasons,
    }


Found = Mapping[str, Floats | None]  # None: not finite


def _rows(scores: Found, rows: NDArray[np.bool_]) -> dict[str, Floats | None]:
    return {name: None if s is None else s[rows] for name, s in scores.items()}


def _part(
    inside: Found,
    outside: Found,
    n_in: int,
    n_out: int,
    resamples: int,
    curves: bool,
    key: str,
    reasons: dict[str, str],
) -> dict[str, Any]:
    """All scores of one pair of sides."""
    document: dict[str, Any] = {"n_in": n_in, "n_out": n_out, "scores": dict.fromkeys(SCORES)}
    if not n_in or not n_out:
        lacking = "misclassified" if n_in else "correctly classified"
        reasons[key] = f"no image is {lacking}: there are no two sides to tell apart"
        return document
    pairs = {}
    for name in SCORES:
        if name not in inside:
            reasons[f"{key} {name}"] = "the network has no features"
            continue
        a, b = inside[name], outside[name]
        if a is None or b is None:
            reasons[f"{key} {name}"] = "a score is not finite"
        else:
            pairs[name] = (a, b)
    document["scores"] |= bootstrap_metrics(pairs, resamples)
    if curves:
        for name, pair in pairs.items():
            document["scores"][name] |= _curves(*pair)
    return document


def bootstrap_metrics(
    pairs: Mapping[str, tuple[Floats, Floats]], resamples: int
) -> dict[str, dict[str, Any]]:
    """The metrics of each score with their 95 % percentile bootstrap intervals.

    - aupr_in: average precision, inside is positive, by the score.
    - aupr_out: average precision, outside is positive, by the negated score.
    - auroc: the share of pairs in which inside has the larger score; a tie is half a pair.
    - fpr95: the share of the outside at or above the largest threshold that at least 95 %
      of the inside are at or above.

    Both sides are drawn again within themselves, by one fixed seed; all scores see the same draws.

    Args:
        pairs: by name, the scores (n_in,) of the inside and (n_out,) of the outside, finite, no
            side empty; the same images in the same order under every name.
        resamples: how many draws an interval rests on.

    Returns:
        By name: METRIC and METRIC_interval ([low, high]) of every metric.
    """
    if not pairs:
        return {}
    first = next(iter(pairs.values()))
    n_in, n_out = len(first[0]), len(first[1])
    ranked = {name: RankedScores(*pair) for name, pair in pairs.items()}
    points = {name: of(np.ones(n_in + n_out, np.int64)) for name, of in ranked.items()}
    drawn: dict[str, list[Floats]] = {name: [] for name in pairs}
    # one after the other: what they share stays in the processor's cache
    for weights in _draws(n_in, n_out, resamples):
        for name, of in ranked.items():
            drawn[name].append(of(weights))
    tail = (1 - LEVEL) / 2
    found: dict[str, dict[str, Any]] = {}
    for name, parts in drawn.items():
        low, high = np.quantile(np.stack(parts), (tail, 1 - tail), axis=0)
        found[name] = {}
        for i, metric in enumerate(METRICS):
            found[name][metric] = float(points[name][i])
            found[name][f"{metric}_interval"] = [float(low[i]), float(high[i])]
    return found


def _draws(n_in: int, n_out: int, resamples: int) -> Iterator[NDArray[np.int64]]:
    """How often each image is drawn, (n_in + n_out,), once for each resample."""
    stream = generator(0, "detection", "bootstrap")
    for _ in range(resamples):
        yield np.concatenate(
            [np.bincount(stream.integers(n, size=n), minlength=n) for n in (n_in, n_out)]
        )


class RankedScores:
    """Two sides by falling score, sorted once: the metrics of any weights of their images.

    With T_k and F_k the inside and the outside at or above the k-th largest of all distinct scores,
    P and Q the whole of them, and t_k, f_k what stands at that score:

        aupr_in  = sum_k t_k/P * T_k/(T_k + F_k)
        aupr_out = sum_k f_k/Q * (Q - F_{k-1})/(Q - F_{k-1} + P - T_{k-1})
        auroc  = sum_k f_k (T_{k-1} + t_k/2)/(P Q)
    """

    def __init__(self, inside: Floats, outside: Floats) -> None:
        values = np.concatenate([inside, outside])
        self._order = np.argsort(-values, kind="stable")
        self._inside = self._order < len(inside)
        falling = values[self._order]
        self._ends = np.append(np.flatnonzero(falling[1:] != falling[:-1]), len(values) - 1)

    def curve(self, weights: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """T and F, (K,) each, of weights (n,)."""
        here = weights[self._order]
        t = (here * self._inside).cumsum()[self._ends]
        return t, here.cumsum()[self._ends] - t

    def __call__(self, weights: NDArray[np.int64]) -> Floats:
        """(4,), in the order of METRICS."""
        t, f = self.curve(weights)
        p, q = t[-1], f[-1]
        t_before, f_before = (np.append(0, x[:-1]) for x in (t, f))
        t_here, f_here = t - t_before, f - f_before
        # where nothing stands above (or below), nothing stands at the score either: 0 of 1
        aupr_in = (t_here * t / np.maximum(t + f, 1)).sum() / p
        below = (q - f_before) + (p - t_before)
        aupr_out = (f_here * (q - f_before) / np.maximum(below, 1)).sum() / q
        auroc = (f_here * (t_before + t_here / 2)).sum() / (p * q)
        threshold = (20 * t >= 19 * p).argmax()  # the first with 95 %, in whole numbers
        return np.array([aupr_in, aupr_out, auroc, f[threshold] / q])


def _curves(inside: Floats, outside: Floats) -> dict[str, Any]:
    """`histogram`: counts in common bins; `roc`: the TPR at FPR = 0, 0.01 .. 1, inside positive."""
    edges = np.histogram_bin_edges(np.concatenate([inside, outside]), BINS)
    t, f = RankedScores(inside, outside).curve(np.ones(len(inside) + len(outside), np.int64))
    fpr, tpr = (np.append(0, x) / x[-1] for x in (f, t))
    return {
        "histogram": {
            "edges": edges.tolist(),
            "inside": np.histogram(inside, edges)[0].tolist(),
            "outside": np.histogram(outside, edges)[0].tolist(),
        },
        "roc": np.interp(np.linspace(0, 1, POINTS), fpr, tpr).tolist(),
    }


def _groups(ood: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float] | None]]:
    """The mean of each metric over the sets of a group; null where one of them has no number."""
    found: dict[str, dict[str, dict[str, float] | None]] = {}
    for group in dict.fromkeys(one["group"] for one in ood if one["group"] is not None):
        together = [one["scores"] for one in ood if one["group"] == group]
        found[group] = {
            name: {m: float(np.mean([scores[name][m] for scores in together])) for m in METRICS}
            if all(scores[name] is not None for scores in together)
            else None
            for name in SCORES
        }
    return found
