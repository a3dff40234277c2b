"""MISS and OOD by objective, and along a scale."""

from marginctl.reports.figures.detection_by_scale import detection
from marginctl.reports.figures.learning_curves import Reasons, groups
from tests.reports.figures.made import line, run, table


def found(miss, ood=None):
    def side(value):
        both = {"aupr_in": value, "auroc": value / 2}
        return {"scores": {"max_similarity": both, "feature_norm": None}}

    others = [] if ood is None else [{"name": "mnist", **side(ood)}]
    return {"evaluation": {"detection": {"misclassification": side(miss), "ood": others}}}


def drawn(*runs):
    made, said = table(*runs), Reasons()
    return detection(made, groups(made), said), said.lines()


def test_objectives_side_by_side_and_scales_along_themselves(tmp_path):
    names = ["soft", "cosine:scale=5", "cosine:scale=10"]
    figure, said = drawn(
        *(
            run(tmp_path, name, seed, [line(1, 50)], objectives=names, **found(0.5 + seed, 0.8))
            for name in names
            for seed in (0, 1)
        )
    )
    assert said == []
    scales, objectives = figure.subfigs
    assert len(scales.axes) == len(objectives.axes) == 4  # AP-in and AUROC of MISS and of MNIST
    assert [axes.get_title() for axes in scales.axes[:2]] == ["MISS", "OOD mnist"]
    one = scales.axes[0].lines[0]
    assert (list(one.get_xdata()), list(one.get_ydata())) == ([5, 10], [1.0, 1.0])
    points = objectives.axes[2].lines[0]  # AUROC of MISS
    assert (list(points.get_ydata()), points.get_linestyle()) == ([0.5] * 3, "None")
    labels = [text.get_text() for text in objectives.axes[0].get_xticklabels()]
    assert labels == names


def test_older_results_are_named_and_left_out(tmp_path):
    old = run(tmp_path, "soft", 0, [line(1, 50)])
    assert drawn(old) == (None, ["soft: no number of evaluation.detection in result.json"])
    new = run(tmp_path, "adacos", 0, [line(1, 50)], **found(0.5))
    figure, said = drawn(old, new)
    assert said == ["soft: no number of evaluation.detection in result.json"]
    assert [t.get_text() for t in figure.subfigs[0].axes[0].get_xticklabels()] == ["adacos"]


def test_a_number_that_is_null_is_no_point(tmp_path):
    nothing = {
        "misclassification": {"scores": {"max_similarity": None, "feature_norm": None}},
        "ood": [],
    }
    figure, said = drawn(run(tmp_path, "soft", 0, [line(1, 50)], evaluation={"detection": nothing}))
    assert figure is None
    assert said == ["soft: no number of evaluation.detection in result.json"]
