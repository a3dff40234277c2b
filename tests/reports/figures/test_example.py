"""One image's logits and softmax: the right numbers, circles on half of the softmax."""

import numpy as np
import pytest

from marginctl.metrics.reliability import softmax
from marginctl.reports.figures.example import example, holders
from marginctl.reports.figures.learning_curves import Reasons, groups
from tests.reports.figures.made import line, run, table

Z = [0.1, -0.2, 0.4, 0.0]


def shown(epoch, kappa, z=Z, label=1):
    return line(epoch, 50, example={"image": 0, "label": label, "kappa": kappa, "cosines": z})


def test_the_panels_hold_logits_and_softmax(tmp_path):
    lines = [shown(1, 100.0), line(2, 60), shown(3, 2.0)]
    made = table(run(tmp_path, "cosine-ls", 0, lines), run(tmp_path, "soft", 0, [line(1, 50)]))
    said = Reasons()
    figure = example(made, groups(made), said)
    panels = figure.subfigs[0].axes
    assert [p.get_title() for p in panels[:2]] == ["epoch 1: kappa* = 100", "epoch 3: kappa* = 2"]
    for column, kappa in enumerate((100.0, 2.0)):
        top, below = panels[column], panels[2 + column]
        weight = softmax(kappa * np.array([Z]))[0]
        assert top.lines[0].get_ydata() == pytest.approx(Z)
        assert below.lines[0].get_ydata() == pytest.approx(weight)
        assert below.lines[1].get_xdata() == [1]
        assert below.lines[2].get_ydata().sum() >= 0.5
    assert [line_ for line_ in said.lines() if line_.startswith("soft: no example")]


def test_the_fewest_classes_that_hold_half_are_circled():
    assert holders(np.array([0.1, 0.6, 0.3])).tolist() == [1]
    assert holders(np.array([0.3, 0.4, 0.3])).tolist() == [1, 0]
    assert len(holders(np.full(1000, 0.001))) == 10


@pytest.mark.parametrize("wrong", [shown(1, None), shown(1, 2.0, [0.1, None]), shown(1, 2.0, Z, 9)])
def test_a_torn_record_is_left_out(tmp_path, wrong):
    made, said = table(run(tmp_path, "cosine-ls", 0, [wrong])), Reasons()
    assert example(made, groups(made), said) is None
    assert len(said.lines()) == 1
