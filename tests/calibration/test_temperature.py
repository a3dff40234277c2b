"""The temperature against another solver at another precision, at bounds, and by scale."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import special
from scipy.optimize import minimize_scalar

from marginctl.calibration import temperature
from marginctl.calibration.outputs import Outputs
from marginctl.metrics.scoring_rules import nll
from tests.calibration.factories import noisy, with_probabilities


def exact(outputs, low, high):
    """The T of the least NLL, by halving with 30 digits: its derivative to 1/T changes sign."""
    rows = [[Decimal(float(v)) for v in row] for row in outputs.values]

    def slope(inverse):
        total = Decimal(0)
        for row, y in zip(rows, outputs.labels, strict=True):
            exp = [(inverse * (v - max(row))).exp() for v in row]
            total += sum(e * v for e, v in zip(exp, row, strict=True)) / sum(exp) - row[y]
        return total

    with localcontext(prec=30):
        below, above = Decimal(1 / high), Decimal(1 / low)
        assert slope(below) < 0 < slope(above)
        for _ in range(36):
            middle = (below + above) / 2
            below, above = (middle, above) if slope(middle) < 0 else (below, middle)
        return float(1 / below)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_with_30_digits(seed, dtype):
    outputs = noisy(120, 4, seed=seed, dtype=dtype)
    fit = temperature.fit(outputs)
    found = fit.parameters["temperature"]
    assert fit.converged
    assert found == pytest.approx(exact(outputs, found / 1.5, found * 1.5), rel=1e-8)


@pytest.mark.parametrize("of", [0.03, 0.5, 1, 4, 200])
@pytest.mark.parametrize(("n", "c"), [(50, 2), (300, 10), (6000, 7)])
def test_within_1e_6_of_another_solver(n, c, of):
    outputs = noisy(n, c, of, seed=5)

    def value(u):
        log_p = special.log_softmax(outputs.values / np.exp(u), axis=1)
        return -log_p[np.arange(n), outputs.labels].mean()

    theirs = minimize_scalar(value, bounds=(np.log(of) - 3, np.log(of) + 3), method="bounded")
    fit = temperature.fit(outputs)
    found = fit.parameters["temperature"]
    # a minimum in float64 is known to about 1e-8 in its value and 1e-5 in its place
    assert fit.details["nll"] <= theirs.fun + 1e-12
    assert found == pytest.approx(np.exp(theirs.x), rel=1e-3)
    assert fit.details["nll"] == pytest.approx(nll(outputs.values / found, outputs.labels))
    step = 1e-6  # the slope changes its sign within it
    low, high = (
        temperature._slope(outputs.values, outputs.labels)(np.log(found) + d)[1]
        for d in (-step, step)
    )
    assert low > 0 > high
    assert fit.converged


def test_labels_of_pure_noise():
    stream = np.random.default_rng(2)
    f, labels = stream.normal(size=(400, 6)), stream.integers(0, 6, 400)
    fit = temperature.fit(Outputs("noise", "logits", f, labels))
    if fit.converged:
        assert fit.parameters["temperature"] > 1.5
    assert fit.details["nll"] <= fit.details["nll_before"]


@pytest.mark.parametrize("scale", [1e-6, 1, 1e20])
def test_separable_logits_are_at_the_lower_bound(scale):
    labels = np.arange(30) % 3
    f = scale * (np.eye(3)[labels] * 5 + np.random.default_rng(0).random((30, 3)))
    fit = temperature.fit(Outputs("s", "logits", f, labels))
    assert not fit.converged
    assert fit.note.startswith("at bound: the samples are separable")
    assert fit.parameters["temperature"] == pytest.approx(fit.details["bounds"][0])
    assert 0 <= fit.details["nll"] <= fit.details["nll_before"]


def test_logits_that_mislead_are_at_the_upper_bound():
    labels = np.arange(30) % 3
    fit = temperature.fit(Outputs("m", "logits", -np.eye(3)[labels], labels))
    assert (fit.converged, fit.note) == (False, temperature.AT_UPPER)
    assert fit.details["nll"] == pytest.approx(np.log(3), abs=2e-4)


def test_equal_logits_leave_nothing_to_do():
    outputs = Outputs("e", "logits", np.full((4, 3), 0.3), np.array([0, 1, 2, 0]))
    fit = temperature.fit(outputs)
    assert (fit.parameters, fit.converged) == ({"temperature": 1.0}, True)
    assert fit.details["nll"] == pytest.approx(np.log(3))


def test_it_scales_with_the_logits_and_ignores_what_a_softmax_ignores():
    outputs = noisy(seed=3)
    first = temperature.fit(outputs).parameters["temperature"]
    shifts = np.random.default_rng(1).normal(size=(len(outputs.labels), 1)) * 100
    for values, factor in ((outputs.values * 1e8, 1e8), (outputs.values + shifts, 1)):
        found = temperature.fit(Outputs("x", "logits", values, outputs.labels))
        assert found.parameters["temperature"] == pytest.approx(first * factor, rel=1e-8)
    of_p = temperature.fit(with_probabilities(outputs)).parameters["temperature"]
    assert of_p == pytest.approx(first, rel=1e-8)


def test_applying_keeps_the_predictions_and_scales():
    outputs = noisy(seed=6)
    predictions = temperature.apply({"temperature": 2.5}, outputs)
    np.testing.assert_array_equal(predictions.classes, outputs.values.argmax(1))
    np.testing.assert_allclose(
        predictions.probabilities, special.softmax(outputs.values / 2.5, axis=1), rtol=1e-12
    )
    huge = temperature.apply({"temperature": 1e12}, outputs)  # all but tied, and still the same
    np.testing.assert_array_equal(huge.classes, outputs.values.argmax(1))


def test_probabilities_of_0_and_1():
    p = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    fit = temperature.fit(Outputs("p", "probabilities", p, np.array([0, 1, 1, 1])))
    assert fit.converged
    assert 1 < fit.parameters["temperature"] < np.inf
    assert np.isfinite(fit.details["nll"])
