"""Grouping runs over their seeds."""

import statistics

import numpy as np
import pytest

from marginctl.reports.figures.seed_groups import (
    Omissions,
    seed_groups,
    seeds_text,
    spread,
    spread_text,
)
from marginctl.results.load_run import read_metrics
from tests.reports.figures.factories import record, run, seed_table


def test_invalid_lines_of_metrics_are_skipped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'{"epoch": 2, "a": 1}\n{"epoch": 1}\n[3]\n{"epoch": "4"}\n\xff\xfe\n{"epoch": 5, "tes'
    )
    assert read_metrics(path) == [{"epoch": 1}, {"epoch": 2, "a": 1}]
    assert read_metrics(tmp_path / "absent") == []


def test_a_number_by_epoch_is_of_the_epochs_that_all_seeds_have(tmp_path):
    (group,) = seed_table(
        run(tmp_path, "soft", 1, [record(1, 50), record(2, 60), record(3, 70)]),
        run(tmp_path, "soft", 0, [record(1, 40), record(2, 50), {"epoch": 3, "test": None}]),
        run(tmp_path, "soft", 2, [{"epoch": 1, "test": {"top1": None}}], last=None),
    ).groups
    series = group.series("test", "top1")
    assert series.epochs.tolist() == [1, 2]
    assert series.values.tolist() == [[40, 50], [50, 60]]  # by seed; seed 2 has none
    assert group.series("objective", "rho") is None


def test_an_incomplete_last_line_loses_one_epoch(tmp_path):
    complete = run(tmp_path, "soft", 0, [record(1, 40), record(2, 50)])
    incomplete = run(tmp_path, "soft", 1, [record(1, 60), record(2, 70)])
    path = incomplete.path / "metrics.jsonl"
    path.write_text(path.read_text()[:-12])
    (group,) = seed_groups([complete, incomplete])
    assert group.series("test", "top1").values.tolist() == [[40], [60]]


def test_groups_are_in_the_recipe_s_order_and_settings_by_size(tmp_path):
    runs = [
        run(
            tmp_path,
            o,
            s,
            [record(1, 50)],
            setting={"train.epochs": e},
            objectives=["soft", "adacos"],
        )
        for e in (10, 9, 100)
        for o in ("adacos", "soft")
        for s in (0, 1)
    ]
    runs[0].result.diverged = "step 3"
    made = seed_table(*runs).groups
    assert [(g.row, g.objective) for g in made] == [
        (f"digits, mlp, epochs={e}", o) for e in (9, 10, 100) for o in ("soft", "adacos")
    ]
    assert [len(g.runs) for g in made] == [2, 2, 2, 1, 2, 2]
    assert seeds_text(made[:2]) == "n = 2 seeds"
    assert seeds_text(made[2:4]) == "n = 1 to 2 seeds, 1 diverged (not drawn)"


@pytest.mark.parametrize("n", [1, 2, 4, 5, 9])
def test_the_band_is_the_range_of_few_seeds_and_the_deviation_of_more(n):
    values = np.random.default_rng(n).normal(50, 9, (n, 3))
    drawn = spread(values)
    for i, column in enumerate(values.T.tolist()):
        mean = statistics.fmean(column)
        assert drawn.mean[i] == pytest.approx(mean)
        if n < 5:
            assert (drawn.low[i], drawn.high[i]) == (min(column), max(column))
        else:
            std = statistics.stdev(column)
            assert drawn.low[i] == pytest.approx(mean - std)
            assert drawn.high[i] == pytest.approx(mean + std)


def test_spread_text():
    assert spread_text("band", [1, 1]) == "one seed: no band"
    assert spread_text("band", [3]) == "band: lowest to highest seed"
    assert spread_text("band", [5, 1]) == "band: ± standard deviation over the seeds"
    assert "(n < 5); ± standard deviation over the seeds (n ≥ 5)" in spread_text("band", [3, 5])


def test_a_reason_is_listed_once(tmp_path):
    runs = [
        run(tmp_path, o, 0, [record(1, 5)], setting={"a.b": b})
        for o in ("soft", "adacos")
        for b in (1, 2)
    ]
    omissions = Omissions()
    for group in seed_groups([*runs]):
        omissions.add("no scale", group)
    omissions.add("nothing at all")
    assert omissions.lines() == ["soft, adacos (in 2 rows): no scale", "nothing at all"]
