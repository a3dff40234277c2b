"""What the papers derive of their methods."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from marginctl.objectives import theory
from marginctl.objectives.describe import describe
from marginctl.objectives.least_squares import least_squares_scale
from marginctl.objectives.parsing import parse


def test_equation_19_gives_the_papers_angles():
    """C = 3: 84 degrees for s = 1 and 2 degrees for s = 40."""
    assert math.degrees(theory.arcgrad_gap(1, 3)) == pytest.approx(83.83, abs=0.005)
    assert math.degrees(theory.arcgrad_gap(40, 3)) == pytest.approx(2.10, abs=0.005)


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
@pytest.mark.parametrize("gap", [0.05, 0.5, 1.5])
def test_equation_19_is_the_scale_of_the_largest_gradient(classes, gap):
    """Against a search for the maximum of s (C - 1)/(e^(s gap) + C - 1)."""
    scales = np.linspace(0.01, 400, 400_000)
    with np.errstate(over="ignore"):
        slopes = scales * (classes - 1) / (np.exp(scales * gap) + classes - 1)
    assert theory.arcgrad_scale(gap, classes) == pytest.approx(scales[slopes.argmax()], abs=2e-3)
    assert theory.arcgrad_gap(theory.arcgrad_scale(gap, classes), classes) == pytest.approx(gap)


def test_equation_29_is_the_scale_of_that_softmax():
    for m in (1, 3):
        kappa = theory.sparse_scale(0.2, 50, prominent=m, rest=0.05)
        z = torch.zeros(50, dtype=torch.float64)
        z[:m] = 0.2
        assert (kappa * z).softmax(0)[:m].sum().item() == pytest.approx(0.95)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def rebuilding_error(alpha, x, w):
    return np.square(x - alpha @ w).sum() / 2


def by_support(x, w):
    """The simplex's best point: of all sets of classes, the feasible one with the least error."""
    best = None
    for size in range(1, len(w) + 1):
        for support in map(list, itertools.combinations(range(len(w)), size)):
            # stationary on the support: G alpha + multiplier = z, and the sum is 1
            gram = np.ones((size + 1, size + 1))
            gram[:size, :size], gram[-1, -1] = w[support] @ w[support].T, 0
            solved = np.linalg.lstsq(gram, np.append(w[support] @ x, 1), rcond=None)[0]
            alpha = np.zeros(len(w))
            alpha[support] = solved[:size]
            error = rebuilding_error(alpha, x, w)
            if (alpha >= 0).all() and (best is None or error < best[0]):
                best = error, alpha
    return best[1]


@pytest.mark.parametrize("length", [3, 6, 20])
def test_equation_25_is_solved(length):
    """Against a search over all supports."""
    stream = np.random.default_rng(length)
    for _ in range(20):
        w = stream.normal(size=(6, length))
        x = w[0] + stream.normal(size=length)
        found = theory.least_squares_coefficients(x, w)
        expected = by_support(unit(x), unit(w))
        errors = [rebuilding_error(a, unit(x), unit(w)) for a in (found, expected)]
        assert errors[0] == pytest.approx(errors[1], abs=1e-12)
        assert (found >= 0).all()
        assert found.sum() == pytest.approx(1)
        if length >= 6:  # else several coefficients may be as good
            np.testing.assert_allclose(found, expected, atol=1e-9)


def by_projection(z):
    """The point of the simplex next to z: max(z - s, 0), with s so that the sum is 1."""
    low, high = z.min() - 1, z.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(z - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(z - low, 0)


def features_and_weights(classes, correlation, count):
    """Features near one class, each with its own weights: orthonormal, moved within few directions.

    Returns:
        (count, 128) and (count, classes, 128), of length 1.
    """
    stream = np.random.default_rng([classes, round(10 * correlation)])
    basis = np.linalg.qr(stream.normal(size=(128, 128)))[0]
    few = max(2, classes // 4)
    mixed = stream.normal(size=(count, classes, few)) @ basis[:few] / math.sqrt(few)
    w = unit(basis[:classes] + correlation * mixed)
    noise = stream.uniform(0.2, 2, (count, 1)) * unit(stream.normal(size=(count, 128)))
    return unit(w[np.arange(count), stream.integers(classes, size=count)] + noise), w


def excess_of_softmax(classes, correlation, count=50):
    """E of softmax at kappa* above the least, as a share of that of equal coefficients."""
    xs, ws = features_and_weights(classes, correlation, count)
    z = (ws @ xs[..., None])[..., 0]
    tensors = (torch.tensor(v) for v in (z[:, None], xs[:, None], ws))
    alphas = (least_squares_scale(*tensors) * torch.tensor(z)).softmax(-1).numpy()
    excess, of_equal = 0.0, 0.0
    for x, w, alpha in zip(xs, ws, alphas, strict=True):
        least = rebuilding_error(theory.least_squares_coefficients(x, w), x, w)
        excess += rebuilding_error(alpha, x, w) - least
        of_equal += rebuilding_error(np.full(classes, 1 / classes), x, w) - least
    return excess / of_equal


def test_softmax_is_near_the_least_squares_with_few_orthogonal_weights():
    """Temperature, supplement, Sec. 5.1: (25) becomes (26), and softmax comes near to it.

    With 5 and 10 classes it comes nearer as the weights get less correlated. With 100 it does not:
    the softmax is less sparse than the solution, whatever the weights.
    """
    for x, w in zip(*features_and_weights(10, 0, 20), strict=True):
        exact = theory.least_squares_coefficients(x, w)
        np.testing.assert_allclose(exact, by_projection(w @ x), atol=1e-9)
    for classes, nearly_orthogonal, correlated in ((5, 0.02, 0.07), (10, 0.05, 0.08)):
        shares = [excess_of_softmax(classes, correlation, 400) for correlation in (0, 0.3, 3)]
        assert shares == sorted(shares)
        assert shares[0] < nearly_orthogonal < correlated < shares[-1]
    assert excess_of_softmax(100, 0) > excess_of_softmax(100, 3) > 0.07


def test_adacos_scale():
    assert theory.adacos_scale(2) == 0
    assert theory.adacos_scale(10) == pytest.approx(3.1074, abs=1e-4)


def test_gradient_decay_slope_is_concave_straight_and_convex():
    p = np.linspace(0, 1, 101)
    for beta, sign in ((0.1, -1), (1.0, 0), (5.0, 1)):
        g = theory.gradient_decay_slope(p, beta)
        bend = np.diff(g, 2)
        assert (np.sign(np.round(bend, 12)) == sign).all()
        assert theory.gradient_decay_slope(1 / (1 + beta), beta) == pytest.approx(0.5)
        assert (g[0], g[-1]) == (1, 0)


def test_the_bias_turns_softmax_into_softplus():
    """Equation 7: cross-entropy = softplus(f_c* - f_y + rho)."""
    torch.manual_seed(0)
    f, y = torch.randn(20, 6, dtype=torch.float64) * 5, torch.randint(6, (20,))
    rho = torch.as_tensor(theory.bias(f.numpy(), y.numpy()))
    own = f.gather(1, y[:, None])[:, 0]
    rival = f.scatter(1, y[:, None], -torch.inf).amax(1)
    torch.testing.assert_close(
        F.softplus(rival - own + rho), F.cross_entropy(f, y, reduction="none")
    )
    assert theory.bias(np.zeros((1, 6)), [2]) == pytest.approx(math.log(5))
    assert theory.bias([[0.0, 900.0, -900.0]], [0]) == pytest.approx(0)
    assert theory.bias([[3.0, 7.0]], [1]) == 0  # one rival


@pytest.mark.parametrize(
    ("name", "classes", "text"),
    [
        ("arcgrad:scale=1", 3, "scale 1 has its largest gradient at a gap of 83.83 degrees"),
        ("adacos", 10, "first scale: sqrt(2) ln(C - 1) = 3.107"),
        ("cosine-ls", 1000, "a scale of 91.0 gives nine tenths"),
        ("gradient-decay:beta=0.1", 10, "is 0.989, 0.909, 0.526; 1/2 at p = 0.909"),
        ("m-soft:margin=0", 10, "beta = exp(-margin) = 1: g(p)"),
        ("lm-softmax", 10, "at most ln(C - 1) = 2.197"),
    ],
)
def test_what_show_says(name, classes, text):
    assert any(text in line for line in describe(parse(name), classes)["theory"])


@pytest.mark.parametrize(
    "name", ["sphereface", "hinge", "l-gm", "arcgrad:scale=linear(start=1,end=2)"]
)
def test_where_theory_has_nothing_to_say_it_says_nothing(name):
    assert describe(parse(name), 2)["theory"] == []
