"""Verification: whether two images are of one identity, by the cosine of their embeddings.

How the temperature paper's face recognition (Table 6) is tested; its text on it is not to be had,
so that the protocol is LFW's: the threshold of each fold is chosen on the others.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.metrics.detection import RESAMPLES, RankedScores, bootstrap_metrics
from marginctl.utils.text import count_noun

Floats = NDArray[np.float64]

RATES = (1e-1, 1e-2, 1e-3, 1e-4)  # of false acceptance


def cosine_similarities(first: Floats, second: Floats) -> Floats:
    """(N,) of embeddings (N, d) each; 0 where one of the two is zero."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    found: Floats = (first * second).sum(1) / np.where(lengths > 0, lengths, 1.0)
    return found


def verification_metrics(
    scores: Floats,
    same: NDArray[np.bool_],
    folds: NDArray[np.int64],
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """How well scores tell pairs of one identity from pairs of two.

    A pair is accepted where its score is at or above the threshold.

    - accuracy: in percent, the mean over the folds; of each fold at the threshold that accepts and
      rejects most pairs of the others rightly: the middle between two neighbouring scores, of
      several the largest. `std` has ddof = 1.
    - tar_at_far: by rate, the largest share of accepted pairs of one identity where at most that
      share of the pairs of two is accepted; null where the rate is less than one pair.
    - auroc: a tie is half a pair; its interval is `detection.measured`'s.
    - eer: the rate at which as many of one kind are rejected as of the other are accepted, on
      straight lines between neighbouring thresholds.

    Args:
        scores: (N,); where one is not finite there is no number.
        same: (N,), pairs of both kinds.
        folds: (N,), from 0 to K - 1, none empty.
        resamples: of the interval.

    Returns:
        A JSON document; null with its reason under `reasons`, never NaN.
    """
    if not np.isfinite(scores).all():
        return _nothing(same, f"{int((~np.isfinite(scores)).sum())} scores are not finite")
    reasons: dict[str, str] = {}
    n_same, n_different = int(same.sum()), int((~same).sum())
    number = int(folds.max()) + 1
    accuracies, thresholds = [], []
    for fold in range(number) if number > 1 else ():
        held = folds == fold
        threshold = best_threshold(scores[~held], same[~held])
        thresholds.append(threshold if np.isfinite(threshold) else None)
        accuracies.append(100 * float(((scores[held] >= threshold) == same[held]).mean()))
    if number < 2:
        reasons["accuracy"] = f"{min(n_same, n_different)} pair of a kind: no two folds"
    side = scores[same], scores[~same]
    t, f = (x / x[-1] for x in RankedScores(*side).curve(np.ones(len(scores), np.int64)))
    whole = bootstrap_metrics({"cosine": side}, resamples)["cosine"]
    tar: dict[str, float | None] = {}
    for rate in RATES:
        key = f"{rate:g}"
        tar[key] = float(t[f <= rate].max(initial=0.0)) if rate * n_different >= 1 else None
        if tar[key] is None:
            reasons[f"tar_at_far {key}"] = (
                f"{count_noun(n_different, 'pair')} of two identities: fewer than one at this rate"
            )
    return {
        "n": len(scores),
        "n_same": n_same,
        "n_different": n_different,
        "accuracy": float(np.mean(accuracies)) if accuracies else None,
        "std": float(np.std(accuracies, ddof=1)) if accuracies else None,
        "folds": len(accuracies),
        "fold_accuracies": accuracies,
        "thresholds": thresholds,
        "tar_at_far": tar,
        "auroc": whole["auroc"],
        "auroc_interval": whole["auroc_interval"],
        "eer": _equal_error_rate(t, f),
        "reasons": reasons,
    }


def _nothing(same: NDArray[np.bool_], reason: str) -> dict[str, Any]:
    """What `verified` gives, without a number."""
    return {
        "n": len(same),
        "n_same": int(same.sum()),
        "n_different": int((~same).sum()),
        **dict.fromkeys(("accuracy", "std")),
        "folds": 0,
        "fold_accuracies": [],
        "thresholds": [],
        "tar_at_far": dict.fromkeys(f"{rate:g}" for rate in RATES),
        **dict.fromkeys(("auroc", "auroc_interval", "eer")),
        "reasons": {"scores": reason},
    }


def best_threshold(scores: Floats, same: NDArray[np.bool_]) -> float:
    """The threshold with most pairs right, as `verified` chooses it; infinite: it accepts none.

    Args:
        scores: (N,), finite; at least one.
        same: (N,).
    """
    t, f = RankedScores(scores[same], scores[~same]).curve(np.ones(len(scores), np.int64))
    falling = np.unique(scores)[::-1]
    right = np.append(0, t - f)  # beyond those of two identities, which are all rejected at first
    best = int(right.argmax())
    if not best:
        return float("inf")
    least = falling[best - 1]
    if best == len(falling):
        return float(least)
    below = falling[best]
    middle = below + (least - below) / 2
    return float(middle if middle > below else least)


def _equal_error_rate(t: Floats, f: Floats) -> float:
    """Where 1 - t, which falls, meets f, which rises, on straight lines between the thresholds."""
    accepted, rejected = np.append(0.0, f), np.append(1.0, 1 - t)
    k = int((accepted >= rejected).argmax())  # the last threshold accepts all
    before, after = rejected[k - 1] - accepted[k - 1], accepted[k] - rejected[k]
    share = before / (before + after)
    return float(accepted[k - 1] + share * (accepted[k] - accepted[k - 1]))
