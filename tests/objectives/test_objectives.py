"""Values, gradients and edges of every preset."""

import copy
import math
import pickle

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from marginctl.errors import RequestError
from marginctl.objectives import available, compose, create, part
from marginctl.objectives.autograd import Inputs, forward_pass
from marginctl.objectives.functional import ObjectiveFunction
from marginctl.objectives.least_squares import batch_scale
from marginctl.objectives.parsing import parse
from tests.objectives import reference

ALL = [
    "soft",
    "soft:bias=true",
    "center",
    "center:alpha=0.3,strength=1.5",
    "m-soft",
    "m-soft:margin=2",
    "arcface",
    "arcface:margin=0.1,scale=20",
    "arcface:margin=1.2,scale=64",
    "arcface:beyond=formula,margin=2.5",
    "arcface:beyond=easy,margin=1.2",
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
    "cosine-learned",
    "cosine-ls",
    "cosine-ls:pool=batch",
    "cosine-ls:pool=least-mean-error",
    "cosine-ls:pool=running-mean",
    "sphereface",
    "sphereface:annealing=5,margin=3",
    "l-softmax",
    "l-softmax:annealing=0.5,margin=2",
    "l-gm",
    "l-gm:margin=0.3,strength=1",
    "super-symmetry",
    "super-symmetry:bias=true,strength=3",
    "similarity=linear;loss=max-softplus(margin=0.5)",
]


def batch(n=9, c=4, d=6, *, dtype=torch.float64, seed=0):
    stream = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=stream, dtype=torch.float64).to(dtype)
    y = torch.randint(c, (n,), generator=stream)
    return x, y


def objective(name, c=4, d=6, *, dtype=torch.float64, seed=1):
    torch.manual_seed(seed)
    module = create(name, c, d).to(dtype)
    if "super-symmetry" in name and module.bias is not None:
        module.bias.data.zero_()
    if "center" in name:
        module.centers.copy_(torch.randn(c, d, dtype=torch.float64))
    return module


def expected(name, module, x, y):
    """The reference's losses and what it says of the state after the batch."""
    xs, ws, ys = x.tolist(), module.weight.tolist(), y.tolist()
    if name.startswith("similarity"):
        return [reference.max_softplus(r, ws, t, 0.5) for r, t in zip(xs, ys, strict=True)]
    options = parse(name).options
    rows = list(zip(xs, ys, strict=True))
    kind = parse(name).preset
    if kind == "soft":
        bias = module.bias.tolist() if module.bias is not None else [0.0] * len(ws)
        return [
            reference.cross_entropy(
                [reference.dot(r, w) + b for w, b in zip(ws, bias, strict=True)], t
            )
            for r, t in rows
        ]
    if kind == "m-soft":
        return [reference.m_soft(r, ws, t, options["margin"]) for r, t in rows]
    if kind == "center":
        centers = module.centers.tolist()
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
    if kind in ("sphereface", "l-softmax"):
        o, weight_norm = options, kind == "l-softmax"
        return [
            reference.multiplicative(
                r, ws, t, int(o["margin"]), o["annealing"], weight_norm=weight_norm
            )
            for r, t in rows
        ]
    if kind == "l-gm":
        return [reference.l_gm(r, ws, t, options["margin"], options["strength"]) for r, t in rows]
    if kind == "super-symmetry":
        assert module.bias is None or not module.bias.any()
        return [reference.super_symmetry(r, ws, t, options["strength"]) for r, t in rows]
    if kind == "cosine-learned":
        return [reference.adacos(r, ws, t, module.log_scale.exp().item()) for r, t in rows]
    if kind == "cosine-ls":
        scales = [reference.least_squares_scale(r, ws) for r, _ in rows]
        if options["pool"] in ("batch", "running-mean"):  # the first batch's mean
            scales = [math.fsum(scales) / len(scales)] * len(scales)
        if options["pool"] == "least-mean-error":
            scales = [reference.batch_scale(xs, ws)] * len(scales)
        return [reference.adacos(r, ws, t, s) for (r, t), s in zip(rows, scales, strict=True)]
    if kind == "gradient-decay":
        bias = module.bias.tolist() if module.bias is not None else [0.0] * len(ws)
        lifted = [[*w, b] for w, b in zip(ws, bias, strict=True)]
        return [reference.gradient_decay([*r, 1.0], lifted, t, options["beta"]) for r, t in rows]
    if kind in simple:
        return [simple[kind](r, t) for r, t in rows]
    if kind == "adacos":
        scale = reference.adacos_scale(xs, ws, ys, module.scale.item())
        return [reference.adacos(r, ws, t, scale) for r, t in rows]
    return [reference.arcgrad(r, ws, t, options["scale"]) for r, t in rows]


@pytest.mark.parametrize("c", [2, 3, 7])
@pytest.mark.parametrize("name", ALL)
def test_value_equals_the_reference(name, c):
    for n in (1, 8, 9):
        x, y = batch(n, c)
        module = objective(name, c)
        want = torch.tensor(expected(name, module, x, y), dtype=torch.float64)
        torch.testing.assert_close(module(x, y, reduction="none"), want, rtol=1e-10, atol=1e-12)


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
    module = objective(name).eval()  # the state is frozen
    names = [n for n, _ in module.named_parameters()]

    def loss(features, *parameters):
        given = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(module, given, (features, y, "none"))

    parameters = [p.detach().clone().requires_grad_() for p in module.parameters()]
    assert torch.autograd.gradcheck(loss, (x.requires_grad_(), *parameters))


@pytest.mark.parametrize("name", ALL)
def test_second_derivatives(name):
    """Of the gradient with `create_graph=True`, which has the bits of that without."""
    x, y = batch(3, 3, 2)
    module = objective(name, 3, 2).eval()  # the state is frozen
    leaves = [x.requires_grad_(), *module.parameters()]
    names = [n for n, _ in module.named_parameters()]

    def loss(features, *parameters):
        given = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(module, given, (features, y, "none"))

    assert torch.autograd.gradgradcheck(loss, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(module.logits, x, fast_mode=True)
    plain = torch.autograd.grad(loss(*leaves).mean(), leaves)
    with_graph = torch.autograd.grad(loss(*leaves).mean(), leaves, create_graph=True)
    assert all(map(torch.equal, plain, with_graph))


@pytest.mark.parametrize("name", ["soft", "adacos", "center", "arcgrad", "cosine-learned"])
def test_a_gradient_penalty_reaches_a_network_in_training(name):
    """Its gradient is that of finite differences; the state is that before the batch."""
    x, y = batch()
    module, network = objective(name), torch.nn.Linear(6, 6).double()
    start = copy.deepcopy(module)

    def penalty(graph=True):
        module = copy.deepcopy(start)
        features = network(x).requires_grad_()
        (slope,) = torch.autograd.grad(module(features, y), features, create_graph=graph)
        return slope.square().sum()

    (found,) = torch.autograd.grad(penalty(), network.bias)
    if name == "adacos":  # its scale counts as a constant, and follows the batch here
        assert found.abs().sum() > 0
        return
    step, wanted = 1e-6, torch.empty(6, dtype=torch.float64)
    for i in range(6):
        sides = []
        for sign in (1, -1):
            network.bias.data[i] += sign * step
            sides.append(penalty(graph=False).item())
            network.bias.data[i] -= sign * step
        wanted[i] = (sides[0] - sides[1]) / (2 * step)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", ["arcgrad", "arcface", "l-softmax", "cosine"])
def test_second_derivatives_at_the_ends_of_the_cosine_are_finite(name):
    module = objective(name, dtype=torch.float32)
    weight = module.weight.detach()
    x = torch.cat([weight, -weight, torch.zeros(1, 6)]).requires_grad_()
    y = torch.arange(len(x)) % 4
    (slope,) = torch.autograd.grad(module(x, y), x, create_graph=True)
    for gradient in torch.autograd.grad(slope.square().sum(), (x, module.weight)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_logits_and_similarities_are_differentiable(name):
    x, _ = batch()
    module = objective(name).eval()
    for compute in (module.logits, module.similarities):
        assert torch.autograd.gradcheck(compute, (x.requires_grad_(),))


@pytest.mark.parametrize("c", [2, 5])
@pytest.mark.parametrize("name", ALL)
def test_the_stacked_gradient_equals_each_network_s_own(name, c):
    """A ragged stack without autograd, against each network by itself through autograd."""
    stack, n, d, rows = 3, 7, 6, [7, 5, 1]
    torch.manual_seed(2)
    x = torch.randn(stack, n, d, dtype=torch.float64)
    y = torch.randint(c, (stack, n))
    valid = torch.arange(n) < torch.tensor(rows)[:, None]
    row_weight = valid.double() / valid.sum(1, keepdim=True)
    function = ObjectiveFunction(parse(name).spec, c)
    weights = torch.randn(stack, c, d, dtype=torch.float64)
    bias = torch.randn(stack, c, dtype=torch.float64) if function.has_bias else None
    state = {k: v + 0.1 for k, v in function.init_state(weights).items()}
    loss, after, got = function.gradient(
        x, weights, y, valid, state, row_weight=row_weight, bias=bias
    )
    close = {"rtol": 1e-11, "atol": 1e-13}
    for i, count in enumerate(rows):
        own = {k: v[i].clone() for k, v in state.items()}
        leaves = [x[i, :count].clone(), weights[i].clone()]
        leaves += [bias[i].clone()] if bias is not None else []
        leaves += [own[k] for k in function.trained]
        for leaf in leaves:
            leaf.requires_grad_()
        alone, alone_after = function(
            leaves[0],
            leaves[1],
            y[i, :count],
            None,
            own,
            bias=leaves[2] if function.has_bias else None,
        )
        torch.testing.assert_close(loss[i, :count], alone.detach(), **close)
        want = torch.autograd.grad(alone.mean(), leaves)
        found = [got.features[i, :count], got.weights[i]]
        found += [t[i] for t in (got.bias, got.log_scale) if t is not None]
        for mine, of_autograd in zip(found, want, strict=True):
            torch.testing.assert_close(mine, of_autograd, **close)
        for key in set(after) - set(function.trained):
            torch.testing.assert_close(after[key][i], alone_after[key], **close)


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


def test_the_running_mean_of_kappa_follows_the_batches():
    """The plain mean of the first ten batches, then a tenth of each; predictions use it."""
    module, expected = objective("cosine-ls:pool=running-mean"), 0.0
    for step in range(1, 14):
        x, y = batch(1 + step % 5, seed=step)
        kappa = [reference.least_squares_scale(r, module.weight.tolist()) for r in x.tolist()]
        expected += (math.fsum(kappa) / len(kappa) - expected) / min(step, 10)
        module(x, y)
        assert module.scale.item() == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(module.logits(x), module.similarities(x) * expected)


@pytest.mark.parametrize("pool", ["batch", "least-mean-error", "running-mean"])
def test_pooled_scales_of_a_stack_with_masked_rows(pool):
    """Two leading dimensions; networks of 5, 3, 1 and no valid rows among masked ones."""
    torch.manual_seed(4)
    x, w = torch.randn(2, 2, 5, 6).double(), torch.randn(2, 2, 4, 6).double()
    y, counts = torch.randint(4, (2, 2, 5)), torch.tensor([[5, 3], [1, 0]])
    valid = (torch.arange(5) < counts[..., None]).flip(-1)
    function = ObjectiveFunction(parse(f"cosine-ls:pool={pool}").spec, 4)
    state = function.init_state(w)
    loss, after, gradient = function.gradient(x, w, y, valid, state, row_weight=valid.double())
    for i, j in [(0, 0), (0, 1), (1, 0)]:
        rows, weights = x[i, j][valid[i, j]].tolist(), w[i, j].tolist()
        kappa = [reference.least_squares_scale(row, weights) for row in rows]
        scale = math.fsum(kappa) / len(kappa)
        if pool == "least-mean-error":
            scale = reference.batch_scale(rows, weights)
        if pool == "running-mean":
            assert after["scale"][i, j].item() == pytest.approx(scale, rel=1e-12)
        targets = y[i, j][valid[i, j]].tolist()
        expected = [
            reference.adacos(r, weights, t, scale) for r, t in zip(rows, targets, strict=True)
        ]
        assert loss[i, j][valid[i, j]].tolist() == pytest.approx(expected, rel=1e-10)
    assert not gradient.features[1, 1].any()
    assert not gradient.weights[1, 1].any()
    for key, value in state.items():
        assert after[key][1, 1] == value[1, 1]


@pytest.mark.parametrize("name", ["adacos", "center", "cosine-ls:pool=running-mean"])
def test_evaluation_changes_no_state(name):
    module = objective(name).eval()
    before = copy.deepcopy(module.state_dict())
    x, y = batch()
    module(x, y)
    module.logits(x)
    module.predict(x)
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adacos_with_two_classes_stays_at_exactly_zero(dtype):
    """A rounding error here would be blown up to full steps by Adam."""
    module = objective("adacos", 2, dtype=dtype)
    for seed in range(20):
        x, y = batch(27 + seed, 2, dtype=dtype, seed=seed)
        x.requires_grad_()
        module(x, y).backward()
        assert module.scale.item() == 0
        assert not x.grad.any()
        assert not module.weight.grad.any()
    assert len(module.predict(batch(200, 2, dtype=dtype)[0]).unique()) == 2  # ties would say 0


def gradients(module, x, y):
    x = x.clone().requires_grad_()
    loss = module(x, y)
    return [*torch.autograd.grad(loss, (x, module.weight)), loss.detach()]


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
    module = objective("label-smoothing:strength=0.3")
    want = F.cross_entropy(x @ module.weight.T, y, label_smoothing=0.3, reduction="none")
    torch.testing.assert_close(module(x, y, reduction="none"), want)


def test_the_regulariser_s_gradient_is_equation_12():
    x, y = batch(c=5)
    module = objective("lm-softmax", 5)
    z = (x @ module.weight.T).detach()
    _, gradient = module.function._constant.regularizers[0].add_gradient(z, y, {}, None)
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
        module = create(name, 4, 4)
        module.weight.data.copy_(torch.eye(4))
        for t in range(4):
            loss = module(x, torch.tensor([t]))
            (slope,) = torch.autograd.grad(loss, module.weight)
            assert loss.isfinite()
            assert slope.isfinite().all()


COSINES_BY_NORM = "similarity=cosine;scale=feature-norm"
NEUTRAL = [
    ("m-soft:margin=0", "soft"),
    ("gradient-decay:beta=1", "soft"),
    ("cosface:margin=0,scale=20", "cosine:scale=20"),
    ("arcface:margin=0", "cosine:scale=64"),
    ("arcface:gradient=straight-through,margin=0", "cosine:scale=64"),
    ("sphereface:margin=1", COSINES_BY_NORM),
    ("l-softmax:margin=1", "soft"),
    ("l-softmax:annealing=1e12", "soft"),
    ("l-gm:margin=0,strength=0", "similarity=gaussian"),
    ("center:strength=0", "soft"),
    ("label-smoothing:strength=0", "soft"),
    ("lm-softmax:strength=0", "soft"),
    ("super-symmetry:strength=0", "soft"),
]


@pytest.mark.parametrize(("neutral", "plain"), NEUTRAL)
def test_a_neutral_margin_or_strength_is_the_plain_loss(neutral, plain):
    """Value and gradients, at random features and where they are aligned and opposite."""
    x, y = batch()
    a, b = objective(neutral), objective(plain)
    a.weight.data.copy_(b.weight.data)
    x = torch.cat([x, b.weight.detach()[:1], -b.weight.detach()[:1]])
    y = torch.cat([y, torch.tensor([0, 0])])
    for left, right in zip(gradients(a, x, y), gradients(b, x, y), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_logits_and_predictions_are_free_of_the_margin(name):
    x, _y = batch(50)
    module = objective(name).eval()
    cosines = F.normalize(x) @ F.normalize(module.weight).T
    spec = parse(name).spec
    similarities = {
        "linear": x @ module.weight.T + (0 if module.bias is None else module.bias),
        "cosine": cosines,
        "angle": -torch.acos(cosines),
        "gaussian": -(x[:, None] - module.weight).square().sum(-1) / 2,
    }[spec.similarity.kind]
    if spec.scale.kind == "feature-norm-weight-norm":  # what differs by class is compared
        similarities = similarities * module.weight.norm(dim=1)
    torch.testing.assert_close(module.similarities(x), similarities)
    factor = {
        "fixed": lambda: spec.scale["value"],
        "learned": lambda: 16.0,
        "adacos": lambda: module.scale,
        "adacos-fixed": lambda: math.sqrt(2) * math.log(3),
        "least-squares": lambda: 16.0 if "running" in name else module.optimal_scale(x)[:, None],
        "feature-norm": lambda: x.norm(dim=1, keepdim=True),
        "feature-norm-weight-norm": lambda: x.norm(dim=1, keepdim=True),
    }[spec.scale.kind]()
    torch.testing.assert_close(module.logits(x), similarities * factor)
    torch.testing.assert_close(module.predict(x), similarities.argmax(1))
    if spec.similarity.kind == "angle":
        torch.testing.assert_close(module.predict(x), cosines.argmax(1))
    if spec.scale.kind == "feature-norm-weight-norm":  # a linear classifier
        torch.testing.assert_close(module.logits(x), x @ module.weight.T)


ON_COSINES = [
    *("cosine", "cosface", "arcface", "arcface:margin=0.5", "arcface:gradient=straight-through"),
    *("arcgrad:scale=5", "sphereface:margin=3", "l-softmax:margin=3", "sphereface:annealing=5"),
    *("cosine-learned", "cosine-ls", "adacos", "adacos-fixed"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ON_COSINES)
@pytest.mark.parametrize("cosine", [1.0, -1.0, 0.0, 1 - 1e-7, -1 + 1e-7, 0.999, -0.999])
def test_slope_at_the_edges_is_bounded_nonzero_and_negative(name, cosine, dtype):
    """The loss's slope with respect to the target's cosine, at -1, 0, 1 and next to them."""
    function = create(name, 3, 2).function
    x = torch.tensor([[cosine, math.sqrt(1 - cosine**2)]], dtype=dtype)
    weights = torch.tensor([[1.0, 0.0], [0.0, -1.0], [-0.6, 0.8]], dtype=dtype)
    state = function.init_state(weights)
    inputs = Inputs(x, weights, None, torch.tensor([0]))
    *_, gradients = forward_pass(
        function._constant, inputs, state, training=False, with_gradients=True
    )
    slope = gradients.product[0, 0].item()  # |w_y| = 1
    largest = max(64.0, 16 * 102.7)
    if name == "cosine-ls" and cosine > 0.99:  # kappa* of 100 and a probability of 1
        assert slope <= 0
        return
    assert math.isfinite(slope)
    assert -largest / math.sqrt(4 * torch.finfo(dtype).eps) <= slope < 0


def ls_error(x, w, kappa):
    x, w = F.normalize(x), F.normalize(w)
    alpha = (kappa[:, None] * (x @ w.T)).softmax(1)
    return (x - alpha @ w).square().sum(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_edges_are_finite_and_agree_with_float64(name, dtype, autocast):
    """Aligned, opposite, orthogonal, zero features; C = 2; a batch of 1; half-precision input."""
    for c in (2, 4):
        wide = objective(name, c).eval()
        module = copy.deepcopy(wide).float()
        w = wide.weight.detach()
        x = torch.cat([w[:1], -w[:1], torch.zeros(1, 6, dtype=torch.float64), w[1:2] * 30])
        for rows in ([0, 1, 2, 3], [0], [2]):
            narrow = x[rows].to(dtype)
            y = torch.zeros(len(rows), dtype=torch.long)
            features = narrow.clone().requires_grad_()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = module(features, y, reduction="none")
            loss.sum().backward()
            assert loss.dtype == torch.float32
            assert module.weight.dtype == torch.float32
            assert features.grad.isfinite().all()
            assert module.weight.grad.isfinite().all()
            want = wide(narrow.double(), y, reduction="none").detach()
            if name.startswith("cosine-ls") and "running" not in name:
                # the scales may differ where candidates are as good
                scale = module.optimal_scale(narrow).double()
                best = wide.optimal_scale(narrow.double())
                cosines = wide.similarities(narrow.double()).detach()
                if "error" in name:
                    scale, best = (
                        batch_scale(m.similarities(f).detach(), f, m.weight.detach(), None).double()
                        for m, f in ((module, narrow.float()), (wide, narrow.double()))
                    )
                errors = [ls_error(narrow.double(), w, k) for k in (scale, best)]
                if "error" in name:
                    errors = [e.mean() for e in errors]
                assert (errors[0] <= errors[1] + 1e-6).all()
                scale = scale.mean() if "batch" in name else scale[:, None]
                want = F.cross_entropy(cosines * scale, y, reduction="none")
            # Near cos = +-1 the angle itself is only good to the root of the rounding.
            tolerance = {"rtol": 1e-5, "atol": 0.05 if "arc" in name else 1e-4}
            torch.testing.assert_close(loss.double(), want, **tolerance)


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
    module = create("soft", 4, 3)
    with pytest.raises(ValueError, match=r"features: shape \(2, 5\), expected \(N, 3\)"):
        module(torch.zeros(2, 5), torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match=r"dtype torch\.int64"):
        module.logits(torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="reduction: 'avg'"):
        module(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), reduction="avg")


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
        ({"similarity": part("cosin")}, "unknown similarity 'cosin': expected one of linear"),
        ({"similarity": part("cosine"), "margin": part("additive-logit", m=1)}, "option 'm'"),
        ({"similarity": part("cosine"), "loss": part("hing")}, "unknown loss 'hing'"),
        (
            {"similarity": part("cosine"), "margin": part("multiplicative-distance")},
            "'multiplicative-distance' is defined on squared distances",
        ),
        ({"similarity": part("linear"), "scale": part("feature-norm")}, "use similarity 'cosine'"),
        ({"similarity": part("cosine"), "scale": part("fixed", value=-1.0)}, "value = -1.0"),
    ],
)
def test_impossible_compositions_are_refused_with_their_reason(parts, message):
    with pytest.raises(RequestError) as caught:
        compose(3, 4, **parts)
    assert message in str(caught.value)


def test_a_composition_that_nobody_published_trains():
    module = compose(
        3,
        4,
        similarity=part("angle"),
        scale=part("fixed", value=5.0),
        margin=part("additive-logit", margin=0.2),
        regularizers=(part("center", strength=0.1, alpha=0.5),),
    )
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    module(x, y).backward()
    assert module.weight.grad.abs().sum() > 0
    assert module.centers.abs().sum() > 0


def test_fewer_than_two_classes_is_an_error():
    with pytest.raises(RequestError, match="num_classes = 1: expected an integer, at least 2"):
        create("soft", 1, 3)
    with pytest.raises(RequestError, match="feature_dim = 0"):
        create("soft", 2, 0)


def test_the_python_contract():
    assert available()["arcface"] == {
        "scale": 64.0,
        "margin": 0.5,
        "gradient": "exact",
        "beyond": "linear",
    }
    module = create("center", 3, 4, strength=0.1)
    assert module.weight.shape == (3, 4)
    assert isinstance(module.weight, torch.nn.Parameter)
    assert module.bias is None
    assert module.centers.shape == (3, 4)
    assert create("soft", 3, 4, bias=True).bias.shape == (3,)
    assert create("adacos", 3, 4).scale.shape == ()
    restored = create("center", 3, 4, strength=0.1)
    restored.load_state_dict(module.state_dict())
    assert (
        pickle.loads(pickle.dumps(parse("arcgrad:scale=5"))).spec == parse("arcgrad:scale=5").spec
    )
    assert "num_classes=3" in repr(module)
