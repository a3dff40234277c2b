"""The numbers of detection in a result, by name."""

from marginctl.metrics.registry import MEASURES, detection_of, measure_named, sides_of

SCORES = {"max_similarity": {"aupr_in": 0.9, "auroc": 0.8}, "feature_norm": None}
RECORD = {
    "evaluation": {
        "detection": {
            "misclassification": {"scores": dict.fromkeys(SCORES)},
            "ood": [{"name": "mnist", "scores": {}}, {"name": "folder:a b", "scores": SCORES}],
        }
    }
}


def test_sides_are_those_of_any_record():
    old = {"evaluation": {"brier": 1.0}}
    assert sides_of([old, {"evaluation": None}, RECORD]) == [
        "misclassification",
        "mnist",
        "folder:a b",
    ]
    assert sides_of([old]) == []


def test_a_damaged_record_has_no_sides_and_no_numbers():
    for detection in (
        5,
        {"misclassification": 3, "ood": [7, {"name": []}]},
        {"ood": {"name": "x"}},
    ):
        record = {"evaluation": {"detection": detection}}
        assert sides_of([record]) in ([], ["misclassification"])
        assert detection_of("mnist")["mnist auroc max_similarity"].of(record) is None
    assert sides_of([{"evaluation": [1]}]) == []


def test_a_measure_finds_its_number_or_none():
    found = detection_of("folder:a b")
    assert found["folder:a b aupr_in max_similarity"].of(RECORD) == 0.9
    assert found["folder:a b auroc feature_norm"].of(RECORD) is None
    assert (
        detection_of("misclassification")["misclassification auroc max_similarity"].of(RECORD)
        is None
    )
    assert detection_of("svhn")["svhn auroc max_similarity"].of(RECORD) is None


def test_measures_are_named_as_they_are_shown():
    assert measure_named("ece") is MEASURES["ece"]
    assert measure_named("misclassification aupr_in feature_norm").label == "MISS AP-in norm"
    assert (
        measure_named("folder:a b auroc max_similarity").label
        == "OOD folder:a b AUROC max similarity"
    )
    assert all(m.higher for m in detection_of("misclassification").values())


def test_what_is_no_number_is_none():
    for value in ("x", "0.5", [0.5], {}, True, None):
        record = {"last": {"nll": value}, "evaluation": {"calibration": {"ece": value}}}
        assert MEASURES["nll"].of(record) is None
        assert MEASURES["ece"].of(record) is None
    assert MEASURES["ece"].of({"evaluation": {"calibration": {"ece": 0.5}}}) == 50
