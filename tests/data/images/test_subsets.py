"""Reduced training sets: counts, nesting, and what does not change."""

import itertools

import numpy as np
import pytest

from marginctl.data.images.in_memory import InMemoryImages, PixelSplit
from marginctl.data.images.subsets import label_noise, long_tailed, subsample
from marginctl.errors import RequestError
from tests.data.helpers import load_in_memory

CLASSES = [400, 100, 25, 3]


def made(name, classes, x, y, test_x, test_y):
    return InMemoryImages(name, classes, PixelSplit(x, y=y), PixelSplit(test_x, y=test_y))


@pytest.fixture
def data():
    """Images whose first pixels tell their row."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(4), CLASSES))
    x = np.zeros((528, 2, 2, 1), np.uint8)
    x[:, 0, 0, 0], x[:, 0, 1, 0] = np.divmod(np.arange(528), 256)
    test = np.arange(16, dtype=np.uint8).reshape(4, 2, 2, 1)
    return made("made-up", ("a", "b", "c", "d"), x, y, test, np.arange(4))


def rows(images: InMemoryImages) -> list[int]:
    return (images.train.x[:, 0, 0, 0].astype(int) * 256 + images.train.x[:, 0, 1, 0]).tolist()


@pytest.mark.parametrize(
    ("fraction", "counts"),
    [
        (1.0, [400, 100, 25, 3]),
        (0.9, [360, 90, 22, 3]),
        (0.5, [200, 50, 12, 2]),
        (0.1, [40, 10, 2, 1]),
        (0.001, [1, 1, 1, 1]),
    ],
)
def test_a_fraction_of_each_class(data, fraction, counts):
    part = subsample(data, fraction, seed=0)
    assert np.bincount(part.train_y).tolist() == counts
    assert rows(part) == sorted(set(rows(part)))
    assert np.array_equal(part.train_y, data.train_y[rows(part)])


@pytest.mark.parametrize(
    ("size", "counts"),
    [
        (528, [400, 100, 25, 3]),
        (264, [200, 50, 13, 1]),
        (132, [100, 25, 6, 1]),
        (4, [1, 1, 1, 1]),
    ],
)
def test_a_total_size(data, size, counts):
    part = subsample(data, size=size, seed=0)
    assert len(part.train.x) == size
    assert np.bincount(part.train_y).tolist() == counts
    assert np.array_equal(part.train_y, data.train_y[rows(part)])


@pytest.mark.parametrize("seed", [0, 1])
def test_a_larger_subset_contains_the_smaller(data, seed):
    fractions = [set(rows(subsample(data, s, seed=seed))) for s in (0.01, 0.1, 0.5, 0.55, 0.9, 1.0)]
    sizes = [set(rows(subsample(data, size=n, seed=seed))) for n in (4, 5, 100, 101, 500, 528)]
    for nested in (fractions, sizes):
        assert all(a < b for a, b in itertools.pairwise(nested))


def test_the_seed_decides(data):
    a, again, other = (subsample(data, 0.5, seed=s) for s in (0, 0, 1))
    assert a.digest == again.digest
    assert a.digest != other.digest


def test_only_the_training_split_and_the_digest_change(data):
    for part in (subsample(data, 0.5, seed=0), label_noise(data, 0.5, seed=0)):
        assert part.test.x is data.test.x
        assert part.test_y is data.test_y
        assert (part.name, part.classes) == (data.name, data.classes)
        assert part.split_digests["test"] == data.split_digests["test"]
        assert part.digest != data.digest
    assert subsample(data, 1.0, seed=0).digest == data.digest
    assert label_noise(data, 0.0, seed=0).digest == data.digest


@pytest.mark.parametrize("size", [-1, 0, 3, 529])
def test_a_size_out_of_range(data, size):
    with pytest.raises(RequestError) as caught:
        subsample(data, size=size, seed=0)
    expected = f"data.subset_size = {size}: expected 4 (one of each class) .. 528"
    assert caught.value.lines == (expected,)


def test_a_fraction_and_a_size(data):
    with pytest.raises(RequestError) as caught:
        subsample(data, 0.5, size=100, seed=0)
    assert caught.value.lines == (
        "data.subset_fraction = 0.5 and data.subset_size = 100: give one of the two",
    )


@pytest.mark.parametrize(
    ("fraction", "changed"), [(0.0, 0), (0.001, 1), (0.1, 53), (0.5, 264), (0.999, 527)]
)
def test_label_noise_changes_a_fraction_of_labels(data, fraction, changed):
    before = data.train_y.copy()
    noisy = label_noise(data, fraction, seed=0)
    assert (noisy.train_y != data.train_y).sum() == changed
    assert set(noisy.train_y.tolist()) <= {0, 1, 2, 3}
    assert noisy.train_y.dtype == np.int64
    assert noisy.train.x is data.train.x
    assert np.array_equal(data.train_y, before)


def test_a_larger_fraction_changes_what_a_smaller_one_changes(data):
    some, more = (label_noise(data, f, seed=0).train_y for f in (0.2, 0.6))
    moved = some != data.train_y
    assert np.array_equal(some[moved], more[moved])


def test_every_wrong_class_is_equally_likely():
    y = np.zeros(9000, np.int64)
    x = np.zeros((9000, 1, 1, 1), np.uint8)
    images = made("zeros", ("a", "b", "c", "d"), x, y, x[:1], y[:1])
    counts = np.bincount(label_noise(images, 0.999, seed=0).train_y)
    assert counts[0] == 9
    assert np.abs(counts[1:] - 2997).max() < 4 * 2997**0.5


def test_label_noise_with_two_seeds(data):
    a, again, other = (label_noise(data, 0.3, seed=s) for s in (0, 0, 1))
    assert a.digest == again.digest
    assert a.digest != other.digest


def test_label_noise_needs_two_classes():
    x, y = np.zeros((3, 1, 1, 1), np.uint8), np.zeros(3, np.int64)
    with pytest.raises(RequestError) as caught:
        label_noise(made("one", ("a",), x, y, x, y), 0.5, seed=0)
    assert caught.value.lines == ("data.label_noise of one: 1 class: expected at least 2 classes",)


def test_reduced_digits(tmp_path):
    digits = load_in_memory("digits", tmp_path)
    part = label_noise(subsample(digits, 0.5, seed=0), 0.2, seed=0)
    assert len(part.train_y) == 718
    assert len(part.test_y) == 360
    clean = subsample(digits, 0.5, seed=0)
    assert (part.train_y != clean.train_y).sum() == 144


def balanced(classes, each):
    """Images of one pixel, equally many of each class, in random order."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(classes), each))
    x = np.zeros((len(y), 1, 1, 1), np.uint8)
    names = tuple(f"c{c}" for c in range(classes))
    return made("made-up", names, x, y, x[:classes], np.arange(classes))


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


def test_long_tails_are_nested_and_keep_the_test_split(data):
    sizes = [(1, 1), (10, 3), (50, 20), (50, 100), (100, 100)]
    found = {s: set(rows(long_tailed(data, s[0], max_per_class=s[1], seed=0))) for s in sizes}
    assert found[50, 20] < found[50, 100] > found[100, 100]
    assert found[1, 1] < found[10, 3] < found[100, 100]
    selected = rows(long_tailed(data, 100, seed=0))  # the smallest class has 3
    assert selected == sorted(selected)
    assert np.bincount(data.train_y[selected]).tolist() == [3, 1, 1, 1]
    assert found[100, 100] != set(rows(long_tailed(data, 100, max_per_class=100, seed=1)))
    part = long_tailed(data, 100, max_per_class=100, seed=0)
    assert np.bincount(part.train_y).tolist() == [100, 21, 4, 1]
    assert part.test.x is data.test.x
    assert part.split_digests["test"] == data.split_digests["test"]
    assert (
        len({part.digest, data.digest, long_tailed(data, 50, max_per_class=100, seed=0).digest})
        == 3
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"imbalance_factor": 2, "max_per_class": 100},
            "data.max_per_class = 100: class 2 ('c') of made-up has 25 training images, and the "
            "long tail needs 62: make it smaller",
        ),
    ],
)
def test_an_impossible_long_tail(data, options, expected):
    with pytest.raises(RequestError) as caught:
        long_tailed(data, **options, seed=0)
    (line,) = caught.value.lines
    assert line == expected
