"""The tables of `eval`: detection, long-tailed classes and verification."""

import numpy as np

from marginctl.metrics.detection import METRICS, SCORES
from marginctl.metrics.long_tail import long_tail_accuracy
from marginctl.metrics.verification import verification_metrics
from marginctl.reports.tables.evaluation_table import evaluation_report, verification_report


def scores(value):
    return dict.fromkeys(SCORES) | {"max_similarity": dict.fromkeys(METRICS, value)}


DETECTION = {
    "misclassification": {"n_in": 9, "n_out": 0, "scores": dict.fromkeys(SCORES)},
    "ood": [
        {"name": name, "group": group, "n_in": 9, "n_out": 5, "scores": scores(value)}
        for name, group, value in (("a", "near", 0.5), ("b", "near", 0.75), ("c", None, 1))
    ],
    "groups": {"near": scores(0.625)},
    "reasons": {"misclassification": "no image is misclassified"},
}
DOCUMENT = {
    "top1": 90.0,
    "top1_interval": [80.0, 95.0],
    "n": 20,
    "top5": None,
    "rho": 0.25,
    "nll": 0.5,
    "brier": 0.125,
    "calibration": {"ece": 0.02, "mce": 0.3, "bins": 15},
    "angles": None,
    "per_class": [
        {"name": "cat", "class": 0, "accuracy": 0.5, "n": 2},
        {"name": "dog", "class": 1, "accuracy": None, "n": 0},
    ],
    "reasons": {"top5": "5 classes"},
    "detection": DETECTION,
}


def texts_of(table):
    return [[row.label, *(cell.text for cell in row.cells)] for row in table.rows]


def test_detection_has_each_set_the_mean_of_a_group_and_what_is_missing():
    *_, table = evaluation_report("mlp on x", DOCUMENT).tables
    assert [row[0].partition(":")[0] for row in texts_of(table)] == [
        *("OOD a (near)", "OOD b (near)", "OOD c", "OOD near")
    ]
    assert table.columns == (*("score", "AUPR-In", "AUPR-Out", "AUROC", "FPR95-In", "FPR95-Out"),)
    assert table.caption.startswith("-In, -Out: in or out is the positive class.")
    assert table.caption.endswith("; OpenOOD's is FPR95-Out")
    assert "9 in, 5 out" in table.rows[0].label
    assert texts_of(table)[3][1:] == ["max_similarity", *["0.6250"] * 5]
    assert table.notes == ("misclassification omitted (no image is misclassified)",)


def test_metrics_are_rows_and_what_is_missing_has_a_reason():
    table, _ = evaluation_report("mlp on x", DOCUMENT).tables
    assert texts_of(table) == [
        ["top-1 %", "90.00"],
        ["ECE %", "2.00"],
        ["MCE %", "30.00"],
        ["NLL", "0.5000"],
        ["Brier", "0.1250"],
        ["mean bias rho", "0.2500"],
    ]
    assert "lowest class accuracies: cat 50.0 % of 2" in table.notes
    assert "top5 omitted (5 classes)" in table.notes


def test_an_empty_group_of_classes_shows_its_reason():
    record = long_tail_accuracy(np.array([500, 5]), np.array([0, 1]), np.array([0, 1]))
    table, _ = evaluation_report("mlp on x", DOCUMENT | {"long_tail": record}).tables
    assert ["many-shot %", "100.00"] in texts_of(table)
    assert ["many-shot class mean %", "100.00"] in texts_of(table)
    assert any("class mean: the mean of the class accuracies" in note for note in table.notes)
    many, medium = (n for n in table.notes if n.startswith(("many-shot", "medium")))
    assert many == "many-shot: 1 of 2 classes have more than 100 training images; n = 1"
    assert medium == "medium-shot: no class with 20 to 100 training images"


def test_rates_without_enough_pairs_share_a_line():
    scores, same = np.array([0.9, 0.8, 0.1]), np.array([True, True, False])
    metrics = verification_metrics(scores, same, np.zeros(3, np.int64), 5)
    one = {**metrics, "name": "p.txt", "images": 5, "folds_from": "order"}
    (table,) = verification_report("mlp", {"verification": [one]}).tables
    assert table.rows[0].cells[0].text == "-"
    assert table.notes[0] == "p.txt: 2 pairs of one identity, 1 of two, 5 images"
    assert table.notes[-2:] == (
        "p.txt: no accuracy: 1 pair of a kind: no two folds",
        "p.txt: no TAR at FAR 0.1, 0.01, 0.001, 0.0001: 1 pair of two identities: fewer than one "
        "at this rate",
    )
