"""Calibration errors against slow loops and exact fractions; where torchmetrics differs."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.classification import multiclass_calibration_error

from marginctl.metrics import arrays
from marginctl.metrics.calibration_error import (
    adaptive_ece,
    bin_by_confidence,
    classwise_ece,
    ece_and_mce,
    reliability,
    unit_weights,
)
from marginctl.metrics.scoring_rules import softmax


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


def slow_bins(confidence, correct, n):
    """(count, mean confidence, accuracy) of each bin, by comparing with both edges."""
    found = []
    for i in range(n):
        lo, hi = i / n, (i + 1) / n
        inside = [
            (c, r)
            for c, r in zip(confidence, correct, strict=True)
            if lo < c <= hi or (i == 0 and c == 0)
        ]
        count = len(inside)
        mean = math.fsum(c for c, _ in inside) / count if count else None
        found.append((count, mean, sum(r for _, r in inside) / count if count else None))
    return found


def slow_errors(bins):
    """ECE and MCE."""
    gaps = [(count, abs(acc - conf)) for count, conf, acc in bins if count]
    total = sum(count for count, _ in gaps)
    return math.fsum(count * gap for count, gap in gaps) / total, max(gap for _, gap in gaps)


def random_logits(n, c):
    stream = np.random.default_rng([n, c])
    return stream.normal(size=(n, c)) * 2, stream.integers(0, c, n)


def slow_adaptive_ece(confidence, correct, bins):
    """By comparing every pair; gaps as they are."""
    n, sums = len(confidence), [0.0] * bins
    for x, right in zip(confidence, correct, strict=True):
        below = sum(other < x for other in confidence)
        sums[bins * below // n] += float(right) - x
    return sum(map(abs, sums)) / n


def slow_classwise_ece(p, labels, bins):
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
        once = unit_weights(len(labels))
        (ece,), (mce,) = ece_and_mce(confidence, right, bins, once)
        assert (ece, mce) == pytest.approx(expected, rel=1e-11, abs=1e-13)
        (adaptive,) = adaptive_ece(confidence, right, bins, once)
        assert adaptive == pytest.approx(slow_adaptive_ece(confidence, right, bins), abs=1e-13)
        (by_class,) = classwise_ece(p, labels, bins, once)
        assert by_class == pytest.approx(slow_classwise_ece(p, labels, bins), abs=1e-13)


def test_weights_equal_repeated_samples():
    """Weights against the same samples written out."""
    for i in range(200):
        p, labels, bins = case(i)
        rows = np.random.default_rng(i).integers(0, len(p), len(p))
        draw = np.bincount(rows, minlength=len(p)).astype(float)
        draws = np.stack([draw, np.ones(len(p))])
        right, x = p.argmax(axis=1) == labels, p.max(axis=1)
        once = unit_weights(len(p))
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


def test_adaptive_bins_are_even_and_keep_ties_together():
    x, right = np.arange(1, 11) / 20, np.zeros(10, bool)
    right[::2] = True
    # 3 bins of 10: ranks 0-3, 4-6, 7-9
    gaps = [Fraction(int(r)) - Fraction(i, 20) for i, r in zip(range(1, 11), right, strict=True)]
    expected = sum(abs(sum(gaps[a:b])) for a, b in ((0, 4), (4, 7), (7, 10))) / 10
    assert adaptive_ece(x, right, 3, unit_weights(10))[0] == pytest.approx(
        float(expected), rel=1e-14
    )
    tied = np.full(10, 0.75)
    assert adaptive_ece(tied, right, 3, unit_weights(10))[0] == 0.25  # one bin: accuracy 1/2
    shuffled = np.random.default_rng(0).permutation(10)
    mixed = np.array([0.5] * 6 + [0.9] * 4)
    first = adaptive_ece(mixed, right, 4, unit_weights(10))
    assert adaptive_ece(mixed[shuffled], right[shuffled], 4, unit_weights(10)) == pytest.approx(
        first
    )


def test_classwise_in_small_blocks_of_classes(monkeypatch):
    stream = np.random.default_rng(3)
    p, labels = stream.dirichlet(np.ones(40) / 10, 50), stream.integers(0, 40, 50)
    whole = classwise_ece(p, labels, 15, unit_weights(50))
    monkeypatch.setattr(arrays, "BLOCK_SIZE", 150)
    assert classwise_ece(p, labels, 15, unit_weights(50)) == pytest.approx(whole, rel=1e-12)
    assert whole[0] == pytest.approx(slow_classwise_ece(p, labels, 15), abs=1e-13)


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


def test_torchmetrics_guesses_whether_values_are_logits():
    """Logits outside 0 to 1 it puts through a softmax, those inside it takes as probabilities."""
    logits = np.array([[0.9, 0.3], [0.2, 0.4]])
    assert theirs(logits, [0, 1], 10, "l1") != pytest.approx(theirs(logits + 1, [0, 1], 10, "l1"))
    with pytest.raises(ValueError, match="a row sums to"):
        reliability(logits, [0, 1])


def test_an_empty_bin_does_not_count():
    x, right = np.array([0.05, 0.95]), np.array([False, True])
    (ece,), (mce,) = ece_and_mce(x, right, 10, unit_weights(2))
    assert (ece, mce) == (pytest.approx(0.05), pytest.approx(0.05))
    assert bin_by_confidence(x, right, 10).bins[5].count == 0
    (ece,), (mce,) = ece_and_mce(x, right, 10, np.array([[2.0, 0.0]]))
    assert (ece, mce) == (pytest.approx(0.05), pytest.approx(0.05))


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 20),
    st.data(),
)
def test_reliability_is_that_of_a_loop(rows, n, data):
    confidence, correct = [c for c, _ in rows], [r for _, r in rows]
    for i in data.draw(st.lists(st.integers(0, n), max_size=5)):  # and some on the edges
        confidence.append(i / n)
        correct.append(data.draw(st.booleans()))
    r, bins = bin_by_confidence(confidence, correct, n), slow_bins(confidence, correct, n)
    assert [b.count for b in r.bins] == [count for count, _, _ in bins]
    assert [b.accuracy for b in r.bins] == [acc for _, _, acc in bins]
    for ours, (_, mean, _) in zip(r.bins, bins, strict=True):
        assert ours.confidence == (None if mean is None else pytest.approx(mean, rel=1e-13))
    assert (r.ece, r.mce) == pytest.approx(slow_errors(bins), rel=1e-11, abs=1e-13)
    assert r.n == len(confidence)
    assert r.accuracy == pytest.approx(np.mean(correct), abs=1e-13)
    assert r.confidence == pytest.approx(np.mean(confidence), rel=1e-12)
    assert r.ece <= r.mce + 1e-15


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 15, 20, 49, 100])
def test_a_confidence_on_an_edge_ends_its_bin(n):
    for i in range(n + 1):
        edge = i / n
        for confidence, index in [
            (edge, max(i - 1, 0)),
            (math.nextafter(edge, 2), i),
            (math.nextafter(edge, -1), max(i - 1, 0)),
        ]:
            if not 0 <= confidence <= 1:
                continue
            counts = [b.count for b in bin_by_confidence([confidence], [True], n).bins]
            assert counts == [int(k == index) for k in range(n)], (i, confidence)


def test_the_edges_are_the_quotients():
    bins = bin_by_confidence([0.5], [True]).bins
    assert [b.lo for b in bins] == [i / 15 for i in range(15)]
    assert [b.hi for b in bins] == [(i + 1) / 15 for i in range(15)]


def test_probabilities_on_the_edges():
    """The largest of 1,000 probabilities is k/15: one in each bin."""
    p = np.array([[k / 15, *[(1 - k / 15) / 999] * 999] for k in range(1, 16)])
    r = reliability(p, np.zeros(15, np.int64))
    assert [b.count for b in r.bins] == [1] * 15
    assert [b.confidence for b in r.bins] == [k / 15 for k in range(1, 16)]
    gaps = [1 - Fraction(k, 15) for k in range(1, 16)]
    assert r.ece == pytest.approx(float(sum(gaps) / 15), rel=1e-14)
    assert r.mce == 1 - 1 / 15


@pytest.mark.parametrize(("n", "c", "dtype"), [(1, 2, "f8"), (300, 2, "f8"), (300, 10, "f4")])
def test_reliability_of_probabilities(n, c, dtype, monkeypatch):
    logits, labels = random_logits(n, c)
    p = softmax(logits).astype(dtype)
    bins = slow_bins(
        [float(max(row)) for row in p],
        [max(range(c), key=row.__getitem__) == y for row, y in zip(p, labels, strict=True)],
        15,
    )
    r = reliability(p, labels)
    assert [(b.count, b.accuracy) for b in r.bins] == [(count, acc) for count, _, acc in bins]
    assert (r.ece, r.mce) == pytest.approx(slow_errors(bins), rel=1e-11)
    monkeypatch.setattr(arrays, "BLOCK_SIZE", 3 * c)
    assert reliability(p, labels) == r


def test_confidence_at_the_ends():
    one = reliability([[1.0]], [0])  # one class
    assert (one.ece, one.mce, one.accuracy, one.bins[-1].count) == (0, 0, 1, 1)
    tie = reliability([[0.5, 0.5], [0.5, 0.5]], [0, 1], bins=2)  # predicts the first
    assert [(b.count, b.accuracy) for b in tie.bins] == [(2, 0.5), (0, None)]
    above = reliability(np.array([[1.0000001, 0]], np.float32), [1])
    assert (above.bins[-1].count, above.confidence, above.mce) == (1, 1, 1)
    assert bin_by_confidence(np.array([0.2], np.float32), [True], 5).bins[1].count == 1  # above 1/5


def test_the_json_record():
    record = reliability(softmax([[3.0, 0.0], [0.0, 1.0]]), [0, 0], bins=10).as_json()
    json.dumps(record, allow_nan=False)
    assert (record["n"], record["bins"], record["accuracy"]) == (2, 10, 0.5)
    assert record["convention"] == "(lo, hi], the first closed at 0 too"
    assert {"ece", "mce", "confidence"} < set(record)
    assert record["reliability"][0] == {
        "lo": 0.0,
        "hi": 0.1,
        "count": 0,
        "confidence": None,
        "accuracy": None,
        "reason": "no sample in this bin",
    }
    assert record["reliability"][-1]["reason"] is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reliability(np.empty((0, 3)), []), "probabilities: no sample"),
        (lambda: reliability([[2.0, 1.0]], [0]), "probabilities: expected 0 to 1"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    assert message in str(caught.value)
