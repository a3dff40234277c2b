"""The module: class weights, compilation, half precision, other libraries."""

import copy
import shutil

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from marginctl.errors import RequestError
from marginctl.objectives import available, create

EVERY = [
    *available(),
    "m-soft:margin=linear(start=0,end=1)",
    "gradient-decay:beta=warm-up(end=3)",
    "sphereface:annealing=sphereface",
]


@pytest.mark.parametrize("name", EVERY)
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
        for made, call in ((plain, plain), (copied, compiled)):
            made.set_progress(step, 3)
            leaf = x.clone().requires_grad_()
            loss = call(leaf, y)
            slopes = torch.autograd.grad(loss, (leaf, *made.parameters()))
            found.append((loss, *slopes, *made.buffers()))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b)


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
    made = create("soft", 4, 6, class_weights=weights)
    want = F.cross_entropy(x @ made.weight.T, y, weight=weights, reduction=reduction)
    torch.testing.assert_close(made(x, y, reduction=reduction), want)


def test_equal_class_weights_change_nothing():
    torch.manual_seed(0)
    x, y = torch.randn(9, 6), torch.randint(4, (9,))
    made = create("arcface", 4, 6, class_weights=torch.full((4,), 3.0))
    plain = create("arcface", 4, 6)
    plain.weight.data.copy_(made.weight.data)
    torch.testing.assert_close(made(x, y), plain(x, y))


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
    made = copy.deepcopy(wide).to(dtype)
    wide.load_state_dict(made.state_dict())
    x, y = torch.randn(9, 6).to(dtype), torch.randint(4, (9,))
    leaf = x.clone().requires_grad_()
    loss = made(leaf, y)
    loss.backward()
    assert loss.dtype == torch.float32
    assert {p.dtype for p in made.parameters()} == {dtype}
    assert leaf.grad.dtype == dtype
    torch.testing.assert_close(loss, wide(x.float(), y))


def test_one_network_fits_where_torch_gives_numbers():
    """Through numpy and back: what a downstream script does with logits."""
    made = create("arcgrad", 3, 4)
    logits = made.logits(torch.randn(5, 4)).detach().numpy()
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
