"""Comparisons of a grid: pairing, Holm within a row, and grids too small for a test."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from marginctl.errors import RequestError
from marginctl.objectives.parsing import parse
from marginctl.reports.formats.markdown import markdown
from marginctl.reports.tables.cv_table import cv_table
from marginctl.results.compare import (
    compare_folds,
    folds_document,
    resolve_baseline,
    resolve_baselines,
)
from tests.reports import stores
from tests.reports.tables.test_cv_table import collected
from tests.results.factories import cv_result as record


def notes_over_datasets(grid, comparisons):
    """The notes of a table that are of no single cell."""
    starts = ("Friedman", "Wilcoxon", "over data sets", "center against", "arcgrad against")
    return [n for n in cv_table(grid, comparisons).notes if n.startswith(starts)]


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
    made = compare_folds(gathered, "soft")
    soft, center, arcgrad = (np.ravel(r.accuracies) for r in records)
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
    assert notes_over_datasets(gathered, made) == []


def test_over_data_sets():
    gathered = collected(made_records(6))
    made = compare_folds(gathered, "soft")
    assert made.datasets == 6
    assert made.ranks == {"soft": 3.0, "center": 2.0, "arcgrad": 1.0}
    assert made.friedman.p == pytest.approx(stats.chi2.sf(12, 2))
    assert [c.test.p for c in made.overall] == pytest.approx([2 / 64, 2 / 64])
    assert [c.p_holm for c in made.overall] == pytest.approx([4 / 64, 4 / 64])
    lines = notes_over_datasets(gathered, made)
    assert lines[0].startswith("Friedman test over 6 data sets: chi2 = 12.00, df = 2")
    assert "Holm-adjusted p = 0.062" in lines[1]


def test_wins_and_the_interval_over_data_sets():
    """Center wins 3, ties 1 by other folds, and loses 2; of single data sets, the folds."""
    shifts = {"a": 2.0, "b": 1.0, "c": 0.004, "e": -1.0, "f": -0.5}
    base = np.array([[60.0, 70.0, 80.0, 90.0]])
    records = [record(d, "soft", base) for d in shifts]
    records += [record(d, "center", base + s) for d, s in shifts.items()]
    records += [record("d", "soft", 100 * np.array([[14, 8, 8, 7]]) / 15)]
    records += [record("d", "center", 100 * np.array([[13, 12, 6, 6]]) / 15)]
    gathered = collected(records)
    made = compare_folds(gathered, "soft")
    (own,) = made.overall
    assert (own.wins, own.ties, own.losses) == (3, 1, 2)
    differences = [*shifts.values(), 0.0]
    assert own.mean == pytest.approx(np.mean(differences))
    scipys = stats.bootstrap(
        (differences,),
        np.mean,
        method="percentile",
        n_resamples=50_000,
        rng=np.random.default_rng(1),
    )
    assert own.bootstrap_interval == pytest.approx(tuple(scipys.confidence_interval), abs=0.05)
    entries = folds_document(made)["tests"]
    over = entries[-1]
    assert (over["wins"], over["ties"], over["losses"]) == (3, 1, 2)
    assert over["mean_difference"] == own.mean
    assert over["bootstrap_interval"] == own.bootstrap_interval
    folds = {e["dataset"]: (e["wins"], e["ties"], e["losses"]) for e in entries[:-1]}
    assert folds == {
        **{d: (4, 0, 0) if s > 0 else (0, 0, 4) for d, s in shifts.items()},
        "d": (1, 0, 3),
    }
    assert "bootstrap_interval" not in entries[0]
    (line,) = (x for x in notes_over_datasets(gathered, made) if "center against soft" in x)
    low, high = own.bootstrap_interval
    assert line.endswith(
        f"; W/T/L 3/1/2 over 6 data sets, mean difference +0.25 percentage points (95 % bootstrap "
        f"interval {low:+.2f} to {high:+.2f})"
    )
    assert line in markdown(cv_table(gathered, made))


def test_too_few_data_sets_for_a_test_are_counted_all_the_same():
    gathered = collected(made_records(2, ["soft", "center"]))
    made = compare_folds(gathered, "soft")
    lines = notes_over_datasets(gathered, made)
    assert len(lines) == 1  # no line for a test that cannot be made
    assert lines[0].startswith(
        "center against soft: W/T/L 2/0/0 over 2 data sets, mean difference +"
    )
    single = collected(made_records(2, ["soft", "center"])[:-1])
    one = compare_folds(single, "soft")
    assert folds_document(one)["tests"][-1]["bootstrap_interval"] is None
    assert notes_over_datasets(single, one)[-1].count("95 %") == 0


def test_the_order_of_records_changes_nothing():
    records = made_records(6, seeds=(0, 1))
    one, other = collected(records, seeds=2), collected(records[::-1], seeds=2)
    a = folds_document(compare_folds(one, "soft"))
    b = folds_document(compare_folds(other, "soft"))

    def key(entry):
        return (str(entry["dataset"]), entry["objective"])

    for x, y in zip(sorted(a["tests"], key=key), sorted(b["tests"], key=key), strict=True):
        assert x["statistic"] == pytest.approx(y["statistic"])
        assert x["p_holm"] == pytest.approx(y["p_holm"])
    assert a["ranks"]["average"] == b["ranks"]["average"]


def test_one_objective_or_equal_ones_make_no_test_and_no_nan():
    alone = collected(made_records(2, ["soft"]))
    document = folds_document(compare_folds(alone, "soft"))
    json.dumps(document, allow_nan=False)
    assert document["tests"] == []
    twins = collected([record("a", "soft"), record("a", "center")])
    made = compare_folds(twins, "soft")
    entry = folds_document(made)["tests"][0]
    assert entry["p"] is None
    assert entry["reason"] == "the difference is the same on every fold"


def test_a_seed_that_only_one_side_has_is_left_out():
    records = made_records(1, ["soft", "center"], seeds=(0, 1))
    gathered = collected(records[:-1])
    made = compare_folds(gathered, "soft")
    assert made.cells["set0", "center"].test.df == 29


def test_no_seed_in_common_is_no_difference_and_no_crash():
    records = [record("a", "soft", seed=0), record("a", "center", seed=1)]
    gathered = collected(records)
    made = compare_folds(gathered, "soft")
    assert made.cells["a", "center"].difference is None
    json.dumps(folds_document(made), allow_nan=False)


def test_nulls_have_reasons():
    alone = collected([record("a", "soft")])
    document = folds_document(compare_folds(alone, "soft"))
    assert document["ranks"]["friedman"]["reason"] == "one objective: nothing to compare"


def test_incomplete_rows_are_said():
    gathered = collected(made_records(2)[:-1])
    made = compare_folds(gathered, "soft")
    assert "over data sets: 1 of 2 have every cell" in notes_over_datasets(gathered, made)
    assert "| average (1 of 2) |" in markdown(cv_table(gathered, made))


def test_baselines_of_several_tables():
    tables = [["soft", "center"], ["center", "arcgrad"]]
    assert resolve_baselines(tables, parse("arcgrad")) == ["soft", "arcgrad"]
    assert resolve_baselines(tables, None) == ["soft", "center"]
    with pytest.raises(RequestError, match="not an objective here"):
        resolve_baselines(tables, "m-soft")


def test_the_baseline():
    assert resolve_baseline(["center", "soft"], None) == "soft"
    assert resolve_baseline(["center", "arcgrad"], None) == "center"
    assert resolve_baseline(["center", "arcgrad"], parse("arcgrad:scale=10")) == "arcgrad"
    with pytest.raises(RequestError, match="not an objective here"):
        resolve_baseline(["center"], parse("soft"))


@pytest.fixture(scope="module")
def scattered(tmp_path_factory):
    """Three stores of one table: 6 data sets and 4 methods, two seeds; and one of networks."""
    folder = tmp_path_factory.mktemp("scattered")
    assert stores.run_command([*stores.UCI, "--quiet", "--out", str(folder / "made")]) == 0
    assert stores.run_command([*stores.TRAIN, "--quiet", "--out", str(folder / "nets")]) == 0
    first = stores.trial(folder / "made", "iris-soft")
    stream = np.random.default_rng(0)
    for i, dataset in enumerate(("iris", "wine", "glass", "seeds", "sonar", "ecoli")):
        for j, objective in enumerate(("soft", "center", "arcgrad:scale=5", "m-soft")):
            for seed in (0, 1):
                name = f"{dataset}-{objective.replace(':', '-')}-{seed}"
                to = folder / f"store{(i + j + seed) % 3}" / name
                same = {"dataset": dataset, "objective": objective, "seed": seed}
                stores.another(first, to, "2999-01-01T00:00:00+00:00", **same)
                right = stream.integers(30, 51, (2, 3))  # of 51: with ties
                stores.change_result(to, accuracies=(100 * right / 51).tolist())
    return [folder / name for name in ("store0", "store1", "store2", "nets")]


@pytest.mark.parametrize(
    "form",
    ["json", *(pytest.param(f, marks=pytest.mark.slow) for f in ("markdown", "latex", "csv"))],
)
def test_neither_hashes_nor_the_order_of_stores_change_a_byte(scattered, form):
    printed = []
    for seed, order in (("0", (0, 1, 2, 3)), ("12345", (3, 1, 2, 0))):
        arguments = [*(str(scattered[i]) for i in order), "--format", form]
        ran = subprocess.run(
            [sys.executable, "-m", "marginctl", "report", *arguments],
            capture_output=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        )
        printed.append(ran.stdout)
    assert len(printed[0]) > 1000
    assert printed[0] == printed[1]


@pytest.mark.parametrize(
    ("objectives", "chosen"),
    [
        (["arcgrad", "soft"], "soft"),
        (["arcgrad", "gradient-decay", "soft:bias=true"], "soft:bias=true"),
        (["gradient-decay:beta=5", "gradient-decay"], "gradient-decay"),
        (["arcgrad", "adacos"], "arcgrad"),
    ],
)
def test_the_baseline_is_plain_softmax_where_it_is_there(objectives, chosen):
    assert resolve_baseline(objectives, None) == chosen
