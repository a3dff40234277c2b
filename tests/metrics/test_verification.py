"""Verification against scikit-learn and against plain loops over all thresholds."""

import itertools

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from marginctl.metrics.verification import (
    best_threshold,
    cosine_similarities,
    verification_metrics,
)


def drawn(seed, n=400, ties=True):
    stream = np.random.default_rng(seed)
    same = stream.random(n) < 0.4
    scores = stream.normal(size=n) + 0.8 * same
    return (np.round(scores, 1) if ties else scores), same, np.arange(n) * 10 // n


def right(scores, same, threshold):
    return sum(bool(s >= threshold) == bool(k) for s, k in zip(scores, same, strict=True))


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_against_scikit_learn(seed, ties):
    scores, same, folds = drawn(seed, ties=ties)
    found = verification_metrics(scores, same, folds, n_bootstrap=5)
    assert found["auroc"] == pytest.approx(roc_auc_score(same, scores), abs=1e-12)
    fpr, tpr, _ = roc_curve(same, scores, drop_intermediate=False)
    for rate in ("0.1", "0.01"):
        assert found["tar_at_far"][rate] == tpr[fpr <= float(rate)].max()
    # the lines of the ROC curve, cut finely
    grid = np.linspace(0, 1, 200_001)
    accepted, rejected = np.interp(grid, np.arange(len(fpr)) / (len(fpr) - 1), fpr), None
    rejected = 1 - np.interp(grid, np.arange(len(tpr)) / (len(tpr) - 1), tpr)
    nearest = np.abs(accepted - rejected).argmin()
    assert found["eer"] == pytest.approx(accepted[nearest], abs=1e-4)


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_accuracy_is_that_of_trying_every_threshold_on_the_other_folds(seed, ties):
    scores, same, folds = drawn(seed, 120, ties)
    found = verification_metrics(scores, same, folds, n_bootstrap=5)
    accuracies = []
    for fold in range(10):
        others, held = folds != fold, folds == fold
        values = sorted(set(scores[others]))
        between = [(a + b) / 2 for a, b in itertools.pairwise(values)]
        tried = [np.inf, *reversed([values[0], *between])]
        counts = [right(scores[others], same[others], t) for t in tried]
        threshold = tried[int(np.argmax(counts))]
        assert found["thresholds"][fold] == pytest.approx(threshold, abs=1e-12)
        accuracies.append(100 * right(scores[held], same[held], threshold) / held.sum())
    assert found["fold_accuracies"] == pytest.approx(accuracies)
    assert found["accuracy"] == pytest.approx(np.mean(accuracies))
    assert found["std"] == pytest.approx(np.std(accuracies, ddof=1))
    assert (found["folds"], found["n"]) == (10, 120)


def test_the_best_threshold_at_the_ends_and_between_neighbours():
    two = np.array([0.25, 0.75])
    assert best_threshold(two, np.array([False, True])) == 0.5
    assert best_threshold(two, np.array([True, True])) == 0.25
    assert best_threshold(two, np.array([False, False])) == np.inf
    assert best_threshold(two, np.array([True, False])) == np.inf  # of a tie the largest
    below = np.nextafter(1.0, 0)
    assert best_threshold(np.array([below, 1.0]), np.array([False, True])) == 1.0


def test_too_few_pairs_give_null_with_a_reason():
    scores, same = np.array([0.9, 0.8, 0.1]), np.array([True, True, False])
    found = verification_metrics(scores, same, np.zeros(3, np.int64), n_bootstrap=5)
    assert (found["accuracy"], found["std"], found["folds"]) == (None, None, 0)
    assert (found["auroc"], found["eer"]) == (1.0, 0.0)
    assert set(found["tar_at_far"].values()) == {None}
    assert found["reasons"] == {"accuracy": "1 pair of a kind: no two folds"} | {
        f"tar_at_far {rate}": "1 pair of two identities: fewer than one at this rate"
        for rate in ("0.1", "0.01", "0.001", "0.0001")
    }
    scores, same, folds = drawn(0, 1000)
    tar = verification_metrics(scores, same, folds, n_bootstrap=5)["tar_at_far"]
    assert [rate for rate, value in tar.items() if value is None] == ["0.001", "0.0001"]


def test_equal_scores_are_at_chance_level():
    same = np.arange(40) % 2 == 0
    found = verification_metrics(np.zeros(40), same, np.arange(40) // 4, n_bootstrap=5)
    assert (found["auroc"], found["eer"], found["accuracy"]) == (0.5, 0.5, 50.0)


def test_cosines_and_zero_vectors():
    stream = np.random.default_rng(0)
    a, b = stream.normal(size=(2, 50, 7))
    expected = [x @ y / np.sqrt((x @ x) * (y @ y)) for x, y in zip(a, b, strict=True)]
    assert cosine_similarities(a, b) == pytest.approx(expected, abs=1e-14)
    assert cosine_similarities(a, 0 * b).tolist() == [0.0] * 50
