"""Probes end at the optimum: scikit-learn's, whatever the shape of the features."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from marginctl.metrics.scoring_rules import nll
from marginctl.recipe.transfer import L2_PENALTIES
from marginctl.transfer import logistic_regression
from marginctl.transfer.logistic_regression import ProbeProblem


def loss(weight, bias, x, y, penalty):
    return nll(x @ weight.T + bias, y) + penalty / 2 * (weight**2).sum()


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    return x[:600], y[:600]


@pytest.mark.parametrize("penalty", [1e-1, 1e-3])
@pytest.mark.parametrize("rows", [600, 40])
def test_the_optimum_is_that_of_scikit_learn(digits, penalty, rows):
    """Real features, of more images than lengths and of fewer."""
    x, y = digits[0][:rows], digits[1][:rows]
    own = ProbeProblem(x, y, 10).fit(penalty, 1e-7)
    assert own.converged
    assert own.gradient <= 1e-7
    other = LogisticRegression(C=1 / (rows * penalty), tol=1e-9, max_iter=20_000).fit(x, y)
    theirs = loss(other.coef_, other.intercept_, x, y, penalty)
    assert own.loss == pytest.approx(loss(own.weight, own.bias, x, y, penalty), rel=1e-10)
    assert own.loss == pytest.approx(theirs, rel=1e-6)
    # the optimum's weights, too; a bias may be shifted, which no softmax sees
    assert np.abs(own.weight - other.coef_).max() < 1e-3 * np.abs(other.coef_).max()
    shift = own.bias - other.intercept_
    assert np.ptp(shift) < 1e-2 * max(1.0, np.abs(other.intercept_).max())


def test_the_gradient_is_in_the_original_coordinates(digits):
    x, y = digits
    fit = ProbeProblem(x, y, 10).fit(1e-2, 1e-4)
    logits = fit.logits(x)
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    of_weight = p.T @ x / len(x) + 1e-2 * fit.weight
    largest = max(np.abs(of_weight).max(), np.abs(p.mean(0)).max())
    assert fit.gradient == pytest.approx(largest, rel=1e-6)


def test_two_classes_equal_scikit_learn_at_twice_the_penalty(digits):
    x, y = digits[0][digits[1] < 2], digits[1][digits[1] < 2]
    own = ProbeProblem(x, y, 2).fit(2 * 1e-2, 1e-8)
    other = LogisticRegression(C=1 / (len(x) * 1e-2), tol=1e-10, max_iter=20_000).fit(x, y)
    difference = own.weight[1] - own.weight[0]
    assert np.abs(difference - other.coef_[0]).max() < 1e-4 * np.abs(other.coef_).max()


def test_a_warm_started_path_reaches_the_same_optima(digits):
    x, y = digits
    penalties = L2_PENALTIES[:6]
    problem = ProbeProblem((x - x.mean(0)) / (x.std(0) + 1e-9), y, 10)
    path = problem.path(penalties, 1e-6)
    cold = [problem.fit(penalty, 1e-6) for penalty in penalties]
    assert [fit.l2_penalty for fit in path] == list(penalties)
    assert all(fit.converged for fit in [*path, *cold])
    for warm, cold_fit in zip(path, cold, strict=True):
        # strongly convex: what a gradient below 1e-6 leaves open
        assert abs(warm.loss - cold_fit.loss) <= 1e-12 * 650 / warm.l2_penalty
    assert sum(f.evaluations for f in path) < 0.75 * sum(f.evaluations for f in cold)


def test_stopping_early_is_not_convergence(digits, monkeypatch):
    monkeypatch.setattr(logistic_regression, "MAX_ITERATIONS", 3)
    monkeypatch.setattr(logistic_regression, "NEWTON_SIZE", 0)
    early = ProbeProblem(*digits, 10).fit(1e-4, 1e-9)
    assert not early.converged
    assert early.gradient > 1e-9
    assert early.iterations == 3


def test_constant_features_give_the_class_frequencies():
    y = np.array([0, 0, 0, 1])
    for x in (np.ones((4, 3)), np.zeros((4, 3)), np.ones((4, 9))):
        fit = ProbeProblem(x, y, 2).fit(1.0, 1e-8)
        assert fit.converged
        shares = np.exp(fit.bias) / np.exp(fit.bias).sum()
        assert shares == pytest.approx([0.75, 0.25], abs=1e-6)


def test_a_class_without_images_gets_no_probability():
    """As where a class has a single image, and that one is in the other part of a split."""
    x = np.random.default_rng(0).standard_normal((30, 4))
    fit = ProbeProblem(x, np.arange(30) % 2, 3).fit(1e-2, 1e-6)
    assert fit.converged
    p = np.exp(fit.logits(x))
    assert (p[:, 2] / p.sum(1)).mean() <= 1e-6


def test_an_exception_of_check_stops_the_fit(digits):
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ProbeProblem(*digits, 10, check).fit(1e-3, 1e-9)
    assert len(calls) == 5


def test_weak_penalties_are_at_their_optimum():
    """Against scikit-learn's Newton solver, whose C is 1 / (n l2_penalty)."""
    stream = np.random.default_rng(3)
    x, y = stream.normal(size=(300, 5)), stream.integers(0, 3, 300)
    for penalty in (1e-4, 1e-5, 1e-6):
        ours = ProbeProblem(x, y, 3).fit(penalty, 1e-6)
        reference = LogisticRegression(
            C=1 / (len(y) * penalty), solver="newton-cholesky", tol=1e-12, max_iter=1000
        ).fit(x, y)
        assert ours.converged
        assert ours.weight == pytest.approx(reference.coef_, abs=1e-4)


def test_weak_penalties_take_newton_steps(digits, monkeypatch):
    """L-BFGS alone takes twice the iterations here, and ends at the same optimum."""
    x, y = digits
    x = x * np.logspace(0, -3, 64)
    fast = ProbeProblem(x, y, 10).fit(1e-4, 1e-6)
    assert fast.converged
    assert fast.iterations < 250
    monkeypatch.setattr(logistic_regression, "NEWTON_SIZE", 0)
    slow = ProbeProblem(x, y, 10).fit(1e-4, 1e-6)
    assert slow.iterations > 400
    assert fast.loss == pytest.approx(slow.loss, rel=1e-9)
    assert np.abs(fast.weight - slow.weight).max() < 1e-3 * np.abs(slow.weight).max()
