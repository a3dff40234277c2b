"""Each part by itself: values at the edges, and derivatives against autograd's."""

import math

import pytest
import torch

from marginctl.objectives.losses import Loss
from marginctl.objectives.margins import AdditiveAngle, Margin, MultiplicativeAngle
from marginctl.objectives.parts import LOSSES, MARGINS, REGULARIZERS, SIMILARITIES
from marginctl.objectives.regularizers import Regularizer, SuperSymmetry
from marginctl.objectives.similarities import Similarity, bounded_rsqrt
from marginctl.utils.registry import import_object
from tests.objectives import reference


def build(registry, kind, **changes):
    """Return a part with its default options but for `changes`."""
    entry = registry[kind]
    options = {name: option.default for name, option in entry.options.items()}
    return import_object(entry.path, kind)(**(options | changes))


def test_the_slope_of_arccos_is_exact_away_from_the_edges():
    cosine = torch.linspace(-0.9999, 0.9999, 999, dtype=torch.float64)
    torch.testing.assert_close(bounded_rsqrt(1 - cosine**2), 1 / torch.sqrt(1 - cosine**2))
    for dtype, bound in ((torch.float32, 1448.2), (torch.float64, 3.36e7)):
        at_one = bounded_rsqrt(1 - torch.tensor([1.0, -1.0, 1 + 1e-6], dtype=dtype) ** 2)
        assert at_one.tolist() == pytest.approx([bound] * 3, rel=1e-2)


@pytest.mark.parametrize("margin", [0.1, 0.5, 2.5])
def test_arcface_slopes_against_their_formulas(margin):
    theta = torch.linspace(0.05, math.pi - 0.05, 60, dtype=torch.float64)
    exact = torch.sin(theta + margin) / torch.sin(theta)
    beyond = theta + margin > math.pi
    linear = AdditiveAngle(margin, "exact", "linear")
    _, slope = linear.apply_with_slope(theta.cos())
    torch.testing.assert_close(slope, torch.where(beyond, 1.0, exact))
    formula = AdditiveAngle(margin, "exact", "formula")
    value, slope = formula.apply_with_slope(theta.cos())
    torch.testing.assert_close(slope, exact)
    torch.testing.assert_close(value, torch.cos(theta + margin))
    straight = AdditiveAngle(margin, "straight-through", "linear")
    assert straight.apply_with_slope(theta.cos())[1] is None


@pytest.mark.parametrize("beyond", ["linear", "easy", "formula"])
@pytest.mark.parametrize("margin", [0.0, 0.1, 0.5, 1.5, 2.5, math.pi])
@torch.no_grad()
def test_arcface_s_forms_at_the_edges_of_the_angle(margin, beyond):
    """At 0, pi/2, pi - margin and pi, and next to each: the value and the written-out slope."""
    middle = [0.0, -math.cos(margin)]
    edges = [1.0, -1.0, *middle, *(c + sign * 1e-9 for c in middle for sign in (1, -1))]
    edges += [math.cos(theta) for theta in (1e-6, 1e-3, math.pi - 1e-3, math.pi - 1e-6)]
    cosine = torch.tensor([c for c in edges if abs(c) <= 1], dtype=torch.float64).unsqueeze(-1)
    form = AdditiveAngle(margin, "exact", beyond)
    want = [[reference.angular_margin(c, margin, beyond)] for c in cosine.flatten().tolist()]
    value, slope = form.apply_with_slope(cosine)
    torch.testing.assert_close(value, torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-10)
    assert slope.isfinite().all()
    inside = cosine.abs() < 1  # at +-1 the slope of the formula is bounded instead of infinite
    by_autograd = Margin.apply_with_slope(form, cosine)[1]
    torch.testing.assert_close(slope[inside], by_autograd[inside])
    plain = {"linear": cosine <= -math.cos(margin), "easy": cosine <= 0}.get(beyond)
    if plain is not None:
        assert (slope[plain] == 1).all()
    margins = torch.full((2, 1, 1), margin, dtype=torch.float64)  # of two networks of a stack
    stacked = AdditiveAngle(margins, "exact", beyond).apply_with_slope(cosine.expand(2, -1, 1))
    for mine, alone in zip(stacked, (value, slope), strict=True):
        torch.testing.assert_close(mine, alone.expand(2, -1, 1))


def test_arcface_s_forms_differ_only_at_large_angles():
    cosine = torch.tensor([0.3, -0.3, -0.95], dtype=torch.float64)
    linear, easy, formula = (
        AdditiveAngle(0.5, "exact", beyond).apply(cosine)
        for beyond in ("linear", "easy", "formula")
    )
    assert (linear == formula).tolist() == [True, True, False]
    assert (easy == formula).tolist() == [True, False, False]
    assert (easy == cosine).tolist() == [False, True, True]
    assert linear[2].item() == pytest.approx(-0.95 - 0.5 * math.sin(0.5))


def test_arcface_without_a_margin_has_the_plain_slope_at_every_angle():
    cosine = torch.tensor([1.0, 0.5, 0.0, -1.0], dtype=torch.float64)
    _, slope = AdditiveAngle(0.0, "exact", "linear").apply_with_slope(cosine)
    assert slope.tolist() == [1.0] * 4


@pytest.mark.parametrize("times", [1, 2, 3, 4, 5])
def test_psi_falls_in_the_angle_and_its_slope_is_bounded(times):
    """Continuous, monotone, and m^2 steep at both ends: sin(m theta)/sin(theta) without 0/0."""
    margin = MultiplicativeAngle(float(times), 0.0)
    cosine = torch.linspace(-1, 1, 20001, dtype=torch.float64)
    value, slope = margin.apply_with_slope(cosine)
    assert (value.diff() > 0).all()
    assert value[0].item() == pytest.approx(-2 * (times - 1) - 1)
    assert value[-1].item() == 1
    assert slope[0].item() == pytest.approx(times**2)
    assert slope[-1].item() == pytest.approx(times**2)
    assert slope.min() >= 0
    assert slope.max() <= times**2 * (1 + 1e-12)


def smooth_points(*shape, seed=0):
    stream = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=stream, dtype=torch.float64) * 1.8 - 0.9


@pytest.mark.parametrize("kind", sorted(set(MARGINS) - {"none"}))
@torch.no_grad()
def test_a_margin_s_slope_equals_autograd_s(kind):
    margin = build(MARGINS, kind)
    point = smooth_points(50, 1)
    _, slope = margin.apply_with_slope(point)
    _, want = Margin.apply_with_slope(margin, point)
    torch.testing.assert_close(torch.ones_like(want) if slope is None else slope, want)


@pytest.mark.parametrize("kind", sorted(LOSSES))
@torch.no_grad()
def test_a_loss_s_gradient_equals_autograd_s(kind):
    loss, logits = build(LOSSES, kind), smooth_points(3, 20, 5) * 4
    y = torch.randint(5, (3, 20))
    for mine, want in zip(loss.gradient(logits, y), Loss.gradient(loss, logits, y), strict=True):
        torch.testing.assert_close(mine, want)


# The non-target uniformity works in place; its gradient is checked against eq. 12 and by gradcheck.
@pytest.mark.parametrize("kind", sorted(set(REGULARIZERS) - {"non-target-uniformity"}))
@pytest.mark.parametrize("strength", [0.7, torch.tensor([[0.5], [1.5]], dtype=torch.float64)])
@torch.no_grad()
def test_a_regularizer_s_gradient_equals_autograd_s(kind, strength):
    module = build(REGULARIZERS, kind, strength=strength)
    shape = {"features": (2, 9, 6), "logits": (2, 9, 5), "target": (2, 9, 1), "weights": (2, 5, 6)}
    for inputs in (
        smooth_points(*shape[module.acts_on]),
        smooth_points(*shape[module.acts_on], seed=1) * 5,
    ):
        y = torch.randint(5, (2, 9))
        state = {"centers": smooth_points(2, 5, inputs.shape[-1], seed=1)}
        penalty, gradient = Regularizer.gradient(module, inputs, y, state)
        for before in (None, torch.ones_like(inputs)):
            mine, total = module.add_gradient(inputs, y, state, before)
            torch.testing.assert_close(mine, penalty)
            torch.testing.assert_close(total, gradient + (0 if before is None else 1))


@pytest.mark.parametrize("classes", [4, 9])
def test_super_symmetric_weights_have_no_penalty(classes):
    """A simplex of any size has penalty and gradient 0; others do not."""
    module = SuperSymmetry(1.0)
    simplex = 3 * (torch.eye(classes, dtype=torch.float64) - 1 / classes)
    for weights, zero in ((simplex, True), (smooth_points(classes, 6), False)):
        penalty, gradient = module.gradient(weights, None, {})
        assert (penalty.abs().max().item() < 1e-12) == zero
        assert (gradient.abs().max().item() < 1e-12) == zero


def plainly(kind, x, w):
    """The similarities once more, for autograd."""
    cosine = torch.nn.functional.normalize(x, dim=-1) @ torch.nn.functional.normalize(w, dim=-1).mT
    return {
        "linear": lambda: x @ w.mT,
        "cosine": lambda: cosine,
        "angle": lambda: -torch.acos(cosine),
        "gaussian": lambda: -(x.unsqueeze(-2) - w.unsqueeze(-3)).square().sum(-1) / 2,
    }[kind]()


@pytest.mark.parametrize("kind", sorted(SIMILARITIES))
@pytest.mark.parametrize("lead", [(), (3,), (2, 2)])
@torch.no_grad()
def test_a_similarity_s_gradient_equals_autograd_s(kind, lead):
    class Plain(Similarity):
        def compare(self, features, weights):
            return plainly(kind, features, weights)

    x, w = smooth_points(*lead, 7, 5), smooth_points(*lead, 4, 5, seed=1)
    grad, row_weight = smooth_points(*lead, 7, 4, seed=2), smooth_points(*lead, 7, seed=3)
    found = []
    for similarity in (build(SIMILARITIES, kind), Plain()):
        value, saved = similarity.forward(x, w, None)
        product_grad = similarity.product_gradient(grad.clone(), saved)
        found.append([value, *similarity.backward(product_grad, saved, row_weight)])
    for mine, want in zip(*found, strict=True):
        torch.testing.assert_close(mine, want)


def test_long_rows_are_multiplied_block_by_block():
    """Above the size at which the product of weights and gradient is cut into blocks."""
    torch.manual_seed(0)
    x, w = torch.randn(8, 700, dtype=torch.float64), torch.randn(900, 700, dtype=torch.float64)
    x.requires_grad_(), w.requires_grad_()
    grad = torch.randn(8, 900, dtype=torch.float64)
    want = torch.autograd.grad(plainly("cosine", x, w), (x, w), grad)
    similarity = build(SIMILARITIES, "cosine")
    with torch.no_grad():
        _, saved = similarity.forward(x, w, None)
        mine = similarity.backward(similarity.product_gradient(grad, saved), saved, torch.ones(8))
    for a, b in zip(mine, want, strict=True):
        torch.testing.assert_close(a, b)
