"""Curves by epoch are the means and bands of what the runs recorded."""

import math
import statistics

import numpy as np
import pytest

from marginctl.reports.figures.learning_curves import (
    input_gradient_norm,
    learning_curves,
    mean_bias,
    sample_difficulty,
)
from marginctl.reports.figures.seed_groups import Omissions, SeedTable
from tests.reports.figures.factories import record, run, seed_table


def drawn(figure):
    """The panels of the first block, without the right-hand axis of errors."""
    return figure.subfigs[0].axes


def corners(panel):
    return [band.get_paths()[0].vertices for band in panel.collections]


@pytest.fixture
def three(tmp_path):
    """Two objectives of three seeds, one of them with rho."""
    tops = {"soft": [[10, 40], [20, 60], [60, 80]], "arcgrad": [[30, 31], [40, 41], [50, 57]]}
    return seed_table(
        *(
            run(
                tmp_path,
                objective,
                seed,
                [
                    record(
                        e + 1, t, **({"objective": {"rho": t / 100}} if objective == "soft" else {})
                    )
                    for e, t in enumerate(of_seed)
                ],
                objectives=["soft", "arcgrad"],
            )
            for objective, seeds in tops.items()
            for seed, of_seed in enumerate(seeds)
        )
    )


def test_lines_are_means_and_bands_ranges(three):
    omissions = Omissions()
    figure = learning_curves(three, omissions)
    assert omissions.lines() == []
    loss, top1 = drawn(figure)
    soft, arcgrad = top1.lines
    assert (soft.get_label(), arcgrad.get_label()) == ("soft", "arcgrad")
    assert soft.get_xdata().tolist() == [1, 2]
    assert soft.get_ydata() == pytest.approx([30, 60])
    assert arcgrad.get_ydata() == pytest.approx([40, 43])
    assert loss.lines[0].get_ydata() == pytest.approx([70, 40])
    band = corners(top1)[0]
    at_first = band[band[:, 0] == 1][:, 1]
    assert (at_first.min(), at_first.max()) == (10, 60)
    at_last = band[band[:, 0] == 2][:, 1]
    assert (at_last.min(), at_last.max()) == (40, 80)
    assert "lowest to highest seed" in figure.get_label()
    assert figure.subfigs[0].get_suptitle() == "digits, mlp; n = 3 seeds"
    assert figure.legends[0].get_title().get_text() == "made (arcgrad, table VII)"
    look = {(x.get_color(), x.get_linestyle(), x.get_marker()) for x in (soft, arcgrad)}
    assert len(look) == 2
    figure.draw_without_rendering()
    (error,) = top1.child_axes
    assert sorted(error.get_ylim()) == pytest.approx(sorted(100 - y for y in top1.get_ylim()))
    assert error.get_ylabel() == "test error (%)"


def test_of_five_seeds_the_band_is_the_standard_deviation(tmp_path):
    tops = [50, 51, 53, 58, 61]
    table = seed_table(
        *(run(tmp_path, "soft", s, [record(1, t), record(2, t)]) for s, t in enumerate(tops))
    )
    figure = learning_curves(table, Omissions())
    band = corners(drawn(figure)[1])[0][:, 1]
    mean, std = statistics.fmean(tops), statistics.stdev(tops)
    assert (band.min(), band.max()) == (pytest.approx(mean - std), pytest.approx(mean + std))
    assert "± standard deviation" in figure.get_label()


def test_one_seed_has_no_band(tmp_path):
    table = seed_table(run(tmp_path, "soft", 0, [record(1, 50), record(2, 60)]))
    figure = learning_curves(table, Omissions())
    assert not drawn(figure)[1].collections
    assert "no band" in figure.get_label()


def test_groups_without_rho_are_omitted_with_a_reason(three):
    omissions = Omissions()
    figure = mean_bias(three, omissions)
    (panel,) = drawn(figure)
    (soft,) = panel.lines
    assert soft.get_ydata() == pytest.approx([0.3, 0.6])
    assert omissions.lines() == ["arcgrad: no objective.rho by epoch"]
    nothing = Omissions()
    alone = [g for g in three.groups if g.objective == "arcgrad"]
    without_rho = SeedTable(three.recipe, three.title, three.file_name, alone)
    assert mean_bias(without_rho, nothing) is None
    assert nothing.lines() == ["arcgrad: no objective.rho by epoch"]


def test_an_objective_has_one_line_style_in_all_rows(tmp_path):
    names = ["soft", "adacos", "arcgrad"]
    runs = [
        run(
            tmp_path,
            o,
            0,
            [record(1, 50), record(2, 60)],
            setting={"data.subset_fraction": s},
            objectives=names,
        )
        for s, there in ((0.5, names), (1.0, names[1:]))
        for o in there
    ]
    table = seed_table(*runs)
    figure = learning_curves(table, Omissions())
    above, below = (block.axes[1].lines for block in figure.subfigs)
    assert [x.get_color() for x in above[1:]] == [x.get_color() for x in below]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == names


def test_too_many_panels_are_omitted_with_a_reason(tmp_path):
    two = [record(1, 50), record(2, 60)]
    runs = [
        run(tmp_path, "soft", 0, two, setting={"data.subset_fraction": s})
        for s in np.linspace(0.1, 1, 61)
    ]
    table, omissions = seed_table(*runs), Omissions()
    assert learning_curves(table, omissions) is None
    assert "122 panels: a figure has at most 120" in omissions.lines()[0]
    assert math.isclose(runs[-1].result.setting["data.subset_fraction"], 1)


def difficulty_record(epoch, easy, hard, norm=None):
    """A line with two groups: their confidences, and shares that are a tenth of them."""
    of_groups = {
        number: {"confidence": value, "gradient_share": value / 10}
        for number, value in (("1", easy), ("2", hard))
    }
    more = {"sample_difficulty": {"groups": of_groups}}
    if norm is not None:
        more["input_gradient_norm"] = {"mean": norm}
    return record(epoch, 50, **more)


@pytest.fixture
def diagnosed(tmp_path):
    """Two objectives of two seeds with groups, one of them with norms, and one without any."""
    names = ["gradient-decay:beta=0.1", "gradient-decay", "soft"]
    runs = [
        run(
            tmp_path,
            name,
            seed,
            [
                difficulty_record(1, 0.5 + seed / 10, 0.1, 2 + seed if name == names[0] else None),
                difficulty_record(2, 0.9, 0.3 + seed / 10, 4 if name == names[0] else None),
            ],
            objectives=names,
        )
        for name in names[:2]
        for seed in (0, 1)
    ]
    return seed_table(
        *runs, run(tmp_path, "soft", 0, [record(1, 50), record(2, 60)], objectives=names)
    )


def test_difficulty_groups_have_a_line_each(diagnosed):
    omissions = Omissions()
    figure = sample_difficulty(diagnosed, omissions)
    assert omissions.lines() == [
        "soft: no sample difficulty by epoch: train.reference_run records it"
    ]
    (block,) = figure.subfigs
    above, other, below, _ = block.axes
    assert (above.get_title(), other.get_title()) == ("gradient-decay:beta=0.1", "gradient-decay")
    easy, hard = above.lines
    assert (easy.get_label(), hard.get_label()) == ("group 1 (easiest)", "group 2 (hardest)")
    assert easy.get_xdata().tolist() == [1, 2]
    assert easy.get_ydata() == pytest.approx([0.55, 0.9])
    assert hard.get_ydata() == pytest.approx([0.1, 0.35])
    assert [one.get_ydata() for one in below.lines] == [
        pytest.approx([0.055, 0.09]),
        pytest.approx([0.01, 0.035]),
    ]
    band = above.collections[0].get_paths()[0].vertices
    at_first = band[band[:, 0] == 1][:, 1]
    assert (at_first.min(), at_first.max()) == (pytest.approx(0.5), pytest.approx(0.6))
    assert (above.get_ylabel(), below.get_ylabel()) == (
        "mean confidence",
        "fraction of the gradient",
    )
    assert "lowest to highest seed" in figure.get_label()
    figure.draw_without_rendering()


def test_five_objectives_fill_two_rows_and_unused_panels_are_hidden(tmp_path):
    names = [f"gradient-decay:beta={beta}" for beta in (2, 3, 4, 5, 6)]
    found = seed_table(
        *(run(tmp_path, n, 0, [difficulty_record(1, 0.5, 0.1)], objectives=names) for n in names)
    )
    figure = sample_difficulty(found, Omissions())
    shown = [panel for panel in figure.subfigs[0].axes if panel.get_visible()]
    assert len(shown) == 10
    assert all(len(panel.lines) == 2 for panel in shown)


def test_input_gradient_norm_has_a_line_per_objective(diagnosed):
    omissions = Omissions()
    figure = input_gradient_norm(diagnosed, omissions)
    (panel,) = figure.subfigs[0].axes
    (drawn,) = panel.lines
    assert drawn.get_label() == "gradient-decay:beta=0.1"
    assert drawn.get_ydata() == pytest.approx([2.5, 4])
    assert len(panel.collections) == 1
    assert omissions.lines() == [
        "gradient-decay, soft: no input_gradient_norm.mean by epoch",
    ]


def test_runs_without_diagnostics_are_not_drawn(tmp_path):
    plain = seed_table(run(tmp_path, "soft", 0, [record(1, 50)]))
    for draw in (sample_difficulty, input_gradient_norm):
        omissions = Omissions()
        assert draw(plain, omissions) is None
        assert len(omissions.lines()) == 1


def test_a_quantity_of_one_epoch_is_no_curve(tmp_path):
    """As where the test part is evaluated after the last epoch alone."""
    first = {key: value for key, value in record(1, 50).items() if key != "test"}
    omissions = Omissions()
    figure = learning_curves(
        seed_table(run(tmp_path, "soft", 0, [first, record(2, 60)])), omissions
    )
    assert [panel.get_ylabel() for panel in figure.subfigs[0].axes] == ["training loss (nats)"]
    assert "test top-1 (%): one epoch: no curve" in omissions.lines()
    alone = seed_table(run(tmp_path / "alone", "soft", 0, [record(1, 50)]))
    assert learning_curves(alone, Omissions()) is None
