"""The numbers of a result by the name of their metric; metrics of plug-ins."""

import numpy as np
import pytest

from marginctl.errors import RequestError
from marginctl.metrics.registry import (
    METRICS,
    MISS,
    Metric,
    compute_metrics,
    metric_named,
    metrics_in,
)

SCORES = {"max_similarity": {"aupr_in": 0.9, "auroc": 0.8}, "feature_norm": None}
RECORD = {
    "evaluation": {
        "detection": {
            "misclassification": {"scores": dict.fromkeys(SCORES)},
            "ood": [{"name": "mnist", "scores": {}}, {"name": "folder:a b", "scores": SCORES}],
        }
    }
}
PLUGIN = """
from marginctl.metrics.registry import Metric
from marginctl.utils.plugins import Plugin

def mean_confidence(*, features, logits, similarities, labels):
    return similarities.max(1).mean()

ENTRY = Metric("mean-max", "mean maximum", direction="higher", function="{name}:mean_confidence")
PLUGIN = Plugin({{"metric": {{"mean-max": ENTRY}}}})
"""


def test_a_corrupt_result_has_no_sets_and_no_numbers():
    for detection in (5, {"misclassification": 3, "ood": [7, {"name": []}]}, {"ood": {"name": 1}}):
        record = {"evaluation": {"detection": detection}}
        assert metric_named("ood mnist auroc max_similarity").value(record) is None
        assert metrics_in([record]) == {}


def test_a_metric_has_its_number_or_none():
    assert metric_named("ood folder:a b aupr_in max_similarity").value(RECORD) == 0.9
    assert metric_named("ood folder:a b auroc feature_norm").value(RECORD) is None
    assert METRICS[f"{MISS} auroc max_similarity"].value(RECORD) is None
    assert metric_named("ood svhn auroc max_similarity").value(RECORD) is None
    assert METRICS["ece"].values([{"evaluation": {"calibration": {"ece": 0.5}}}, RECORD]) == [50]


def test_metrics_of_results_are_those_with_a_number_each_set_by_itself():
    other = {"last": {"top1": 90.0}, "evaluation": {"brier": 0.1}}
    names = ["ood folder:a b aupr_in max_similarity", "ood folder:a b auroc max_similarity"]
    assert list(metrics_in([other, RECORD])) == ["top1", "brier", *names]


def test_metrics_are_found_by_name():
    assert metric_named("ece") is METRICS["ece"]
    miss = metric_named("misclassification aupr_in feature_norm")
    assert (miss.heading, miss.short_heading) == (
        "MISS AUPR-In feature norm",
        "AUPR-In",
    )
    assert metric_named("ood svhn fpr95_out max_similarity").direction == "lower"
    assert metric_named("ood svhn aupr_out max_similarity").direction == "higher"
    assert metric_named("ood folder:a b auroc max_similarity").subject == "OOD folder:a b"
    assert metric_named("pairs lfw/pairs.txt eer").heading == "lfw/pairs.txt EER %"
    with pytest.raises(RequestError, match="unknown metric 'ecce'"):
        metric_named("ecce")


def test_what_is_no_number_is_none():
    for value in ("x", "0.5", [0.5], {}, True, None):
        record = {"last": {"nll": value}, "evaluation": {"calibration": {"ece": value}}}
        assert METRICS["nll"].value(record) is None
        assert METRICS["ece"].value(record) is None


def test_a_metric_of_a_plug_in_is_computed_from_the_predictions(tmp_path, monkeypatch):
    predictions = {
        "features": np.zeros((2, 3)),
        "logits": np.zeros((2, 2)),
        "similarities": np.array([[0.25, 0.5], [1.0, 0.0]]),
        "labels": np.zeros(2, int),
    }
    values, reasons = compute_metrics(**predictions)
    assert values == {"balanced_accuracy": 50.0, "macro_f1": pytest.approx(1 / 3), "auroc": None}
    assert reasons == {"auroc": "ValueError: class 1 has no test sample"}
    file = tmp_path / "confidence_metric.py"
    file.write_text(PLUGIN.format(name=file.stem))
    monkeypatch.setenv("MARGINCTL_PLUGINS", str(file))
    assert compute_metrics(**predictions)[0]["mean-max"] == 0.75
    record = {"evaluation": {"metrics": {"mean-max": 0.75}}}
    (found,) = metrics_in([record]).values()
    assert isinstance(found, Metric)
    assert (found.heading, found.value(record)) == ("mean maximum", 0.75)
    predictions["similarities"][:] = np.nan
    values, reasons = compute_metrics(**predictions)
    assert (values["mean-max"], reasons["mean-max"]) == (None, "not finite")
    del predictions["labels"]
    assert "missing" in compute_metrics(**predictions)[1]["mean-max"]
