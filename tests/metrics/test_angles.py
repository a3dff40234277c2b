"""Angles against slow loops and against figures whose angles are known."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginctl.metrics import arrays
from marginctl.metrics.angles import compute_angles, histogram, mean_bias

NUMBERS = [
    *("w_inter", "w_inter_nearest", "c_inter_centers", "c_inter_centers_nearest"),
    *("c_inter_weights", "c_inter_unit_weights", "wc_intra", "intra_weight", "intra_center"),
]


def made(n, c, d, dtype=np.float64):
    stream = np.random.default_rng([n, c, d])
    x, w = stream.normal(size=(n, d)).astype(dtype), stream.normal(size=(c, d)).astype(dtype)
    return x, stream.integers(0, c, n), w


def angle(a, b):
    a, b = [float(v) for v in a], [float(v) for v in b]
    cosine = math.fsum(p * q for p, q in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))


def mean(values):
    values = list(values)
    return math.fsum(values) / len(values) if values else None


def slow(x, y, w):
    """The numbers by the definitions, a pair at a time; zeros and empty classes left out."""
    classes = range(len(w))
    own = {j: [x[i] for i in range(len(x)) if y[i] == j] for j in classes}
    center = {
        j: [math.fsum(float(v[k]) for v in own[j]) / len(own[j]) for k in range(x.shape[1])]
        for j in classes
        if own[j]
    }
    center = {j: c for j, c in center.items() if any(c)}
    weight = {j: w[j] for j in classes if w[j].any()}
    lengths = [math.sqrt(math.fsum(float(v) ** 2 for v in row)) or 1.0 for row in x]
    unit_center = {
        j: [
            math.fsum(float(x[i][k]) / lengths[i] for i in range(len(x)) if y[i] == j)
            for k in range(x.shape[1])
        ]
        for j in classes
        if own[j]
    }
    unit_center = {j: c for j, c in unit_center.items() if any(c)}
    unit_both = [j for j in unit_center if j in weight]

    def pairs(a, b, keys):
        return mean(angle(a[i], b[j]) for i in keys for j in keys if i != j)

    def nearest(a):
        smallest = [[angle(a[i], a[j]) for j in a if i != j] for i in a]
        return mean(min(s) for s in smallest) if len(a) > 1 else None

    both = [j for j in center if j in weight]
    there = [i for i in range(len(x)) if x[i].any()]
    return {
        "w_inter": pairs(weight, weight, weight),
        "w_inter_nearest": nearest(weight),
        "c_inter_centers": pairs(center, center, center),
        "c_inter_centers_nearest": nearest(center),
        "c_inter_weights": pairs(center, weight, both),
        "c_inter_unit_weights": pairs(unit_center, weight, unit_both),
        "wc_intra": mean(angle(center[j], weight[j]) for j in both),
        "intra_weight": mean(angle(x[i], weight[y[i]]) for i in there if y[i] in weight),
        "intra_center": mean(angle(x[i], center[y[i]]) for i in there if y[i] in center),
    }


def numbers(measured):
    return {name: measured[name] for name in NUMBERS}


def same(ours, theirs):
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        assert ours[name] == (None if value is None else pytest.approx(value, abs=1e-5)), name


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "c", "d"), [(80, 2, 3), (120, 7, 5), (1, 2, 2), (40, 30, 4)])
def test_angles_equal_their_definitions(n, c, d, dtype):
    x, y, w = made(n, c, d, dtype)
    measured = compute_angles(x, y, w)
    same(numbers(measured), slow(x, y, w))
    assert measured["empty_classes"] == c - len(set(y.tolist()))
    assert (measured["samples"], measured["classes"], sum(measured["histogram"])) == (n, c, n)


def test_vectors_without_direction_are_skipped_and_counted():
    x, y, w = made(60, 6, 4)
    x[y == 1] = 0  # a center of zero
    x[::7] = 0
    w[4] = 0
    y[y == 5] = 0  # an empty class
    measured = compute_angles(x, y, w)
    same(numbers(measured), slow(x, y, w))
    assert measured["zero_features"] == int((~x.any(axis=1)).sum()) > 0
    for counted in ("empty_classes", "zero_centers", "zero_weights"):
        assert measured[counted] == 1
    assert sum(measured["histogram"]) == int((x.any(axis=1) & (y != 4)).sum())
    assert measured["reasons"] == {}


def test_features_of_zero_do_not_move_a_center():
    x, y, w = made(30, 3, 4)
    more = compute_angles(np.vstack([x, np.zeros((3, 4))]), [*y, 0, 1, 2], w)
    assert more | {"samples": 30, "zero_features": 0} == compute_angles(x, y, w)


def test_known_figures():
    """Weights of a square, features on them: 90, 180 and 90 degrees apart."""
    w = np.array([[1.0, 0], [0, 2], [-3, 0], [0, -4]])
    measured = compute_angles(5 * w, [0, 1, 2, 3], w)
    assert measured["w_inter"] == pytest.approx(120)
    assert measured["w_inter_nearest"] == pytest.approx(90)
    assert measured["c_inter_centers"] == measured["c_inter_weights"] == pytest.approx(120)
    assert (measured["wc_intra"], measured["intra_weight"], measured["intra_center"]) == (0, 0, 0)
    assert measured["histogram"] == [4, *[0] * 179]
    turned = compute_angles(w, [2, 3, 0, 1], w)
    assert (turned["wc_intra"], turned["intra_weight"], turned["histogram"][179]) == (180, 180, 4)
    ten = compute_angles(np.eye(10), np.arange(10), np.eye(10) - 0.1)  # a simplex: arccos(-1/9)
    assert ten["w_inter"] == pytest.approx(math.degrees(math.acos(-1 / 9)))
    assert ten["c_inter_centers"] == pytest.approx(90)


def test_small_angles_are_exact():
    t = 1e-9
    measured = compute_angles([[math.cos(t), math.sin(t)]], [0], [[1.0, 0.0]])
    assert measured["intra_weight"] == pytest.approx(math.degrees(t), rel=1e-7)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e307])
def test_lengths_do_not_matter(scale):
    x, y, w = made(40, 4, 3)
    same(numbers(compute_angles(x * scale, y, w / scale)), slow(x, y, w))


def test_the_block_size_changes_nothing(monkeypatch):
    x, y, w = made(70, 9, 5)
    logits = x @ w.T
    whole, bias = compute_angles(x, y, w), mean_bias(logits, y)
    monkeypatch.setattr(arrays, "BLOCK_SIZE", 20)
    parts = compute_angles(x, y, w)
    same(numbers(parts), numbers(whole))
    assert parts["histogram"] == whole["histogram"]
    assert mean_bias(logits, y) == pytest.approx(bias, rel=1e-13)


def test_one_class_has_no_pairs():
    record = compute_angles([[1.0, 1.0], [1.0, -1.0]], [0, 0], [[2.0, 0.0]])
    json.dumps(record, allow_nan=False)
    assert record["unit"] == "degrees"
    assert record["w_inter"] is None
    assert record["reasons"]["w_inter"] == "fewer than two classes with a weight"
    assert set(record["reasons"]) == {n for n in NUMBERS if "inter" in n}
    assert record["wc_intra"] == 0
    assert record["intra_weight"] == record["intra_center"] == pytest.approx(45)
    assert len(record["histogram"]) == 180


def test_zero_vectors_have_no_angles():
    measured = compute_angles(np.zeros((2, 3)), [0, 1], np.zeros((2, 3)))
    assert numbers(measured) == dict.fromkeys(NUMBERS)
    assert set(measured["reasons"]) == set(NUMBERS)
    for counted in ("zero_features", "zero_centers", "zero_weights"):
        assert measured[counted] == 2
    json.dumps(measured, allow_nan=False)


def test_a_center_that_cancels_has_no_direction():
    third = 2 * math.pi / 3
    x = [[math.cos(k * third), math.sin(k * third)] for k in range(3)]
    assert np.sum(x, axis=0).any()  # rounding
    measured = compute_angles(x, [0, 0, 0], [[1.0, 0.0], [0.0, 1.0]])
    assert (measured["zero_centers"], measured["empty_classes"]) == (1, 1)
    assert measured["intra_center"] is None
    assert measured["intra_weight"] == pytest.approx(80)


@given(st.lists(st.one_of(st.integers(0, 180).map(float), st.floats(0, 180)), max_size=20))
def test_the_histogram_is_that_of_numpy(degrees):
    counts = histogram(degrees)
    assert counts.dtype == np.int64
    assert (counts == np.histogram(degrees, bins=np.arange(181))[0]).all()


def test_the_edges_of_the_histogram():
    assert histogram([0, 1, math.nextafter(1, 0), 179, 180])[[0, 1, 179]].tolist() == [2, 1, 2]


@pytest.mark.parametrize(("n", "c"), [(1, 2), (60, 2), (60, 9)])
def test_mean_bias_is_that_of_a_loop(n, c):
    stream = np.random.default_rng(c)
    logits, labels = stream.normal(size=(n, c)) * 3, stream.integers(0, c, n)
    rho = []
    for f, y in zip(logits, labels, strict=True):
        others = [a for k, a in enumerate(f) if k != y]
        rho.append(math.log(math.fsum(math.exp(a - max(others)) for a in others)))
    assert mean_bias(logits, labels) == pytest.approx(mean(rho), rel=1e-13, abs=1e-15)
    small = logits.astype(np.float32)
    assert mean_bias(small, labels) == pytest.approx(mean(rho), rel=1e-5, abs=1e-15)


def test_mean_bias_at_the_ends():
    assert mean_bias(np.zeros((3, 11)), [0, 5, 10]) == pytest.approx(math.log(10), rel=1e-15)
    assert mean_bias([[1e30, -1e30, 1e30, 1e30]], [0]) == pytest.approx(math.log(2), rel=1e-15)
    assert mean_bias([[0.0, 1e308, -1e308]], [0]) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compute_angles([[1.0]], [1], [[1.0]]), "labels: 1, expected 0 to 0"),
        (
            lambda: compute_angles([[1.0]], [0, 0], [[1.0]]),
            "labels: 2 of them, expected one for each",
        ),
        (lambda: compute_angles([[np.nan]], [0], [[1.0]]), "features: NaN or infinite"),
        (lambda: compute_angles([[1.0]], [0], [[-np.inf]]), "weights: NaN or infinite"),
        (lambda: mean_bias(np.empty((0, 3)), []), "logits: no sample"),
        (lambda: mean_bias([[1.0, np.nan]], [0]), "logits: NaN or infinite"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    assert message in str(caught.value)
