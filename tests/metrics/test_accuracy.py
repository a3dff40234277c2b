"""Accuracy against scikit-learn, scipy and plain loops."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from marginctl.metrics import arrays
from marginctl.metrics.accuracy import (
    confusion_matrix,
    per_class_accuracy,
    top_k_accuracy,
    wilson_interval,
)
from marginctl.metrics.arrays import check_rows


def made(n, c, dtype=np.float64):
    stream = np.random.default_rng([n, c])
    return stream.normal(size=(n, c)).astype(dtype), stream.integers(0, c, n)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_top_k_is_that_of_scikit_learn(dtype):
    scores, labels = made(400, 7)
    scores = scores.argsort(axis=1).astype(dtype)  # no ties, which the two break differently
    for k in (1, 2, 5, 6):
        theirs = metrics.top_k_accuracy_score(labels, scores, k=k, labels=range(7))
        assert top_k_accuracy(scores, labels, k) == pytest.approx(theirs, rel=1e-14)


@given(
    st.integers(1, 5).flatmap(
        lambda c: st.lists(
            st.tuples(st.lists(st.integers(0, 2), min_size=c, max_size=c), st.integers(0, c - 1)),
            min_size=1,
            max_size=8,
        )
    ),
    st.integers(1, 7),
)
def test_ties_go_to_the_lower_class(rows, k):
    scores, labels = [s for s, _ in rows], [y for _, y in rows]
    hits = [y in sorted(range(len(s)), key=lambda c: (-s[c], c))[:k] for s, y in rows]
    assert top_k_accuracy(scores, labels, k) == sum(hits) / len(hits)
    assert top_k_accuracy(scores, labels, 1) == np.mean(np.argmax(scores, axis=1) == labels)


def test_top_k_at_the_ends():
    assert top_k_accuracy([[0.0, 0.0]], [0], 1) == 1  # ties: as argmax
    assert top_k_accuracy([[0.0, 0.0]], [1], 1) == 0
    assert top_k_accuracy([[0.0, 0.0]], [1], 2) == top_k_accuracy([[0.0, 0.0]], [1], 99) == 1
    assert top_k_accuracy([[3.0]], [0], 1) == 1  # one class
    assert top_k_accuracy([[1e30, -1e30, np.inf]], [0], 1) == 0
    assert top_k_accuracy([[-np.inf, -1e30, -np.inf]], [0], 2) == 1


def test_the_block_size_changes_nothing(monkeypatch):
    scores, labels = made(50, 4)
    whole = top_k_accuracy(scores, labels, 2)
    monkeypatch.setattr(arrays, "BLOCK_SIZE", 12)
    assert top_k_accuracy(scores, labels, 2) == whole


@given(st.integers(1, 10**6), st.floats(0, 1))
def test_the_interval_is_wilsons_of_scipy(n, share):
    correct = round(share * n)
    theirs = stats.binomtest(correct, n).proportion_ci(0.95, method="wilson")
    ours = wilson_interval(correct, n)
    assert ours == pytest.approx((theirs.low, theirs.high), rel=1e-9, abs=1e-14)
    assert 0 <= ours[0] <= correct / n <= ours[1] <= 1


def test_the_interval_at_the_ends():
    assert wilson_interval(0, 1)[0] == 0
    assert wilson_interval(1, 1)[1] == 1
    assert wilson_interval(9321, 10000) == pytest.approx((0.92700, 0.93686), abs=1e-5)


@pytest.mark.parametrize(("n", "c"), [(1, 5), (300, 2), (300, 6)])
def test_confusion_is_that_of_scikit_learn(n, c):
    _, labels = made(n, c)
    predicted = np.roll(labels, 1).astype(np.uint8)
    ours = confusion_matrix(labels, predicted, c)
    assert ours.dtype == np.int64
    assert (ours == metrics.confusion_matrix(labels, predicted, labels=range(c))).all()
    assert confusion_matrix([0], [0], 1).tolist() == [[1]]  # one class


def test_accuracy_of_each_class():
    entries = per_class_accuracy([0, 0, 0, 2, 2], [0, 1, 0, 3, 2], 4)
    assert entries == [
        {"class": 0, "n": 3, "correct": 2, "accuracy": 2 / 3},
        {"class": 1, "n": 0, "correct": 0, "accuracy": None},
        {"class": 2, "n": 2, "correct": 1, "accuracy": 1 / 2},
        {"class": 3, "n": 0, "correct": 0, "accuracy": None},
    ]
    json.dumps(entries, allow_nan=False)
    _, labels = made(300, 6)
    predicted = np.where(np.arange(300) % 3, labels, 0)
    recall = metrics.recall_score(labels, predicted, average=None)
    assert [e["accuracy"] for e in per_class_accuracy(labels, predicted, 6)] == pytest.approx(
        list(recall)
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: top_k_accuracy(np.empty((0, 3)), [], 1), "scores: no sample"),
        (lambda: top_k_accuracy([1.0, 2.0], [0], 1), "scores: shape (2,), expected (N, C)"),
        (
            lambda: top_k_accuracy(np.empty((2, 0)), [0, 0], 1),
            "scores: shape (2, 0), expected (N, C)",
        ),
        (lambda: top_k_accuracy([["a"]], [0], 1), "scores: dtype <U1, expected real numbers"),
        (
            lambda: top_k_accuracy([[1.0, 2.0]], [0, 1], 1),
            "labels: 2 of them, expected one for each of 1",
        ),
        (lambda: top_k_accuracy([[1.0, 2.0]], [[0]], 1), "labels: shape (1, 1), expected (N,)"),
        (
            lambda: top_k_accuracy([[1.0, 2.0]], [0.0], 1),
            "labels: dtype float64, expected",
        ),
        (lambda: top_k_accuracy([[1.0, 2.0]], [True], 1), "labels: dtype bool"),
        (lambda: top_k_accuracy([[1.0, 2.0]], [-1], 1), "labels: -1, expected 0 to 1"),
        (lambda: top_k_accuracy([[1.0, 2.0]], [2], 1), "labels: 2, expected 0 to 1"),
        (lambda: top_k_accuracy([[1.0, np.nan]], [0], 1), "scores: NaN"),
        (lambda: confusion_matrix([], [], 2), "labels: no sample"),
        (
            lambda: confusion_matrix([0], [0, 1], 2),
            "predicted: 2 of them, expected as many as labels, 1",
        ),
        (lambda: confusion_matrix([0], [2], 2), "predicted: 2, expected 0 to 1"),
        (
            lambda: per_class_accuracy([2**63], [0], 2),
            "labels: 9223372036854775808, expected 0 to 1",
        ),
        (lambda: per_class_accuracy([], [], 2), "labels: no sample"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    assert message in str(caught.value)


@pytest.mark.parametrize("dtype", ["timedelta64[s]", "datetime64[s]", "bool", "complex128", "U1"])
def test_only_numbers_are_scores_and_only_integers_labels(dtype):
    odd = np.zeros(3, "int64").astype(dtype)
    with pytest.raises(ValueError, match=r"labels: dtype .*, expected an integer one"):
        check_rows("logits", np.ones((3, 2)), odd)
    with pytest.raises(ValueError, match=r"logits: dtype .*, expected real numbers"):
        check_rows("logits", odd.reshape(3, 1), np.zeros(3, int))
