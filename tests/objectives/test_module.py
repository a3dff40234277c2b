"""The module: class weights, compilation, half precision, other libraries."""

import copy
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from marginctl.errors import RequestError
from marginctl.objectives import available, compose, create, part

EVERY = [
    *available(),
    "m-soft:margin=linear(start=0,end=1)",
    "gradient-decay:beta=warm-up(end=3)",
    "sphereface:annealing=sphereface",
]


# of each kind of state, schedule and similarity one
COMPILED = ["adacos", "center", "cosine-learned", "l-gm", "soft", *EVERY[-3:]]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in COMPILED else pytest.mark.slow) for n in EVERY],
)
def test_a_compiled_objective_is_the_same_one(name):
    """Traced whole, without a break; over training steps with their state and schedules."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    plain = create(name, 7, 5)
    copied = copy.deepcopy(plain)
    compiled = torch.compile(copied, backend="aot_eager", fullgraph=True)
    for step in range(3):
        x, y = torch.randn(6, 5), torch.randint(7, (6,))
        found = []
        for module, call in ((plain, plain), (copied, compiled)):
            module.set_progress(step, 3)
            leaf = x.clone().requires_grad_()
            loss = call(leaf, y)
            slopes = torch.autograd.grad(loss, (leaf, *module.parameters()))
            found.append((loss, *slopes, *module.buffers()))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.slow  # 20 s of compilation
@pytest.mark.skipif(not shutil.which("g++"), reason="torch compiles with g++")
def test_a_compiled_backward_pass_reads_the_centers_before_the_batch():
    """It may form them anew from the buffer, which must not have moved in place."""
    torch.manual_seed(0)
    plain = create("center:strength=1", 7, 5)
    copied = copy.deepcopy(plain)
    x, y = torch.randn(6, 5, requires_grad=True), torch.randint(7, (6,))
    (want,) = torch.autograd.grad(plain(x, y), x)
    (slope,) = torch.autograd.grad(torch.compile(copied)(x, y), x)
    torch.testing.assert_close(slope, want)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_weights_are_torchs(reduction):
    torch.manual_seed(0)
    x, y = torch.randn(9, 6), torch.randint(4, (9,))
    weights = torch.tensor([0.5, 2.0, 0.0, 1.0])
    module = create("soft", 4, 6, class_weights=weights)
    want = F.cross_entropy(x @ module.weight.T, y, weight=weights, reduction=reduction)
    torch.testing.assert_close(module(x, y, reduction=reduction), want)


def test_equal_class_weights_change_nothing():
    torch.manual_seed(0)
    x, y = torch.randn(9, 6), torch.randint(4, (9,))
    module = create("arcface", 4, 6, class_weights=torch.full((4,), 3.0))
    plain = create("arcface", 4, 6)
    plain.weight.data.copy_(module.weight.data)
    torch.testing.assert_close(module(x, y), plain(x, y))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(3), r"shape \(3,\), expected \(4,\)"),
        (torch.tensor([1.0, -1, 1, 1]), "at least 0"),
        (torch.tensor([1.0, torch.nan, 1, 1]), "finite"),
        (torch.zeros(4), "not all 0"),
    ],
)
def test_bad_class_weights_are_named(weights, message):
    with pytest.raises(RequestError, match=message):
        create("soft", 4, 6, class_weights=weights)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", EVERY)
def test_a_half_module_computes_in_float32_and_stays_half(name, dtype):
    torch.manual_seed(0)
    wide = create(name, 4, 6)
    module = copy.deepcopy(wide).to(dtype)
    wide.load_state_dict(module.state_dict())
    x, y = torch.randn(9, 6).to(dtype), torch.randint(4, (9,))
    leaf = x.clone().requires_grad_()
    loss = module(leaf, y)
    loss.backward()
    assert loss.dtype == torch.float32
    assert {p.dtype for p in module.parameters()} == {dtype}
    assert leaf.grad.dtype == dtype
    torch.testing.assert_close(loss, wide(x.float(), y))


def test_one_network_fits_where_torch_gives_numbers():
    """Through numpy and back: what a downstream script does with logits."""
    module = create("arcgrad", 3, 4)
    logits = module.logits(torch.randn(5, 4)).detach().numpy()
    assert logits.shape == (5, 3)
    assert np.isfinite(logits).all()


class TestPytorchMetricLearning:
    """Its losses, away from their edges: it clamps cosines and adds an epsilon to norms."""

    @pytest.fixture(autouse=True)
    def _data(self):
        torch.manual_seed(1)
        self.x = torch.randn(32, 16, dtype=torch.float64)
        self.y = torch.randint(5, (32,))

    def compare(self, name, theirs, weights_first=False, tolerance=1e-5):
        ours = create(name, 5, 16).double()
        theirs = theirs.double()
        theirs.W.data.copy_(ours.weight.data.T)
        a, b = self.x.clone().requires_grad_(), self.x.clone().requires_grad_()
        mine, want = ours(a, self.y), theirs(b, self.y)
        torch.testing.assert_close(mine, want, rtol=tolerance, atol=0)
        mine.backward()
        want.backward()
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(ours.weight.grad, theirs.W.grad.T, rtol=1e-4, atol=1e-6)

    def test_arcface(self):
        from pytorch_metric_learning.losses import ArcFaceLoss

        degrees = 0.3 * 180 / np.pi
        self.compare("arcface:scale=20,margin=0.3", ArcFaceLoss(5, 16, margin=degrees, scale=20))

    def test_cosface(self):
        from pytorch_metric_learning.losses import CosFaceLoss

        self.compare("cosface:scale=20,margin=0.2", CosFaceLoss(5, 16, margin=0.2, scale=20))

    def test_normalized_softmax(self):
        from pytorch_metric_learning.losses import NormalizedSoftmaxLoss

        self.compare("cosine:scale=20", NormalizedSoftmaxLoss(5, 16, temperature=0.05))

    def test_sphereface(self):
        from pytorch_metric_learning.losses import SphereFaceLoss

        self.compare("sphereface:margin=3", SphereFaceLoss(5, 16, margin=3, scale=1))

    def test_l_softmax(self):
        from pytorch_metric_learning.losses import LargeMarginSoftmaxLoss

        self.compare("l-softmax:margin=3", LargeMarginSoftmaxLoss(5, 16, margin=3, scale=1))


class TestOverflow:
    """Features that overflowed in float16 spoil a batch, and nothing after it."""

    @pytest.mark.parametrize("bad", [torch.inf, torch.nan])
    @pytest.mark.parametrize("name", ["adacos", "center"])
    def test_the_state_stays_finite(self, name, bad):
        torch.manual_seed(0)
        module = create(name, 6, 8)
        x, y = torch.randn(32, 8), torch.randint(6, (32,))
        module(x, y)
        spoilt = x.clone()
        spoilt[0, 0] = bad
        module(spoilt, y)
        assert all(b.isfinite().all() for b in module.buffers())
        assert module(x, y).isfinite()

    def test_class_weights_are_summed_wide(self):
        module = create("soft", 10, 16, class_weights=torch.full((10,), 50.0)).half()
        x, y = torch.randn(2048, 16).half(), torch.randint(10, (2048,))
        plain = create("soft", 10, 16)
        plain.weight.data.copy_(module.weight.data)
        torch.testing.assert_close(module(x, y), plain(x.float(), y))

    def test_what_moves_by_small_steps_stays_wide_in_a_half_module(self):
        module = create("center", 4, 8, alpha=0.01).bfloat16()
        assert module.centers.dtype == torch.float32
        assert module.weight.dtype == torch.bfloat16
        assert create(
            "cosface", 4, 8, margin="linear(start=0,end=1)"
        ).half().margin_margin.dtype == (torch.float32)


@pytest.mark.parametrize("name", EVERY)
def test_a_backward_pass_inside_autocast_is_the_one_outside(name):
    torch.manual_seed(0)
    module = create(name, 10, 16)
    x, y = torch.randn(7, 16, requires_grad=True), torch.randint(10, (7,))
    state = copy.deepcopy(module.state_dict())
    want = torch.autograd.grad(module(x, y), (x, module.weight))
    module.load_state_dict(state)
    with torch.autocast("cpu", torch.bfloat16):
        got = torch.autograd.grad(module(x, y), (x, module.weight))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("far", [1.0, 100.0, 1000.0])
def test_gaussian_distances_far_from_the_origin(far):
    torch.manual_seed(0)
    base = torch.randn(64) * far
    module = create("l-gm", 10, 64)
    module.weight.data.copy_(torch.randn(10, 64) * 0.1 + base)
    x, y = (base + torch.randn(32, 64) * 0.1).requires_grad_(), torch.randint(10, (32,))
    wide = copy.deepcopy(module).double()
    x_wide = x.detach().double().requires_grad_()
    found = torch.autograd.grad(module(x, y), x)[0].double()
    want = torch.autograd.grad(wide(x_wide, y), x_wide)[0]
    assert (found - want).norm() / want.norm() < 1e-3
    torch.testing.assert_close(module(x, y).double(), wide(x_wide, y), rtol=1e-3, atol=0)


@pytest.mark.parametrize("length", [1e-12, 1e-19, 1e-25, 0.0])
def test_short_weights_have_a_finite_gradient(length):
    torch.manual_seed(0)
    module = create("cosine", 6, 8)
    module.weight.data[0] *= length / module.weight.data[0].norm()
    module(torch.randn(5, 8), torch.tensor([0, 1, 2, 3, 0])).backward()
    assert module.weight.grad.isfinite().all()


def test_an_empty_batch_has_logits_and_no_loss():
    for name in available():
        module = create(name, 4, 3)
        assert module.logits(torch.zeros(0, 3)).shape == (0, 4)
        with pytest.raises(ValueError, match="features: 0 rows"):
            module(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))


def test_an_unknown_reduction_moves_no_state():
    module = create("adacos", 10, 3)
    before = module.scale.clone()
    with pytest.raises(ValueError, match="reduction"):
        module(torch.randn(5, 3), torch.zeros(5, dtype=torch.long), reduction="avg")
    assert torch.equal(module.scale, before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compose(3, 4, similarity="cosine"), "compose: 'cosine': expected a part"),
        (lambda: compose(3, 4, similarity=part("cosine"), regularizers=("center",)), "'center'"),
        (lambda: create("soft", 3, 4, class_weights="many"), "class_weights = 'many'"),
        (lambda: create("cosine", 3, 4, scale=torch.tensor([1.0, 2.0])), "scale = tensor"),
        (lambda: create("cosine", 3.0, 4), "num_classes = 3.0: expected an integer"),
        (lambda: create("cosine", 3, "4"), "feature_dim = '4'"),
        (lambda: create(None, 3, 4), "objective None: expected a name"),
        (lambda: create("cosine:scale=3", 3, 4, scale=5), "the name has options already"),
        (lambda: create("m-soft:margin=0.1;loss=hinge", 3, 4), "a preset takes no parts"),
    ],
)
def test_wrong_calls_are_named(call, message):
    with pytest.raises(RequestError) as caught:
        call()
    assert message in str(caught.value)


def test_numbers_of_numpy_and_torch_are_numbers():
    for value in (np.float32(3), np.int64(3), torch.tensor(3.0), 3):
        assert create("cosine", 3, 4, scale=value).spec.scale["value"] == 3.0
    assert create("soft", 3, 4, bias=np.bool_(True)).bias is not None
    one = compose(3, 4, similarity=part("linear"), regularizers=part("center"))
    assert one.centers.shape == (3, 4)
    assert create("soft", 3, 4, class_weights=[1, 2, 3]).class_weights.tolist() == [1, 2, 3]


RANK = """
import sys, torch
from torch import distributed as dist
from marginctl.objectives import create
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
module = {name: create(name, 6, 8) for name in ("adacos", "center")}
stream = torch.Generator().manual_seed(0)
for step in range(3):
    x, y = torch.randn(11, 8, generator=stream), torch.randint(6, (11,), generator=stream)
    mine = slice(0, 7) if rank == 0 else slice(7, 11)
    for name, objective in module.items():
        torch.manual_seed(1)
        objective.weight.data.uniform_(-1, 1)
        objective(x[mine], y[mine])
torch.save([b for o in module.values() for b in o.buffers()], sys.argv[3])
dist.destroy_process_group()
"""


def test_two_processes_have_the_state_of_one(tmp_path):
    """Their batches have different sizes; together they are the batch of one process."""
    files = [tmp_path / f"{rank}.pt" for rank in range(2)]
    running = [
        subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(tmp_path / "meet"), str(file)])
        for rank, file in enumerate(files)
    ]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    first, second = (torch.load(file, weights_only=True) for file in files)
    module = {name: create(name, 6, 8) for name in ("adacos", "center")}
    stream = torch.Generator().manual_seed(0)
    for _ in range(3):
        x, y = torch.randn(11, 8, generator=stream), torch.randint(6, (11,), generator=stream)
        for objective in module.values():
            torch.manual_seed(1)
            objective.weight.data.uniform_(-1, 1)
            objective(x, y)
    one = [b for o in module.values() for b in o.buffers()]
    for a, b, c in zip(first, second, one, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c)


@pytest.mark.parametrize("name", list(available()))
def test_logits_of_similarities_at_hand_are_the_same_bits(name):
    torch.manual_seed(0)
    module = create(name, num_classes=5, feature_dim=4)
    features = torch.randn(7, 4)
    with torch.no_grad():
        found = module.scale_similarities(module.similarities(features), features)
        assert torch.equal(found, module.logits(features))


X = np.random.default_rng(0).normal(size=(5, 4))
Y = [0, 1, 2, 1, 0]


@pytest.mark.parametrize(
    ("features", "target"),
    [
        (X, Y),
        (X.tolist(), np.array(Y, np.uint8)),
        (pd.DataFrame(X), pd.Series(Y)),
        (X[::-1][::-1], tuple(Y)),
        (X.astype(">f8"), np.array(Y, ">i4")),
        (X, np.array(Y, np.uint16)),
        (X, pd.Series(Y, dtype=np.uint64)),
        (torch.tensor(X), torch.tensor(Y, dtype=torch.int16)),
    ],
)
def test_features_and_targets_may_be_arrays_or_lists(features, target):
    module = create("soft", np.int64(3), np.int32(4))
    assert (type(module.num_classes), type(module.feature_dim)) == (int, int)
    want = module(torch.tensor(X), torch.tensor(Y))
    assert torch.equal(module(features, target), want)
    assert torch.equal(module.predict(features), module.predict(torch.tensor(X)))


@pytest.mark.parametrize(
    ("features", "target", "message"),
    [
        (X.astype(int), Y, "features: dtype torch.int64, expected a floating-point"),
        (X[0], Y, r"features: shape \(4,\), expected \(N, 4\)"),
        (X.astype(str), Y, "features: ndarray array.*expected a tensor, or an array or list of"),
        ([[1.0], [1.0, 2.0]], Y, r"features: list \[\[1.0\], \[1.0, 2.0\]\]: expected a tensor"),
        (torch.tensor(X, device="meta"), Y, "features: on meta, expected cpu"),
        (X, torch.zeros(5, dtype=torch.int64, device="meta"), "target: on meta, expected cpu"),
        (X, [0.0, 1, 2, 1, 0], "target: dtype torch.float64, expected an integer dtype"),
        (X, [True] * 5, "target: dtype torch.bool, expected an integer dtype"),
        (X, ["a"] * 5, "target: list .'a', .*expected a tensor, or an array or list of numbers"),
        (X, None, "target: NoneType None: expected a tensor"),
        (X, Y[:4], r"target: shape \(4,\), expected \(5,\)"),
        (X, np.array(Y)[:, None], r"target: shape \(5, 1\), expected \(5,\)"),
        (X, [0, 1, 2, 3, 0], "target: labels from 0 to 3, expected 0 to 2"),
        (X, [-1] * 5, "target: labels from -1 to -1, expected 0 to 2"),
    ],
)
def test_wrong_features_and_targets_are_one_clear_error(features, target, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        create("soft", 3, 4)(features, target)


@pytest.mark.parametrize("number", [True, np.True_, 3.0, np.float64(4), "3", None, 0, -3])
@pytest.mark.parametrize("argument", ["num_classes", "feature_dim"])
def test_a_size_that_is_no_integer_is_refused(argument, number):
    with pytest.raises(RequestError, match=f"^{argument} = .*: expected an integer, at least"):
        create("soft", **{"num_classes": 3, "feature_dim": 4, argument: number})


def test_a_batch_of_classes_with_weight_0_has_the_loss_0():
    module = create("soft", 3, 4, class_weights=[0.0, 1.0, 1.0])
    features = torch.randn(5, 4, requires_grad=True)
    loss = module(features, torch.zeros(5, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0
    assert features.grad.abs().max() == 0


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.vmap])
def test_transforms_of_torch_func_say_what_to_use(transform):
    module = create("arcface", np.int64(3), np.int32(4))
    features, target = torch.randn(3, 5, 4), torch.tensor([0, 1, 2, 0, 1])
    with pytest.raises(RequestError, match=r"use torch\.autograd\.grad"):
        transform(lambda x: module(x, target))(features if transform is torch.vmap else features[0])
