"""Nested cross-validation: the choice of candidates, and its independence of test rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from marginctl.crossval.folds import partition
from marginctl.crossval.nested_cv import inner_splits, train_and_choose
from marginctl.crossval.search_space import column_candidates
from marginctl.crossval.stack import NetworkSplit, Stack, StackTuning
from marginctl.crossval.stacked_trainer import train_stack
from marginctl.experiments.uci_cv_trial import expand_cv_trials
from marginctl.objectives.parsing import parse
from marginctl.objectives.schedules import parse_learning_rate
from marginctl.objectives.tuning import RATES, max_rate
from marginctl.recipe.uci_cv import Protocol, Tune, UciCvRecipe
from tests.crossval.factories import dataset, table

BASE = Protocol(hidden=[6], folds=3, repeats=2, epochs=6, batch_size=8)
SPACE = Tune(protocol={"lr": [1e-6, 0.03, 0.1], "epochs": [4, 6]}, inner_folds=2)


def tuned(data, space=SPACE, column="arcgrad"):
    candidates = column_candidates(space, BASE, parse(column))
    tuning = StackTuning(candidates, space.inner_folds)
    return Stack(data, parse(column), BASE, 0, 0, 6, tuning)


def train(stack):
    return train_and_choose(stack, "cpu", lambda cost: None)


def test_inner_folds_partition_the_training_rows():
    stack = tuned(dataset())
    inner = inner_splits(stack)
    assert len(inner) == 6 * 2
    assert len({(n.repeat, n.fold) for n in inner}) == 12
    outer = sorted(stack.networks, key=lambda n: (n.repeat, n.fold))
    for i, network in enumerate(outer):
        own = inner[2 * i : 2 * i + 2]
        tested = np.concatenate([n.test for n in own])
        assert sorted(tested) == sorted(network.train)
        for n in own:
            assert not set(n.train) & set(n.test)
            assert not set(network.test) & {*n.train, *n.test}
    different = partition(np.zeros(20, int), 2, stratified=False, seed=0, repeat=0, outer_fold=1)
    other = partition(np.zeros(20, int), 2, stratified=False, seed=0, repeat=0, outer_fold=2)
    assert not np.array_equal(different, other)


def test_nested_cv_equals_a_plain_loop():
    """One candidate, one network, one inner fold at a time."""
    stack = tuned(dataset())
    trained = train(stack)
    result = trained.result
    chosen = [choice.candidate for choice in trained.choices]
    outer = sorted(stack.networks, key=lambda n: (n.repeat, n.fold))
    inner = inner_splits(stack)
    for i, network in enumerate(outer):
        scores = []
        for candidate in stack.tuning.candidates:
            right = 0
            for rows in inner[2 * i : 2 * i + 2]:
                alone = replace(
                    stack,
                    objective=candidate.objective,
                    protocol=candidate.setting.protocol,
                    tuning=None,
                    custom_splits=(rows,),
                )
                right += train_stack(alone)[0].correct[0]
            scores.append(right)
        best = int(np.argmax(scores))
        assert chosen[i] == best
        accuracy = 100 * scores[best] / len(network.train)
        assert trained.choices[i].inner_accuracy == pytest.approx(accuracy, rel=1e-12)
        candidate = stack.tuning.candidates[best]
        final = replace(
            stack, protocol=candidate.setting.protocol, tuning=None, custom_splits=(network,)
        )
        assert result.correct[i] == train_stack(final)[0].correct[0]
        assert result.tested[i] == len(network.test)
    assert {stack.tuning.candidates[c].setting.changed["lr"] for c in chosen} <= {0.03, 0.1}
    assert result.losses.shape == (6, 1)
    assert not result.diverged.any()


@pytest.mark.parametrize("data", [dataset(), table()], ids=["numbers", "missing and categories"])
def test_test_rows_do_not_influence_the_choice(data):
    """Other labels and features in a test fold do not change the choice of that fold."""
    stack = tuned(data)
    outer = sorted(stack.networks, key=lambda n: (n.repeat, n.fold))
    y = data.y.copy()
    y[outer[0].test] = (y[outer[0].test] + 1) % data.num_classes
    x = data.x.copy()
    x[outer[0].test, 0] += 7
    x[outer[0].test[:4], -1] = np.nan if np.isnan(x).any() else 0
    before = train(stack).choices
    splits = tuple(NetworkSplit(n.repeat, n.fold, n.train, n.test) for n in outer[:1])
    moved = replace(stack, dataset=replace(data, x=x, y=y), custom_splits=splits)
    after = train(moved).choices
    assert after == before[:1]


def test_a_label_leak_in_the_test_rows_has_no_influence():
    """A column that is the label in the test rows, and noise elsewhere; then other test labels."""
    data = dataset(60, seed=3)
    for outer in partition(data.y, 3, stratified=True, seed=0, repeat=0):
        train_rows = np.delete(np.arange(60), outer)
        x = data.x.copy()
        x[:, 0] = np.random.default_rng(1).normal(size=60)
        x[outer, 0] = 10 * data.y[outer]
        y = data.y.copy()
        y[outer] = np.random.default_rng(2).permutation(y[outer])
        assert (y[outer] != data.y[outer]).any()
        splits = (NetworkSplit(0, 0, train_rows, outer),)
        with_leak, without = (
            train(replace(tuned(replace(data, x=x, y=labels)), custom_splits=splits))
            for labels in (data.y, y)
        )
        assert with_leak.choices == without.choices
        for ours, other in zip(with_leak.networks, without.networks, strict=True):
            for name, weight in ours.weights.items():
                assert torch.equal(weight, other.weights[name])


def test_a_network_without_test_rows_is_tuned_on_all_rows():
    data = dataset()
    rows = np.arange(data.num_rows)
    split = NetworkSplit(0, 0, rows, rows[:0])
    trained = train(replace(tuned(data), custom_splits=(split,)))
    (choice,) = trained.choices
    assert trained.result.tested.tolist() == [0]
    assert 0 < choice.inner_accuracy <= 100
    (networks,) = trained.networks
    assert networks.predict().shape == (1, data.num_rows)


def test_rates_are_candidates_of_every_objective():
    base = Protocol(optimizer="adamw", lr=parse_learning_rate("one-cycle(max_lr=0.02)"))
    tune = Tune(protocol={"weight_decay": [0.1, 1.0], "epochs": [4, 6]})
    for column in map(parse, ("soft", "arcface", "lm-softmax")):
        candidates = column_candidates(tune, base, column)
        assert [c.setting.changed["lr"] for c in candidates] == [0.02, *RATES["adamw"]]
        assert candidates[0].objective == column
        assert [max_rate(c.setting.protocol.lr) for c in candidates[1:]] == list(RATES["adamw"])
        assert all(str(c.setting.protocol.lr).startswith("one-cycle") for c in candidates)
        assert {c.setting.protocol.epochs for c in candidates} == {4, 6}
    assert str(candidates[0]) == "lm-softmax, lr=0.02, weight_decay=0.1, epochs=4"
    named = column_candidates(Tune(rates=[0.1, 0.02]), base, parse("arcface"))
    assert [c.setting.changed for c in named] == [{"lr": 0.1}, {"lr": 0.02}]


def test_every_column_has_the_same_number_of_candidates():
    space = Tune(
        protocol={"lr": [1e-3, 3e-3, 1e-2, 3e-2]},
        options={"arcface": ["arcface:margin=0.5", "arcface:scale=64"]},
        settings=4,
    )
    made = UciCvRecipe(
        task="uci-cv", objectives=["soft", "arcface"], protocol=BASE, tune=space, datasets="all"
    )
    soft, arcface = expand_cv_trials(made, [dataset()])
    assert [str(c) for c in soft.tuning.candidates] == [
        f"soft, lr={lr}" for lr in (0.001, 0.003, 0.01, 0.03)
    ]
    assert len(arcface.tuning.candidates) == 4
    assert len({str(c) for c in arcface.tuning.candidates}) == 4
    assert soft.trained_networks == 6 * (1 + 4 * 3)
    plain = expand_cv_trials(made.model_copy(update={"tune": None}), [dataset()])
    assert plain[0].trained_networks == 6
    assert len({t.id for t in [soft, arcface, *plain]}) == 4


@pytest.mark.parametrize("changes", [{"inner_folds": 3}, {"protocol": {"lr": [0.1]}}])
def test_tuning_is_part_of_the_trial_id(changes):
    ids = set()
    for space in (SPACE, SPACE.model_copy(update=changes)):
        made = UciCvRecipe(task="uci-cv", objectives=["soft"], protocol=BASE, tune=space)
        (trial,) = expand_cv_trials(made, [dataset()])
        ids.add(trial.id)
    assert len(ids) == 2
