"""The drawn curves are the means and bands of what the runs recorded."""

import math
import statistics

import numpy as np
import pytest

from marginctl.reports.figures.curves import curves, rho
from marginctl.reports.figures.learning_curves import Reasons, groups
from tests.reports.figures.made import line, run, table


def drawn(figure):
    """The panels of the first block, without the right-hand axis of errors."""
    return figure.subfigs[0].axes


def corners(panel):
    return [band.get_paths()[0].vertices for band in panel.collections]


@pytest.fixture
def three(tmp_path):
    """Two objectives of three seeds, one of them with rho."""
    tops = {"soft": [[10, 40], [20, 60], [60, 80]], "arcgrad": [[30, 31], [40, 41], [50, 57]]}
    return table(
        *(
            run(
                tmp_path,
                objective,
                seed,
                [
                    line(
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
    said = Reasons()
    figure = curves(three, groups(three), said)
    assert said.lines() == []
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
    assert "lowest to highest seed" in figure.get_supxlabel()
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
    made = table(*(run(tmp_path, "soft", s, [line(1, t), line(2, t)]) for s, t in enumerate(tops)))
    figure = curves(made, groups(made), Reasons())
    band = corners(drawn(figure)[1])[0][:, 1]
    mean, std = statistics.fmean(tops), statistics.stdev(tops)
    assert (band.min(), band.max()) == (pytest.approx(mean - std), pytest.approx(mean + std))
    assert "± standard deviation" in figure.get_supxlabel()


def test_one_seed_has_no_band(tmp_path):
    made = table(run(tmp_path, "soft", 0, [line(1, 50), line(2, 60)]))
    figure = curves(made, groups(made), Reasons())
    assert not drawn(figure)[1].collections
    assert "no band" in figure.get_supxlabel()


def test_rho_is_drawn_where_it_is_and_its_lack_is_told(three):
    said = Reasons()
    figure = rho(three, groups(three), said)
    (panel,) = drawn(figure)
    (soft,) = panel.lines
    assert soft.get_ydata() == pytest.approx([0.3, 0.6])
    assert said.lines() == ["arcgrad: no objective.rho by epoch"]
    nothing = Reasons()
    alone = [g for g in groups(three) if g.objective == "arcgrad"]
    assert rho(three, alone, nothing) is None
    assert nothing.lines() == ["arcgrad: no objective.rho by epoch"]


def test_an_objective_looks_alike_in_all_rows(tmp_path):
    names = ["soft", "adacos", "arcgrad"]
    runs = [
        run(
            tmp_path,
            o,
            0,
            [line(1, 50), line(2, 60)],
            setting={"data.subset_fraction": s},
            objectives=names,
        )
        for s, there in ((0.5, names), (1.0, names[1:]))
        for o in there
    ]
    made = table(*runs)
    figure = curves(made, groups(made), Reasons())
    above, below = (block.axes[1].lines for block in figure.subfigs)
    assert [x.get_color() for x in above[1:]] == [x.get_color() for x in below]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == names


def test_too_many_panels_are_refused_by_a_reason(tmp_path):
    runs = [
        run(tmp_path, "soft", 0, [line(1, 50)], setting={"data.subset_fraction": s})
        for s in np.linspace(0.1, 1, 61)
    ]
    made, said = table(*runs), Reasons()
    assert curves(made, groups(made), said) is None
    assert "122 panels: at most 120" in said.lines()[0]
    assert math.isclose(runs[-1].record["setting"]["data.subset_fraction"], 1)
