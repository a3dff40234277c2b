"""A map in a file says what the map in memory says; what is no map is refused."""

import json
import os

import numpy as np
import pytest

from marginctl.calibration.apply import applied, as_text
from marginctl.calibration.benchmark import Asked, calibrate
from marginctl.calibration.io import read, write
from marginctl.calibration.methods import METHODS
from marginctl.errors import RequestError
from tests.calibration.made import noisy, with_probabilities


def fitted(outputs, name, **asked):
    found = calibrate(outputs, None, [name], Asked(repeats=1, draws=0, **asked), lambda line: None)
    return found.maps[name]


@pytest.mark.parametrize("name", list(METHODS))
@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_a_map_survives_its_file(tmp_path, name, kind):
    outputs = noisy(120, 3, 3)
    one = fitted(outputs if kind == "logits" else with_probabilities(outputs), name)
    write(tmp_path / "map.json", one)
    again = read(tmp_path / "map.json")
    assert again == one
    assert json.loads((tmp_path / "map.json").read_text())["fitted_on"]["n"] == 60
    other = noisy(50, 3, 3, seed=9)
    said, theirs = (m.predict(other.values, other.labels) for m in (again, one))
    np.testing.assert_array_equal(said.classes, theirs.classes)
    np.testing.assert_array_equal(said.confidence, theirs.confidence)
    # a map of probabilities, on logits, is one of their softmax
    of_softmax = METHODS[name].apply(one.parameters, with_probabilities(other))
    if kind == "probabilities":
        np.testing.assert_allclose(said.confidence, of_softmax.confidence, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("temperature", {"temperature": -1.0}),
        ("temperature", {"temperature": "hot"}),
        ("temperature", {}),
        ("vector", {"weight": [1.0, 1.0], "bias": [0.0, 0.0, 0.0]}),
        ("vector", {"weight": [1.0, 1.0, None], "bias": [0.0, 0.0, 0.0]}),
        ("matrix", {"weight": [[1.0] * 3] * 2, "bias": [0.0] * 3}),
        ("isotonic-ovr", {"maps": [{"x": [0.1], "y": [0.2]}]}),
        ("isotonic-top", {"maps": [{"x": [0.2, 0.1], "y": [0.2, 0.3]}]}),
        ("isotonic-top", {"maps": [{"x": [0.1, 0.2], "y": [0.2, 1.3]}]}),
        ("histogram-top", {"maps": [{"y": []}]}),
        ("histogram-ovr", {"maps": [{"y": ["a"]}] * 3}),
        ("none", {"temperature": 2.0}),
    ],
)
def test_parameters_that_are_none_of_the_method(tmp_path, name, change):
    path = tmp_path / "map.json"
    write(path, fitted(noisy(60, 3, 3), name))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"parameters": change}))
    with pytest.raises(RequestError, match=r"--calibration .*map\.json: is damaged, or of another"):
        read(path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"kind": "else"}', "{"])
def test_files_that_are_no_maps(tmp_path, content):
    path = tmp_path / "map.json"
    path.write_text(content)
    with pytest.raises(RequestError, match="expected a map that marginctl calibrate --save has"):
        read(path)
    with pytest.raises(RequestError, match="cannot be read: No such file"):
        read(tmp_path / "absent.json")


def test_what_eval_says_of_a_map(tmp_path):
    outputs = noisy(400, 3, 3)
    one = fitted(outputs, "temperature")
    other = noisy(300, 3, 3, seed=4)
    found = applied(tmp_path, one, other.values, other.labels, 10, None)
    assert found["top1"] == pytest.approx(100 * (other.values.argmax(1) == other.labels).mean())
    scaled = other.values / one.parameters["temperature"]
    log_p = scaled - np.log(np.exp(scaled).sum(1, keepdims=True))
    assert found["nll"] == pytest.approx(-log_p[np.arange(300), other.labels].mean())
    assert found["calibration"]["bins"] == 10
    assert found["note"] is None
    text = "\n".join(as_text(found))
    assert f"calibrated by temperature (T = {one.parameters['temperature']:.4f}) of" in text
    top = applied(tmp_path, fitted(outputs, "histogram-top"), other.values, other.labels, 10, None)
    assert top["nll"] is None
    assert "  nll: the map gives a probability to the predicted class alone" in as_text(top)
    json.dumps([found, top], allow_nan=False)
    with pytest.raises(RequestError, match="a map of 3 classes, and the network has 4"):
        applied(tmp_path, one, np.zeros((2, 4)), np.array([0, 1]), 15, None)
    with pytest.raises(RequestError, match="the network's logits are not finite"):
        applied(tmp_path, one, np.full((2, 3), np.nan), np.array([0, 1]), 15, None)


def test_what_no_map_may_do(tmp_path):
    """A pipe is not waited for, and no depth, number or lack of a map is a traceback."""
    path = tmp_path / "map.json"
    os.mkfifo(path)
    with pytest.raises(RequestError, match="expected a map that marginctl calibrate --save has"):
        read(path)
    path.unlink()
    path.write_text("[" * 200_000)
    with pytest.raises(RequestError, match="expected a map that"):
        read(path)
    write(path, fitted(noisy(60, 3, 3), "temperature"))
    whole = json.loads(path.read_text())
    for change in ({"parameters": {"temperature": 10**400}}, {"fitted_on": {}}):
        path.write_text(json.dumps(whole | change))
        with pytest.raises(RequestError, match="is damaged, or of another version"):
            read(path)
