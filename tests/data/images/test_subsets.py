"""Fewer images and wrong labels: counts, nesting, and what stays as it was."""

import itertools

import numpy as np
import pytest

from marginctl.data.images.in_memory import InMemoryImages, load_in_memory
from marginctl.data.images.subsets import label_noise, long_tailed, subsample
from marginctl.errors import RequestError

CLASSES = [400, 100, 25, 3]


@pytest.fixture
def data():
    """Images whose first pixels tell their row."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(4), CLASSES))
    x = np.zeros((528, 2, 2, 1), np.uint8)
    x[:, 0, 0, 0], x[:, 0, 1, 0] = np.divmod(np.arange(528), 256)
    test = np.arange(16, dtype=np.uint8).reshape(4, 2, 2, 1)
    return InMemoryImages("made-up", x, y, test, np.arange(4), ("a", "b", "c", "d"))


def rows(images: InMemoryImages) -> list[int]:
    return (images.train_x[:, 0, 0, 0].astype(int) * 256 + images.train_x[:, 0, 1, 0]).tolist()


@pytest.mark.parametrize(
    ("share", "counts"),
    [
        (1.0, [400, 100, 25, 3]),
        (0.9, [360, 90, 22, 3]),
        (0.5, [200, 50, 12, 2]),
        (0.1, [40, 10, 2, 1]),
        (0.001, [1, 1, 1, 1]),
    ],
)
def test_a_share_of_each_class(data, share, counts):
    part = subsample(data, share, seed=0)
    assert np.bincount(part.train_y).tolist() == counts
    assert rows(part) == sorted(set(rows(part)))
    assert np.array_equal(part.train_y, data.train_y[rows(part)])


@pytest.mark.parametrize(
    ("count", "counts"),
    [
        (528, [400, 100, 25, 3]),
        (264, [200, 50, 13, 1]),
        (132, [100, 25, 6, 1]),
        (4, [1, 1, 1, 1]),
    ],
)
def test_a_count_in_all(data, count, counts):
    part = subsample(data, count=count, seed=0)
    assert len(part.train_x) == count
    assert np.bincount(part.train_y).tolist() == counts
    assert np.array_equal(part.train_y, data.train_y[rows(part)])


@pytest.mark.parametrize("seed", [0, 1])
def test_a_larger_part_contains_the_smaller(data, seed):
    shares = [set(rows(subsample(data, s, seed=seed))) for s in (0.01, 0.1, 0.5, 0.55, 0.9, 1.0)]
    counts = [set(rows(subsample(data, count=n, seed=seed))) for n in (4, 5, 100, 101, 500, 528)]
    for nested in (shares, counts):
        assert all(a < b for a, b in itertools.pairwise(nested))


def test_the_seed_decides(data):
    a, again, other = (subsample(data, 0.5, seed=s) for s in (0, 0, 1))
    assert a.digest == again.digest
    assert a.digest != other.digest


def test_only_the_training_part_and_the_digest_change(data):
    for part in (subsample(data, 0.5, seed=0), label_noise(data, 0.5, seed=0)):
        assert part.test_x is data.test_x
        assert part.test_y is data.test_y
        assert (part.name, part.classes) == (data.name, data.classes)
        assert part.split_digests["test"] == data.split_digests["test"]
        assert part.digest != data.digest
    assert subsample(data, 1.0, seed=0).digest == data.digest
    assert label_noise(data, 0.0, seed=0).digest == data.digest


@pytest.mark.parametrize("share", [0, -0.1, 1.01, float("nan"), float("inf")])
def test_a_share_out_of_range(data, share):
    with pytest.raises(RequestError) as caught:
        subsample(data, share, seed=0)
    expected = f"subsample: share = {share}: expected above 0, at most 1"
    assert caught.value.lines == (expected,)


@pytest.mark.parametrize("count", [-1, 0, 3, 529])
def test_a_count_out_of_range(data, count):
    with pytest.raises(RequestError) as caught:
        subsample(data, count=count, seed=0)
    expected = f"subsample: count = {count}: expected 4 (one of each class) .. 528"
    assert caught.value.lines == (expected,)


def test_a_share_and_a_count(data):
    with pytest.raises(RequestError) as caught:
        subsample(data, 0.5, count=100, seed=0)
    assert caught.value.lines == (
        "subsample: share = 0.5 and count = 100: expected one of the two",
    )


@pytest.mark.parametrize(
    ("share", "moved"), [(0.0, 0), (0.001, 1), (0.1, 53), (0.5, 264), (0.999, 527)]
)
def test_noise_moves_so_many_labels(data, share, moved):
    before = data.train_y.copy()
    noisy = label_noise(data, share, seed=0)
    assert (noisy.train_y != data.train_y).sum() == moved
    assert set(noisy.train_y.tolist()) <= {0, 1, 2, 3}
    assert noisy.train_y.dtype == np.int64
    assert noisy.train_x is data.train_x
    assert np.array_equal(data.train_y, before)


def test_a_larger_share_moves_what_the_smaller_moves(data):
    some, more = (label_noise(data, share, seed=0).train_y for share in (0.2, 0.6))
    moved = some != data.train_y
    assert np.array_equal(some[moved], more[moved])


def test_every_wrong_class_is_equally_likely():
    y = np.zeros(9000, np.int64)
    x = np.zeros((9000, 1, 1, 1), np.uint8)
    images = InMemoryImages("zeros", x, y, x[:1], y[:1], ("a", "b", "c", "d"))
    counts = np.bincount(label_noise(images, 0.999, seed=0).train_y)
    assert counts[0] == 9
    assert np.abs(counts[1:] - 2997).max() < 4 * 2997**0.5


def test_noise_of_two_seeds(data):
    a, again, other = (label_noise(data, 0.3, seed=s) for s in (0, 0, 1))
    assert a.digest == again.digest
    assert a.digest != other.digest


@pytest.mark.parametrize("share", [-0.1, 1, 2, float("nan")])
def test_a_noise_out_of_range(data, share):
    with pytest.raises(RequestError) as caught:
        label_noise(data, share, seed=0)
    expected = f"label noise: share = {share}: expected 0 or more, below 1"
    assert caught.value.lines == (expected,)


def test_noise_needs_a_wrong_class():
    x, y = np.zeros((3, 1, 1, 1), np.uint8), np.zeros(3, np.int64)
    with pytest.raises(RequestError) as caught:
        label_noise(InMemoryImages("one", x, y, x, y, ("a",)), 0.5, seed=0)
    assert caught.value.lines == (
        "label noise: 1 class: expected 2 or more, there is no wrong class",
    )


def test_the_digits_degenerated(tmp_path):
    digits = load_in_memory("digits", tmp_path)
    part = label_noise(subsample(digits, 0.5, seed=0), 0.2, seed=0)
    assert len(part.train_y) == 718
    assert len(part.test_y) == 360
    clean = subsample(digits, 0.5, seed=0)
    assert (part.train_y != clean.train_y).sum() == 144


def balanced(classes, each):
    """So many images of each class, of one pixel, in an order of their own."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(classes), each))
    x = np.zeros((len(y), 1, 1, 1), np.uint8)
    names = tuple(f"c{c}" for c in range(classes))
    return InMemoryImages("made-up", x, y, x[:classes], np.arange(classes), names)


@pytest.mark.parametrize(
    ("classes", "each", "imbalance", "number", "last"),
    [  # CIFAR-100-LT and CIFAR-10-LT as they are in use (Cao et al. 2019)
        (100, 500, 100, 10_847, 5),
        (100, 500, 50, 12_608, 10),
        (100, 500, 10, 19_573, 50),
        (10, 5000, 100, 12_406, 50),
        (10, 5000, 10, 20_431, 500),
        (3, 7, 1, 21, 7),
        (2, 5, 1e6, 6, 1),  # one image is left, whatever the tail
    ],
)
def test_the_counts_of_a_long_tail(classes, each, imbalance, number, last):
    part = long_tailed(balanced(classes, each), imbalance, seed=0)
    counts = np.bincount(part.train_y).tolist()
    assert (sum(counts), counts[0], counts[-1]) == (number, each, last)
    exact = [each * imbalance ** (-c / (classes - 1)) for c in range(classes)]
    assert all(n == max(1, int(e + 1e-9)) for n, e in zip(counts, exact, strict=True))


def test_a_long_tail_is_nested_and_the_test_part_stays(data):
    sizes = [(1, 1), (10, 3), (50, 20), (50, 100), (100, 100)]
    found = {s: set(rows(long_tailed(data, s[0], largest=s[1], seed=0))) for s in sizes}
    assert found[50, 20] < found[50, 100] > found[100, 100]
    assert found[1, 1] < found[10, 3] < found[100, 100]
    kept = rows(long_tailed(data, 100, seed=0))  # the smallest class has 3
    assert kept == sorted(kept)
    assert np.bincount(data.train_y[kept]).tolist() == [3, 1, 1, 1]
    assert found[100, 100] != set(rows(long_tailed(data, 100, largest=100, seed=1)))
    part = long_tailed(data, 100, largest=100, seed=0)
    assert np.bincount(part.train_y).tolist() == [100, 21, 4, 1]
    assert part.test_x is data.test_x
    assert part.split_digests["test"] == data.split_digests["test"]
    assert len({part.digest, data.digest, long_tailed(data, 50, largest=100, seed=0).digest}) == 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"imbalance": 0.5}, "long tail: imbalance = 0.5: expected 1 or more"),
        ({"imbalance": float("nan")}, "long tail: imbalance = nan: expected 1 or more"),
        ({"imbalance": 2, "largest": 0}, "long tail: largest = 0: expected 1 or more"),
        (
            {"imbalance": 2, "largest": 100},
            "data.max_per_class = 100: class 2 ('c') of made-up has 25 training "
            "images, and the long "
            "tail asks for 62: make 'largest' smaller",
        ),
    ],
)
def test_a_long_tail_that_cannot_be(data, options, expected):
    with pytest.raises(RequestError) as caught:
        long_tailed(data, **options, seed=0)
    (line,) = caught.value.lines
    assert line == expected
