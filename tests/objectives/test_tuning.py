"""Candidates of tuning: absolute rates, the same number for every objective, even coverage."""

import itertools
import math
from collections import Counter

import pytest

from marginctl.objectives.parsing import parse
from marginctl.objectives.schedules import parse_learning_rate, rate_at
from marginctl.objectives.tuning import (
    RATES,
    max_rate,
    spread,
    tuned_options,
    tuning_candidates,
    with_max_rate,
)


def test_rates_are_log_spaced():
    rates = RATES["sgd"]
    assert rates[0] == 0.001
    assert rates[-1] == 0.32
    for low, high in itertools.pairwise(rates):
        assert math.log10(high / low) == pytest.approx(0.25, abs=0.02)
    assert {0.001, 0.01, 0.1} <= set(rates)


@pytest.mark.parametrize("start", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("name", ["soft", "arcface", "arcgrad", "lm-softmax"])
def test_candidates_do_not_depend_on_a_starting_rate_of_the_grid(name, start):
    objective = parse(name)
    assert tuning_candidates(objective, RATES["sgd"], start=start) == tuning_candidates(
        objective, RATES["sgd"]
    )


@pytest.mark.parametrize("name", ["soft", "arcface", "center", "similarity=cosine"])
def test_every_objective_has_the_same_rates_and_the_starting_one(name):
    candidates = tuning_candidates(parse(name), RATES["sgd"], start=0.02)
    assert [rate for _, rate, _ in candidates] == [0.02, *RATES["sgd"]]
    assert str(candidates[0][0]) == str(parse(name))


def test_an_option_that_is_named_is_not_tuned():
    assert set(tuned_options(parse("arcface"))) == {"margin", "scale"}
    assert set(tuned_options(parse("arcface:margin=0.2"))) == {"scale"}
    chosen = {
        o.options["margin"]
        for o, _, _ in tuning_candidates(parse("arcface:margin=0.2"), RATES["sgd"])
    }
    assert chosen == {0.2}


def test_arcface_is_tried_as_for_faces_and_as_for_few_classes():
    tried = tuned_options(parse("arcface"))
    original = parse("arcface").options
    assert original["scale"] == 64
    assert original["margin"] == 0.5
    assert {20, 64} < set(tried["scale"])
    assert {0.1, 0.5} < set(tried["margin"])


def test_values_are_covered_evenly():
    combinations = spread(60, {"a": range(3), "b": range(5)})
    for name, size in (("a", 3), ("b", 5)):
        counts = Counter(values[name] for values in combinations)
        assert len(counts) == size
        assert all(abs(n * size / 60 - 1) <= 0.25 for n in counts.values())
    pairs = Counter((values["a"], values["b"]) for values in combinations)
    assert len(pairs) == 15
    assert max(pairs.values()) <= 6


@pytest.mark.parametrize(
    "text",
    [
        "0.05",
        "cosine(start=0.05,end=0.005)",
        "one-cycle(max_lr=0.05)",
        "step(start=0.05,factor=0.1,every=0.3)",
    ],
)
def test_a_rate_keeps_its_shape(text):
    rate = parse_learning_rate(text)
    changed = with_max_rate(rate, 0.2)
    assert max_rate(rate) == 0.05
    assert max_rate(changed) == 0.2
    for step in range(11):
        assert rate_at(changed, step, 10) == pytest.approx(4 * rate_at(rate, step, 10))
