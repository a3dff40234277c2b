"""The curves of `objectives show --plot` against closed forms."""

import math

import numpy as np
import pytest

from marginctl.errors import RequestError
from marginctl.objectives.parsing import parse
from marginctl.objectives.presets import PRESETS
from marginctl.objectives.theory import gradient_decay_slope
from marginctl.reports.figures.objective_curves import axis_name, check_plot, compute_curves, draw


def test_gradient_decay_gradient_is_g_of_p():
    for beta in (0.1, 1.0, 5.0):
        found = compute_curves(parse(f"gradient-decay:beta={beta}"), 10)
        want = gradient_decay_slope(found["position"], beta)
        np.testing.assert_allclose(found["gradient"], want, rtol=1e-9)


def test_large_margin_s_figure_4():
    """The divergences of {q, 1 - q} from {1/2, 1/2}."""
    found = {
        d: compute_curves(parse(f"lm-softmax:strength=1,divergence={d}"), 10)
        for d in ("q-u", "u-q")
    }
    q = found["q-u"]["position"]
    of_qu = q * np.log(2 * q) + (1 - q) * np.log(2 * (1 - q))
    of_uq = -(np.log(2 * q) + np.log(2 * (1 - q))) / 2
    np.testing.assert_allclose(found["q-u"]["logit"], of_qu, atol=1e-12)
    np.testing.assert_allclose(found["u-q"]["logit"], of_uq, atol=1e-12)
    both = compute_curves(parse("lm-softmax:strength=1"), 10)["logit"]
    np.testing.assert_allclose(both, (of_qu + of_uq) / 2, atol=1e-12)


@pytest.mark.parametrize("scale", [1, 40])
def test_arcgrad_s_gradient_by_the_angle(scale):
    """s (1 - p): p the softmax of -s theta, the others at 90 degrees."""
    found = compute_curves(parse(f"arcgrad:scale={scale}"), 3)
    theta = np.radians(found["position"])
    odds = 2 * np.exp(scale * (theta - math.pi / 2))
    np.testing.assert_allclose(found["gradient"], scale * odds / (1 + odds), rtol=1e-6)
    np.testing.assert_allclose(found["logit"], -scale * theta, rtol=1e-9)


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_s_gradient_is_the_slope_of_its_loss(name):
    found = compute_curves(parse(name), 5)
    assert all(np.isfinite(values).all() for values in found.values())
    along = {"angle": np.radians(found["position"]), "distance": found["position"]}
    x = along.get(axis_of_name(name))
    if x is None or name in ("cosine-ls", "arcface"):  # a scale that jumps, a curve that does
        return
    slope = np.gradient(found["loss"], x)[3:-3]
    close = np.isclose(slope, found["gradient"][3:-3], rtol=0.05, atol=0.05)
    assert close.mean() > 0.97


def axis_of_name(name):
    return axis_name(parse(name).spec)


@pytest.mark.parametrize(
    "suffix",
    [".svg", *(pytest.param(other, marks=pytest.mark.slow) for other in (".png", ".pdf"))],
)
def test_a_figure_is_the_same_file_twice(tmp_path, suffix):
    paths = [tmp_path / f"{i}{suffix}" for i in (1, 2)]
    for path in paths:
        draw([parse(n) for n in ("arcgrad:scale=1", "soft", "l-gm", "lm-softmax")], 3, path)
    first, second = (path.read_bytes() for path in paths)
    assert len(first) > 10_000
    if suffix != ".pdf":  # which holds its date
        assert first == second


def test_files_that_cannot_be_written_are_named(tmp_path):
    for path, message in (
        (tmp_path / "a.txt", "expected a file name ending in .png, .svg, .pdf"),
        (tmp_path / "no" / "a.png", "does not exist"),
    ):
        with pytest.raises(RequestError, match=message):
            check_plot(path, 3)
