"""Reliability diagrams before and after."""

import pytest

from marginctl.metrics.reliability import bin_by_confidence
from marginctl.reports.figures import reliability_of_calibration
from marginctl.reports.figures.reliability_of_calibration import draw


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_diagram_before_and_one_a_method(tmp_path, monkeypatch, suffix):
    kept = []
    save = reliability_of_calibration.save
    monkeypatch.setattr(
        reliability_of_calibration,
        "save",
        lambda figure, *a: (kept.append(figure), save(figure, *a)),
    )
    before = bin_by_confidence([0.9, 0.8, 0.6], [True, False, True], 10)
    after = bin_by_confidence([0.7, 0.65, 0.55], [True, False, True], 10)
    path = tmp_path / f"figure.{suffix}"
    draw("a title", before, {"none": before, "temperature": after}, path)
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
    draw("a title", before, {"temperature": after}, path)
    assert path.read_bytes() == content
