"""Angle histograms of the first, the middle and the last epoch."""

import pytest

from marginctl.reports.figures.angle_histograms import angle_histograms
from marginctl.reports.figures.seed_groups import Omissions
from tests.reports.figures.factories import record, run, seed_table


def angle_line(epoch, counts, mean):
    angle = {"mean": mean, "histogram": counts + [0] * (18 - len(counts)), "bin": 10}
    return record(epoch, 50, objective={"target_angle": angle})


def test_percentages_are_means_over_the_seeds_and_sum_to_100(tmp_path):
    table = seed_table(
        run(tmp_path, "arcgrad", 0, [angle_line(e, [e, 10 - e], 5.0 + e) for e in (1, 2, 3, 4, 5)]),
        run(tmp_path, "arcgrad", 1, [angle_line(e, [0, 0, 20], 25.0) for e in (1, 2, 3, 4, 5)]),
        run(tmp_path, "soft", 0, [record(1, 50)]),
    )
    omissions = Omissions()
    figure = angle_histograms(table, omissions)
    panels = figure.subfigs[0].axes
    assert [p.get_title() for p in panels] == [
        "epoch 1: mean 15.5°",
        "epoch 3: mean 16.5°",
        "epoch 5: mean 17.5°",
    ]
    for epoch, panel in zip((1, 3, 5), panels, strict=True):
        heights = [bar.get_height() for bar in panel.patches]
        assert sum(heights) == pytest.approx(100)
        assert heights[:3] == pytest.approx([5 * epoch, 50 - 5 * epoch, 50])
        assert [bar.get_x() for bar in panel.patches] == pytest.approx([10 * i for i in range(18)])
        assert panel.lines[0].get_xdata()[0] == pytest.approx((5 + epoch + 25) / 2)
    assert panels[0].get_ylabel() == "arcgrad\nimages (%)"
    assert panels[0].get_xlim() == (0, 180)
    assert omissions.lines()[0].startswith("soft: no objective.target_angle by epoch")


@pytest.mark.parametrize("epochs", [1, 2])
def test_few_epochs_are_drawn_once_each(tmp_path, epochs):
    lines = [angle_line(e + 1, [3, 4], 9.0) for e in range(epochs)]
    table = seed_table(run(tmp_path, "adacos", 0, lines))
    figure = angle_histograms(table, Omissions())
    assert len(figure.subfigs[0].axes) == epochs
