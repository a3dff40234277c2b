"""One test image's logits and softmax."""

import numpy as np
import pytest

from marginctl.metrics.scoring_rules import softmax
from marginctl.reports.figures.example_image import example_image, smallest_set
from marginctl.reports.figures.seed_groups import Omissions
from tests.reports.figures.factories import record, run, seed_table

Z = [0.1, -0.2, 0.4, 0.0]


def shown(epoch, kappa, z=Z, label=1):
    return record(epoch, 50, example={"image": 0, "label": label, "kappa": kappa, "cosines": z})


def test_the_panels_hold_logits_and_softmax(tmp_path):
    lines = [shown(1, 100.0), record(2, 60), shown(3, 2.0)]
    table = seed_table(
        run(tmp_path, "cosine-ls", 0, lines), run(tmp_path, "soft", 0, [record(1, 50)])
    )
    omissions = Omissions()
    figure = example_image(table, omissions)
    panels = figure.subfigs[0].axes
    assert [p.get_title() for p in panels[:2]] == ["epoch 1: kappa* = 100", "epoch 3: kappa* = 2"]
    for column, kappa in enumerate((100.0, 2.0)):
        top, below = panels[column], panels[2 + column]
        weight = softmax(kappa * np.array([Z]))[0]
        assert top.lines[0].get_ydata() == pytest.approx(Z)
        assert below.lines[0].get_ydata() == pytest.approx(weight)
        assert below.lines[1].get_xdata() == [1]
        assert below.lines[2].get_ydata().sum() >= 0.5
    assert [line_ for line_ in omissions.lines() if line_.startswith("soft: no example")]


def test_smallest_set():
    assert smallest_set(np.array([0.1, 0.6, 0.3])).tolist() == [1]
    assert smallest_set(np.array([0.3, 0.4, 0.3])).tolist() == [1, 0]
    assert len(smallest_set(np.full(1000, 0.001))) == 10
