"""Reliability diagrams against confidences that are counted here."""

import numpy as np
import pytest

from marginctl.metrics.reliability import bin_by_confidence
from marginctl.reports.figures.learning_curves import Reasons, groups
from marginctl.reports.figures.reliability_diagram import pooled, reliability
from tests.reports.figures.made import calibration, line, run, table


def test_bars_are_accuracies_and_gaps_and_the_histogram_has_all_images(tmp_path):
    first = calibration((0, None, None), (4, 0.7, 0.5), ece=0.2)
    second = calibration((2, 0.4, 1.0), (12, 0.9, 1.0), ece=0.3)
    made = table(
        run(tmp_path, "soft", 0, [line(1, 50)], evaluation=first),
        run(tmp_path, "soft", 1, [line(1, 50)], evaluation=second),
        run(tmp_path, "adacos", 0, [line(1, 50)], evaluation=None),
    )
    said = Reasons()
    figure = reliability(made, groups(made), said)
    above, below = figure.subfigs[0].axes
    assert above.get_title() == "soft\nECE 25.00 %"
    accuracy, gap = above.patches[:2], above.patches[2:]
    assert [b.get_height() for b in accuracy] == pytest.approx([100, 100 * 14 / 16])
    ends = [b.get_y() + b.get_height() for b in gap]
    assert ends == pytest.approx([40, 100 * (4 * 0.7 + 12 * 0.9) / 16])
    shares = [b.get_height() for b in below.patches]
    assert shares == pytest.approx([100 * 2 / 18, 100 * 16 / 18])
    assert sum(shares) == pytest.approx(100)
    assert said.lines() == ["adacos: no evaluation.calibration in result.json"]


def test_pooled_bins_are_those_of_all_samples_together(tmp_path):
    random = np.random.default_rng(3)
    confidence, correct = random.uniform(size=(3, 200)), random.uniform(size=(3, 200)) < 0.6
    seeds = [bin_by_confidence(x, y, 10) for x, y in zip(confidence, correct, strict=True)]
    runs = [
        run(tmp_path, "soft", s, [line(1, 5)], evaluation={"calibration": found.as_json()})
        for s, found in enumerate(seeds)
    ]
    (group,) = groups(table(*runs))
    found = pooled(group)
    together = bin_by_confidence(confidence.ravel(), correct.ravel(), 10)
    assert found.ece == pytest.approx(np.mean([one.ece for one in seeds]))
    for a, b in zip(found.reliability.bins, together.bins, strict=True):
        assert (a.lo, a.hi, a.count) == (b.lo, b.hi, b.count)
        assert a.confidence == pytest.approx(b.confidence)
        assert a.accuracy == pytest.approx(b.accuracy)


@pytest.mark.parametrize(
    "evaluation",
    [
        None,
        {},
        {"calibration": None},
        {"calibration": {"ece": 0.1, "reliability": [{"lo": 0}]}},
        {"calibration": {"ece": None, "reliability": []}},
    ],
)
def test_without_a_calibration_there_is_no_diagram(tmp_path, evaluation):
    made = table(run(tmp_path, "soft", 0, [line(1, 50)], evaluation=evaluation))
    said = Reasons()
    assert reliability(made, groups(made), said) is None
    assert said.lines() == ["soft: no evaluation.calibration in result.json"]
