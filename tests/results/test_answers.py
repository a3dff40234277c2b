"""Answers: the best method, its interval, its comparison, and what makes them unreliable."""

import numpy as np
import pytest
from scipy import stats

from marginctl.reports.answer_text import answer_lines
from marginctl.results.answers import fold_answers, seed_answers, unreliable
from marginctl.results.compare import compare_folds, compare_seeds
from marginctl.results.cv_cells import Grid
from marginctl.results.statistics import holm, holm_levels, paired_rows_test
from tests.results.factories import cv_result, training_result

FOLDS = ((60.0, 62.0, 59.0), (61.0, 63.0, 60.0))


def answers(*results, baselines=(), metric="accuracy"):
    objectives = [r.objective for r in results if r.objective not in baselines]
    collector = Grid(
        ["iris"], objectives, seeds=1, published={}, baselines=baselines, metric=metric
    )
    collector.add_all(results)
    comparisons = compare_folds(collector, objectives[0])
    found = fold_answers(collector, comparisons)
    return found, answer_lines(found, objectives[0])


def shifted(by):
    return tuple(tuple(v + by + 0.1 * i for i, v in enumerate(row)) for row in FOLDS)


def test_the_best_objective_with_its_interval_and_test():
    better = cv_result(objective="arcface", accuracies=shifted(5))
    majority = cv_result(objective="majority", accuracies=shifted(-9))
    (answer,), (line,) = answers(
        cv_result(accuracies=FOLDS), better, majority, baselines=["majority"]
    )
    values, ratio = np.ravel(better.accuracies), 5 / 10
    half = stats.t.ppf(0.975, 5) * np.sqrt((1 / 6 + ratio) * values.var(ddof=1))
    assert answer.interval == pytest.approx((values.mean() - half, values.mean() + half))
    assert (answer.best, answer.other, answer.significant) == ("arcface", "soft", True)
    assert line.startswith("Best on iris: arcface 65.9 % (")
    assert "significantly better than soft (60.8 %, p = " in line
    assert line.endswith("n = 6 folds); majority has 51.9 %.")


def test_different_budgets_are_not_judged():
    better = cv_result(objective="arcface", accuracies=shifted(5), candidates=11)
    (answer,), (line,) = answers(cv_result(accuracies=FOLDS), better)
    assert not answer.significant
    assert "tuned with another budget: not compared" in line


def test_one_objective():
    _, (line,) = answers(cv_result(accuracies=FOLDS))
    assert line.startswith("On iris: soft 60.8 % (")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"collapsed": [0]}, "predicts one class in 1 of 6 networks"),
        ({"diverged": [1, 2]}, "diverged in 2 of 6 networks"),
        ({"confusion": [[60, 0], [40, 0]]}, "is near chance (60.8 %; always naming"),
    ],
)
def test_an_unreliable_baseline_is_said_first(fields, words):
    lines = answers(
        cv_result(accuracies=FOLDS, **fields), cv_result(objective="arcface", accuracies=shifted(1))
    )[1]
    assert lines[0].startswith("iris: soft, which the others are compared with,")
    assert words in lines[0]
    assert len(lines) == 2


def test_a_good_baseline_is_not_mentioned():
    assert unreliable(80.0, 70.0, 0, 0, 5) is None
    assert unreliable(80.0, None, 0, 0, 5) is None


def test_a_training_near_chance_is_said_first():
    weak = [
        training_result(seed=s, last={"epoch": 1, "top1": 30.5}, largest_class=30.0) for s in (0, 1)
    ]
    good = [
        training_result(objective="arcface", seed=s, last={"epoch": 1, "top1": 60.0})
        for s in (0, 1)
    ]
    found = seed_answers([*weak, *good], compare_seeds([*weak, *good], "soft"), "soft")
    first, _ = answer_lines(found, "soft")
    assert "is near chance (30.5 %; always naming the largest class gives 30.0 %)" in first


def test_trainings_are_answered_over_seeds():
    runs = [
        training_result(objective=o, seed=s, last={"epoch": 1, "top1": v + s / 10})
        for o, v in (("soft", 50.0), ("arcface", 53.0))
        for s in range(3)
    ]
    runs[-1] = runs[-1].model_copy(update={"seed": 7})
    compared = compare_seeds(runs, "soft")
    (answer,) = seed_answers(runs, compared, "soft")
    assert (answer.best, answer.n, answer.counted) == ("arcface", 3, "seed")
    assert compared[0].unpaired_seeds == (7,)


@pytest.mark.parametrize("seed", range(20))
def test_intervals_at_holms_levels_agree_with_the_adjusted_values(seed):
    stream = np.random.default_rng(seed)
    p = [float(v) for v in stream.random(6) ** 3] + [None]
    for adjusted, level, raw in zip(holm(p), holm_levels(p), p, strict=True):
        assert (level is None) == (raw is None)
        if raw is not None:
            assert (raw < level) == (adjusted < 0.05)


def test_mcnemar_against_the_binomial_distribution():
    a, b = np.zeros(60), np.zeros(60)
    a[:12], b[10:14] = 1, 1
    test = paired_rows_test(a, b)
    assert test.p == pytest.approx(stats.binomtest(10, 12).pvalue)
    assert paired_rows_test(a, a).p is None


def test_means_over_networks_are_tested_by_the_bootstrap():
    stream = np.random.default_rng(0)
    rejected = 0
    for _ in range(200):
        a, b = (stream.binomial(4, 0.7, 80) / 4 for _ in range(2))
        rejected += paired_rows_test(a, b).p < 0.05
    assert rejected <= 20  # 5 % of 200 and 3 standard errors
    assert paired_rows_test(np.full(80, 0.75), stream.binomial(4, 0.4, 80) / 4).p < 0.001


def test_a_bootstrap_over_many_rows_is_that_of_the_normal_distribution():
    stream = np.random.default_rng(1)
    a, b = stream.integers(0, 4, (2, 100_000)) / 3
    difference = a - b
    difference -= difference.mean()
    shifted_a = b + difference + 2 * difference.std() / np.sqrt(len(b))
    expected = 2 * stats.norm.sf(2)
    assert paired_rows_test(shifted_a, b).p == pytest.approx(expected, abs=0.01)
