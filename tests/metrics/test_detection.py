"""Misclassification and OOD detection: metrics, intervals and missing scores."""

import json

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from marginctl.metrics import detection
from marginctl.metrics.detection import (
    METRICS,
    SCORES,
    OODOutputs,
    Outputs,
    bootstrap_metrics,
    detection_metrics,
)


def outputs(n, seed=0, shift=0.0, classes=4, dim=3):
    stream = np.random.default_rng(seed)
    similarities = stream.normal(shift, 1, (n, classes))
    return Outputs(stream.normal(shift, 1, (n, dim)), 3 * similarities, similarities)


def by_sklearn(inside, outside):
    scores = np.concatenate([inside, outside])
    is_inside = np.repeat([1, 0], [len(inside), len(outside)])
    fpr, tpr, _ = roc_curve(is_inside, scores, drop_intermediate=False)
    fpr_out, tpr_out, _ = roc_curve(1 - is_inside, -scores, drop_intermediate=False)
    return [
        average_precision_score(is_inside, scores),
        average_precision_score(1 - is_inside, -scores),
        roc_auc_score(is_inside, scores),
        fpr[np.argmax(tpr >= 0.95)],
        fpr_out[np.argmax(tpr_out >= 0.95)],
    ]


def test_metrics_equal_scikit_learns_on_scores_with_many_ties():
    stream = np.random.default_rng(0)
    for case in range(300):
        levels = (2, 5, 30, 10**9)[case % 4]
        inside = stream.integers(0, levels, stream.integers(1, 200)) / 7
        outside = stream.integers(0, levels, stream.integers(1, 200)) / 7 - case % 3
        found = bootstrap_metrics({"s": (inside, outside)}, 2)["s"]
        ours = [found[metric] for metric in METRICS]
        assert ours == pytest.approx(by_sklearn(inside, outside), abs=1e-12), case


@pytest.mark.parametrize(
    ("inside", "outside", "aupr", "auroc", "fpr95"),
    [
        ([3, 2], [1, 0, -1], (1, 1), 1, (0, 0)),  # separated
        ([0, 1], [2, 3], (5 / 12, 5 / 12), 0, (1, 1)),  # the wrong way round
        ([7], [7], (1 / 2, 1 / 2), 1 / 2, (1, 1)),  # one tie
        ([1] * 4, [1] * 12, (1 / 4, 3 / 4), 1 / 2, (1, 1)),  # no score tells them apart
        # 19 of 20 are 95 %: the last one of each side does not count
        ([*[3] * 19, 0], [*[1] * 19, 4], (0.9275, 0.9275), 0.9025, (1 / 20, 1 / 20)),
        ([*[3] * 18, 0, 0], [1] * 20, (0.95, 20 / 22), 0.9, (1, 1 / 10)),  # the two differ
    ],
)
def test_both_positive_classes_at_the_edges(inside, outside, aupr, auroc, fpr95):
    found = bootstrap_metrics({"s": (np.array(inside, float), np.array(outside, float))}, 2)["s"]
    assert tuple(METRICS) == ("aupr_in", "aupr_out", "auroc", "fpr95_in", "fpr95_out")
    ours = [found[metric] for metric in METRICS]
    assert ours == pytest.approx(by_sklearn(inside, outside), abs=1e-15)
    assert ours == pytest.approx([*aupr, auroc, *fpr95], abs=1e-15)


def test_the_positive_class_is_exchanged_with_the_sign_of_the_scores():
    stream = np.random.default_rng(3)
    inside, outside = stream.integers(0, 9, 70) / 3, stream.integers(-3, 6, 50) / 3
    found = bootstrap_metrics({"s": (inside, outside)}, 2)["s"]
    other = bootstrap_metrics({"s": (-outside, -inside)}, 2)["s"]
    for metric, exchanged in (("aupr_in", "aupr_out"), ("fpr95_in", "fpr95_out")):
        assert found[metric] == pytest.approx(other[exchanged], abs=1e-15)
        assert found[exchanged] == pytest.approx(other[metric], abs=1e-15)
        assert found[metric] != found[exchanged]


def test_each_side_is_resampled_separately():
    stream = np.random.default_rng(1)
    inside, outside = stream.normal(1, 1, 60), np.round(stream.normal(0, 1, 40), 1)
    found = bootstrap_metrics({"s": (inside, outside)}, 50)["s"]
    again = detection.generator(0, "detection", "bootstrap")
    drawn = []
    for _ in range(50):
        rows_in, rows_out = again.integers(60, size=60), again.integers(40, size=40)
        drawn.append(by_sklearn(inside[rows_in], outside[rows_out]))
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    for i, metric in enumerate(METRICS):
        assert found[f"{metric}_interval"] == pytest.approx([low[i], high[i]])
        assert low[i] < found[metric] < high[i]


def test_scores_equal_their_definitions():
    made = outputs(5)
    found = detection.confidence_scores(made)
    assert tuple(found) == SCORES
    p = np.exp(made.logits) / np.exp(made.logits).sum(1, keepdims=True)
    assert found["max_similarity"] == pytest.approx(made.similarities.max(1))
    assert found["feature_norm"] == pytest.approx(np.sqrt((made.features**2).sum(1)))
    assert found["msp"] == pytest.approx(p.max(1))
    assert found["negative_entropy"] == pytest.approx((p * np.log(p)).sum(1))
    assert found["energy"] == pytest.approx(np.log(np.exp(made.logits).sum(1)))


def test_entropy_and_energy_survive_logits_that_overflow():
    sure = Outputs(np.ones((1, 1)), np.array([[2000.0, -2000.0]]), np.array([[1.0, -1.0]]))
    found = detection.confidence_scores(sure)
    assert (found["negative_entropy"][0], found["energy"][0]) == (0, 2000)


def test_the_two_sides_of_misclassification_and_ood_detection():
    own, other = outputs(80, shift=1.0), outputs(30, seed=1)
    labels = np.where(np.arange(80) % 4 == 0, 3 - own.similarities.argmax(1), 0)
    right = own.similarities.argmax(1) == labels
    found = detection_metrics(own, labels, [OODOutputs("others", None, "d", other)], 10)
    z = own.similarities.max(1)
    for part, inside, outside in (
        (found["misclassification"], z[right], z[~right]),
        (found["ood"][0], z, other.similarities.max(1)),
    ):
        assert (part["n_in"], part["n_out"]) == (len(inside), len(outside))
        ours = [part["scores"]["max_similarity"][metric] for metric in METRICS]
        assert ours == pytest.approx(by_sklearn(inside, outside))
    assert found["ood"][0]["name"] == "others"
    assert (found["groups"], found["n_bootstrap"], found["reasons"]) == ({}, 10, {})


def test_groups_have_the_means_of_their_sets():
    own, labels = outputs(50, shift=1.0), np.zeros(50, np.int64)
    ood_sets = [
        OODOutputs(f"set {i}", group, "d", outputs(20, seed=i))
        for i, group in enumerate(("near", "far", "near", None))
    ]
    found = detection_metrics(own, labels, ood_sets, 5)
    first, _, second, _ = (one["scores"]["energy"]["auroc"] for one in found["ood"])
    assert set(found["groups"]) == {"near", "far"}
    assert found["groups"]["near"]["energy"]["auroc"] == pytest.approx((first + second) / 2)


def test_missing_scores_are_null_with_a_reason():
    own = outputs(20)
    every = own.similarities.argmax(1)
    found = detection_metrics(own, every, [], 5)
    assert found["misclassification"]["scores"] == dict.fromkeys(SCORES)
    assert "no image is misclassified" in found["reasons"]["misclassification"]
    assert "correctly" in detection_metrics(own, 3 - every, [], 5)["reasons"]["misclassification"]

    other = outputs(10, seed=1)
    other.logits[3, 2] = np.inf
    found = detection_metrics(
        own, (every + np.arange(20) % 2) % 4, [OODOutputs("x", "far", "d", other)], 5
    )
    scores = found["ood"][0]["scores"]
    assert [name for name in SCORES if scores[name] is None] == list(SCORES[2:])
    assert found["reasons"]["ood x energy"] == "a score is not finite"
    assert found["groups"]["far"]["energy"] is None
    assert found["groups"]["far"]["max_similarity"] is not None
    json.dumps(found, allow_nan=False)

    bare = Outputs(np.zeros((20, 0)), own.logits, own.similarities)
    found = detection_metrics(bare, (every + np.arange(20) % 2) % 4, [], 5)
    assert found["misclassification"]["scores"]["feature_norm"] is None
    assert found["reasons"]["misclassification feature_norm"] == "the network has no features"


def test_curves_are_the_histograms_and_the_roc():
    own, other = outputs(300, shift=1.0), outputs(200, seed=1)
    ood_sets = [OODOutputs("x", None, "d", other)]
    found = detection_metrics(own, np.zeros(300, np.int64), ood_sets, 2, curves=True)
    one = found["ood"][0]["scores"]["max_similarity"]
    z = np.concatenate([own.similarities.max(1), other.similarities.max(1)])
    edges = one["histogram"]["edges"]
    assert (len(edges), edges[0], edges[-1]) == (41, z.min(), z.max())
    assert (sum(one["histogram"]["inside"]), sum(one["histogram"]["outside"])) == (300, 200)
    assert len(one["roc"]) == 101
    assert (one["roc"][-1], np.all(np.diff(one["roc"]) >= 0)) == (1, True)
    assert np.trapezoid(one["roc"], dx=0.01) == pytest.approx(one["auroc"], abs=0.01)
