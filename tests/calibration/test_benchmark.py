"""The document of `calibrate`: what is fitted where, and what is predictions of it."""

import json
import statistics
from dataclasses import replace

import numpy as np
import pytest

from marginctl.calibration import benchmark as module
from marginctl.calibration import temperature
from marginctl.calibration.benchmark import Settings, calibrate, split
from marginctl.calibration.methods import METHODS
from marginctl.calibration.outputs import Outputs
from marginctl.calibration.scores import METRICS
from marginctl.errors import RequestError
from marginctl.metrics import scoring_rules
from tests.calibration.factories import noisy, with_probabilities


def document_of(outputs, names=(), fit_outputs=None, **settings):
    """Return the document of `calibrate` without its progress."""
    settings = Settings(**settings)
    return calibrate(outputs, fit_outputs, list(names), settings, lambda line: None).document


def test_fitted_on_one_part_and_measured_on_the_other():
    outputs = noisy(500, 4, 3)
    document = document_of(outputs, ["temperature"], repeats=3, n_bootstrap=50, seed=7)
    (entry,) = document["methods"]
    before, after = [], []
    for repeat in range(3):
        fit, test = split(outputs, 0.5, 7, repeat)
        t = temperature.fit(outputs.subset(fit)).parameters["temperature"]
        assert entry["fits"][repeat]["temperature"] == t
        f, y = outputs.values[test], outputs.labels[test]
        before.append(scoring_rules.nll(f, y))
        after.append(scoring_rules.nll(f / t, y))
    assert entry["parameters"] == {"temperature": entry["fits"][0]["temperature"]}
    for part, values in (("before", before), ("after", after)):
        assert entry[part]["nll"] == pytest.approx(statistics.fmean(values))
        assert entry[part]["std"]["nll"] == pytest.approx(statistics.stdev(values))
        assert entry[part]["first"]["nll"] == pytest.approx(values[0])
        low, high = entry[part]["interval"]["nll"]
        assert low < values[0] < high
    assert entry["after"]["accuracy"] == entry["before"]["accuracy"]
    assert entry["after"]["changed"] == 0
    assert entry["after"]["nll"] < entry["before"]["nll"]
    assert entry["after"]["ece"] < entry["before"]["ece"]


def test_the_document_of_all_methods():
    document = document_of(noisy(300, 3, 3), repeats=2, n_bootstrap=20)
    json.dumps(document, allow_nan=False)
    assert [m["method"] for m in document["methods"]] == list(METHODS)
    for entry in document["methods"]:
        for part in (entry["before"], entry["after"]):
            assert set(METRICS) < set(part)
            for name in METRICS:
                assert (part[name] is None) == (name in part["reasons"])
        assert entry["converged"] is True
        if entry["method"] in ("none", "temperature"):
            assert entry["after"]["changed"] == 0
    none = document["methods"][0]
    assert none["before"] == {k: v for k, v in none["after"].items() if k != "changed"}
    assert document["split"] == {
        "fraction": 0.5,
        "calibration": None,
        "repeats": 2,
        "fitted_on": 150,
        "measured_on": 150,
    }


def test_the_same_again_and_another_seed():
    outputs = noisy(200, 3, 3)
    first, again, other = (
        document_of(outputs, [], repeats=2, n_bootstrap=30, seed=s) for s in (0, 0, 1)
    )
    assert first == again
    assert first["methods"] != other["methods"]
    # a method has the same numbers alone and among others
    alone = document_of(outputs, ["vector"], repeats=2, n_bootstrap=30)
    assert alone["methods"][0] == next(m for m in first["methods"] if m["method"] == "vector")


def test_samples_of_their_own_to_fit_on():
    fitting, outputs = noisy(300, 3, 3, seed=1), noisy(200, 3, 3, seed=2)
    document = document_of(outputs, ["temperature"], fitting, n_bootstrap=0)
    (entry,) = document["methods"]
    t = temperature.fit(fitting).parameters["temperature"]
    assert entry["parameters"]["temperature"] == t
    scaled = outputs.values / t
    assert entry["after"]["nll"] == pytest.approx(scoring_rules.nll(scaled, outputs.labels))
    assert entry["after"]["std"]["nll"] is None
    assert entry["after"]["interval"] == {}
    split_of = document["split"]
    assert (split_of["fitted_on"], split_of["measured_on"], split_of["repeats"]) == (300, 200, 1)
    with pytest.raises(
        RequestError, match="noisy: 4 classes, and noisy has 3: expected outputs of"
    ):
        document_of(outputs, (), noisy(50, 4))
    with pytest.raises(RequestError, match="noisy: probabilities, and noisy has logits: expected"):
        document_of(outputs, (), with_probabilities(fitting))
    same = document_of(outputs, ["none"], outputs, n_bootstrap=0)
    assert same["notes"] == ["fitted on the evaluated samples themselves: optimistically biased"]
    assert document["notes"] == []


def test_a_bound_is_noted():
    labels = np.arange(40) % 4
    f = np.eye(4)[labels] + np.random.default_rng(0).random((40, 4)) / 10
    outputs = Outputs("s", "logits", f, labels)
    (entry,) = document_of(outputs, ["temperature"], repeats=2, n_bootstrap=0)["methods"]
    assert entry["converged"] is False
    assert entry["note"].startswith("at bound: the samples are separable")


def test_notes_of_probabilities_and_what_is_too_long(monkeypatch):
    outputs = with_probabilities(noisy(100, 3, 3))
    outputs.values[0] = [1, 0, 0]
    document = document_of(outputs, ["vector"], repeats=1, n_bootstrap=0)
    assert document["notes"] == [
        "probabilities: logits are ln p; 2 of them are below 1.18e-38 and count as it"
    ]
    monkeypatch.setattr(module, "MAX_PARAMETERS", 5)
    (entry,) = document_of(outputs, ["vector"], repeats=1, n_bootstrap=0)["methods"]
    assert entry["parameters"] == {}
    assert entry["parameters_reason"] == "6 numbers: --save FILE writes them"


def test_progress_says_what_is_fitted():
    lines = []
    calibrate(
        noisy(60, 3), None, ["none", "vector"], Settings(repeats=2, n_bootstrap=0), lines.append
    )
    assert lines == [f"split {i} of 2: {m}" for i in (1, 2) for m in ("none", "vector")]


NAMED = ("cat", "dog", "cow", "emu", "fox")


@pytest.mark.parametrize("order", [(1, 0, 2, 3, 4), (4, 3, 2, 1, 0), (2, 0, 4, 1, 3)])
def test_classes_of_the_fitting_samples_are_matched_by_name(order):
    outputs, fit_outputs = (replace(noisy(200, seed=s), classes=NAMED) for s in (0, 1))
    names = ("temperature", "vector", "isotonic")
    expected = document_of(outputs, names, fit_outputs, n_bootstrap=0)
    permuted = replace(
        fit_outputs,
        values=fit_outputs.values[:, order],
        labels=np.argsort(order)[fit_outputs.labels],
        classes=tuple(NAMED[i] for i in order),
    )
    assert document_of(outputs, names, permuted, n_bootstrap=0) == expected


def test_other_classes_of_the_fitting_samples_are_refused():
    outputs, fit_outputs = (replace(noisy(200, seed=s), classes=NAMED) for s in (0, 1))
    other = replace(fit_outputs, classes=("cat", "dog", "Cow", "emu", "fox"))
    with pytest.raises(
        RequestError, match=r"noisy: class 'Cow', which noisy does not have: .*'cow'"
    ):
        document_of(outputs, ("none",), other)
