"""Isotonic regression and histogram binning against scikit-learn and counts by hand."""

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from marginctl.calibration import binning
from marginctl.calibration.methods import METHODS
from marginctl.calibration.outputs import Outputs
from tests.calibration.factories import noisy, with_probabilities


def fitted(name, outputs, bins=15):
    return METHODS[name].fit(outputs, bins)


def probabilities(p, labels):
    return Outputs("p", "probabilities", np.array(p, float), np.array(labels))


def test_isotonic_one_versus_rest_is_scikit_learns_over_its_sum():
    fit_on, test = (
        with_probabilities(noisy(400, 4, 3)),
        with_probabilities(noisy(300, 4, 3, seed=1)),
    )
    predictions = METHODS["isotonic"].apply(fitted("isotonic", fit_on).parameters, test)
    theirs = np.stack(
        [
            IsotonicRegression(out_of_bounds="clip")
            .fit(fit_on.values[:, c], fit_on.labels == c)
            .predict(test.values[:, c])
            for c in range(4)
        ],
        axis=1,
    )
    np.testing.assert_allclose(
        predictions.probabilities, theirs / theirs.sum(1, keepdims=True), atol=1e-12
    )
    np.testing.assert_array_equal(predictions.classes, theirs.argmax(1))


def test_equal_confidences_get_the_mean_and_the_map_does_not_fall():
    p, positive = np.array([0.5, 0.5, 0.5, 0.9, 0.7]), np.array([True, False, False, False, True])
    found = binning.fit_line(p, positive)
    assert binning.interpolate(found, np.array([0.5]))[0] == pytest.approx(1 / 3)
    values = binning.interpolate(found, np.linspace(0, 1, 101))
    assert (np.diff(values) >= -1e-15).all()
    assert binning.interpolate(found, np.array([0.0, 1.0])) == pytest.approx([1 / 3, 0.5])


def test_histogram_bins_hold_shares_and_edges_end_them():
    p = [[0.5, 0.5], [0.25, 0.75], [1, 0], [0, 1], [0.3, 0.7]]
    found = fitted("histogram", probabilities(p, [0, 0, 0, 1, 1]), 2).parameters["maps"]
    # of class 0 in [0, 0.5]: 0.5 yes, 0.25 yes, 0 no, 0.3 no; in (0.5, 1]: 1 yes
    assert found == [{"y": [0.5, 1.0]}, {"y": [0.0, 2 / 3]}]
    predictions = METHODS["histogram"].apply({"maps": found}, probabilities([[0.4, 0.6]], [0]))
    assert predictions.probabilities[0] == pytest.approx(
        [0.5 / (0.5 + 2 / 3), 2 / 3 / (0.5 + 2 / 3)]
    )
    assert predictions.classes.tolist() == [1]


def test_an_empty_bin_keeps_a_probability():
    outputs = probabilities([[0.95, 0.05], [0.91, 0.09]], [0, 1])
    functions = METHODS["histogram"].fit(outputs, 10).parameters["maps"]
    assert functions == [{"y": [None] * 9 + [0.5]}, {"y": [0.5] + [None] * 9}]
    assert binning.binned(functions[0], np.array([0.8, 0.99])).tolist() == [0.8, 0.5]


def test_a_row_without_any_probability_keeps_its_own():
    parameters = {"maps": [{"y": [0.0]}, {"y": [0.0]}]}
    predictions = METHODS["histogram"].apply(parameters, probabilities([[0.8, 0.2]], [0]))
    assert predictions.probabilities.tolist() == [[0.8, 0.2]]


def test_absent_classes_are_noted():
    fit = fitted("isotonic", probabilities([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]], [0, 1]))
    assert fit.note == "1 of 3 classes have no samples: their function is 0"
    assert binning.interpolate(fit.parameters["maps"][2], np.array([0.1, 0.9])).tolist() == [0, 0]


@pytest.mark.parametrize("name", list(METHODS))
@pytest.mark.parametrize("c", [2, 5])
def test_every_method_gives_distributions(name, c):
    for outputs in (noisy(80, c), with_probabilities(noisy(80, c))):
        predictions = METHODS[name].apply(fitted(name, outputs).parameters, outputs)
        assert ((predictions.confidence >= 0) & (predictions.confidence <= 1)).all()
        np.testing.assert_allclose(predictions.probabilities.sum(1), 1, rtol=1e-12)
        picked = predictions.probabilities[np.arange(80), predictions.classes]
        np.testing.assert_array_equal(picked, predictions.confidence)
        np.testing.assert_allclose(picked, predictions.probabilities.max(1), rtol=1e-12)
