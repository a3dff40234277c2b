"""Reliability diagrams against bins that the tests count."""

import numpy as np
import pytest

from marginctl.metrics.calibration_error import bin_by_confidence
from marginctl.reports.figures import reliability_diagram
from marginctl.reports.figures.reliability_diagram import (
    draw_calibration,
    pooled,
    reliability_diagrams,
)
from marginctl.reports.figures.seed_groups import Omissions, seed_groups
from tests.reports.figures.factories import calibration, record, run, seed_table


def test_bars_are_accuracies_and_gaps_and_the_histogram_has_all_images(tmp_path):
    first = calibration((0, None, None), (4, 0.7, 0.5), ece=0.2)
    second = calibration((2, 0.4, 1.0), (12, 0.9, 1.0), ece=0.3)
    table = seed_table(
        run(tmp_path, "soft", 0, [record(1, 50)], evaluation=first),
        run(tmp_path, "soft", 1, [record(1, 50)], evaluation=second),
        run(tmp_path, "adacos", 0, [record(1, 50)], evaluation=None),
    )
    omissions = Omissions()
    figure = reliability_diagrams(table, omissions)
    above, below = figure.subfigs[0].axes
    assert above.get_title() == "soft\nECE 25.00 %"
    accuracy, gap = above.patches[:2], above.patches[2:]
    assert [b.get_height() for b in accuracy] == pytest.approx([100, 100 * 14 / 16])
    ends = [b.get_y() + b.get_height() for b in gap]
    assert ends == pytest.approx([40, 100 * (4 * 0.7 + 12 * 0.9) / 16])
    shares = [b.get_height() for b in below.patches]
    assert shares == pytest.approx([100 * 2 / 18, 100 * 16 / 18])
    assert sum(shares) == pytest.approx(100)
    assert omissions.lines() == ["adacos: no evaluation.calibration in result.json"]


def test_pooled_bins_are_those_of_all_samples_together(tmp_path):
    random = np.random.default_rng(3)
    confidence, correct = random.uniform(size=(3, 200)), random.uniform(size=(3, 200)) < 0.6
    seeds = [bin_by_confidence(x, y, 10) for x, y in zip(confidence, correct, strict=True)]
    runs = [
        run(tmp_path, "soft", s, [record(1, 5)], evaluation={"calibration": found.as_json()})
        for s, found in enumerate(seeds)
    ]
    (group,) = seed_groups(runs)
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
    table = seed_table(run(tmp_path, "soft", 0, [record(1, 50)], evaluation=evaluation))
    omissions = Omissions()
    assert reliability_diagrams(table, omissions) is None
    assert omissions.lines() == ["soft: no evaluation.calibration in result.json"]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_calibration_has_a_diagram_before_and_per_method(tmp_path, monkeypatch, suffix):
    kept = []
    save = reliability_diagram.save
    monkeypatch.setattr(
        reliability_diagram,
        "save",
        lambda figure, *a: (kept.append(figure), save(figure, *a)),
    )
    before = bin_by_confidence([0.9, 0.8, 0.6], [True, False, True], 10)
    after = bin_by_confidence([0.7, 0.65, 0.55], [True, False, True], 10)
    path = tmp_path / f"figure.{suffix}"
    draw_calibration("a title", before, {"none": before, "temperature": after}, path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    (figure,) = kept
    panels = figure.subfigs[0].axes
    titles = [p.get_title() for p in panels if p.get_title()]
    assert titles == [
        f"before\nECE {100 * before.ece:.2f} %",
        f"temperature\nECE {100 * after.ece:.2f} %",
    ]
    histograms = [p for p in panels if p.get_xlabel() == "confidence (%)"]
    assert [p.get_ylabel() for p in histograms] == ["samples (%)", ""]
    for panel in histograms:
        assert sum(bar.get_height() for bar in panel.patches) == pytest.approx(100)
    draw_calibration("a title", before, {"temperature": after}, path)
    assert path.read_bytes() == content
