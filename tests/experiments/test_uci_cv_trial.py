"""The trials of a uci-cv recipe."""

from dataclasses import replace

import numpy as np
import pytest

from marginctl.experiments.uci_cv_trial import data_warnings
from marginctl.recipe.uci_cv import Protocol
from tests.crossval.factories import dataset, table


@pytest.mark.parametrize("spread", [1e-310, 5e-324, 1e-300, 1.1e-38])
def test_columns_that_barely_vary_are_named(spread):
    x = dataset().x.copy()
    x[:, 1], x[:, 3] = 0, 5  # a constant column needs no word
    x[::2, 1] = spread
    data = replace(dataset(), x=x)
    (line,) = data_warnings([data], Protocol(folds=3))
    assert line == (
        "made: values that differ by less than 1.2e-38 are constant at this precision, in column "
        "'column1': rescale it to use it"
    )
    x[::2, 1] = 1.3e-38
    assert data_warnings([data], Protocol(folds=3)) == []


def test_categories_that_count_as_one_are_counted():
    data = table(70, categories=(2, 30), missing=0)
    x = data.x.copy()
    x[:, 1], x[:, 2] = np.arange(70) % 2, np.where(np.arange(70) < 40, 0, np.arange(70) % 14 + 1)
    (line,) = data_warnings([replace(data, x=x)], Protocol(folds=3))
    assert line == (
        "mixed: column 'c1': 14 categories count as one, since each needs 5 training rows: join "
        "rare ones, or drop the column"
    )
    x[40:, 2] = 1
    assert data_warnings([replace(data, x=x)], Protocol(folds=3)) == []


@pytest.mark.parametrize("classes", [13, 200])
def test_of_many_small_classes_the_first_are_named(classes):
    x = dataset().x
    data = replace(
        dataset(),
        x=np.tile(x[:1], (classes, 1)),
        y=np.arange(classes),
        classes=tuple(f"k{i}" for i in range(classes)),
    )
    (line,) = data_warnings([data], Protocol(folds=3))
    assert f"'k11' (1) and {classes - 12} more: some folds test none of it" in line
    assert "'k12'" not in line
