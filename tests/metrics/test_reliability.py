"""Calibration against scikit-learn, scipy and slow loops; every edge of every bin."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from sklearn import metrics

from marginctl.metrics import accuracy
from marginctl.metrics.reliability import bin_by_confidence, brier, nll, reliability, softmax


def made(n, c, spread=2.0):
    stream = np.random.default_rng([n, c])
    return stream.normal(size=(n, c)) * spread, stream.integers(0, c, n)


def slow_nll(logits, labels):
    rows = []
    for f, y in zip(logits, labels, strict=True):
        top = max(f)
        rows.append(top + math.log(math.fsum(math.exp(a - top) for a in f)) - f[y])
    return math.fsum(rows) / len(rows)


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


@pytest.mark.parametrize(("n", "c"), [(1, 2), (200, 2), (200, 9), (3, 1)])
def test_softmax_is_that_of_scipy(n, c):
    logits, _ = made(n, c)
    np.testing.assert_allclose(softmax(logits), special.softmax(logits, axis=1), rtol=1e-14)


def test_softmax_of_huge_logits():
    made_of = softmax([[1e30, -1e30, 1e30], [0.0, -1e4, -1e30], [-1e308, 1e308, 0]])
    assert made_of.tolist() == [[0.5, 0, 0.5], [1, 0, 0], [0, 1, 0]]
    assert softmax(np.full((1, 4), 1e30, np.float32)).tolist() == [[0.25] * 4]
    assert softmax([[1, 1]]).dtype == np.float64


@pytest.mark.parametrize(("n", "c"), [(1, 2), (200, 2), (200, 9)])
def test_nll_is_that_of_scikit_learn_and_of_a_loop(n, c):
    logits, labels = made(n, c)
    theirs = metrics.log_loss(labels, special.softmax(logits, axis=1), labels=range(c))
    assert nll(logits, labels) == pytest.approx(theirs, rel=1e-12)
    assert nll(logits, labels) == pytest.approx(slow_nll(logits, labels), rel=1e-14)


def test_nll_at_the_ends():
    assert nll([[5.0]], [0]) == 0  # one class
    assert nll([[0.0, 0.0, 0.0]], [1]) == pytest.approx(math.log(3), rel=1e-15)
    assert nll([[1e30, -1e30]], [0]) == 0
    assert nll([[1e30, 0.0]], [1]) == 1e30
    assert nll([[1e30, 1e30]], [1]) == pytest.approx(math.log(2), rel=1e-15)
    assert nll([[0.0, -600.0]], [0]) == pytest.approx(math.exp(-600), rel=1e-13)
    assert nll([[1e308, -1e308]], [1]) == math.inf
    logits, labels = made(50, 4)
    small = logits.astype(np.float32)
    assert nll(small, labels) == nll(small.astype(np.float64), labels)


@pytest.mark.parametrize(("n", "c"), [(1, 1), (1, 3), (100, 2), (100, 8)])
def test_brier_is_that_of_a_loop(n, c):
    logits, labels = made(n, c)
    p = softmax(logits)
    slow = math.fsum((p[i, k] - (k == labels[i])) ** 2 for i in range(n) for k in range(c)) / n
    assert brier(p, labels) == pytest.approx(slow, rel=1e-13)


def test_brier_is_twice_scikit_learns_for_two_classes():
    logits, labels = made(100, 2)
    p = softmax(logits)
    assert brier(p, labels) == pytest.approx(
        2 * metrics.brier_score_loss(labels, p[:, 1]), rel=1e-13
    )
    assert brier([[1.0, 0.0]], [0]) == 0
    assert brier([[1.0, 0.0]], [1]) == 2


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
        for confidence, bin_of_it in [
            (edge, max(i - 1, 0)),
            (math.nextafter(edge, 2), i),
            (math.nextafter(edge, -1), max(i - 1, 0)),
        ]:
            if not 0 <= confidence <= 1:
                continue
            counts = [b.count for b in bin_by_confidence([confidence], [True], n).bins]
            assert counts == [int(k == bin_of_it) for k in range(n)], (i, confidence)


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
    logits, labels = made(n, c)
    p = softmax(logits).astype(dtype)
    bins = slow_bins(
        [float(max(row)) for row in p],
        [max(range(c), key=row.__getitem__) == y for row, y in zip(p, labels, strict=True)],
        15,
    )
    r = reliability(p, labels)
    assert [(b.count, b.accuracy) for b in r.bins] == [(count, acc) for count, _, acc in bins]
    assert (r.ece, r.mce) == pytest.approx(slow_errors(bins), rel=1e-11)
    monkeypatch.setattr(accuracy, "AT_ONCE", 3 * c)
    assert reliability(p, labels) == r


def test_confidence_at_the_ends():
    one = reliability([[1.0]], [0])  # one class
    assert (one.ece, one.mce, one.accuracy, one.bins[-1].count) == (0, 0, 1, 1)
    tie = reliability([[0.5, 0.5], [0.5, 0.5]], [0, 1], bins=2)  # predicts the first
    assert [(b.count, b.accuracy) for b in tie.bins] == [(2, 0.5), (0, None)]
    above = reliability(np.array([[1.0000001, 0]], np.float32), [1])
    assert (above.bins[-1].count, above.confidence, above.mce) == (1, 1, 1)
    assert bin_by_confidence(np.array([0.2], np.float32), [True], 5).bins[1].count == 1  # above 1/5


def test_the_record():
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
        (lambda: softmax(np.empty((0, 3))), "logits: no sample"),
        (lambda: softmax([1.0, 2.0]), "logits: shape (2,), expected (N, C)"),
        (lambda: softmax(3.0), "logits: shape (), expected (N, C)"),
        (lambda: softmax([[1.0, np.nan]]), "logits: NaN or infinite"),
        (lambda: nll(np.empty((0, 3)), []), "logits: no sample"),
        (lambda: nll([[1.0, np.inf]], [0]), "logits: NaN or infinite"),
        (lambda: nll([[1.0, 2.0]], [2]), "labels: 2, expected 0 to 1"),
        (lambda: brier(np.empty((0, 3)), []), "probabilities: no sample"),
        (lambda: brier([[3.0, -2.0]], [0]), "probabilities: expected 0 to 1 (logits go through"),
        (lambda: brier([[np.nan, 1.0]], [0]), "probabilities: expected 0 to 1"),
        (lambda: brier([[0.5, 0.5], [0.6, 0.9]], [0, 0]), "a row sums to 1.5, expected 1"),
        (lambda: reliability(np.empty((0, 3)), []), "probabilities: no sample"),
        (lambda: reliability([[0.5, 0.5]], [0], 0), "bins = 0: expected at least 1"),
        (lambda: reliability([[2.0, 1.0]], [0]), "probabilities: expected 0 to 1"),
        (lambda: bin_by_confidence([], []), "confidence: no sample"),
        (lambda: bin_by_confidence([0.1], [True, False]), "shapes (1,), (2,), expected (N,)"),
        (lambda: bin_by_confidence([0.1], [1]), "correct: dtype int64, expected bool"),
        (lambda: bin_by_confidence([1.1], [True]), "confidence: expected 0 to 1"),
        (lambda: bin_by_confidence([np.nan], [True]), "confidence: expected 0 to 1"),
    ],
)
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    assert message in str(caught.value)
