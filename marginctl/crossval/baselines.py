"""Classifiers of scikit-learn on the same folds, with which networks are compared."""

import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from marginctl.crossval.preprocessing import encode
from marginctl.crossval.stack import Choice, NetworkSplit, Stack, StackResult, evaluate_network
from marginctl.data.tabular.dataset import TabularDataset
from marginctl.metrics.arrays import FloatArray
from marginctl.recipe.uci_cv import SklearnBaseline

MAX_CATEGORIES = 255  # that scikit-learn's histograms can hold
# The settings from which the inner folds choose: ours, as few as the tuning of a network allows.
GRIDS: Mapping[str, Mapping[str, Sequence[float]]] = {
    "majority": {},
    "logistic-regression": {"C": (0.01, 0.1, 1.0, 10.0)},
    "gradient-boosting": {"max_leaf_nodes": (4, 16), "max_iter": (40, 120)},
}


def train_baseline(
    stack: Stack, report_cost: Callable[[float], None]
) -> tuple[StackResult, list[Choice], list[FloatArray]]:
    """Fit and test a baseline on the folds of a stack.

    The accuracy on inner folds of the training rows chooses the setting; the chosen one is fitted
    on all training rows.

    Returns:
        The results by network number, the choice of each, and (n, C) probabilities of every row
        by each. There is no choice where there is one setting.
    """
    from threadpoolctl import threadpool_limits

    assert isinstance(stack.objective, SklearnBaseline)
    started = time.perf_counter()
    splits = stack.by_number
    tests, collapsed, all_probabilities = [], [], []
    choices: list[Choice] = []
    # of fits that do not converge, or lack a class
    with warnings.catch_warnings(action="ignore"), threadpool_limits(1):
        for split in splits:
            probabilities, choice = _fit(stack, split)
            predicted = probabilities.argmax(1)
            logits = np.log(np.clip(probabilities, np.finfo(np.float64).eps, None))
            tests.append(evaluate_network(stack.dataset, split, predicted, logits))
            constant = bool((predicted == predicted[0]).all())
            collapsed.append(constant and str(stack.objective) != "majority")
            choices += [choice] if len(baseline_settings(stack.objective)) > 1 else []
            all_probabilities.append(probabilities)
            report_cost(stack.cost / len(splits))
    result = StackResult(
        **{key: np.stack([test[key] for test in tests]) for key in tests[0]},
        diverged=np.zeros(len(splits), bool),
        collapsed=np.array(collapsed),
        losses=np.full((len(splits), 1), np.nan),
        seconds=time.perf_counter() - started,
    )
    return result, choices, all_probabilities


def _fit(stack: Stack, split: NetworkSplit) -> tuple[FloatArray, Choice]:
    """Return the probabilities (n, C) of every row, and the choice."""
    from sklearn.dummy import DummyClassifier
    from sklearn.model_selection import GridSearchCV

    assert isinstance(stack.objective, SklearnBaseline)
    dataset, train = stack.dataset, split.train
    y = dataset.y[train]
    name = str(stack.objective)
    x = dataset.x if name == "gradient-boosting" else encode(dataset, train)
    if name == "majority" or len(np.unique(y)) == 1:
        model: Any = DummyClassifier(strategy="prior").fit(x[train], y)
        choice = Choice(0, float(100 * model.score(x[train], y)))
    else:
        folds = stack.inner_folds(split, min(stack.objective.inner_folds, len(train)))
        splits = [(np.delete(np.arange(len(train)), test), test) for test in folds]
        prefix = "logisticregression__" if name == "logistic-regression" else ""
        grid = {prefix + key: values for key, values in GRIDS[name].items()}
        model = GridSearchCV(_estimator(name, dataset), grid, cv=splits).fit(x[train], y)
        choice = Choice(int(model.best_index_), float(100 * model.best_score_))
    probabilities = np.zeros((len(x), dataset.num_classes))
    probabilities[:, model.classes_] = model.predict_proba(x)
    return probabilities, choice


def baseline_settings(baseline: SklearnBaseline) -> list[str]:
    """Return the settings from which a baseline chooses, as `C=0.1`; one without options."""
    grid = GRIDS[baseline.name]
    names = sorted(grid)  # the order of scikit-learn's ParameterGrid
    return [
        ", ".join(f"{name}={value:g}" for name, value in zip(names, values, strict=True))
        for values in itertools.product(*(grid[name] for name in names))
    ]


def _estimator(name: str, dataset: TabularDataset) -> Any:
    if name == "logistic-regression":
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    from sklearn.ensemble import HistGradientBoostingClassifier

    categorical = [0 < len(c.categories) <= MAX_CATEGORIES for c in dataset.columns]
    return HistGradientBoostingClassifier(
        categorical_features=categorical, early_stopping=False, random_state=0
    )
