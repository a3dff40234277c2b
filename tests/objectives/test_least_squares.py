"""The least-squares scale kappa*."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from marginctl.errors import RequestError
from marginctl.objectives import create, least_squares
from marginctl.objectives.least_squares import CANDIDATES, least_squares_scale
from tests.objectives import reference


def scale_of(x, w):
    cosines = F.normalize(x, dim=-1) @ F.normalize(w, dim=-1).mT
    return least_squares_scale(cosines, x, w)


def test_candidates():
    assert len(CANDIDATES) == 20
    assert CANDIDATES[0] == pytest.approx(math.exp(-2))
    assert CANDIDATES[-1] == pytest.approx(math.exp(5))
    assert CANDIDATES[18] == pytest.approx(102.67, abs=0.01)


@pytest.mark.parametrize(("classes", "length"), [(2, 3), (5, 40), (40, 5), (7, 7)])
def test_equals_a_brute_force_search(classes, length):
    """By the Gram matrix with few classes, by rebuilding the feature with many."""
    torch.manual_seed(classes)
    w = torch.randn(classes, length, dtype=torch.float64)
    own = torch.randint(classes, (40,))
    noise = torch.linspace(0.05, 3, 40, dtype=torch.float64)[:, None]
    x = w[own] + noise * torch.randn(40, length, dtype=torch.float64)
    found, equal, different = scale_of(x, w).tolist(), 0, set()
    for row, scale in zip(x.tolist(), found, strict=True):
        want = reference.least_squares_scale(row, w.tolist())
        if scale == pytest.approx(want):
            equal += 1
            different.add(round(want, 3))
        else:  # as good to the last digits
            errors = [reference.least_squares_error(row, w.tolist(), k) for k in (scale, want)]
            assert errors[0] - errors[1] < 1e-15
    assert equal >= 36
    assert len(different) > 2


def test_the_forms_chunks_and_stacks_agree(monkeypatch):
    torch.manual_seed(0)
    x = torch.randn(3, 50, 8, dtype=torch.float64)
    w = torch.randn(3, 6, 8, dtype=torch.float64)
    whole = scale_of(x, w)
    for chunk in (1, 6 * 8, 6 * 8 * 3 * 7, 6 * 8 * 3 * 120):
        monkeypatch.setattr(least_squares, "CHUNK_BYTES", chunk)
        assert torch.equal(scale_of(x, w), whole)
        for i in range(3):
            assert torch.equal(scale_of(x[i], w[i]), whole[i])


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("cosine", [0.1, 0.3, 0.5, 0.9])
def test_orthonormal_weights(classes, cosine):
    """One of the two candidates around ln[(C-1) p/(1-p)]/c, p = c + (1-c)/C."""
    w = torch.eye(classes, classes + 1, dtype=torch.float64)
    x = torch.zeros(1, classes + 1, dtype=torch.float64)
    x[0, 0], x[0, -1] = cosine, math.sqrt(1 - cosine**2)
    p = cosine + (1 - cosine) / classes
    exact = math.log((classes - 1) * p / (1 - p)) / cosine
    above = next(i for i, k in enumerate(CANDIDATES) if k > exact)
    assert scale_of(x, w).item() in [pytest.approx(CANDIDATES[i]) for i in (above - 1, above)]


def test_gaussian_features_and_weights_average_about_88():
    """As the supplement's random features: 102.7 for most samples."""
    torch.manual_seed(0)
    found = scale_of(torch.randn(2000, 2048), torch.randn(1000, 2048))
    assert found.mean().item() == pytest.approx(88, abs=2)
    assert found.mode().values.item() == pytest.approx(102.67, abs=0.01)


@pytest.mark.parametrize(("cosine", "scale"), [(0.5, 14.9), (0.6, 11.26), (0.9, 11.26)])
def test_features_near_their_class_average_11_to_15_as_trained_ones(cosine, scale):
    """The temperature paper's Table 9 has 12.50 to 14.49 for trained networks."""
    torch.manual_seed(0)
    w = F.normalize(torch.randn(1000, 2048), dim=1)
    noise = F.normalize(torch.randn(100, 2048), dim=1)
    x = cosine * w[torch.randint(1000, (100,))] + math.sqrt(1 - cosine**2) * noise
    assert scale_of(x, w).mean().item() == pytest.approx(scale, abs=0.3)


def test_it_carries_no_gradient_and_the_module_gives_it():
    x = torch.randn(6, 8, requires_grad=True)
    module = create("cosine-ls", 5, 8)
    scale = module.optimal_scale(x)
    assert scale.shape == (6,)
    assert not scale.requires_grad
    torch.testing.assert_close(module.logits(x), module.similarities(x) * scale[:, None])
    with pytest.raises(RequestError, match="use similarity 'cosine'"):
        create("soft", 5, 8).optimal_scale(x)


def test_a_zero_feature_and_an_aligned_one_have_a_scale_in_every_dtype():
    w = torch.eye(4, 6)
    x = torch.stack([torch.zeros(6), w[0], -w[1]])
    for dtype in (torch.float32, torch.float64):
        found = scale_of(x.to(dtype), w.to(dtype))
        assert found[0].item() == pytest.approx(CANDIDATES[0])
        assert found.isfinite().all()


STATUS = Path("/proc/self/status")


@pytest.mark.skipif(not STATUS.exists(), reason="reads the peak memory from /proc")
def test_a_hundred_thousand_classes_need_little_memory():
    """A training step in float32: C = 100,000, d = 512, a batch of 128.

    The softmax coefficients of all 20 candidates together would need 1 GiB.
    """
    code = """
import re, torch
from marginctl.objectives import create
objective = create("cosine-ls", 100_000, 512)
x = torch.randn(128, 512, requires_grad=True)
objective(x, torch.randint(100_000, (128,))).backward()
# ru_maxrss would include the peak of the process that started this one
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ran.stdout) * 1024 < 1.5 * 2**30
