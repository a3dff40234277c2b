"""Methods over shared seeds, against scipy."""

import numpy as np
import pytest
from scipy import stats

from marginctl.reports.tables.training_table import comparison_text
from marginctl.results import statistics as tests
from marginctl.results.compare import compare_seeds, seeds_document
from tests.results.factories import training_result


def record(objective, seed, top1, row="digits, mlp", diverged=None):
    last = None if diverged else {"epoch": 1, "top1": top1}
    return training_result(objective=objective, seed=seed, row=row, last=last, diverged=diverged)


def made(seed=0, n=6):
    stream = np.random.default_rng(seed)
    a, b, c = (np.round(stream.normal(m, 1, n), 1) for m in (90, 91.5, 90))
    return (a, b, c), [
        record(o, s, float(v))
        for o, values in (("soft", a), ("arcgrad", b), ("adacos", c))
        for s, v in enumerate(values)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_against_scipy(seed):
    (a, b, c), records = made(seed)
    found = {x.objective: x for x in compare_seeds(records, "soft")}
    raw = {o: stats.ttest_rel(v, a) for o, v in (("arcgrad", b), ("adacos", c))}
    for objective, test in raw.items():
        own = found[objective]
        assert own.test.statistic == pytest.approx(test.statistic)
        assert own.test.p == pytest.approx(test.pvalue)
        # Holm's level: of the larger p-value 0.05, unless the smaller one is not significant
        smallest = min(t.pvalue for t in raw.values())
        level = 0.05 if test.pvalue > smallest and smallest < 0.025 else 0.025
        between = test.confidence_interval(1 - level)
        assert own.interval == pytest.approx((between.low, between.high))
        assert (own.p_holm < 0.05) == (not between.low <= 0 <= between.high)
    # scipy has no Holm: by its definition
    low, high = sorted(raw, key=lambda o: raw[o].pvalue)
    assert found[low].p_holm == pytest.approx(min(1, 2 * raw[low].pvalue))
    assert found[high].p_holm == pytest.approx(max(found[low].p_holm, raw[high].pvalue))
    assert found["arcgrad"].wins == (b > a).sum()
    assert found["arcgrad"].losses == (b < a).sum()
    assert found["arcgrad"].ties == (b == a).sum()


def test_the_same_in_any_order():
    _, records = made()
    shuffled = [records[i] for i in np.random.default_rng(1).permutation(len(records))]
    first = {x.objective: x for x in compare_seeds(records, "soft")}
    assert {x.objective: x for x in compare_seeds(shuffled, "soft")} == first


def test_shared_seeds_alone_count_and_too_few_say_so():
    records = [record("soft", 0, 90.0), record("soft", 1, 91.0), record("arcgrad", 1, 93.0)]
    records += [record("adacos", 5, 50.0), record("m-soft", 0, None, diverged="at step 3")]
    found = {x.objective: x for x in compare_seeds(records, "soft")}
    one = found["arcgrad"]
    assert (one.n, one.difference, one.interval, one.bootstrap_interval, one.p_holm) == (
        1,
        2.0,
        None,
        None,
        None,
    )
    assert "a test needs 2" in comparison_text(one, "soft")
    assert found["adacos"].difference is None
    assert "0 shared seeds" in comparison_text(found["m-soft"], "soft")
    assert compare_seeds(records, "cosine") == []


def test_less_is_better_for_an_error():
    records = [record(o, s, 90.0) for o in ("soft", "m-soft") for s in range(4)]
    for i, r in enumerate(records):
        calibration = {"ece": (0.05 if r.objective == "soft" else 0.02) + 0.001 * (i % 3)}
        r.evaluation = {"calibration": calibration}
    (own,) = compare_seeds(records, "soft", "ece")
    assert own.difference == pytest.approx(-3, abs=0.2)  # points
    assert (own.direction, own.wins, own.losses) == (1, 4, 0)
    assert seeds_document(own, "soft")["metric"] == "ece"
    assert compare_seeds(records, "soft", "nll")[0].n == 0


def test_equal_differences_have_no_p():
    records = [record(o, s, 90.0 + s + d) for o, d in (("soft", 0), ("arcgrad", 1)) for s in (0, 1)]
    (own,) = compare_seeds(records, "soft")
    assert own.test.p is None
    assert "the difference is the same for every seed" in comparison_text(own, "soft")
    assert own.difference == 1.0
    document = seeds_document(own, "soft")
    assert (document["interval"], document["bootstrap_interval"]) == (None, None)


def test_the_bootstrap_is_the_quantiles_of_drawn_means():
    values = [1.0, 2.0, 4.0]
    low, high = tests.bootstrap_interval(values)
    # all 27 draws of 3 are alike: (1,1,1) has a share of 1/27 = 3.7 % of them, above 2.5 %
    assert (low, high) == (1.0, 4.0)
    assert tests.bootstrap_interval(values[::-1]) == (low, high)
    many = np.random.default_rng(0).normal(0, 1, 200)
    found = tests.bootstrap_interval(many)
    scipys = stats.bootstrap((many,), np.mean, method="percentile", rng=np.random.default_rng(5))
    assert found == pytest.approx(tuple(scipys.confidence_interval), abs=0.01)
    assert tests.bootstrap_interval([1.0]) is None


def test_a_comparison_names_its_metric():
    records = [record(o, s, 90.0 + s * (o != "soft")) for o in ("soft", "m-soft") for s in range(3)]
    for i, r in enumerate(records):
        r.last.nll = 0.25 + 0.0123 * i
    (points,), (nll,) = (compare_seeds(records, "soft", m) for m in ("top1", "nll"))
    assert " against soft: +1.00 percentage points (Holm-adjusted interval " in comparison_text(
        points, "soft"
    )
    assert " against soft in NLL: +0.0369, " in comparison_text(nll, "soft")
