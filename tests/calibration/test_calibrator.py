"""A saved calibrator predicts as the one in memory; other files are refused."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from marginctl.calibration.benchmark import Settings, calibrate
from marginctl.calibration.calibrator import Calibrator, evaluate_calibrator
from marginctl.calibration.methods import METHODS
from marginctl.errors import RequestError
from tests.calibration.factories import noisy, with_probabilities


def fitted(outputs, name):
    settings = Settings(repeats=1, n_bootstrap=0)
    return calibrate(outputs, None, [name], settings, lambda line: None).calibrators[name]


@pytest.mark.parametrize("name", list(METHODS))
@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_saving_and_loading(tmp_path, name, kind):
    outputs = noisy(120, 3, 3)
    one = fitted(outputs if kind == "logits" else with_probabilities(outputs), name)
    one.save(tmp_path / "calibrator.json")
    again = Calibrator.load(tmp_path / "calibrator.json")
    assert again == one
    assert json.loads((tmp_path / "calibrator.json").read_text())["fitted_on"]["n"] == 60
    other = noisy(50, 3, 3, seed=9)
    predictions, theirs = (m.predict(other.values, other.labels) for m in (again, one))
    np.testing.assert_array_equal(predictions.classes, theirs.classes)
    np.testing.assert_array_equal(predictions.confidence, theirs.confidence)
    # a calibrator of probabilities takes the softmax of logits
    of_softmax = METHODS[name].apply(one.parameters, with_probabilities(other))
    if kind == "probabilities":
        np.testing.assert_allclose(predictions.confidence, of_softmax.confidence, rtol=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": {"temperature": 2.0}},
        {"classes": 4},
        {"method": "vector"},
        {"fitted_on": {}},
        {"parameters": {"temperature": 10**400}},
    ],
)
def test_a_changed_file_is_refused(tmp_path, change):
    path = tmp_path / "calibrator.json"
    fitted(noisy(60, 3, 3), "temperature").save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RequestError, match=r"calibrator\.json: is corrupt \(checksum mismatch\)"):
        Calibrator.load(path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"kind": "else"}', "{"])
def test_other_files(tmp_path, content):
    path = tmp_path / "calibrator.json"
    path.write_text(content)
    with pytest.raises(RequestError, match="expected a calibrator that marginctl calibrate --save"):
        Calibrator.load(path)
    with pytest.raises(RequestError, match="cannot be read: No such file"):
        Calibrator.load(tmp_path / "absent.json")


def test_scores_of_a_network(tmp_path):
    outputs = noisy(400, 3, 3)
    one = fitted(outputs, "temperature")
    other = noisy(300, 3, 3, seed=4)
    found = evaluate_calibrator(tmp_path, one, other.values, other.labels, 10, None)
    assert found["top1"] == pytest.approx(100 * (other.values.argmax(1) == other.labels).mean())
    scaled = other.values / one.parameters["temperature"]
    log_p = scaled - np.log(np.exp(scaled).sum(1, keepdims=True))
    assert found["nll"] == pytest.approx(-log_p[np.arange(300), other.labels].mean())
    assert found["calibration"]["bins"] == 10
    assert found["note"] is None
    json.dumps(found, allow_nan=False)
    with pytest.raises(RequestError, match="a calibrator of 3 classes, and the network has 4"):
        evaluate_calibrator(tmp_path, one, np.zeros((2, 4)), np.array([0, 1]), 15, None)
    with pytest.raises(RequestError, match="the network's logits are not finite"):
        evaluate_calibrator(tmp_path, one, np.full((2, 3), np.nan), np.array([0, 1]), 15, None)


def test_malformed_files(tmp_path):
    """Neither a pipe, a depth, a number nor a missing key is a traceback."""
    path = tmp_path / "calibrator.json"
    os.mkfifo(path)
    with pytest.raises(RequestError, match="expected a calibrator that marginctl calibrate --save"):
        Calibrator.load(path)
    path.unlink()
    path.write_text("[" * 200_000)
    with pytest.raises(RequestError, match="expected a calibrator that"):
        Calibrator.load(path)


@pytest.mark.parametrize("network", ["digits-soft, step 4", "digits-soft-1, step 8", None])
def test_a_calibrator_of_another_network_is_a_warning(tmp_path, network):
    one = fitted(replace(noisy(400, 3, 3), network="digits-soft, step 8"), "temperature")
    one.save(tmp_path / "c.json")
    one = Calibrator.load(tmp_path / "c.json")
    other = noisy(300, 3, 3, seed=4)
    scores = evaluate_calibrator(tmp_path, one, other.values, other.labels, 10, None, network)
    assert scores["warning"] == (
        "the calibrator was fitted on another network (digits-soft, step 8): it does not calibrate "
        "this one"
    )
    same = ("digits-soft, step 8",)
    scores = evaluate_calibrator(tmp_path, one, other.values, other.labels, 10, None, *same)
    assert scores["warning"] is None
    unknown = fitted(noisy(400, 3, 3), "temperature")
    scores = evaluate_calibrator(tmp_path, unknown, other.values, other.labels, 10, None, network)
    assert scores["warning"] is None
