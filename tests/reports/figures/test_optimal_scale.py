"""The scale by epoch and by the number of classes."""

import pytest

from marginctl.reports.figures.optimal_scale import scale_by_classes, scale_by_epoch, scale_points
from marginctl.reports.figures.seed_groups import Omissions, seed_tables
from tests.reports.figures.factories import kappa_run, record, run, seed_table, trained_table

NAMES = ("0.05", "0.25", "0.5", "0.75", "0.95")


def kappa_line(epoch, mean, *quantiles):
    optimal = {"mean": mean, "quantiles": dict(zip(NAMES, quantiles, strict=True))}
    return record(epoch, 50, objective={"optimal_scale": optimal})


def test_lines_and_bands_are_means_over_the_seeds(tmp_path):
    table = seed_table(
        run(tmp_path, "cosine-ls", 0, [kappa_line(e, 10 * e, 1, 2, 3 * e, 4, 5) for e in (1, 2)]),
        run(tmp_path, "cosine-ls", 1, [kappa_line(e, 20 * e, 3, 4, 5 * e, 8, 9) for e in (1, 2)]),
        *(
            run(
                tmp_path,
                "adacos",
                s,
                [record(e, 50, objective={"scale": 5 + s * e}) for e in (1, 2)],
            )
            for s in range(3)
        ),
        run(tmp_path, "soft", 0, [record(1, 50)]),
    )
    omissions = Omissions()
    figure = scale_by_epoch(table, omissions)
    panels = {p.get_title(): p for p in figure.subfigs[0].axes}
    median, mean = panels["cosine-ls"].lines
    assert mean.get_ydata() == pytest.approx([15, 30])
    assert median.get_ydata() == pytest.approx([4, 8])
    wide, narrow = (b.get_paths()[0].vertices[:, 1] for b in panels["cosine-ls"].collections)
    assert (wide.min(), wide.max()) == (2, 7)
    assert (narrow.min(), narrow.max()) == (3, 6)
    (scale,) = panels["adacos"].lines
    assert scale.get_ydata() == pytest.approx([6, 7])
    (band,) = panels["adacos"].collections
    assert band.get_paths()[0].vertices[:, 1].max() == 9
    assert [
        line_ for line_ in omissions.lines() if line_.startswith("soft: no scale of two epochs")
    ]
    assert "lowest to highest seed" in figure.get_label()


def test_without_a_scale_there_is_no_figure(tmp_path):
    table, omissions = seed_table(run(tmp_path, "soft", 0, [record(1, 50)])), Omissions()
    assert scale_by_epoch(table, omissions) is None
    assert len(omissions.lines()) == 1


def tables(folder):
    return [
        seed_table(
            kappa_run(folder / "a", 10, 0, 5.0, 1, 2, 3, 4, 9),
            kappa_run(folder / "a", 10, 1, 7.0, 3, 4, 5, 8, 11),
            run(folder / "a", "soft", 0, [record(1, 50)], state={"rho": 1.0}),
        ),
        seed_table(
            kappa_run(
                folder / "b", 1000, 0, 16.0, 8, 9, 10, 20, 30, setting={"data.subset_fraction": 0.5}
            ),
            kappa_run(folder / "b", 10, 0, 6.0, setting={"data.subset_fraction": 0.2}),
        ),
    ]


def test_points_are_means_over_the_seeds_by_classes(tmp_path):
    omissions = Omissions()
    points = scale_points(tables(tmp_path), omissions)
    assert omissions.lines() == []
    assert [(p.classes, p.mean, p.wide, p.narrow) for p in points] == [
        (10, 6.0, (2.0, 10.0), (3.0, 6.0)),
        (10, 6.0, (6.0, 6.0), (6.0, 6.0)),
        (1000, 16.0, (8.0, 30.0), (9.0, 20.0)),
    ]
    figure = scale_by_classes(tables(tmp_path / "again"), omissions)
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


def test_equal_labels_get_the_recipe_name(tmp_path):
    tables = [trained_table(kappa_run(tmp_path / c, 10, 0, 5.0)) for c in "ab"]
    tables[1].recipe = "other"
    labels = [p.label for p in scale_points(seed_tables(tables), Omissions())]
    assert labels == ["made: digits, mlp; cosine-ls", "other: digits, mlp; cosine-ls"]


def test_missing_numbers_are_reported(tmp_path):
    bare = seed_table(
        kappa_run(tmp_path, 10, 0, 5.0),
        kappa_run(
            tmp_path, 10, 0, 5.0, objective="cosine-ls:pool=batch", evaluation={"angles": None}
        ),
    )
    omissions = Omissions()
    assert scale_by_classes([bare], omissions) is None
    assert omissions.lines() == [
        "cosine-ls:pool=batch: no evaluation.angles.classes in result.json",
        "all runs with kappa* have 10 classes: expected two numbers",
    ]
    omissions = Omissions()
    assert (
        scale_by_classes([seed_table(run(tmp_path / "s", "soft", 0, [record(1, 50)]))], omissions)
        is None
    )
    assert omissions.lines()[0].startswith("no run has state.optimal_scale")


def test_too_many_points_are_omitted_with_a_reason(tmp_path):
    many = [seed_table(kappa_run(tmp_path / str(c), c, 0, 5.0)) for c in range(2, 33)]
    omissions = Omissions()
    assert scale_by_classes(many, omissions) is None
    assert omissions.lines() == ["31 points: a figure has at most 30: name fewer folders as RUNS"]


def test_points_without_quantiles_have_no_bars(tmp_path):
    runs = [kappa_run(tmp_path / str(c), c, 0, 5.0) for c in (2, 3)]
    for one in runs:
        one.result.state["optimal_scale"]["quantiles"] = None
    tables = [seed_table(one) for one in runs]
    (axes,) = scale_by_classes(tables, Omissions()).subfigs[0].axes
    assert [artist.get_ydata() for artist in axes.lines] == [pytest.approx([5.0])] * 2
