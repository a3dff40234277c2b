"""Values, gradients and edges of every preset."""

import copy
import math
import pickle

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from marginctl.errors import RequestError
from marginctl.objectives import available, compose, create, part
from marginctl.objectives.names import parse
from marginctl.objectives.objective import ObjectiveFunction
from marginctl.objectives.similarity import arccos
from tests.objectives import reference

ALL = [
    "soft",
    "soft:bias=true",
    "center",
    "center:alpha=0.3,strength=1.5",
    "m-soft",
    "m-soft:margin=2",
    "arcface",
    "arcface:margin=1.2,scale=64",
    "arcface:beyond=formula,margin=2.5",
    "arcface:gradient=straight-through",
    "adacos",
    "arcgrad:scale=30",
    "arcgrad:scale=5",
    "modified-softmax",
    "gradient-decay:beta=0.1",
    "gradient-decay:beta=5,bias=true",
    "label-smoothing",
    "lm-softmax",
    "lm-softmax:divergence=q-u,strength=1",
    "lm-softmax:divergence=u-q,strength=1",
    "hinge",
    "dense-hinge:margin=2",
    "cosine",
    "cosface:margin=0.2,scale=20",
    "adacos-fixed",
]


def batch(n=9, c=4, d=6, *, dtype=torch.float64, seed=0):
    stream = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=stream, dtype=torch.float64).to(dtype)
    y = torch.randint(c, (n,), generator=stream)
    return x, y


def objective(name, c=4, d=6, *, dtype=torch.float64, seed=1):
    torch.manual_seed(seed)
    made = create(name, c, d).to(dtype)
    if "center" in name:
        made.centers.copy_(torch.randn(c, d, dtype=torch.float64))
    return made


def expected(name, made, x, y):
    """The reference's losses and what it says of the state after the batch."""
    xs, ws, ys = x.tolist(), made.weight.tolist(), y.tolist()
    options = parse(name).options
    rows = list(zip(xs, ys, strict=True))
    kind = parse(name).preset.name
    if kind == "soft":
        bias = made.bias.tolist() if made.bias is not None else [0.0] * len(ws)
        return [
            reference.cross_entropy(
                [reference.dot(r, w) + b for w, b in zip(ws, bias, strict=True)], t
            )
            for r, t in rows
        ]
    if kind == "m-soft":
        return [reference.m_soft(r, ws, t, options["margin"]) for r, t in rows]
    if kind == "center":
        centers = made.centers.tolist()
        return [reference.center(r, ws, t, options["strength"], centers) for r, t in rows]
    if kind == "arcface":
        o = options
        return [reference.arcface(r, ws, t, o["scale"], o["margin"], o["beyond"]) for r, t in rows]
    simple = {
        "modified-softmax": lambda r, t: reference.m_soft(r, ws, t, 1.0),
        "label-smoothing": lambda r, t: reference.label_smoothing(r, ws, t, options["strength"]),
        "lm-softmax": lambda r, t: reference.lm_softmax(
            r, ws, t, options["strength"], options["divergence"]
        ),
        "hinge": lambda r, t: reference.hinge(r, ws, t, options["margin"]),
        "dense-hinge": lambda r, t: reference.dense_hinge(r, ws, t, options["margin"]),
        "cosine": lambda r, t: reference.adacos(r, ws, t, options["scale"]),
        "cosface": lambda r, t: reference.cosface(r, ws, t, options["scale"], options["margin"]),
        "adacos-fixed": lambda r, t: reference.adacos(
            r, ws, t, math.sqrt(2) * math.log(len(ws) - 1)
        ),
    }
    if kind == "gradient-decay":
        bias = made.bias.tolist() if made.bias is not None else [0.0] * len(ws)
        lifted = [[*w, b] for w, b in zip(ws, bias, strict=True)]
        return [reference.gradient_decay([*r, 1.0], lifted, t, options["beta"]) for r, t in rows]
    if kind in simple:
        return [simple[kind](r, t) for r, t in rows]
    if kind == "adacos":
        scale = reference.adacos_scale(xs, ws, ys, made.scale.item())
        return [reference.adacos(r, ws, t, scale) for r, t in rows]
    return [reference.arcgrad(r, ws, t, options["scale"]) for r, t in rows]


@pytest.mark.parametrize("c", [2, 3, 7])
@pytest.mark.parametrize("name", ALL)
def test_value_equals_the_reference(name, c):
    for n in (1, 8, 9):
        x, y = batch(n, c)
        made = objective(name, c)
        want = torch.tensor(expected(name, made, x, y), dtype=torch.float64)
        torch.testing.assert_close(made(x, y, reduction="none"), want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_reductions_agree(name):
    x, y = batch()
    each = objective(name)(x, y, reduction="none")
    assert each.shape == (9,)
    torch.testing.assert_close(objective(name)(x, y), each.mean())
    torch.testing.assert_close(objective(name)(x, y, reduction="sum"), each.sum())


@pytest.mark.parametrize("name", [n for n in ALL if "straight" not in n])
def test_gradcheck(name):
    x, y = batch()
    made = objective(name).eval()  # the state is frozen

    def loss(features, weight):
        function, state = made.function, made._state()
        bias = made.bias
        return function(features, weight, y, None, state, bias=bias, training=False)[0].sum()

    weight = made.weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(loss, (x.requires_grad_(), weight))


@pytest.mark.parametrize("c", [2, 5])
@pytest.mark.parametrize("name", ALL)
def test_written_out_gradient_equals_autograd_in_a_ragged_stack(name, c):
    stack, n, d = 3, 7, 6
    torch.manual_seed(2)
    x = torch.randn(stack, n, d, dtype=torch.float64)
    y = torch.randint(c, (stack, n))
    valid = torch.arange(n) < torch.tensor([[7], [5], [1]])
    row_weight = valid.double() / valid.sum(1, keepdim=True)
    function = ObjectiveFunction(parse(name).spec, c)
    weights = torch.randn(stack, c, d, dtype=torch.float64)
    bias = torch.randn(stack, c, dtype=torch.float64) if function.has_bias else None
    state = {k: v + 0.1 for k, v in function.init_state(weights).items()}

    leaves = [t.clone().requires_grad_() for t in (x, weights, bias) if t is not None]
    loss, after = function(
        leaves[0], leaves[1], y, valid, state, bias=leaves[2] if bias is not None else None
    )
    gradients = torch.autograd.grad(loss, leaves, row_weight)
    got = function.gradient(x, weights, y, valid, state, row_weight=row_weight, bias=bias)

    close = {"rtol": 1e-11, "atol": 1e-13}
    torch.testing.assert_close(got.loss[valid], loss.detach()[valid], **close)
    for mine, of_autograd in zip((got.features, got.weights, got.bias), gradients, strict=False):
        torch.testing.assert_close(mine, of_autograd, **close)
    for key, value in after.items():
        torch.testing.assert_close(got.state[key], value, **close)


@pytest.mark.parametrize("name", ALL)
def test_a_stack_equals_its_networks_one_by_one(name):
    stack, n, c, d = 3, 7, 4, 6
    torch.manual_seed(3)
    x = torch.randn(stack, n, d, dtype=torch.float64)
    y = torch.randint(c, (stack, n))
    rows = [7, 5, 1]
    valid = torch.arange(n) < torch.tensor(rows)[:, None]
    function = ObjectiveFunction(parse(name).spec, c)
    weights = torch.randn(stack, c, d, dtype=torch.float64)
    bias = torch.randn(stack, c, dtype=torch.float64) if function.has_bias else None
    state = function.init_state(weights)
    loss, after = function(x, weights, y, valid, state, bias=bias)
    for i, count in enumerate(rows):
        alone, alone_after = function(
            x[i, :count],
            weights[i],
            y[i, :count],
            None,
            {k: v[i] for k, v in state.items()},
            bias=None if bias is None else bias[i],
        )
        torch.testing.assert_close(loss[i, :count], alone, rtol=1e-12, atol=1e-14)
        for key, value in alone_after.items():
            torch.testing.assert_close(after[key][i], value, rtol=1e-12, atol=1e-14)


def test_adacos_scale_and_centers_follow_the_papers_over_batches():
    ada, cent = objective("adacos"), objective("center:alpha=0.3")
    assert ada.scale.item() == pytest.approx(math.sqrt(2) * math.log(3), rel=1e-6)
    for seed in range(4):
        x, y = batch(8 + seed, seed=seed)
        scale = reference.adacos_scale(
            x.tolist(), ada.weight.tolist(), y.tolist(), ada.scale.item()
        )
        centers = reference.moved_centers(x.tolist(), y.tolist(), cent.centers.tolist(), 0.3)
        ada(x, y)
        cent(x, y)
        assert ada.scale.item() == pytest.approx(scale, rel=1e-12)
        torch.testing.assert_close(cent.centers, torch.tensor(centers, dtype=torch.float64))


@pytest.mark.parametrize("name", ["adacos", "center"])
def test_evaluation_changes_no_state(name):
    made = objective(name).eval()
    before = copy.deepcopy(made.state_dict())
    x, y = batch()
    made(x, y)
    made.logits(x)
    made.predict(x)
    for key, value in made.state_dict().items():
        assert torch.equal(value, before[key])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adacos_with_two_classes_stays_at_exactly_zero(dtype):
    """A rounding error here would be blown up to full steps by Adam."""
    made = objective("adacos", 2, dtype=dtype)
    for seed in range(20):
        x, y = batch(27 + seed, 2, dtype=dtype, seed=seed)
        x.requires_grad_()
        made(x, y).backward()
        assert made.scale.item() == 0
        assert not x.grad.any()
        assert not made.weight.grad.any()
    assert len(made.predict(batch(200, 2, dtype=dtype)[0]).unique()) == 2  # ties would say 0


def gradients(made, x, y):
    x = x.clone().requires_grad_()
    loss = made(x, y)
    return [*torch.autograd.grad(loss, (x, made.weight)), loss.detach()]


def test_identities_between_methods():
    """M-Softmax with m and gradient decay with exp(-m); and what two classes make of others."""
    x, y = batch()
    for m in (0.5, 1.0, 3.0):
        a = gradients(objective(f"m-soft:margin={m}"), x, y)
        b = gradients(objective(f"gradient-decay:beta={math.exp(-m)!r}"), x, y)
        for left, right in zip(a[:2], b[:2], strict=True):
            torch.testing.assert_close(left, right)
        torch.testing.assert_close(a[2] - m, b[2])
    one, plain = (gradients(objective(n), x, y) for n in ("gradient-decay", "soft"))
    for left, right in zip(one, plain, strict=True):
        torch.testing.assert_close(left, right)
    x, y = batch(c=2)
    soft = gradients(objective("soft", 2), x, y)
    for divergence in ("symmetric", "q-u", "u-q"):
        lm = gradients(objective(f"lm-softmax:divergence={divergence}", 2), x, y)
        for left, right in zip(lm, soft, strict=True):
            torch.testing.assert_close(left, right, rtol=0, atol=1e-15)


def test_label_smoothing_equals_torchs():
    x, y = batch()
    made = objective("label-smoothing:strength=0.3")
    want = F.cross_entropy(x @ made.weight.T, y, label_smoothing=0.3, reduction="none")
    torch.testing.assert_close(made(x, y, reduction="none"), want)


def test_the_regulariser_s_gradient_is_equation_12():
    x, y = batch(c=5)
    made = objective("lm-softmax", 5)
    z = (x @ made.weight.T).detach()
    function = made.function._regularizers[0]
    _, gradient = function.penalty_gradient(z, y, {})
    for i, t in enumerate(y.tolist()):
        others = [c for c in range(5) if c != t]
        q = torch.softmax(z[i, others], 0)
        mean = (q * z[i, others]).sum()
        want = 0.3 / 2 * (q * (z[i, others] - mean) + (q - 1 / 4))
        torch.testing.assert_close(gradient[i, others], want)
        assert gradient[i, t] == 0


def test_gradient_decay_slope_and_its_midpoint():
    """|dJ/dz_y| = (1 - p)/(1 - (1 - beta) p), 1/2 at p = 1/(1 + beta)."""
    for beta in (0.1, 1.0, 5.0):
        p = torch.tensor([0.05, 1 / (1 + beta), 0.95], dtype=torch.float64)
        z = torch.stack([p.log(), (1 - p).log()], 1).requires_grad_()
        function = create(f"gradient-decay:beta={beta}", 2, 2).function
        weights, y = torch.eye(2, dtype=torch.float64), torch.zeros(3, dtype=torch.long)
        loss, _ = function(z, weights, y, None, {})
        (slope,) = torch.autograd.grad(loss.sum(), z)
        torch.testing.assert_close(-slope[:, 0], (1 - p) / (1 - (1 - beta) * p))
        assert -slope[1, 0].item() == pytest.approx(0.5)


def test_extreme_logits_stay_finite():
    """Where a probability underflows: 0 ln 0 is 0, and no constant is subtracted."""
    x = torch.tensor([[1e4, -1e4, 0.0, 5e3]])
    for name in ("lm-softmax", "lm-softmax:divergence=q-u", "label-smoothing", "gradient-decay"):
        made = create(name, 4, 4)
        made.weight.data.copy_(torch.eye(4))
        for t in range(4):
            loss = made(x, torch.tensor([t]))
            (slope,) = torch.autograd.grad(loss, made.weight)
            assert loss.isfinite()
            assert slope.isfinite().all()


def test_a_margin_of_zero_is_the_plain_loss():
    x, y = batch()
    torch.testing.assert_close(objective("m-soft:margin=0")(x, y), objective("soft")(x, y))
    plain = compose(4, 6, similarity=part("cosine"), scale=part("fixed", value=20.0)).double()
    arcface = objective("arcface:margin=0")
    plain.weight.data.copy_(arcface.weight.data)
    torch.testing.assert_close(arcface(x, y), plain(x, y), rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ALL)
def test_logits_and_predictions_are_free_of_the_margin(name):
    x, _y = batch(50)
    made = objective(name).eval()
    cosines = F.normalize(x) @ F.normalize(made.weight).T
    kind = parse(name).preset.name
    if kind in ("arcface", "adacos", "cosine", "cosface", "adacos-fixed"):
        torch.testing.assert_close(made.similarities(x), cosines)
    factor = parse(name).options.get("scale", 1.0)
    if kind == "adacos":
        factor = made.scale
    if kind == "adacos-fixed":
        factor = math.sqrt(2) * math.log(3)
    torch.testing.assert_close(made.logits(x), made.similarities(x) * factor)
    torch.testing.assert_close(made.predict(x), made.similarities(x).argmax(1))
    if kind == "arcgrad":
        torch.testing.assert_close(made.predict(x), cosines.argmax(1))


def slope_at(name, cosine, dtype):
    """The loss's slope with respect to the target's cosine, at one of -1, 0, 1 and next to them."""
    made = create(name, 3, 2)
    function = made.function
    similarity = torch.tensor([[cosine, 0.3, -0.2]], dtype=dtype, requires_grad=True)
    target = torch.tensor([0])
    changed = similarity
    if name.startswith("arcface"):
        t = function._margin.apply(similarity.gather(-1, target[:, None]))
        changed = similarity.scatter(-1, target[:, None], t)
    if name.startswith("arcgrad"):
        changed = -arccos(similarity)
    loss = F.cross_entropy(function._scale.apply(changed, {}), target)
    (slope,) = torch.autograd.grad(loss, similarity)
    return slope[0, 0].item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["arcface", "arcgrad:scale=5", "arcface:margin=0.5"])
@pytest.mark.parametrize("cosine", [1.0, -1.0, 0.0, 1 - 1e-7, -1 + 1e-7, 0.999, -0.999])
def test_slope_at_the_edges_is_bounded_nonzero_and_negative(name, cosine, dtype):
    scale = parse(name).options["scale"]
    bound = scale / math.sqrt(4 * torch.finfo(dtype).eps)
    slope = slope_at(name, cosine, dtype)
    assert math.isfinite(slope)
    assert -bound * 1.01 <= slope < 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_edges_are_finite_and_agree_with_float64(name, dtype, autocast):
    """Aligned, opposite, orthogonal, zero features; C = 2; a batch of 1; half-precision input."""
    for c in (2, 4):
        wide = objective(name, c).eval()
        made = copy.deepcopy(wide).float()
        w = wide.weight.detach()
        x = torch.cat([w[:1], -w[:1], torch.zeros(1, 6, dtype=torch.float64), w[1:2] * 30])
        for rows in ([0, 1, 2, 3], [0], [2]):
            narrow = x[rows].to(dtype)
            y = torch.zeros(len(rows), dtype=torch.long)
            features = narrow.clone().requires_grad_()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = made(features, y, reduction="none")
            loss.sum().backward()
            assert loss.dtype == torch.float32
            assert made.weight.dtype == torch.float32
            assert features.grad.isfinite().all()
            assert made.weight.grad.isfinite().all()
            want = wide(narrow.double(), y, reduction="none").detach()
            # Near cos = +-1 the angle itself is only good to the root of the rounding.
            tolerance = {"rtol": 1e-5, "atol": 0.05 if "arc" in name else 1e-4}
            torch.testing.assert_close(loss.double(), want, **tolerance)


def test_arccos_is_exact_away_from_the_edges():
    cosine = torch.linspace(-0.9999, 0.9999, 999, dtype=torch.float64, requires_grad=True)
    angle = arccos(cosine)
    torch.testing.assert_close(angle, torch.acos(cosine), rtol=0, atol=1e-15)
    (slope,) = torch.autograd.grad(angle.sum(), cosine)
    torch.testing.assert_close(slope, -1 / torch.sqrt(1 - cosine.detach() ** 2))


def test_arcface_slopes_against_their_formulas():
    theta = torch.linspace(0.05, math.pi - 0.05, 60, dtype=torch.float64)
    for margin in (0.1, 0.5):
        for gradient in ("exact", "straight-through"):
            name = f"arcface:gradient={gradient},margin={margin}"
            function = create(name, 3, 2).function
            cosine = theta.cos().requires_grad_()
            (slope,) = torch.autograd.grad(function._margin.apply(cosine).sum(), cosine)
            exact = torch.sin(theta + margin) / torch.sin(theta)
            beyond = theta + margin > math.pi
            want = (
                torch.where(beyond, 1.0, exact) if gradient == "exact" else torch.ones_like(theta)
            )
            torch.testing.assert_close(slope, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.tensor([0.0, 1.0]), "dtype torch.float32"),
        (torch.tensor([0, 4]), "labels from 0 to 4, expected 0 to 3"),
        (torch.tensor([-1, 0]), "labels from -1 to 0"),
        (torch.tensor([0]), "shape (1,), expected (2,)"),
    ],
)
def test_bad_targets_are_named(target, message):
    with pytest.raises(ValueError, match="target") as caught:
        create("soft", 4, 3)(torch.zeros(2, 3), target)
    assert message in str(caught.value)


def test_bad_features_and_reductions_are_named():
    made = create("soft", 4, 3)
    with pytest.raises(ValueError, match=r"features: shape \(2, 5\), expected \(N, 3\)"):
        made(torch.zeros(2, 5), torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match=r"dtype torch\.int64"):
        made.logits(torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="reduction: 'avg'"):
        made(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), reduction="avg")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"similarity": part("linear"), "scale": part("adacos")}, "use similarity 'cosine'"),
        (
            {
                "similarity": part("linear"),
                "margin": part("additive-angle", margin=0.1, gradient="exact", beyond="linear"),
            },
            "'additive-angle' is defined on cosines",
        ),
        ({"similarity": part("cosin")}, "unknown similarity 'cosin'"),
        ({"similarity": part("cosine"), "margin": part("additive-logit")}, "margin"),
        ({"similarity": part("cosine"), "loss": part("hing")}, "unknown loss 'hing'"),
    ],
)
def test_impossible_compositions_are_refused_with_their_reason(parts, message):
    with pytest.raises(RequestError) as caught:
        compose(3, 4, **parts)
    assert message in str(caught.value)


def test_a_composition_that_nobody_published_trains():
    made = compose(
        3,
        4,
        similarity=part("angle"),
        scale=part("fixed", value=5.0),
        margin=part("additive-logit", margin=0.2),
        regularizers=(part("center", strength=0.1, alpha=0.5),),
    )
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    made(x, y).backward()
    assert made.weight.grad.abs().sum() > 0
    assert made.centers.abs().sum() > 0


def test_fewer_than_two_classes_is_an_error():
    with pytest.raises(RequestError, match="at least 2 classes"):
        create("soft", 1, 3)
    with pytest.raises(RequestError, match="feature_dim = 0"):
        create("soft", 2, 0)


def test_the_python_contract():
    assert available()["arcface"] == {
        "scale": 20.0,
        "margin": 0.1,
        "gradient": "exact",
        "beyond": "linear",
    }
    made = create("center", 3, 4, strength=0.1)
    assert made.weight.shape == (3, 4)
    assert isinstance(made.weight, torch.nn.Parameter)
    assert made.bias is None
    assert made.centers.shape == (3, 4)
    assert create("soft", 3, 4, bias=True).bias.shape == (3,)
    assert create("adacos", 3, 4).scale.shape == ()
    restored = create("center", 3, 4, strength=0.1)
    restored.load_state_dict(made.state_dict())
    assert (
        pickle.loads(pickle.dumps(parse("arcgrad:scale=5"))).spec == parse("arcgrad:scale=5").spec
    )
    assert "num_classes=3" in repr(made)
