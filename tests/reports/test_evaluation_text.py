"""The lines of `eval`: long-tailed groups and verification."""

import numpy as np

from marginctl.metrics.long_tail import long_tail_accuracy
from marginctl.metrics.verification import verification_metrics
from marginctl.reports.evaluation_text import long_tail_lines, verification_lines


def test_an_empty_group_of_classes_shows_its_reason():
    record = long_tail_accuracy(np.array([500, 5]), np.array([0, 1]), np.array([0, 1]))
    many, medium, few = long_tail_lines(record)
    classes = "1 of 2 classes have more than 100 training images; n = 1"
    assert many == f"many-shot   100.00 %  ({classes})"
    assert medium == "medium-shot no class with 20 to 100 training images"
    assert few.startswith("few-shot    100.00 %")


def test_rates_without_enough_pairs_share_a_line():
    scores, same = np.array([0.9, 0.8, 0.1]), np.array([True, True, False])
    metrics = verification_metrics(scores, same, np.zeros(3, np.int64), 5)
    lines = verification_lines({**metrics, "name": "p.txt", "images": 5, "folds_from": "order"})
    assert lines[0] == "p.txt: 2 pairs of one identity, 1 of two, 5 images"
    assert lines[-2:] == [
        "  no accuracy: 1 pair of a kind: no two folds",
        "  no TAR at FAR 0.1, 0.01, 0.001, 0.0001: 1 pair of two identities: fewer than one at "
        "this rate",
    ]
