"""What the papers derive of their methods."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from marginctl.objectives import theory
from marginctl.objectives.describe import describe
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
