"""The baselines of scikit-learn: the same folds as the networks, fitted on training rows alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from marginctl.crossval.baselines import GRIDS, baseline_settings, train_baseline
from marginctl.crossval.executors import train
from marginctl.crossval.stack import NetworkSplit, build_stacks
from marginctl.data.tabular.uci import load_uci
from marginctl.objectives.parsing import parse
from marginctl.recipe.uci_cv import Protocol, SklearnBaseline

PROTOCOL = Protocol(folds=3, repeats=2, epochs=1, stratified=True)


def stacks(name, protocol=PROTOCOL, dataset=None):
    objective = SklearnBaseline(name) if name in GRIDS else parse(name)
    data = dataset or load_uci("iris", Path())
    return build_stacks(data, objective, protocol, 0, measured=True)


def folds_of(some):
    return {(n.repeat, n.fold): n.test.tolist() for stack in some for n in stack.networks}


def test_baselines_have_the_folds_of_the_networks():
    expected = folds_of(stacks("soft"))
    for name in GRIDS:
        assert folds_of(stacks(name)) == expected


@pytest.mark.parametrize("name", ["majority", "logistic-regression"])
def test_against_estimators_fitted_apart(name):
    data = load_uci("iris", Path())
    first = stacks(name)[0]
    result, chosen, _ = train_baseline(first, lambda cost: None)
    for i, split in enumerate(sorted(first.networks, key=lambda n: n.fold)):
        x, y = data.x[split.train], data.y[split.train]
        if name == "majority":
            model = DummyClassifier().fit(x, y)
        else:
            value = GRIDS[name]["C"][chosen[i].candidate]
            model = make_pipeline(StandardScaler(), LogisticRegression(C=value, max_iter=1000))
            model.fit(x, y)
        assert result.correct[i] == (model.predict(data.x[split.test]) == data.y[split.test]).sum()


def test_labels_of_test_rows_change_no_choice():
    data = load_uci("balance-scale", Path())
    first = stacks("logistic-regression", dataset=data)[0]
    _, chosen, probabilities = train_baseline(first, lambda cost: None)
    for i, split in enumerate(sorted(first.networks, key=lambda n: n.fold)):
        y = data.y.copy()
        y[split.test] = (y[split.test] + 1) % 3
        changed = type(data)(data.name, data.x, y, data.classes, data.columns)
        one = replace(stacks("logistic-regression", dataset=changed)[0], custom_splits=(split,))
        # the inner folds are those of the same training labels
        _, same, p = train_baseline(one, lambda cost: None)
        assert same == [chosen[i]]
        assert np.array_equal(p[0], probabilities[i])


def test_a_single_class_in_the_training_rows_is_predicted_for_every_row():
    first = stacks("gradient-boosting")[0]
    rows = np.arange(50)  # all of the first class
    one = replace(first, custom_splits=(NetworkSplit(0, 0, rows, np.arange(50, 150)),))
    result, (choice,), _ = train_baseline(one, lambda cost: None)
    assert (result.correct.tolist(), choice.inner_accuracy) == ([0], 100.0)


def test_settings_are_in_the_order_of_scikit_learn():
    for name, grid in GRIDS.items():
        expected = [
            ", ".join(f"{k}={v:g}" for k, v in setting.items()) for setting in ParameterGrid(grid)
        ]
        assert baseline_settings(SklearnBaseline(name)) == (expected or [""])


def test_an_executor_trains_a_baseline_with_its_predictions():
    trained = train(stacks("logistic-regression")[0], "cpu", frozenset({"predictions.csv"}))
    assert len(trained.predictions) == 150
    assert trained.result.metrics.shape == (3, 5)
    assert trained.result.confusion.sum() == 150


def test_every_grid_has_at_most_four_settings():
    for grid in GRIDS.values():
        assert np.prod([len(values) for values in grid.values()], dtype=int) <= 4
