"""The stacked engine against one network at a time, and its edges."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from marginctl.crossval import stacked_trainer
from marginctl.crossval.preprocessing import scaling_statistics
from marginctl.crossval.reference_trainer import train_network
from marginctl.crossval.stack import BatchOrder, Stack, build_stacks
from marginctl.crossval.stacked_trainer import train_stack
from marginctl.objectives.parsing import parse
from marginctl.objectives.presets import PRESETS
from marginctl.recipe.uci_cv import Protocol
from tests.crossval.factories import dataset
from tests.sampling import diagonal

COLUMNS = ["soft", "center", "m-soft", "arcface:margin=0.1,scale=20", "adacos"]
COLUMNS += ["arcgrad:scale=30", "arcgrad:scale=5"]

OTHERS = [name for name in PRESETS if name not in COLUMNS]
OTHERS += [
    "similarity=angle;scale=fixed(value=5);regularizers=center+non-target-uniformity",
    "similarity=cosine;scale=adacos;margin=additive-cosine;loss=dense-hinge",
    "similarity=cosine;scale=learned;margin=multiplicative-angle;loss=max-softplus",
    "similarity=cosine;scale=feature-norm-weight-norm;margin=additive-angle(margin=0.5)",
    "similarity=angle;scale=learned;margin=additive-logit;regularizers=super-symmetry+center",
    "gradient-decay:beta=warm-up(end=3)",
    "arcface:margin=linear(start=0,end=1)",
    "sphereface:annealing=sphereface(minimum=1)",
    "cosine:scale=exponential(start=1,end=40)",
    "similarity=gaussian;regularizers=center(strength=linear(start=0,end=1))+likelihood",
]


def full_stack(data, objective, protocol, seed=0):
    return Stack(data, parse(objective), protocol, seed, 0, protocol.folds * protocol.repeats)


def largest_difference(stack, networks):
    """Between the weights of a trained stack and of the same networks trained one by one."""
    worst = 0.0
    for i, rows in enumerate(stack.networks):
        reference = train_network(stack, rows, torch.float64)
        pairs = [(networks.weights["class_weight"][i], reference.objective.weight)]
        if reference.objective.bias is not None:
            pairs.append((networks.weights["class_bias"][i], reference.objective.bias))
        for k, layer in enumerate(reference.linear_layers):
            pairs.append((networks.weights[f"weight{k}"][i], layer.weight.T))
            pairs.append((networks.weights[f"bias{k}"][i], layer.bias))
        norms = [layer for layer in reference.layers if isinstance(layer, torch.nn.BatchNorm1d)]
        for k, norm in enumerate(norms):
            pairs.append((networks.weights[f"norm_weight{k}"][i], norm.weight))
            pairs.append((networks.weights[f"norm_bias{k}"][i], norm.bias))
            pairs.append((networks.running[f"mean{k}"][i], norm.running_mean))
            pairs.append((networks.running[f"variance{k}"][i], norm.running_var))
        worst = max(worst, *((a - b).abs().max().item() for a, b in pairs))
    return worst


@pytest.mark.parametrize(
    ("objective", "classes"), diagonal([*COLUMNS, "soft:bias=true", *OTHERS], [3, 2])
)
def test_stacked_equals_reference(objective, classes):
    """41 rows in 3 folds: 27 or 28 training rows, so last batches of 3 or 4 rows; 20 steps."""
    protocol = Protocol(hidden=[6, 5], folds=3, repeats=1, batch_size=8, epochs=5, lr=0.01)
    stack = full_stack(dataset(c=classes), objective, protocol)
    assert {len(n.train) for n in stack.networks} == {27, 28}
    result, networks = train_stack(stack, dtype=torch.float64)
    assert largest_difference(stack, networks) < 1e-10
    assert not result.diverged.any()


CHANGES = [
    {"batch_size": 9},  # 27 and 28 rows: some networks have a batch more than the others
    {"batch_size": 27},
    {"batch_size": 100},
    {"optimizer": "sgd"},
    {"optimizer": "adamw"},
    {"scaling": "none"},
    {"scaling": "minmax"},
    {"stratified": True},
    {"stratified": "equal-test-counts"},
    {"lr": "one-cycle(max_lr=0.03)"},
    {"lr": "exponential(start=0.1,end=1e-4)", "batch_size": 9},
    {"class_weights": "balanced"},
    {"batch_norm": "before-relu", "optimizer": "sgd"},
    {"batch_norm": "after-relu", "batch_size": 9},  # 27 and 28 rows: a last batch of one row
    {"batch_norm": "after-relu", "linear_last_hidden": True, "optimizer": "sgd"},
    {"batch_norm": "before-relu", "class_weights": "balanced", "optimizer": "sgd"},
    {"initialization": "xavier"},
    {"initialization": "kaiming"},
    {"hidden": [7]},
    {"hidden": []},
    {"hidden": [4] * 6},
]


@pytest.mark.parametrize(
    ("changes", "objective"),
    diagonal(CHANGES, ["center", "adacos", "l-gm:margin=linear(start=0,end=1)", "cosine-learned"]),
    ids=str,
)
def test_stacked_equals_reference_for_every_protocol(objective, changes):
    protocol = Protocol(
        **{"hidden": [6, 5], "folds": 3, "repeats": 1, "batch_size": 8, "epochs": 4, "lr": 0.01}
        | changes
    )
    stack = full_stack(dataset(), objective, protocol)
    _, networks = train_stack(stack, dtype=torch.float64)
    # Without decay in the gradient, AdamW divides the rounding of a vanishing one by its epsilon.
    assert largest_difference(stack, networks) < (1e-8 if "adamw" in changes.values() else 1e-10)


def test_predictions_and_accuracies_equal_reference():
    protocol = Protocol(hidden=[8], folds=4, repeats=2, epochs=25, lr=0.05)
    stack = full_stack(dataset(), "arcgrad", protocol)
    result, _ = train_stack(stack, dtype=torch.float64)
    numbers = {n.repeat * 4 + n.fold: n for n in stack.networks}
    assert result.tested.reshape(2, 4).sum(1).tolist() == [41, 41]
    x, y = torch.as_tensor(stack.dataset.x), torch.as_tensor(stack.dataset.y)
    for number, correct in enumerate(result.correct):
        rows = numbers[number]
        reference = train_network(stack, rows, torch.float64)
        predicted = reference.objective.predict(reference.features(x[rows.test]))
        assert correct == (predicted == y[rows.test]).sum().item()
    assert result.correct.sum() / result.tested.sum() > 0.6


def test_a_network_does_not_depend_on_its_stack():
    """In float32 too: the same network in a stack of 6 and in a stack of 3."""
    protocol = Protocol(hidden=[6], folds=3, repeats=2, epochs=4)
    full = full_stack(dataset(), "arcgrad", protocol)
    half = replace(full, first=3, last=6)
    a, b = train_stack(full)[0], train_stack(half)[0]
    assert a.correct[3:].tolist() == b.correct.tolist()
    np.testing.assert_allclose(a.losses[3:], b.losses, rtol=1e-5)


def test_initial_weights_partitions_and_orders_are_shared_by_all_objectives():
    protocol = Protocol(hidden=[6], folds=3, repeats=1, epochs=1, optimizer="sgd", lr=1e-30)
    starts = [train_stack(full_stack(dataset(), o, protocol))[1].weights for o in COLUMNS]
    for other in starts[1:]:
        for name, weight in starts[0].items():
            torch.testing.assert_close(weight, other[name], rtol=0, atol=1e-20)
    a, b = starts[0]["weight0"][:2]
    assert not torch.equal(a, b)


@pytest.mark.parametrize("scaling", ["standard", "minmax"])
def test_scaling_uses_training_rows_only(scaling):
    """Test rows a billion times larger change nothing about the training of their fold."""
    protocol = Protocol(hidden=[6], folds=3, repeats=1, epochs=4, scaling=scaling, lr=0.01)
    data = dataset()
    stack = full_stack(data, "soft", protocol)
    of_fold = next(i for i, n in enumerate(stack.networks) if n.fold == 1)
    x = data.x.copy()
    x[stack.networks[of_fold].test] *= 1e9
    moved = full_stack(replace(data, x=x), "soft", protocol)
    before, after = (train_stack(s, dtype=torch.float64)[1].weights for s in (stack, moved))
    for name in before:
        torch.testing.assert_close(before[name][of_fold], after[name][of_fold], rtol=0, atol=1e-9)
    assert not torch.allclose(before["weight0"][of_fold - 1], after["weight0"][of_fold - 1])


def test_scaling_equals_scikit_learns():
    x = dataset().x
    x[:, 2] = 7.0  # constant
    train = np.arange(0, 30)
    for scaling, scaler in (("standard", StandardScaler()), ("minmax", MinMaxScaler())):
        shift, factor = scaling_statistics(x[train], scaling)
        want = scaler.fit(x[train]).transform(x)
        np.testing.assert_allclose((x - shift) * factor, want, rtol=1e-12, atol=1e-12)


def test_float32_keeps_the_digits_of_a_column_far_from_zero():
    data = dataset()
    far = replace(data, x=data.x + np.array([1.6e9, 0, 0, 0]))
    protocol = Protocol(hidden=[6], folds=3, repeats=1, epochs=3, lr=0.01)
    near, shifted = (train_stack(full_stack(d, "soft", protocol))[1].weights for d in (data, far))
    torch.testing.assert_close(near["weight0"], shifted["weight0"], rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scaling", ["standard", "minmax", "none"])
@pytest.mark.parametrize("size", [1e-310, 1e-300, 5e-324, 1e-39])
def test_values_that_differ_by_less_than_float32_can_scale_are_constant(size, scaling):
    data = dataset()
    tiny, zero = (
        full_stack(
            replace(data, x=np.column_stack([data.x, data.x[:, 0] * factor])),
            "soft",
            Protocol(hidden=[6], folds=3, repeats=1, epochs=3, scaling=scaling),
        )
        for factor in (size / 50, 0)
    )
    (got, weights), (want, expected) = train_stack(tiny), train_stack(zero)
    assert got.losses == pytest.approx(want.losses)
    assert not got.diverged.any()
    torch.testing.assert_close(weights.weights["weight0"], expected.weights["weight0"])


def test_a_class_that_is_missing_from_a_training_fold():
    """One row of class 2: the fold that tests it never trains it, and nothing fails."""
    data = dataset(counts=[20, 20, 1])
    protocol = Protocol(hidden=[6], folds=5, repeats=1, epochs=3)
    for objective in COLUMNS:
        result, networks = train_stack(full_stack(data, objective, protocol))
        assert networks.weights["class_weight"].shape[1] == 3
        assert result.tested.sum() == 41
        assert not result.diverged.any()


def test_a_diverged_network_is_frozen_and_the_others_continue(monkeypatch):
    protocol = Protocol(hidden=[6], folds=3, repeats=1, epochs=4, lr=0.01, batch_size=41)
    stack = full_stack(dataset(counts=[14, 14, 14]), "soft", protocol)
    clean, clean_networks = train_stack(stack)
    original = stacked_trainer.StackedNetworks.backward
    steps = []

    def spoil(self, x, y, valid, row_weight, rows):
        steps.append(1)
        loss = original(self, x, y, valid, row_weight, rows)
        if len(steps) == 3:  # the third epoch: network 1 gets a NaN gradient
            self.gradients["weight0"][1] = torch.nan
        return loss

    monkeypatch.setattr(stacked_trainer.StackedNetworks, "backward", spoil)
    result, networks = train_stack(stack)
    assert result.diverged.tolist() == [False, True, False]
    for name, weight in networks.weights.items():
        assert weight.isfinite().all()
        for other in (0, 2):
            assert torch.equal(weight[other], clean_networks.weights[name][other])
    assert result.correct[[0, 2]].tolist() == clean.correct[[0, 2]].tolist()
    monkeypatch.undo()
    two_epochs = replace(stack, protocol=protocol.model_copy(update={"epochs": 2}))
    frozen = train_stack(two_epochs)[1].weights
    assert torch.equal(networks.weights["weight0"][1], frozen["weight0"][1])


def test_a_loss_that_overflows_is_marked_diverged():
    protocol = Protocol(hidden=[6], folds=3, repeats=1, epochs=6, optimizer="sgd", lr=1e6)
    result, networks = train_stack(full_stack(dataset(), "soft", protocol))
    assert result.diverged.all()
    assert all(weight.isfinite().all() for weight in networks.weights.values())


def test_a_network_that_predicts_one_class_is_marked_collapsed():
    protocol = Protocol(hidden=[6], folds=3, repeats=1, epochs=20, lr=0.01)
    rare = train_stack(full_stack(dataset(counts=[50, 1, 1]), "soft", protocol))[0]
    even = train_stack(full_stack(dataset(counts=[17, 17, 17]), "soft", protocol))[0]
    assert rare.collapsed.all()
    assert not even.collapsed.any()


def test_stacks_depend_on_the_protocol_alone():
    protocol = Protocol(hidden=[64, 64])
    cuts = [
        [(s.first, s.last) for s in build_stacks(dataset(), parse(o), protocol, seed)]
        for o in COLUMNS
        for seed in (0, 1)
    ]
    assert all(cut == cuts[0] for cut in cuts)
    assert len(cuts[0]) > 1
    assert [n for a, b in cuts[0] for n in range(a, b)] == list(range(100))


def test_batch_orders_are_permutations_that_differ_by_epoch_and_network():
    stack = full_stack(dataset(), "soft", Protocol(folds=3, repeats=1))
    first = BatchOrder(0, stack.networks[0])
    epochs = [first.next_epoch().tolist() for _ in range(25)]
    assert all(sorted(e) == stack.networks[0].train.tolist() for e in epochs)
    assert len({tuple(e) for e in epochs}) == 25
    again = BatchOrder(0, stack.networks[0])
    assert [again.next_epoch().tolist() for _ in range(25)] == epochs
    assert BatchOrder(1, stack.networks[0]).next_epoch().tolist() != epochs[0]


VARIANTS = [
    {"lr": 0.01, "weight_decay": 0.0},
    {"lr": "cosine(start=0.05,end=0)", "weight_decay": 0.01},
    {"lr": 0.003, "weight_decay": 5e-4, "momentum": 0.5},
]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("objective", ["center", "adacos", "gradient-decay:beta=warm-up(end=1)"])
def test_variants_in_one_stack_equal_each_variant_alone(optimizer, objective):
    """27 and 28 rows in batches of 9: networks of one variant also differ in their batches."""
    base = {"hidden": [6, 5], "folds": 3, "repeats": 1, "batch_size": 9, "epochs": 4}
    variants = tuple(Protocol(**base, optimizer=optimizer, **own) for own in VARIANTS)
    stack = replace(full_stack(dataset(), objective, variants[0]), batched_with=variants)
    result, networks = train_stack(stack, dtype=torch.float64)
    assert largest_difference(stack, networks) < 1e-10
    for i, variant in enumerate(variants):
        alone, _ = train_stack(full_stack(dataset(), objective, variant), dtype=torch.float64)
        own = result.select_variant(i, len(variants))
        assert own.correct.tolist() == alone.correct.tolist()
        assert own.tested.tolist() == alone.tested.tolist()
        assert own.losses == pytest.approx(alone.losses, abs=1e-10)


def test_a_variant_that_diverges_does_not_affect_the_others():
    base = {"hidden": [6], "folds": 3, "repeats": 1, "epochs": 5, "optimizer": "sgd"}
    variants = tuple(Protocol(**base, lr=lr) for lr in (0.01, 1e6))
    stack = replace(full_stack(dataset(), "soft", variants[0]), batched_with=variants)
    result, _ = train_stack(stack)
    alone, _ = train_stack(full_stack(dataset(), "soft", variants[0]))
    assert result.select_variant(0, 2).correct.tolist() == alone.correct.tolist()
    assert result.select_variant(0, 2).diverged.sum() == 0
    assert result.select_variant(1, 2).diverged.all()
