"""Missing values and categories inside the folds, against scikit-learn and a plain loop."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from marginctl.crossval.preprocessing import MIN_FRACTION, MIN_ROWS, encode, expand, num_inputs
from marginctl.crossval.reference_trainer import train_network
from marginctl.crossval.stack import build_stacks
from marginctl.crossval.stacked_trainer import train_stack
from marginctl.data.tabular.dataset import Column, TabularDataset
from marginctl.objectives.parsing import parse
from marginctl.recipe.uci_cv import Protocol
from tests.crossval.factories import dataset, table
from tests.crossval.test_stacked_trainer import full_stack, largest_difference

NAN = np.nan


def scikit_learn(data, train):
    """The same by a ColumnTransformer, in its order: numbers, indicators, categories."""
    numeric = [j for j, column in enumerate(data.columns) if not column.categories]
    others = [j for j, column in enumerate(data.columns) if column.categories]
    imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    encoder = OneHotEncoder(
        min_frequency=MIN_ROWS, handle_unknown="infrequent_if_exist", sparse_output=False
    )
    transformer = ColumnTransformer([("n", imputer, numeric), ("c", encoder, others)])
    x = transformer.fit(data.x[train]).transform(data.x)
    return x[:, ["infrequent" not in name for name in transformer.get_feature_names_out()]]


@pytest.mark.parametrize("categories", [(3,), (4, 12), (30, 3, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_encoding_equals_scikit_learns(categories, seed):
    """Without scikit-learn's columns of rare categories, which a row of zeros stands for."""
    data = table(n=90, seed=seed, categories=categories, missing=0.25)
    train = np.sort(np.random.default_rng(seed).choice(90, 70, replace=False))
    ours = encode(data, train)
    assert ours.shape == (90, num_inputs(data))
    np.testing.assert_array_equal(ours[:, ours[train].any(0)], scikit_learn(data, train))


def test_values_by_hand():
    """The median of 1, 2, 9 and 10; colour c has one row; two answers are one column."""
    columns = (Column("colour", ("a", "b", "c")), Column("size"), Column("answer", ("no", "yes")))
    x = np.array([[0, 1, 0], [0, 2, 1], [1, NAN, 1], [NAN, 9, 0], [1, 10, 1], [2, 70, 0]] * 5)
    data = TabularDataset("made", x, np.arange(30) % 2, ("p", "q"), columns)
    train = np.array([i for i in range(30) if i % 6 != 5 or i == 5])
    got = encode(data, train)
    assert got[:6].tolist() == [
        # size, size missing, colour a, b, c, missing, answer yes
        [1, 0, 1, 0, 0, 0, 0],
        [2, 0, 1, 0, 0, 0, 1],
        [9, 1, 0, 1, 0, 0, 1],
        [9, 0, 0, 0, 0, 1, 0],
        [10, 0, 0, 1, 0, 0, 1],
        [70, 0, 0, 0, 0, 0, 0],
    ]


@pytest.mark.parametrize(
    "value",
    [NAN, 1e9, -5.0, 0.0],
    ids=["missing", "large", "negative", "zero"],
)
def test_test_rows_change_nothing_about_the_encoding_of_training_rows(value):
    data = table(n=80)
    train, test = np.arange(0, 60), np.arange(60, 80)
    x = data.x.copy()
    x[test[:, None], [0, 4]] = value
    x[test[:, None], [1, 2, 3]] = 1
    before, after = encode(data, train), encode(replace(data, x=x), train)
    used = [e[train][:, e[train].any(0)] for e in (before, after)]
    np.testing.assert_array_equal(*used)


def test_a_category_that_no_training_row_has_is_a_row_of_zeros():
    data = table(n=60, categories=(3, 2, 3), missing=0)
    train = np.flatnonzero(data.x[:, 1] != 2)
    unseen = np.flatnonzero(data.x[:, 1] == 2)
    assert len(unseen) > MIN_ROWS
    assert not encode(data, train)[unseen, 2:5].any()
    seen = encode(data, np.arange(60))[unseen, 2:5]
    assert seen.tolist() == [[0, 0, 1]] * len(unseen)


def test_a_number_that_all_training_rows_lack_is_not_used():
    data = table(n=60, categories=())
    x = data.x.copy()
    x[:40, 1] = NAN
    encoded = encode(replace(data, x=x), np.arange(40))
    assert not encoded[:, 1].any()


def test_the_columns_of_many_categories_are_limited():
    """2,000 rows: a category needs 10 of them, so a column has at most 200."""
    stream = np.random.default_rng(0)
    x = stream.integers(0, 1500, (2000, 1)).astype(float)
    x[:300] = 7
    columns = (Column("town", tuple(map(str, range(1500)))),)
    data = TabularDataset("towns", x, stream.integers(0, 2, 2000), ("a", "b"), columns)
    assert num_inputs(data) == expand(data).shape[1] == 1
    assert data.num_rows * MIN_FRACTION == 10


def test_complete_numbers_are_returned_as_they_are():
    data = dataset()
    assert encode(data, np.arange(20)) is data.x
    assert expand(data) is data.x
    assert num_inputs(data) == data.num_features


@pytest.mark.parametrize(
    "changes",
    [{}, {"scaling": "minmax"}, {"scaling": "none", "lr": 1e-4}, {"batch_size": 9}],
    ids=str,
)
@pytest.mark.parametrize("objective", ["soft", "arcgrad:scale=5"])
def test_the_engine_equals_the_reference(objective, changes):
    protocol = Protocol(
        **{"hidden": [6, 5], "folds": 3, "repeats": 2, "batch_size": 8, "epochs": 4, "lr": 0.01}
        | changes
    )
    stack = full_stack(table(), objective, protocol)
    _, networks = train_stack(stack, dtype=torch.float64)
    assert largest_difference(stack, networks) < 1e-10
    predicted = networks.predict()
    for i, split in enumerate(stack.networks):
        reference = train_network(stack, split, torch.float64)
        features = reference.features(torch.as_tensor(encode(stack.dataset, split.train)))
        assert predicted[i].tolist() == reference.objective.predict(features).tolist()
    arrays = networks.arrays()
    number = networks.result_order[0]
    scaled = (expand(stack.dataset) - arrays["input_shift"][0]) * arrays["input_factor"][0]
    scaled = np.where(np.isnan(scaled), arrays["input_fill"][0], scaled)
    want = networks.inputs(torch.arange(60).expand(len(predicted), -1))[number]
    np.testing.assert_allclose(scaled, want, atol=1e-12)


def test_a_network_equals_a_plain_loop_on_scikit_learns_features():
    """One layer, full batches, plain gradient descent, from the network's own initial weights."""
    data = table(n=90, categories=(3, 4))
    protocol = Protocol(
        hidden=[], folds=3, repeats=1, batch_size=90, epochs=30, lr=0.1, optimizer="sgd", momentum=0
    )
    stack = full_stack(data, "soft", protocol)
    start = train_stack(full_stack(data, "soft", protocol.model_copy(update={"lr": 0.0})))[1]
    trained = train_stack(stack, dtype=torch.float64)[1]
    for i, split in enumerate(stack.networks):
        ours = encode(data, split.train)
        used = ours[split.train].any(0)
        rows = scikit_learn(data, split.train)[split.train]
        x = torch.as_tensor(StandardScaler().fit_transform(rows))
        y = torch.as_tensor(data.y[split.train])
        weight = start.weights["class_weight"][i].double()[:, used].clone().requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.1, weight_decay=protocol.weight_decay)
        for _ in range(30):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(x @ weight.T, y).backward()
            optimizer.step()
        got = trained.weights["class_weight"][i][:, used]
        torch.testing.assert_close(got, weight.detach(), rtol=0, atol=1e-6)


def test_test_rows_change_nothing_about_the_training_of_their_fold():
    data = table(n=60)
    protocol = Protocol(hidden=[6], folds=3, repeats=1, epochs=3, lr=0.01)
    stack = full_stack(data, "soft", protocol)
    i = next(i for i, n in enumerate(stack.networks) if n.fold == 1)
    x = data.x.copy()
    x[stack.networks[i].test, 0] = 1e9
    x[stack.networks[i].test[:3], 4] = NAN
    moved = full_stack(replace(data, x=x), "soft", protocol)
    before, after = (train_stack(s, dtype=torch.float64)[1].weights for s in (stack, moved))
    for name in before:
        torch.testing.assert_close(before[name][i], after[name][i], rtol=0, atol=1e-7)


def test_stacks_depend_on_the_table_and_the_protocol_alone():
    data, protocol = table(n=60), Protocol(hidden=[64, 64])
    cuts = {
        tuple(
            (s.first, s.last, tuple(s.widths)) for s in build_stacks(data, parse(o), protocol, seed)
        )
        for o in ("soft", "arcgrad")
        for seed in (0, 1)
    }
    assert len(cuts) == 1
