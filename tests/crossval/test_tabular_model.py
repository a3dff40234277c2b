"""Models of tables: equal to the network in memory, for known and new rows, and after loading."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from marginctl.crossval.nested_cv import train_and_choose
from marginctl.crossval.search_space import column_candidates
from marginctl.crossval.stack import NetworkSplit, Stack, StackTuning
from marginctl.crossval.stacked_trainer import train_stack
from marginctl.crossval.tabular_model import TabularModel, fit_model
from marginctl.errors import MarginctlError, RequestError
from marginctl.objectives.parsing import parse
from marginctl.recipe.uci_cv import Protocol, Tune
from marginctl.runs.model_file import load_model_file, save_model_file
from tests.crossval.factories import dataset, table

PROTOCOL = Protocol(hidden=[7, 6], epochs=8, lr=0.02, batch_size=8)


def all_rows(data):
    return NetworkSplit(0, 0, np.arange(data.num_rows), np.arange(0))


@pytest.mark.parametrize("data", [dataset(), table()], ids=["numbers", "missing and categories"])
@pytest.mark.parametrize(
    ("objective", "changed"),
    [
        ("soft", {}),
        ("cosine-learned", {"batch_norm": "before-relu"}),
        ("arcgrad", {"batch_norm": "after-relu", "linear_last_hidden": True, "scaling": "minmax"}),
        ("lm-softmax", {"hidden": [], "scaling": "none", "lr": 1e-4}),
    ],
)
def test_probabilities_are_those_of_the_network_in_memory(tmp_path, data, objective, changed):
    protocol = PROTOCOL.model_copy(update=changed)
    stack = Stack(data, parse(objective), protocol, 3, 0, 1, custom_splits=(all_rows(data),))
    _, networks = train_stack(stack)
    expected = torch.as_tensor(networks.logits()[0]).softmax(-1).numpy()
    model = fit_model(data, parse(objective), protocol, 3)
    assert model.predict_proba(data.x) == pytest.approx(expected, abs=1e-6)
    assert expected.std(0).max() > 1e-4
    model.save(tmp_path / "m.safetensors")
    loaded = TabularModel.from_file(load_model_file(tmp_path / "m.safetensors"))
    assert loaded.record == model.record
    np.testing.assert_array_equal(loaded.predict_proba(data.x), model.predict_proba(data.x))


def test_new_rows_with_missing_values_and_unknown_categories_by_scikit_learn():
    data = table(200, categories=(3, 2, 4))
    model = fit_model(data, parse("soft"), PROTOCOL)
    new = table(50, seed=5, missing=0.3, categories=(3, 2, 4)).x
    numbers, categories = [0, 4], [1, 2, 3]
    imputer = SimpleImputer(strategy="median").fit(data.x[:, numbers])
    indicator = MissingIndicator().fit(data.x[:, numbers])
    as_codes = [np.nan_to_num(x[:, categories], nan=99) for x in (data.x, new)]
    encoder = OneHotEncoder(drop="if_binary", sparse_output=False).fit(as_codes[0])
    scaler = StandardScaler()

    def encode(x, codes):
        blocks = (imputer.transform(x[:, numbers]), indicator.transform(x[:, numbers]))
        return np.concatenate([*blocks, encoder.transform(codes)], axis=1)

    scaler.fit(encode(data.x, as_codes[0]))
    features = scaler.transform(encode(new, as_codes[1]))
    weights = {name: value[0].astype(float) for name, value in model.tensors.items()}
    for i in range(2):
        features = np.maximum(features @ weights[f"weight{i}"] + weights[f"bias{i}"], 0)
    logits = features @ weights["class_weight"].T
    logits = logits + weights.get("class_bias", 0)
    expected = torch.as_tensor(logits).softmax(-1).numpy()
    assert model.predict_proba(new) == pytest.approx(expected, abs=1e-6)


def test_a_missing_number_that_no_training_row_lacks_is_the_median():
    data = dataset()
    model = fit_model(data, parse("soft"), PROTOCOL)
    x = data.x[:5].copy()
    x[:, 1] = np.nan
    filled = x.copy()
    filled[:, 1] = np.median(data.x[:, 1])
    assert model.predict_proba(x) == pytest.approx(model.predict_proba(filled), abs=1e-6)


def test_a_missing_one_of_two_categories_is_the_more_frequent_one():
    data = table(categories=(3, 2), missing=0)
    counts = np.bincount(data.x[:, 2].astype(int))
    for frequent in (0, 1):
        x = data.x.copy()
        x[:, 2] = x[:, 2] if counts.argmax() == frequent else 1 - x[:, 2]
        model = fit_model(replace(data, x=x), parse("soft"), PROTOCOL)
        missing, filled, other = x[:9].copy(), x[:9].copy(), x[:9].copy()
        missing[:, 2], filled[:, 2], other[:, 2] = np.nan, frequent, 1 - frequent
        assert model.predict_proba(missing) == pytest.approx(model.predict_proba(filled), abs=1e-6)
        assert np.abs(model.predict_proba(missing) - model.predict_proba(other)).max() > 1e-3


def test_the_choice_is_that_of_nested_cross_validation():
    data, space = dataset(), Tune(protocol={"lr": [1e-6, 0.03]}, inner_folds=2)
    tuning = StackTuning(column_candidates(space, PROTOCOL, parse("soft")), 2)
    model = fit_model(data, parse("soft"), PROTOCOL, 0, tuning)
    stack = Stack(data, parse("soft"), PROTOCOL, 0, 0, 1, tuning, (all_rows(data),))
    (choice,) = train_and_choose(stack, "cpu", lambda cost: None).choices
    assert model.record.chosen == str(tuning.candidates[choice.candidate]) == "soft, lr=0.03"
    assert model.record.inner_accuracy == choice.inner_accuracy
    assert Protocol.model_validate(model.record.protocol).lr == 0.03


def test_rows_of_a_fixed_test_split_are_not_used():
    data = replace(dataset(60), fixed_test=np.arange(40, 60))
    model = fit_model(data, parse("soft"), PROTOCOL)
    other = replace(data, y=np.where(np.arange(60) < 40, data.y, (data.y + 1) % 3))
    assert model.record.rows == 40
    again = fit_model(other, parse("soft"), PROTOCOL)
    np.testing.assert_array_equal(model.predict_proba(data.x), again.predict_proba(data.x))


def test_a_model_that_diverges_is_refused():
    with pytest.raises(MarginctlError, match="made: soft: the loss is not finite"):
        fit_model(dataset(), parse("soft"), PROTOCOL.model_copy(update={"lr": 1e30}))


def test_tensors_that_do_not_fit_the_document_are_refused(tmp_path):
    model = fit_model(dataset(), parse("soft"), PROTOCOL)
    path = tmp_path / "m.safetensors"
    tensors = {k: v for k, v in model.tensors.items() if k != "weight1"}
    for changed in (tensors, {**tensors, "weight1": np.zeros((1, 3, 3), np.float32)}):
        save_model_file(path, "table", model.record, changed)
        with pytest.raises(RequestError, match="a corrupt model"):
            TabularModel.from_file(load_model_file(path))
    save_model_file(path, "images", model.record, model.tensors)
    with pytest.raises(RequestError, match="a model of images: expected one of table"):
        TabularModel.from_file(load_model_file(path))
