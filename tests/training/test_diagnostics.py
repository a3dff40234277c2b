"""Sample difficulty and gradient norms, against sample by sample and formulas."""

import numpy as np
import pytest
import torch

from marginctl.objectives.module import Objective
from marginctl.objectives.parsing import parse
from marginctl.training.diagnostics import (
    DifficultyGroups,
    feature_gradient_norms,
    input_gradient_norm,
    sample_rows,
)
from marginctl.training.trainer import DivergedError, Predictions
from marginctl.utils.distributed import World
from tests.training.factories import CPU, images, run, trainer


def features_and_labels(n=40, d=6, classes=5):
    stream = torch.Generator().manual_seed(3)
    return torch.randn(n, d, generator=stream), torch.arange(n) % classes


def make_objective(name, d=6, classes=5):
    torch.manual_seed(1)
    return Objective(parse(name).spec, classes, d)


@pytest.mark.parametrize("beta", [5, 1, 0.1, 0.01])
def test_gradients_of_gradient_decay_are_those_of_its_formula(beta):
    """|dJ/dx| = |sum_c dJ/dz_c w_c|, dJ/dz_y = -(1 - p)/(1 - (1 - beta) p), others p_c over it."""
    objective = make_objective(f"gradient-decay:beta={beta}")
    x, y = features_and_labels()
    weight = objective.weight.detach().double()
    p = (x.double() @ weight.T).softmax(1)
    own = p[torch.arange(len(y)), y]
    of_logits = p / (1 - (1 - beta) * own)[:, None]
    of_logits[torch.arange(len(y)), y] = -(1 - own) / (1 - (1 - beta) * own)
    expected = (of_logits @ weight).norm(dim=1)
    assert feature_gradient_norms(objective, x, y) == pytest.approx(expected.numpy(), rel=1e-4)


@pytest.mark.parametrize(
    "name", ["arcface", "adacos", "center", "lm-softmax:strength=0.5", "cosine-ls", "l-gm", "hinge"]
)
def test_gradients_are_those_of_each_sample_alone_and_the_state_does_not_change(name):
    objective = make_objective(name)
    x, y = features_and_labels()
    objective.train()
    objective(x, y)  # a state that has moved
    before = {key: value.clone() for key, value in objective.state_dict().items()}
    found = feature_gradient_norms(objective, x, y)
    assert all(torch.equal(before[k], v) for k, v in objective.state_dict().items())
    assert objective.weight.grad is None
    assert not x.requires_grad
    for i in range(len(y)):
        one = x[i : i + 1].clone().requires_grad_()
        objective(one, y[i : i + 1]).backward()
        assert one.grad.norm().item() == pytest.approx(found[i], rel=1e-4, abs=1e-7)


def test_groups_are_quantiles_of_equal_size_with_ties_by_row():
    found = DifficultyGroups(np.array([3.0, 1.0, 2.0, 1.0, 0.5, 9.0, 2.0]), 3).groups
    assert [rows.tolist() for rows in found] == [[4, 1, 3], [2, 6], [0, 5]]
    sizes = [
        len(rows) for rows in DifficultyGroups(np.random.default_rng(0).random(1437), 5).groups
    ]
    assert sizes == [288, 288, 287, 287, 287]


def outputs(objective, x, y):
    with torch.no_grad():
        return Predictions(x, objective.logits(x), objective.similarities(x), y)


def given_groups(rows):
    made = DifficultyGroups.__new__(DifficultyGroups)
    made.groups = [np.array(group) for group in rows]
    return made


def test_the_record_has_the_means_of_each_group():
    objective = make_objective("gradient-decay:beta=0.1")
    x, y = features_and_labels()
    rows = [list(range(20)), list(range(20, 40))]
    found = given_groups(rows).record(objective, outputs(objective, x, y))
    p = (x @ objective.weight.detach().T).double().softmax(1)
    own = p[torch.arange(40), y].numpy()
    norms = feature_gradient_norms(objective, x, y)
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
    objective = make_objective("hinge:margin=0.001")
    y = torch.arange(4)
    x = 50 * torch.linalg.pinv(objective.weight.detach())[:, :4].T
    found = given_groups([[0, 1], [2, 3]]).record(objective, outputs(objective, x, y))
    assert [found["groups"][n]["gradient_share"] for n in "12"] == [None, None]
    assert found["groups"]["1"]["top1"] == 100


def test_infinite_logits_are_null():
    objective = make_objective("soft")
    x, y = features_and_labels()
    tested = outputs(objective, x, y)
    infinite = Predictions(tested.features, tested.logits / 0, tested.similarities, y)
    found = given_groups([range(20), range(20, 40)]).record(objective, infinite)
    assert found["groups"]["1"]["confidence"] is None
    assert found["groups"]["1"]["nll"] is None
    assert found["confidence_histogram"]["counts"] is None


def test_diagnostics_do_not_change_training():
    """Neither the gradients nor the evaluation changes what is trained."""
    plain, looked = trainer("center"), trainer("center")
    run(plain)
    while looked.step < looked.total_steps:
        looked.run_epoch(lambda: None)
        tested = looked.predict()
        feature_gradient_norms(looked.objective, tested.features, tested.labels)
    assert looked.weights_digest() == plain.weights_digest()


def test_the_sample_depends_on_the_number_of_images_alone():
    rows = sample_rows(12_000, 5_000, "curriculum")
    assert len(np.unique(rows)) == 5_000
    assert (np.diff(rows) > 0).all()
    assert np.array_equal(rows, sample_rows(12_000, 5_000, "curriculum"))
    assert not np.array_equal(rows, sample_rows(12_000, 5_000, "lipschitz"))
    assert sample_rows(7, 5_000, "curriculum").tolist() == list(range(7))


def test_training_images_as_test_part():
    data = images(n=20)
    own = data.select(np.array([3, 8])).train_as_test()
    assert np.array_equal(own.test.x, data.train.x[[3, 8]])
    assert np.array_equal(own.test_y, data.train_y[[3, 8]])


@pytest.mark.parametrize("beta", [1, 0.1])
def test_norms_are_those_of_each_image_alone(beta):
    data = images(n=30)
    trained = trainer(f"gradient-decay:beta={beta}", of=data)
    run(trained, until=5)  # batch normalisation has statistics, and is not in evaluation mode
    rows = np.array([2, 3, 11, 29, 17, 5, 8, 20, 26])  # in two batches of 8 and 1
    looked = trainer(of=data.select(rows).train_as_test()).batches
    looked.set_normalization(trained.batches.mean, trained.batches.std)
    found = input_gradient_norm(trained, looked, World())
    assert not trained.model.training
    weight, norms = trained.objective.weight.detach(), []
    for row in rows:
        x = torch.as_tensor(data.train.x[row]).permute(2, 0, 1)[None].float() / 255
        x = ((x - data.mean[0]) / data.std[0]).requires_grad_()
        z = (trained.model(x) @ weight.T)[0]
        others = torch.cat([z[: data.train_y[row]], z[data.train_y[row] + 1 :]])
        loss = torch.log(beta + torch.exp(others - z[data.train_y[row]]).sum())
        (gradient,) = torch.autograd.grad(loss, x)
        norms.append(gradient.norm().item())
    assert found["n"] == 9
    assert found["mean"] == pytest.approx(np.mean(norms), rel=1e-3)
    assert found["quantile95"] == pytest.approx(np.quantile(norms, 0.95), rel=1e-3)
    assert found["max"] == pytest.approx(max(norms), rel=1e-3)


def test_a_network_that_is_not_finite_has_diverged():
    data = images(n=30)
    trained = trainer("soft", of=data)
    with torch.no_grad():
        trained.objective.weight.fill_(float("nan"))
    looked = trainer(of=data.select(np.arange(4)).train_as_test(), device_config=CPU).batches
    with pytest.raises(DivergedError, match="the gradient of the loss is not finite at step 0"):
        input_gradient_norm(trained, looked, World())
