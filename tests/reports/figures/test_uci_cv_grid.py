"""The angles that a figure shows are those of the networks."""

import numpy as np
import pytest
import torch

from marginctl.crossval.reference_trainer import train_network
from marginctl.crossval.stacked_trainer import train_stack
from marginctl.experiments.uci_cv_trial import CVTrial
from marginctl.objectives.parsing import parse
from marginctl.recipe.uci_cv import Protocol
from marginctl.reports.figures.uci_cv_grid import class_angles
from tests.crossval.factories import dataset


@pytest.mark.parametrize("linear_last_hidden", [False, True])
def test_angles_equal_those_of_the_network_alone(tmp_path, linear_last_hidden):
    protocol = Protocol(
        hidden=[7, 6], folds=3, repeats=1, epochs=4, lr=0.01, linear_last_hidden=linear_last_hidden
    )
    trial = CVTrial(dataset(), parse("arcgrad"), protocol, 0)
    (stack,) = trial.stacks
    _, networks = train_stack(stack, dtype=torch.float64)
    np.savez(tmp_path / "networks.npz", **networks.arrays())
    first = next(n for n in stack.networks if n.fold == 0)
    alone = train_network(stack, first, torch.float64)
    with torch.no_grad():
        features = alone.features(torch.as_tensor(trial.dataset.x))
        expected = -alone.objective.similarities(features)
    assert class_angles(trial, tmp_path / "networks.npz") == pytest.approx(expected, abs=1e-9)
