"""The numbers of Large Margin's Fig. 4 are those of the objective's regulariser."""

import numpy as np
import pytest
import torch

from marginctl.objectives.regularizers import NonTargetUniformity
from marginctl.reports.figures.divergences import LABELS, compute_divergences, divergences
from marginctl.reports.figures.seed_groups import Omissions


@pytest.mark.parametrize("name", list(LABELS))
@pytest.mark.parametrize("classes", [3, 7])
def test_divergences_equal_the_regularizer(name, classes):
    logits = torch.randn(20, classes, dtype=torch.float64, generator=torch.manual_seed(1))
    targets = torch.arange(20) % classes
    want = NonTargetUniformity(1.0, name).penalty(logits.clone(), targets, {})
    others = torch.ones_like(logits, dtype=torch.bool).scatter(1, targets[:, None], False)
    q = logits[others].view(20, classes - 1).softmax(1)
    np.testing.assert_allclose(compute_divergences(q)[name], want, rtol=1e-10, atol=1e-12)


def test_the_lines_are_the_divergences_of_two_classes():
    (axes,) = divergences([], Omissions()).axes
    drawn = {line.get_label().partition(":")[0]: line for line in axes.lines}
    assert set(drawn) == {"symmetric", "q-u", "u-q"}
    for line in drawn.values():
        q = line.get_xdata()
        assert (q > 0).all()
        assert (q < 1).all()
    middle = len(q) // 2
    assert q[middle] == pytest.approx(0.5)
    of_qu, of_uq, both = (drawn[n].get_ydata() for n in ("q-u", "u-q", "symmetric"))
    assert (of_qu[middle], of_uq[middle], both[middle]) == pytest.approx((0, 0, 0), abs=1e-15)
    quarter = np.abs(q - 0.25).argmin()
    assert of_qu[quarter] == pytest.approx(np.log(2) + 0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    assert of_uq[quarter] == pytest.approx(-np.log(2) - (np.log(0.25) + np.log(0.75)) / 2)
    assert both == pytest.approx((of_qu + of_uq) / 2)
    assert (of_uq >= of_qu - 1e-12).all()  # the stronger one, as the paper says
