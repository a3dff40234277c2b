"""Verification: whether two images show the same identity, by the cosine of their embeddings.

This is how the temperature paper tests face recognition (Table 6). The paper's text available to us
does not give the protocol; ours is LFW's: the threshold of each fold is chosen on the others.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.metrics.arrays import FloatArray, IntArray
from marginctl.metrics.detection import N_BOOTSTRAP, RankedScores, bootstrap_metrics
from marginctl.utils.text import count_noun

FALSE_ACCEPTANCE_RATES = (1e-1, 1e-2, 1e-3, 1e-4)


def cosine_similarities(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the (N,) cosines of embeddings (N, d) each; 0 where one of the two is zero."""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines: FloatArray = (a * b).sum(1) / np.where(lengths > 0, lengths, 1.0)
    return cosines


def verification_metrics(
    scores: FloatArray, same: NDArray[np.bool_], folds: IntArray, n_bootstrap: int = N_BOOTSTRAP
) -> dict[str, Any]:
    """Return how well scores separate pairs of one identity from pairs of two.

    A pair is accepted where its score is at or above the threshold.

    - accuracy: in percent, the mean over the folds, each at the `best_threshold` of the other
      folds; `std` has ddof = 1.
    - tar_at_far: for each false acceptance rate, the true acceptance rate at the lowest threshold
      that accepts at most this fraction of the pairs of two identities; null where the fraction
      is less than one pair.
    - auroc: a tie counts half; its interval is that of `detection.bootstrap_metrics`.
    - eer: the equal error rate, interpolated linearly between neighbouring thresholds.

    Args:
        scores: (N,); if one is not finite, all metrics are null.
        same: (N,), pairs of both kinds.
        folds: (N,), from 0 to K - 1, none empty.

    Returns:
        A JSON document; numbers that are null have a reason under `reasons`.
    """
    n_same, n_different = int(same.sum()), int((~same).sum())
    far_keys = {f"{rate:g}": rate for rate in FALSE_ACCEPTANCE_RATES}
    reasons: dict[str, str] = {}
    document: dict[str, Any] = {
        "n": len(scores),
        "n_same": n_same,
        "n_different": n_different,
        **dict.fromkeys(("accuracy", "std")),
        "folds": 0,
        "fold_accuracies": [],
        "thresholds": [],
        "tar_at_far": dict.fromkeys(far_keys),
        **dict.fromkeys(("auroc", "auroc_interval", "eer")),
        "reasons": reasons,
    }
    if not np.isfinite(scores).all():
        reasons["scores"] = f"{int((~np.isfinite(scores)).sum())} scores are not finite"
        return document
    num_folds = int(folds.max()) + 1
    accuracies, thresholds = [], []
    if num_folds < 2:
        reasons["accuracy"] = f"{min(n_same, n_different)} pair of a kind: no two folds"
    else:
        for fold in range(num_folds):
            held_out = folds == fold
            threshold = best_threshold(scores[~held_out], same[~held_out])
            correct = (scores[held_out] >= threshold) == same[held_out]
            thresholds.append(threshold if np.isfinite(threshold) else None)
            accuracies.append(100 * float(correct.mean()))
        document["accuracy"] = float(np.mean(accuracies))
        document["std"] = float(np.std(accuracies, ddof=1))
    sides = scores[same], scores[~same]
    t, f = (x / x[-1] for x in RankedScores(*sides).curve(np.ones(len(scores), np.int64)))
    detection = bootstrap_metrics({"cosine": sides}, n_bootstrap)["cosine"]
    for key, rate in far_keys.items():
        if rate * n_different >= 1:
            document["tar_at_far"][key] = float(t[f <= rate].max(initial=0.0))
        else:
            reasons[f"tar_at_far {key}"] = (
                f"{count_noun(n_different, 'pair')} of two identities: fewer than one at this rate"
            )
    return document | {
        "folds": len(accuracies),
        "fold_accuracies": accuracies,
        "thresholds": thresholds,
        "auroc": detection["auroc"],
        "auroc_interval": detection["auroc_interval"],
        "eer": _equal_error_rate(t, f),
    }


def best_threshold(scores: FloatArray, same: NDArray[np.bool_]) -> float:
    """Return the threshold of (N,) scores with the highest accuracy; infinity accepts no pair.

    It is the middle between two neighbouring scores; of several best ones the largest.
    """
    t, f = RankedScores(scores[same], scores[~same]).curve(np.ones(len(scores), np.int64))
    falling = np.unique(scores)[::-1]
    gain = np.append(0, t - f)  # correct pairs beyond those of the threshold that accepts none
    best = int(gain.argmax())
    if not best:
        return float("inf")
    accepted, rejected = falling[best - 1], falling[min(best, len(falling) - 1)]
    middle = rejected + (accepted - rejected) / 2
    return float(middle if middle > rejected else accepted)


def _equal_error_rate(t: FloatArray, f: FloatArray) -> float:
    """Return where the falling 1 - t meets the rising f, linear between the thresholds."""
    accepted, rejected = np.append(0.0, f), np.append(1.0, 1 - t)
    k = int((accepted >= rejected).argmax())  # the last threshold accepts all
    before, after = rejected[k - 1] - accepted[k - 1], accepted[k] - rejected[k]
    fraction = before / (before + after)
    return float(accepted[k - 1] + fraction * (accepted[k] - accepted[k - 1]))
