"""Splits: every sample in one part, every class in both, by its share."""

import numpy as np
import pytest

from marginctl.calibration.benchmark import split
from marginctl.calibration.outputs import Outputs
from marginctl.errors import RequestError


def outputs_of(labels):
    labels = np.array(labels)
    return Outputs("o", "logits", np.zeros((len(labels), labels.max() + 1)), labels)


@pytest.mark.parametrize("share", [0.1, 1 / 3, 0.5, 0.9])
def test_parts_and_classes_by_their_share(share):
    labels = np.repeat(np.arange(6), [100, 57, 31, 20, 200, 1])
    outputs = outputs_of(np.random.default_rng(0).permutation(labels))
    for repeat in range(20):
        fit, test = split(outputs, share, 3, repeat)
        np.testing.assert_array_equal(np.sort(np.r_[fit, test]), np.arange(len(labels)))
        assert abs(len(fit) - share * len(labels)) < 1
        for c, n in enumerate(np.bincount(labels)):
            assert abs((outputs.labels[fit] == c).sum() - share * n) < 1


def test_a_split_has_its_seed_and_its_number():
    outputs = outputs_of(np.arange(300) % 3)
    first = split(outputs, 0.5, 0, 0)[0].tolist()
    assert split(outputs, 0.5, 0, 0)[0].tolist() == first
    assert split(outputs, 0.5, 0, 1)[0].tolist() != first
    assert split(outputs, 0.5, 1, 0)[0].tolist() != first
    assert len({r for i in range(20) for r in split(outputs, 0.5, 0, i)[0]}) == 300


@pytest.mark.parametrize(("labels", "share"), [([0, 1], 0.5), ([0, 1, 1, 1], 0.25), ([0, 1], 0.99)])
def test_too_few(labels, share):
    def many():
        for repeat in range(50):
            split(outputs_of(labels), share, 0, repeat)

    with pytest.raises(RequestError, match=r"o: \d samples at --split"):
        many()
