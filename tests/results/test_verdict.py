"""What is said of a published number, against scipy and by hand."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from marginctl.papers import PublishedValue, published_table
from marginctl.reports.tables.published_table import published_table as table_of_judged
from marginctl.reports.tables.published_table import verdict_text
from marginctl.results.verdict import Verdict, interval, judge_table
from tests.results.test_match_published import crossvalidated, trained

TABLE2 = published_table("large-margin", "2")
SOFT = ("Softmax loss", "Error rate")
OURS = ("Ours", "Error rate")


@pytest.mark.parametrize("n", [2, 3, 10])
def test_the_interval_is_welchs(n):
    stream = np.random.default_rng(n)
    ours, theirs = stream.normal(0, 1, n), stream.normal(0.5, 3, 7)
    (low, high), remark = interval(
        float(ours.mean()),
        float(ours.std(ddof=1)),
        n,
        PublishedValue(float(theirs.mean()), float(theirs.std(ddof=1)), 7),
    )
    expected = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-10)
    assert remark is None


def test_what_an_interval_rests_on_where_a_spread_is_missing():
    (low, high), remark = interval(10.0, 0.5, 4, PublishedValue(9.0, None, None))
    half = stats.t.ppf(0.975, 3) * 0.5 / 2
    assert (low, high) == pytest.approx((1 - half, 1 + half))
    assert remark == "the paper gives no spread: its number is taken as exact"
    (low, high), remark = interval(10.0, None, 1, PublishedValue(9.0, 0.2, 3))
    half = stats.t.ppf(0.975, 2) * 0.2 * math.sqrt(1 + 1 / 3)
    assert (low, high) == pytest.approx((1 - half, 1 + half))
    assert "n = 1" in remark
    assert interval(10.0, None, 1, PublishedValue(9.0, None, 3)) == (None, "n = 1: no interval")
    (low, high), remark = interval(10.0, 0.5, 4, PublishedValue(9.0, 0.3, None))
    error = math.sqrt(0.25 / 4 + 0.09)
    df = error**4 / ((0.25 / 4) ** 2 / 3)
    assert high - low == pytest.approx(2 * stats.t.ppf(0.975, df) * error)
    assert "no n" in remark


def runs(objective, accuracies, **changes):
    return [
        trained("large-margin/table2", objective, a, seed=s, **changes)
        for s, a in enumerate(accuracies)
    ]


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        # the paper: an error of 27.27 +- 0.15, n = 3; delta is 0.5
        ([72.75, 72.73, 72.71, 72.77], Verdict.reproduced),
        ([70.0, 73.9], Verdict.inconclusive),
        ([72.73], Verdict.inconclusive),  # n = 1, with the paper's deviation: +-0.75
        ([70.0, 70.1, 70.05], Verdict.differs),
    ],
)
def test_verdicts(accuracies, verdict):
    judged = judge_table(TABLE2, runs("lm-softmax:bias=true", accuracies))
    cell = judged.cells[OURS]
    assert cell.verdict is verdict
    assert cell.n == len(accuracies)
    assert cell.mean == pytest.approx(100 - np.mean(accuracies))
    assert cell.difference == pytest.approx(cell.mean - 27.27)
    assert judged.counts() == {verdict: 1, Verdict.missing: 6}
    assert judged.cells[SOFT].verdict is Verdict.missing


def test_other_settings_are_named_and_nothing_is_claimed():
    made = runs("soft:bias=true", [71.4, 71.3], train__epochs=10, data__subset_size=5000)
    cell = judge_table(TABLE2, made).cells[SOFT]
    assert cell.verdict is Verdict.not_comparable
    assert cell.differences == {"data.subset_size": (5000, None), "train.epochs": (10, 50)}
    assert verdict_text(cell).endswith(
        "data.subset_size = 5000, not none; train.epochs = 10, not 50"
    )
    both = judge_table(TABLE2, [*made, *runs("soft:bias=true", [71.4, 71.35])]).cells[SOFT]
    assert both.n == 2  # the comparable ones alone
    assert both.differences == {}


def test_the_best_is_by_direction_and_ties_share():
    made = runs("soft:bias=true", [71.0]) + runs("lm-softmax:bias=true", [73.0])
    made += runs("super-symmetry:bias=true", [73.001])
    cells = judge_table(TABLE2, made).cells
    assert [cells[p].best for p in (SOFT, OURS, ("Super-symmetry", "Error rate"))] == [
        False,
        True,
        True,
    ]
    alone = judge_table(TABLE2, runs("soft:bias=true", [71.0])).cells[SOFT]
    assert not alone.best


def test_a_diverged_run_is_missing_with_its_reason():
    (run,) = runs("soft:bias=true", [None])
    run.result.diverged = "the loss is not finite at step 3"
    cell = judge_table(TABLE2, [run]).cells[SOFT]
    assert (cell.verdict, cell.reason) == (Verdict.missing, "diverged")


def test_folds_are_judged_by_all_their_accuracies():
    stream = np.random.default_rng(0)
    values = [list(map(float, row)) for row in stream.normal(96.8, 0.5, (10, 10))]
    run = crossvalidated("arcgrad/table1", "iris", "soft", values)
    cell = judge_table(published_table("arcgrad", "I"), [run]).cells["Iris", "Soft"]
    assert cell.n == 100
    assert cell.std == pytest.approx(np.std(values, ddof=1))
    assert cell.verdict is Verdict.inconclusive  # its own deviation of 6.76 is too large for +-1
    assert cell.runs == (run,)
    assert not judge_table(published_table("arcgrad", "I"), []).shown


def test_the_order_of_the_runs_changes_nothing():
    made = runs("soft:bias=true", [71.4, 71.3, 70.9]) + runs("lm-softmax:bias=true", [72, 73])
    first = table_of_judged(judge_table(TABLE2, made), key="k")
    again = table_of_judged(judge_table(TABLE2, made[::-1]), key="k")
    shown = [[(e.text, e.footnotes, e.remark) for e in row.cells if e] for row in first.rows]
    assert shown == [
        [(e.text, e.footnotes, e.remark) for e in row.cells if e] for row in again.rows
    ]
    assert Path(made[0].path) == Path("run")


def test_no_spread_is_no_certainty():
    limits, reason = interval(22.3, 0.0, 2, PublishedValue(22.0, None, None))
    assert (limits, reason) == (None, "no spread over n = 2: no interval")
    cell = judge_table(TABLE2, runs("soft:bias=true", [71.4, 71.4])).cells[SOFT]
    assert cell.interval is not None  # the paper has a spread


def test_a_run_stands_for_its_own_cell_alone():
    """Not for every cell of the table that has its objective."""
    table3, ours = published_table("large-margin", "3"), "lm-softmax:bias=true"
    noisy = [trained("large-margin/table3-noise", ours, 65.0, train__epochs=10)]  # 0.1
    cells = judge_table(table3, noisy).cells.values()
    (cell,) = [c for c in cells if c.runs]
    assert cell.verdict is Verdict.not_comparable
    assert cell.differences == {"train.epochs": (10, 50)}
    assert not cell.best
    elsewhere = [trained("large-margin/table2", ours, 65.0, data__name="digits")]
    assert not judge_table(TABLE2, elsewhere).shown


def test_a_reduced_network_is_named_and_another_stands_for_nothing():
    quarter, other = (
        trained("large-margin/table2", "soft:bias=true", 65.0, model=model)
        for model in ("layer13:width=0.25", "mlp")
    )
    cell = judge_table(TABLE2, [quarter, other]).cells[SOFT]
    assert cell.runs == (quarter,)
    assert cell.reason == "model = layer13:width=0.25, not layer13"
