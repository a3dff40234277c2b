"""Scores against the plain functions; intervals against bootstrap samples written out."""

import numpy as np
import pytest

from marginctl.calibration import scores as module
from marginctl.calibration.outputs import from_probabilities, uncalibrated
from marginctl.calibration.scores import METRICS, bootstrap_weights, score
from marginctl.metrics import calibration_error, scoring_rules
from tests.calibration.factories import noisy, with_probabilities


def test_numbers_are_those_of_the_plain_functions():
    outputs = noisy(300, 4, 3)
    found = score(uncalibrated(outputs), outputs.labels, 15)
    p = scoring_rules.softmax(outputs.values)
    diagram = calibration_error.reliability(p, outputs.labels, 15)
    assert found.reliability == diagram
    assert found.values["accuracy"] == pytest.approx(diagram.accuracy)
    assert found.values["ece"] == pytest.approx(diagram.ece, rel=1e-12)
    assert found.values["mce"] == pytest.approx(diagram.mce, rel=1e-12)
    assert found.values["nll"] == pytest.approx(scoring_rules.nll(outputs.values, outputs.labels))
    assert found.values["brier"] == pytest.approx(scoring_rules.brier(p, outputs.labels))
    assert set(found.values) == set(METRICS)
    assert (found.intervals, found.reasons) == ({}, {})
    of_p = with_probabilities(outputs)
    same = score(uncalibrated(of_p), of_p.labels, 15)
    assert same.values == pytest.approx(found.values, rel=1e-9)


def test_intervals_are_quantiles_of_resampled_numbers(monkeypatch):
    outputs = noisy(80, 3, 3)
    p = scoring_rules.softmax(outputs.values)
    found = score(uncalibrated(outputs), outputs.labels, 10, 200, 5)
    draws = np.concatenate(list(bootstrap_weights(80, 200, 5)))
    assert draws.shape == (200, 80)
    assert (draws.sum(axis=1) == 80).all()
    each = {"accuracy": [], "ece": [], "mce": [], "nll": [], "brier": []}
    for draw in draws.astype(int):
        rows = np.repeat(np.arange(80), draw)
        diagram = calibration_error.reliability(p[rows], outputs.labels[rows], 10)
        each["accuracy"].append(diagram.accuracy)
        each["ece"].append(diagram.ece)
        each["mce"].append(diagram.mce)
        each["nll"].append(scoring_rules.nll(outputs.values[rows], outputs.labels[rows]))
        each["brier"].append(scoring_rules.brier(p[rows], outputs.labels[rows]))
    for name, values in each.items():
        assert found.intervals[name] == pytest.approx(np.quantile(values, [0.025, 0.975]))
    assert (
        found.intervals["accuracy"][0] < found.values["accuracy"] < found.intervals["accuracy"][1]
    )
    monkeypatch.setattr(module, "_BLOCK_SIZE", 100)  # in blocks of one draw
    again = score(uncalibrated(outputs), outputs.labels, 10, 200, 5).intervals
    for name, ends in found.intervals.items():
        assert again[name] == pytest.approx(ends)


def test_a_label_of_probability_0_has_no_nll():
    predictions = from_probabilities(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    found = score(predictions, np.array([0, 1, 1]), 15, 10)
    assert found.values["nll"] is None
    assert found.reasons["nll"] == "infinite: 1 of 3 labels have probability 0"
    assert found.values["brier"] == pytest.approx(2 / 3)
    assert found.values["ece"] == pytest.approx(1 / 3)
    right = score(predictions, np.array([0, 0, 1]), 15, 10)
    assert right.values["nll"] == 0
    assert right.intervals["nll"] == (0, 0)
