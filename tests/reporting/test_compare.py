"""Comparisons of a grid: pairing, Holm within a row, and grids too small for a test."""

import json

import numpy as np
import pytest
from scipy import stats

from marginctl.errors import RequestError
from marginctl.reporting.compare import (
    as_json,
    baselines,
    chosen_baseline,
    compare,
    positive_points,
)
from marginctl.reporting.grid_notes import conclusions
from marginctl.reporting.render.markdown import markdown
from marginctl.reporting.sheets import of_grid
from tests.reporting.test_table import collected, record


def made_records(datasets=6, objectives=("soft", "center", "arcgrad"), shift=3.0, seeds=(0,)):
    stream = np.random.default_rng(0)
    records = []
    for d in range(datasets):
        for seed in seeds:
            base = stream.normal(80, 5, (3, 10))
            for i, o in enumerate(objectives):
                values = base + i * shift + stream.normal(0, 1, (3, 10))
                records.append(record(f"set{d}", o, values, seed=seed))
    return records


def test_a_row_by_hand():
    records = made_records(1)
    gathered = collected(records)
    made = compare(gathered.grid, gathered.records, "soft")
    soft, center, arcgrad = (np.ravel(r["accuracies"]) for r in records)
    p_values = []
    for name, values in (("center", center), ("arcgrad", arcgrad)):
        d = values - soft
        t = d.mean() / np.sqrt((1 / 30 + 5 / 45) * d.var(ddof=1))
        comparison = made.cells["set0", name]
        assert comparison.difference == pytest.approx(d.mean())
        assert comparison.test.statistic == pytest.approx(t)
        assert comparison.direction == 1
        p_values.append(2 * stats.t.sf(t, 29))
    adjusted = [made.cells["set0", o].p_holm for o in ("center", "arcgrad")]
    assert min(adjusted) == pytest.approx(2 * min(p_values))
    assert made.friedman.reason == "1 data sets and 3 methods: needs 5 and 3"
    assert conclusions(gathered.grid, made) == []


def test_over_data_sets():
    gathered = collected(made_records(6))
    made = compare(gathered.grid, gathered.records, "soft")
    assert made.datasets == 6
    assert made.ranks == {"soft": 3.0, "center": 2.0, "arcgrad": 1.0}
    assert made.friedman.p == pytest.approx(stats.chi2.sf(12, 2))
    assert [c.test.p for c in made.overall] == pytest.approx([2 / 64, 2 / 64])
    assert [c.p_holm for c in made.overall] == pytest.approx([4 / 64, 4 / 64])
    lines = conclusions(gathered.grid, made)
    assert lines[0].startswith("Friedman over 6 data sets: chi2 = 12.00, df = 2")
    assert "p = 0.062 after Holm" in lines[1]


def test_the_order_of_records_changes_nothing():
    records = made_records(6, seeds=(0, 1))
    one, other = collected(records, seeds=2), collected(records[::-1], seeds=2)
    a = as_json(compare(one.grid, one.records, "soft"))
    b = as_json(compare(other.grid, other.records, "soft"))

    def key(entry):
        return (str(entry["dataset"]), entry["objective"])

    for x, y in zip(sorted(a["tests"], key=key), sorted(b["tests"], key=key), strict=True):
        assert x["statistic"] == pytest.approx(y["statistic"])
        assert x["p_holm"] == pytest.approx(y["p_holm"])
    assert a["ranks"]["average"] == b["ranks"]["average"]


def test_one_objective_or_equal_ones_make_no_test_and_no_nan():
    alone = collected(made_records(2, ["soft"]))
    document = as_json(compare(alone.grid, alone.records, "soft"))
    json.dumps(document, allow_nan=False)
    assert document["tests"] == []
    twins = collected([record("a", "soft"), record("a", "center")])
    made = compare(twins.grid, twins.records, "soft", power=0.5)
    entry = as_json(made)["tests"][0]
    assert entry["p"] is None
    assert entry["reason"] == "the difference is the same on every fold"
    assert entry["repeats_needed"] == 1
    assert "Repeats to see a difference of 0.5 points from soft" in markdown(
        of_grid(twins.grid, made)
    )


def test_a_seed_that_only_one_side_has_is_left_out():
    records = made_records(1, ["soft", "center"], seeds=(0, 1))
    gathered = collected(records[:-1])
    made = compare(gathered.grid, gathered.records, "soft")
    assert made.cells["set0", "center"].test.df == 29


def test_no_seed_in_common_is_no_difference_and_no_crash():
    records = [record("a", "soft", seed=0), record("a", "center", seed=1)]
    gathered = collected(records)
    made = compare(gathered.grid, gathered.records, "soft", power=1.0)
    assert made.cells["a", "center"].difference is None
    assert "| a | - |" in markdown(of_grid(gathered.grid, made))
    json.dumps(as_json(made), allow_nan=False)


def test_nulls_have_reasons():
    alone = collected([record("a", "soft")])
    document = as_json(compare(alone.grid, alone.records, "soft"))
    assert document["ranks"]["friedman"]["reason"] == "one objective: nothing to compare"


def test_incomplete_rows_are_said():
    gathered = collected(made_records(2)[:-1])
    made = compare(gathered.grid, gathered.records, "soft")
    assert "over data sets: 1 of 2 have every cell" in conclusions(gathered.grid, made)
    assert "| average (1 of 2) |" in markdown(of_grid(gathered.grid, made))


def test_baselines_of_several_tables():
    tables = [["soft", "center"], ["center", "arcgrad"]]
    assert baselines(tables, "arcgrad") == ["soft", "arcgrad"]
    assert baselines(tables, None) == ["soft", "center"]
    with pytest.raises(RequestError, match="not an objective here"):
        baselines(tables, "m-soft")


def test_the_baseline():
    assert chosen_baseline(["center", "soft"], None) == "soft"
    assert chosen_baseline(["center", "arcgrad"], None) == "center"
    assert chosen_baseline(["center", "arcgrad"], "arcgrad:scale=10") == "arcgrad"
    with pytest.raises(RequestError, match="not an objective here"):
        chosen_baseline(["center"], "soft")


@pytest.mark.parametrize("asked", ["0", "-1", "x", "nan", "101"])
def test_power_must_be_points(asked):
    with pytest.raises(RequestError, match="expected points above 0"):
        positive_points(asked)
