"""Calibration errors against slow loops and exact fractions; where torchmetrics differs."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from marginctl.metrics import accuracy
from marginctl.metrics.calibration_error import adaptive_ece, classwise_ece, ece_and_mce, ones
from marginctl.metrics.reliability import bin_by_confidence, reliability
from tests.metrics.test_reliability import slow_bins, slow_errors


def case(i):
    """A small random case; every third has its probabilities on edges of bins."""
    stream = np.random.default_rng([17, i])
    n, c, bins = (
        int(stream.integers(1, 25)),
        int(stream.integers(2, 6)),
        int(stream.integers(1, 21)),
    )
    if i % 3:
        p = stream.dirichlet(np.full(c, stream.choice([0.05, 0.5, 3])), n)
    else:
        p = stream.multinomial(bins, stream.dirichlet(np.ones(c)), n) / bins
    return p, stream.integers(0, c, n), bins


def slow_equal_mass(confidence, correct, bins):
    """By comparing every pair; gaps as they are."""
    n, sums = len(confidence), [0.0] * bins
    for x, right in zip(confidence, correct, strict=True):
        below = sum(other < x for other in confidence)
        sums[bins * below // n] += float(right) - x
    return sum(map(abs, sums)) / n


def slow_classwise(p, labels, bins):
    """The mean over classes of the ECE of p_c against [y = c]."""
    classes = range(p.shape[1])
    found = [slow_errors(slow_bins(p[:, c].tolist(), list(labels == c), bins))[0] for c in classes]
    return sum(found) / len(found)


def test_1000_random_cases_and_their_edges():
    for i in range(1000):
        p, labels, bins = case(i)
        right = p.argmax(axis=1) == labels
        confidence = p.max(axis=1)
        expected = slow_errors(slow_bins(confidence.tolist(), list(right), bins))
        found = reliability(p, labels, bins)
        assert (found.ece, found.mce) == pytest.approx(expected, rel=1e-11, abs=1e-13)
        once = ones(len(labels))
        (ece,), (mce,) = ece_and_mce(confidence, right, bins, once)
        assert (ece, mce) == pytest.approx(expected, rel=1e-11, abs=1e-13)
        (adaptive,) = adaptive_ece(confidence, right, bins, once)
        assert adaptive == pytest.approx(slow_equal_mass(confidence, right, bins), abs=1e-13)
        (by_class,) = classwise_ece(p, labels, bins, once)
        assert by_class == pytest.approx(slow_classwise(p, labels, bins), abs=1e-13)


def test_a_draw_is_the_samples_that_it_has():
    """Weights against the same samples written out."""
    for i in range(200):
        p, labels, bins = case(i)
        rows = np.random.default_rng(i).integers(0, len(p), len(p))
        draw = np.bincount(rows, minlength=len(p)).astype(float)
        draws = np.stack([draw, np.ones(len(p))])
        right, x = p.argmax(axis=1) == labels, p.max(axis=1)
        once = ones(len(p))
        for weighted, plain in (
            (
                ece_and_mce(x, right, bins, draws)[0],
                ece_and_mce(x[rows], right[rows], bins, once)[0],
            ),
            (
                ece_and_mce(x, right, bins, draws)[1],
                ece_and_mce(x[rows], right[rows], bins, once)[1],
            ),
            (adaptive_ece(x, right, bins, draws), adaptive_ece(x[rows], right[rows], bins, once)),
            (
                classwise_ece(p, labels, bins, draws),
                classwise_ece(p[rows], labels[rows], bins, once),
            ),
        ):
            assert weighted.shape == (2,)
            assert weighted[0] == pytest.approx(plain[0], abs=1e-12)


def test_equal_mass_bins_without_ties_are_even_and_with_ties_whole():
    x, right = np.arange(1, 11) / 20, np.zeros(10, bool)
    right[::2] = True
    # 3 bins of 10: ranks 0-3, 4-6, 7-9
    gaps = [Fraction(int(r)) - Fraction(i, 20) for i, r in zip(range(1, 11), right, strict=True)]
    expected = sum(abs(sum(gaps[a:b])) for a, b in ((0, 4), (4, 7), (7, 10))) / 10
    assert adaptive_ece(x, right, 3, ones(10))[0] == pytest.approx(float(expected), rel=1e-14)
    tied = np.full(10, 0.75)
    assert adaptive_ece(tied, right, 3, ones(10))[0] == 0.25  # one bin: accuracy 1/2
    shuffled = np.random.default_rng(0).permutation(10)
    mixed = np.array([0.5] * 6 + [0.9] * 4)
    first = adaptive_ece(mixed, right, 4, ones(10))
    assert adaptive_ece(mixed[shuffled], right[shuffled], 4, ones(10)) == pytest.approx(first)


def test_classwise_in_small_blocks_of_classes(monkeypatch):
    stream = np.random.default_rng(3)
    p, labels = stream.dirichlet(np.ones(40) / 10, 50), stream.integers(0, 40, 50)
    whole = classwise_ece(p, labels, 15, ones(50))
    monkeypatch.setattr(accuracy, "AT_ONCE", 150)
    assert classwise_ece(p, labels, 15, ones(50)) == pytest.approx(whole, rel=1e-12)
    assert whole[0] == pytest.approx(slow_classwise(p, labels, 15), abs=1e-13)


def theirs(p, labels, bins, norm):
    p, labels = torch.tensor(p, dtype=torch.float64), torch.tensor(labels)
    classes = p.shape[1]
    return float(
        multiclass_calibration_error(p, labels, num_classes=classes, n_bins=bins, norm=norm)
    )


def test_torchmetrics_agrees_away_from_edges():
    """To what its float32 sums allow."""
    for i in range(1, 200, 3):
        p, labels, bins = case(i)
        if p.max() > 0.999:  # 1 in float32
            continue
        found = reliability(p, labels, bins)
        assert theirs(p, labels, bins, "l1") == pytest.approx(found.ece, abs=2e-6)
        assert theirs(p, labels, bins, "max") == pytest.approx(found.mce, abs=2e-6)


@pytest.mark.parametrize(
    ("p", "labels", "ours", "expected_of_them"),
    [
        # 0.5 of 2 bins: it ends our first bin, and begins their second
        (
            [[0.5, 0.25, 0.25], [0.4, 0.3, 0.3], [0.75, 0.25, 0]],
            [0, 1, 1],
            (0.1 + 0.75) / 3,
            (0.4 + 0.25) / 3,
        ),
        # 1.0: in our last bin, in a further one of theirs
        ([[1, 0], [0.9, 0.1]], [1, 0], 0.9 / 2, 1.1 / 2),
    ],
)
def test_torchmetrics_differs_at_edges(p, labels, ours, expected_of_them):
    assert reliability(p, labels, 2).ece == pytest.approx(ours)
    assert theirs(p, labels, 2, "l1") == pytest.approx(expected_of_them)


def test_torchmetrics_guesses_what_the_values_are():
    """Logits outside 0 to 1 it puts through a softmax, those inside it takes as probabilities."""
    logits = np.array([[0.9, 0.3], [0.2, 0.4]])
    assert theirs(logits, [0, 1], 10, "l1") != pytest.approx(theirs(logits + 1, [0, 1], 10, "l1"))
    with pytest.raises(ValueError, match="a row sums to"):
        reliability(logits, [0, 1])


def test_an_empty_bin_counts_for_nothing():
    x, right = np.array([0.05, 0.95]), np.array([False, True])
    (ece,), (mce,) = ece_and_mce(x, right, 10, ones(2))
    assert (ece, mce) == (pytest.approx(0.05), pytest.approx(0.05))
    assert bin_by_confidence(x, right, 10).bins[5].count == 0
    (ece,), (mce,) = ece_and_mce(x, right, 10, np.array([[2.0, 0.0]]))
    assert (ece, mce) == (pytest.approx(0.05), pytest.approx(0.05))
