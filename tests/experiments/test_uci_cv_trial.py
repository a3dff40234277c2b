"""The trials of a uci-cv recipe."""

from dataclasses import replace

import pytest

from marginctl.experiments.uci_cv_trial import data_warnings
from marginctl.recipe.uci_cv import Protocol
from tests.crossval.factories import dataset


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
