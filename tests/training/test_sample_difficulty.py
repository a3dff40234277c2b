"""Groups by difficulty and their shares of the gradient, against sample by sample and formulas."""

import numpy as np
import pytest
import torch

from marginctl.objectives.module import Objective
from marginctl.objectives.parsing import parse
from marginctl.training.sample_difficulty import DifficultyGroups, gradient_norms, grouped
from marginctl.training.trainer import Predictions
from tests.training.made import run, trainer


def features_and_labels(n=40, d=6, classes=5):
    stream = torch.Generator().manual_seed(3)
    return torch.randn(n, d, generator=stream), torch.arange(n) % classes


def made(name, d=6, classes=5):
    torch.manual_seed(1)
    return Objective(parse(name).spec, classes, d)


@pytest.mark.parametrize("beta", [5, 1, 0.1, 0.01])
def test_gradients_of_gradient_decay_are_those_of_its_formula(beta):
    """|dJ/dx| = |sum_c dJ/dz_c w_c|, dJ/dz_y = -(1 - p)/(1 - (1 - beta) p), others p_c over it."""
    objective = made(f"gradient-decay:beta={beta}")
    x, y = features_and_labels()
    weight = objective.weight.detach().double()
    p = (x.double() @ weight.T).softmax(1)
    own = p[torch.arange(len(y)), y]
    of_logits = p / (1 - (1 - beta) * own)[:, None]
    of_logits[torch.arange(len(y)), y] = -(1 - own) / (1 - (1 - beta) * own)
    expected = (of_logits @ weight).norm(dim=1)
    assert gradient_norms(objective, x, y) == pytest.approx(expected.numpy(), rel=1e-4)


@pytest.mark.parametrize(
    "name", ["arcface", "adacos", "center", "lm-softmax:strength=0.5", "cosine-ls", "l-gm", "hinge"]
)
def test_gradients_are_those_of_each_sample_alone_and_the_state_stands_still(name):
    objective = made(name)
    x, y = features_and_labels()
    objective.train()
    objective(x, y)  # a state that has moved
    before = {key: value.clone() for key, value in objective.state_dict().items()}
    found = gradient_norms(objective, x, y)
    assert all(torch.equal(before[k], v) for k, v in objective.state_dict().items())
    assert objective.weight.grad is None
    assert not x.requires_grad
    for i in range(len(y)):
        one = x[i : i + 1].clone().requires_grad_()
        objective(one, y[i : i + 1]).backward()
        assert one.grad.norm().item() == pytest.approx(found[i], rel=1e-4, abs=1e-7)


def test_groups_are_quantiles_of_equal_size_with_ties_by_row():
    found = grouped(np.array([3.0, 1.0, 2.0, 1.0, 0.5, 9.0, 2.0]), 3)
    assert [rows.tolist() for rows in found] == [[4, 1, 3], [2, 6], [0, 5]]
    sizes = [len(rows) for rows in grouped(np.random.default_rng(0).random(1437), 5)]
    assert sizes == [288, 288, 287, 287, 287]


def outputs(objective, x, y):
    with torch.no_grad():
        return Predictions(x, objective.logits(x), objective.similarities(x), y)


def by_hand(rows):
    made = DifficultyGroups.__new__(DifficultyGroups)
    made.rows = [np.array(group) for group in rows]
    return made


def test_a_record_is_what_the_groups_have_by_hand():
    objective = made("gradient-decay:beta=0.1")
    x, y = features_and_labels()
    rows = [list(range(20)), list(range(20, 40))]
    found = by_hand(rows).record(objective, outputs(objective, x, y))
    p = (x @ objective.weight.detach().T).double().softmax(1)
    own = p[torch.arange(40), y].numpy()
    norms = gradient_norms(objective, x, y)
    assert found["n"] == 40
    for number, group in zip("12", rows, strict=True):
        one = found["groups"][number]
        assert one["n"] == 20
        assert one["confidence"] == pytest.approx(own[group].mean(), rel=1e-5)
        assert one["nll"] == pytest.approx(-np.log(own[group]).mean(), rel=1e-5)
        assert one["top1"] == 100 * float((p.argmax(1) == y)[group].double().mean())
        assert one["gradient_share"] == pytest.approx(norms[group].sum() / norms.sum())
    assert sum(found["groups"][n]["gradient_share"] for n in "12") == pytest.approx(1)
    counts, _ = np.histogram(own, bins=20, range=(0, 1))  # no confidence lies on an edge
    assert found["confidence_histogram"]["counts"] == counts.tolist()


def test_gradients_of_zero_have_no_shares():
    objective = made("hinge:margin=0.001")
    y = torch.arange(4)
    x = 50 * torch.linalg.pinv(objective.weight.detach())[:, :4].T
    found = by_hand([[0, 1], [2, 3]]).record(objective, outputs(objective, x, y))
    assert [found["groups"][n]["gradient_share"] for n in "12"] == [None, None]
    assert found["groups"]["1"]["top1"] == 100


def test_infinite_logits_are_null():
    objective = made("soft")
    x, y = features_and_labels()
    tested = outputs(objective, x, y)
    infinite = Predictions(tested.features, tested.logits / 0, tested.similarities, y)
    found = by_hand([range(20), range(20, 40)]).record(objective, infinite)
    assert found["groups"]["1"]["confidence"] is None
    assert found["groups"]["1"]["nll"] is None
    assert found["confidence_histogram"]["counts"] is None


def test_training_goes_on_as_without_a_look():
    """Neither the gradients nor the evaluation changes what is trained."""
    plain, looked = trainer("center"), trainer("center")
    run(plain)
    while looked.step < looked.total_steps:
        looked.run_epoch(lambda: None)
        tested = looked.predict()
        gradient_norms(looked.objective, tested.features, tested.labels)
    assert looked.weights_digest() == plain.weights_digest()
