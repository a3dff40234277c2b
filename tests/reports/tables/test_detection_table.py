"""The text of what was told apart."""

from marginctl.metrics.detection import METRICS, SCORES
from marginctl.reports.tables.detection_table import as_text


def scores(value):
    return dict.fromkeys(SCORES) | {"max_similarity": dict.fromkeys(METRICS, value)}


def test_sets_their_groups_and_what_there_is_no_number_of():
    lines = as_text(
        {
            "misclassification": {"n_in": 9, "n_out": 0, "scores": dict.fromkeys(SCORES)},
            "ood": [
                {"name": name, "group": group, "n_in": 9, "n_out": 5, "scores": scores(value)}
                for name, group, value in (("a", "near", 0.5), ("b", "near", 0.75), ("c", None, 1))
            ],
            "groups": {"near": scores(0.625)},
            "reasons": {"misclassification": "no image is misclassified"},
        }
    )
    heads = [line.partition(":")[0] for line in lines if "AUROC  " in line]
    assert heads == ["OOD a (near)", "OOD b (near)", "OOD c", "OOD near"]
    assert lines[0].split()[-4:] == ["AP-in", "AP-out", "AUROC", "FPR95"]
    assert "9 in, 5 out" in lines[0]
    assert lines[7].split() == ["max_similarity", *["0.6250"] * 4]
    assert len(lines) == 10
    assert lines[-1] == "misclassification: no image is misclassified"
