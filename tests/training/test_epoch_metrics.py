"""The records of an epoch."""

import pytest
import torch

from marginctl.training.epoch_metrics import accuracy_record
from marginctl.training.trainer import Predictions


@pytest.mark.parametrize(
    ("predicted", "labels", "collapsed"),
    [
        ([1, 1, 1], [1, 1, 1], False),  # the test images are of one class
        ([0, 0, 0], [1, 1, 1], True),
        ([1, 1, 1], [1, 0, 1], True),
        ([1, 0, 1], [1, 1, 1], False),
        ([0], [0], False),
    ],
)
def test_a_constant_prediction_is_collapsed_unless_it_is_right(predicted, labels, collapsed):
    scores = torch.eye(2)[predicted]
    predictions = Predictions(scores, scores, scores, torch.tensor(labels))
    assert accuracy_record(predictions)["collapsed"] is collapsed
