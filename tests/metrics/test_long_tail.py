"""Accuracy of many-, medium- and few-shot classes, against a count by hand."""

import numpy as np
import pytest
from sklearn.metrics import recall_score

from marginctl.metrics.long_tail import class_groups, long_tail_accuracy


def test_the_limits_are_those_of_liu_et_al():
    counts = [101, 100, 20, 19, 0, 5000]
    found = {name: classes.tolist() for name, classes in class_groups(counts).items()}
    assert found == {"many": [0, 5], "medium": [1, 2], "few": [3, 4]}


@pytest.mark.parametrize("seed", range(5))
def test_every_group_has_the_mean_over_its_test_images_and_over_its_classes(seed):
    stream = np.random.default_rng(seed)
    counts = stream.integers(1, 300, size=12)
    counts[:3] = 5, 50, 500
    labels, predicted = stream.integers(12, size=(2, 400))
    record = long_tail_accuracy(counts, labels, predicted)
    limits = {"many": (101, 10**9), "medium": (20, 100), "few": (0, 19)}
    for name, (low, high) in limits.items():
        right = n = 0
        for label, other in zip(labels, predicted, strict=True):
            if low <= counts[label] <= high:
                n, right = n + 1, right + (label == other)
        own = sum(low <= count <= high for count in counts)
        classes = [c for c in np.unique(labels) if low <= counts[c] <= high]
        mean = recall_score(labels, predicted, labels=classes, average="macro")
        assert record[name] == {
            "accuracy": right / n,
            "mean_class_accuracy": pytest.approx(mean, abs=1e-15),
            "classes": own,
            "images": n,
        }
    assert record["reasons"] == {}
    assert sum(record[name]["images"] for name in limits) == 400


def test_an_empty_group_is_null_with_its_reason():
    record = long_tail_accuracy(np.array([500, 5, 50]), np.array([0, 0, 1]), np.array([0, 1, 0]))
    both = {"accuracy": 0.5, "mean_class_accuracy": 0.5}
    assert record["many"] == both | {"classes": 1, "images": 2}
    assert record["few"]["accuracy"] == record["few"]["mean_class_accuracy"] == 0
    assert record["medium"] == dict.fromkeys(both) | {"classes": 1, "images": 0}
    why = "no test image of a class with 20 to 100 training images"
    assert record["reasons"] == {"medium": why}
    two = long_tail_accuracy(np.array([500, 5]), np.array([0, 1]), np.array([0, 1]))
    assert two["reasons"] == {"medium": "no class with 20 to 100 training images"}


def test_a_class_counts_once_however_many_test_images_it_has():
    """Three classes of one group: one with four images, one with one, one without any."""
    labels, predicted = np.array([0, 0, 0, 0, 1, 3]), np.array([0, 0, 0, 1, 0, 3])
    record = long_tail_accuracy(np.array([500, 200, 300, 7]), labels, predicted)
    assert (record["many"]["accuracy"], record["many"]["classes"]) == (3 / 5, 3)
    assert record["many"]["mean_class_accuracy"] == (3 / 4 + 0) / 2


def test_a_single_group_gives_none():
    assert long_tail_accuracy(np.array([500, 101]), np.array([0, 1]), np.array([0, 1])) is None
