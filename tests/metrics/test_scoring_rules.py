"""Softmax, NLL and Brier score against scipy, scikit-learn and slow loops."""

import math

import numpy as np
import pytest
from scipy import special
from sklearn import metrics

from marginctl.metrics.scoring_rules import brier, nll, softmax


def random_case(n, c, spread=2.0):
    stream = np.random.default_rng([n, c])
    return stream.normal(size=(n, c)) * spread, stream.integers(0, c, n)


def slow_nll(logits, labels):
    rows = []
    for f, y in zip(logits, labels, strict=True):
        top = max(f)
        rows.append(top + math.log(math.fsum(math.exp(a - top) for a in f)) - f[y])
    return math.fsum(rows) / len(rows)


@pytest.mark.parametrize(("n", "c"), [(1, 2), (200, 2), (200, 9), (3, 1)])
def test_softmax_is_that_of_scipy(n, c):
    logits, _ = random_case(n, c)
    np.testing.assert_allclose(softmax(logits), special.softmax(logits, axis=1), rtol=1e-14)


def test_softmax_of_huge_logits():
    probabilities = softmax([[1e30, -1e30, 1e30], [0.0, -1e4, -1e30], [-1e308, 1e308, 0]])
    assert probabilities.tolist() == [[0.5, 0, 0.5], [1, 0, 0], [0, 1, 0]]
    assert softmax(np.full((1, 4), 1e30, np.float32)).tolist() == [[0.25] * 4]
    assert softmax([[1, 1]]).dtype == np.float64


@pytest.mark.parametrize(("n", "c"), [(1, 2), (200, 2), (200, 9)])
def test_nll_is_that_of_scikit_learn_and_of_a_loop(n, c):
    logits, labels = random_case(n, c)
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
    logits, labels = random_case(50, 4)
    small = logits.astype(np.float32)
    assert nll(small, labels) == nll(small.astype(np.float64), labels)


@pytest.mark.parametrize(("n", "c"), [(1, 1), (1, 3), (100, 2), (100, 8)])
def test_brier_is_that_of_a_loop(n, c):
    logits, labels = random_case(n, c)
    p = softmax(logits)
    slow = math.fsum((p[i, k] - (k == labels[i])) ** 2 for i in range(n) for k in range(c)) / n
    assert brier(p, labels) == pytest.approx(slow, rel=1e-13)


def test_brier_is_twice_scikit_learns_for_two_classes():
    logits, labels = random_case(100, 2)
    p = softmax(logits)
    assert brier(p, labels) == pytest.approx(
        2 * metrics.brier_score_loss(labels, p[:, 1]), rel=1e-13
    )
    assert brier([[1.0, 0.0]], [0]) == 0
    assert brier([[1.0, 0.0]], [1]) == 2


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
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    assert message in str(caught.value)
