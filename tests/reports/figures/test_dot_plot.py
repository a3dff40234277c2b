"""Dot plots: a line for each method with the interval of its mean."""

from dataclasses import replace

import pytest

from marginctl.papers import published_table
from marginctl.reports.figures.dot_plot import comparison, fold_comparison, published_values
from marginctl.reports.figures.seed_groups import Omissions, SeedTable
from marginctl.results.answers import fold_estimates
from marginctl.results.cv_cells import Grid
from marginctl.results.verdict import Verdict, judge_table
from tests.results.factories import cv_result


@pytest.fixture
def collector():
    made = Grid(["iris"], ["soft", "arcface"], seeds=1, published={}, baselines=["majority"])
    made.add_all(cv_result(objective=o) for o in ("soft", "arcface", "majority"))
    return made


def test_a_row_for_each_method_with_its_interval(collector):
    figure = fold_comparison(collector, "own-data")
    (panel,) = figure.axes
    assert [t.get_text() for t in panel.get_yticklabels()] == ["soft", "arcface", "majority"]
    points = list(panel.containers)
    for point, estimate in zip(points, fold_estimates(collector), strict=True):
        (line,) = point.lines[2]
        low, high = sorted(line.get_segments()[0][:, 0])
        assert (low, high) == pytest.approx(estimate.interval)


def test_one_objective_is_not_compared():
    omissions = Omissions()
    assert comparison(SeedTable("r", "r", "r", []), omissions) is None
    assert omissions.lines() == ["one objective: nothing to compare"]


def test_published_values_stand_below_ours():
    """One panel a row; diamonds with the paper's spread; squares where runs differ."""
    judged = judge_table(published_table("large-margin", "2"), [])
    assert published_values(judged, Omissions()) is None
    cells = dict(judged.cells)
    verdicts = (Verdict.differs, Verdict.not_comparable)
    for key, verdict in zip(list(cells)[:2], verdicts, strict=True):
        cells[key] = replace(cells[key], mean=30.0, std=0.5, n=3, verdict=verdict)
    figure = published_values(replace(judged, cells=cells), Omissions())
    assert len(figure.axes) == 2
    for panel, key, marker in zip(figure.axes, cells, "os", strict=False):
        assert panel.get_title(loc="left").startswith(key[0])
        ours, theirs = panel.containers
        assert ours.lines[0].get_marker() == marker
        assert ours.lines[0].get_xdata() == [30.0]
        assert theirs.lines[0].get_marker() == "D"
        assert theirs.lines[0].get_xdata() == [cells[key].published.mean]
        (bar,) = theirs.lines[2]
        low, high = sorted(bar.get_segments()[0][:, 0])
        assert high - low == pytest.approx(2 * cells[key].published.std)


def test_two_own_tables_of_one_recipe_have_two_files(tmp_path, marginctl):
    table = tmp_path / "t.csv"
    table.write_text("x,kind\n" + "".join(f"{i * 0.37 % 1:.3f},{i % 2}\n" for i in range(40)))
    for folds in (2, 3):
        ran = marginctl(
            *("uci-cv", "--csv", table, "--target", "kind", "--objective", "soft", "--no-tune"),
            *("--objective", "arcface", "--folds", folds, "--out", tmp_path / "runs", "--quiet"),
            *("--set", "protocol.epochs=1", "--set", "baselines=[]", "--workers", "1"),
        )
        assert ran.status == 0, ran.err
    ran = marginctl(
        *("report", tmp_path / "runs", "--figures", tmp_path / "f", "--kind", "comparison"),
        *("--metric", "log_loss", "--figure-format", "svg"),
    )
    assert ran.status == 0, ran.err
    files = sorted((tmp_path / "f").iterdir())
    assert len(files) == 2
    assert all("log loss" in file.read_text() for file in files)
