"""Vector and matrix scaling against scikit-learn's logistic regression and numeric gradients."""

from functools import partial

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import log_softmax

from marginctl.calibration import scaling, temperature
from marginctl.calibration.outputs import Outputs
from tests.calibration.factories import noisy

fit_vector, fit_matrix = (partial(scaling.fit, matrix=matrix) for matrix in (False, True))


def mean_nll(z, labels):
    return -log_softmax(z, axis=1)[np.arange(len(z)), labels].mean()


@pytest.mark.parametrize(("n", "c", "seed"), [(200, 2, 0), (400, 4, 1), (300, 7, 2)])
def test_vector_against_another_solver(n, c, seed):
    outputs = noisy(n, c, 3.0, seed)
    fit = fit_vector(outputs)
    f, y = outputs.values, outputs.labels

    theirs = minimize(
        lambda x: mean_nll(f * x[:c] + x[c:], y), np.r_[np.ones(c), np.zeros(c)], method="BFGS"
    )
    assert fit.converged
    assert fit.details["nll"] == pytest.approx(theirs.fun, abs=1e-7)
    assert fit.details["gradient_norm"] <= scaling.GRADIENT_TOLERANCE
    weight, bias = np.array(fit.parameters["weight"]), np.array(fit.parameters["bias"])
    assert mean_nll(f * weight + bias, y) == pytest.approx(fit.details["nll"], rel=1e-10)
    slopes = approx_fprime(np.r_[weight, bias], lambda x: mean_nll(f * x[:c] + x[c:], y), 1e-7)
    assert np.abs(slopes).max() < 1e-4
    np.testing.assert_allclose(weight, theirs.x[:c], atol=2e-3)


@pytest.mark.parametrize(("n", "c", "seed"), [(200, 2, 0), (300, 4, 1)])
def test_matrix_has_the_least_regularised_nll(n, c, seed):
    outputs = noisy(n, c, 3.0, seed)
    fit = fit_matrix(outputs)
    f, y = outputs.values, outputs.labels
    unit = np.sqrt(np.mean((f - f.mean(axis=1, keepdims=True)) ** 2))
    off = 1 - np.eye(c)

    def objective(x):
        w, b = x[: c * c].reshape(c, c), x[c * c :]
        penalty = (off * (w * unit) ** 2).sum() / (c * (c - 1)) + (b**2).mean()
        return mean_nll(f @ w.T + b, y) + scaling.REGULARIZATION * penalty

    theirs = minimize(objective, np.r_[np.eye(c).ravel(), np.zeros(c)], method="BFGS")
    found = np.r_[np.ravel(fit.parameters["weight"]), fit.parameters["bias"]]
    assert fit.converged
    assert objective(found) == pytest.approx(theirs.fun, abs=1e-7)
    np.testing.assert_allclose(found, theirs.x, atol=5e-3)


@pytest.mark.parametrize("fit", [fit_vector, fit_matrix])
def test_never_worse_than_temperature_on_the_fitting_part(fit):
    for seed in range(5):
        outputs = noisy(60, 3, 0.2 + seed, seed)
        first = temperature.fit(outputs)
        found = fit(outputs)
        assert found.details["nll"] <= first.details["nll"] + 1e-12
        assert found.details["nll_before"] == first.details["nll_before"]


@pytest.mark.parametrize("fit", [fit_vector, fit_matrix])
def test_separable_samples_do_not_converge(fit):
    labels = np.arange(30) % 3
    f = np.eye(3)[labels] * 5 + np.random.default_rng(0).random((30, 3))
    found = fit(Outputs("s", "logits", f, labels))
    assert not found.converged
    assert found.note.startswith("at bound")
    assert np.isfinite(found.parameters["weight"]).all()


def test_a_stopped_solver_has_not_converged(monkeypatch):
    monkeypatch.setattr(scaling, "ITERATIONS", 2)
    outputs = noisy(300, 5, 3.0)
    found = fit_vector(outputs)
    assert not found.converged
    assert "after 2 steps" in found.note
    assert found.details["nll"] <= temperature.fit(outputs).details["nll"]


def test_the_best_iterate_is_kept_when_the_solver_goes_astray():
    def objective(x):  # looks good once, and is not finite further on
        value = float(x[0] ** 2) if abs(x[0]) > 0.5 else np.nan
        return value, 2 * x

    best = scaling._minimize(objective, np.array([3.0]))
    assert np.isfinite(best.value)
    assert best.value <= 9


def test_other_predictions_and_scale():
    outputs = noisy(400, 3, 2.0)
    biased = Outputs("b", "logits", outputs.values + np.array([0, 0, 6]), outputs.labels)
    fit = fit_vector(biased)
    predictions = scaling.apply(fit.parameters, biased)
    before = (biased.values.argmax(1) == biased.labels).mean()
    assert (predictions.classes == biased.labels).mean() > before + 0.15
    fit_of_ten = fit_matrix(Outputs("t", "logits", biased.values * 10, biased.labels))
    ten = scaling.apply(
        fit_of_ten.parameters, Outputs("t", "logits", biased.values * 10, biased.labels)
    )
    one = scaling.apply(fit_matrix(biased).parameters, biased)
    np.testing.assert_allclose(ten.probabilities, one.probabilities, atol=1e-3)
