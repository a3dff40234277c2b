"""kappa* by the number of classes: the right means, of all tables, and what is missing is said."""

import pytest

from marginctl.reports.figures.kappa_classes import kappa_classes, points_of
from marginctl.reports.figures.learning_curves import Reasons
from tests.reports.figures.made import kappa_run, line, run, table


def tables(folder):
    return [
        table(
            kappa_run(folder / "a", 10, 0, 5.0, 1, 2, 3, 4, 9),
            kappa_run(folder / "a", 10, 1, 7.0, 3, 4, 5, 8, 11),
            run(folder / "a", "soft", 0, [line(1, 50)], state={"rho": 1.0}),
        ),
        table(
            kappa_run(
                folder / "b", 1000, 0, 16.0, 8, 9, 10, 20, 30, setting={"data.subset_fraction": 0.5}
            ),
            kappa_run(folder / "b", 10, 0, 6.0, setting={"data.subset_fraction": 0.2}),
        ),
    ]


def test_points_are_means_over_the_seeds_by_classes(tmp_path):
    said = Reasons()
    points = points_of(tables(tmp_path), said)
    assert said.lines() == []
    assert [(p.classes, p.mean, p.wide, p.narrow) for p in points] == [
        (10, 6.0, (2.0, 10.0), (3.0, 6.0)),
        (10, 6.0, (6.0, 6.0), (6.0, 6.0)),
        (1000, 16.0, (8.0, 30.0), (9.0, 20.0)),
    ]
    figure = kappa_classes(tables(tmp_path / "again"), said)
    (axes,) = figure.subfigs[0].axes
    assert axes.get_xscale() == "log"
    assert axes.get_xticks().tolist() == [10, 1000]
    (legend,) = figure.legends
    assert [text.get_text().replace("\n", " ") for text in legend.get_texts()] == [
        "digits, mlp; cosine-ls",
        "digits, mlp, subset_fraction=0.2; cosine-ls",
        "digits, mlp, subset_fraction=0.5; cosine-ls",
    ]
    assert "n = 1 to 2 seeds" in figure.subfigs[0].get_suptitle()
    figure.draw_without_rendering()
    (low, high), (left, right) = axes.get_ylim(), axes.get_xlim()
    assert low < 2 < 30 < high  # the axes hold all bars
    assert left < 10 < 1000 < right
    places = [
        text.get_transform().transform(text.get_xydata())[0][0]
        for text in axes.lines
        if not text.get_label().startswith("_")
    ]
    assert places[0] < places[1] - 10  # two of ten classes do not hide each other


def test_one_label_of_two_recipes_names_them(tmp_path):
    one, other = (table(kappa_run(tmp_path / c, 10, 0, 5.0)) for c in "ab")
    other.recipe = "other"
    labels = [p.label for p in points_of([one, other], Reasons())]
    assert labels == ["made: digits, mlp; cosine-ls", "other: digits, mlp; cosine-ls"]


def test_what_is_missing_is_said(tmp_path):
    bare = table(
        kappa_run(tmp_path, 10, 0, 5.0),
        kappa_run(
            tmp_path, 10, 0, 5.0, objective="cosine-ls:pool=batch", evaluation={"angles": None}
        ),
    )
    said = Reasons()
    assert kappa_classes([bare], said) is None
    assert said.lines() == [
        "cosine-ls:pool=batch: no number of classes: evaluation.angles in result.json is null",
        "all runs with kappa* have 10 classes: two numbers of them are needed",
    ]
    said = Reasons()
    assert kappa_classes([table(run(tmp_path / "s", "soft", 0, [line(1, 50)]))], said) is None
    assert said.lines()[0].startswith("no run has state.optimal_scale")


def test_too_many_points_are_refused(tmp_path):
    many = [table(kappa_run(tmp_path / str(c), c, 0, 5.0)) for c in range(2, 33)]
    said = Reasons()
    assert kappa_classes(many, said) is None
    assert said.lines() == ["31 points: at most 30 are drawn: name fewer folders as STORE"]


def test_without_quantiles_there_are_points_alone(tmp_path):
    made = [table(kappa_run(tmp_path / str(c), c, 0, 5.0)) for c in (2, 3)]
    for one in made:
        for of in one.runs.values():
            of.record["state"]["optimal_scale"]["quantiles"] = None
    (axes,) = kappa_classes(made, Reasons()).subfigs[0].axes
    assert [artist.get_ydata() for artist in axes.lines] == [pytest.approx([5.0])] * 2
