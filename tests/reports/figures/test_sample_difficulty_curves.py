"""Figures of easy and hard images: what is drawn is what the runs recorded."""

import pytest

from marginctl.reports.figures.learning_curves import Reasons, groups
from marginctl.reports.figures.sample_difficulty_curves import curriculum, lipschitz
from tests.reports.figures.made import line, run, table


def looked(epoch, easy, hard, norm=None):
    """A line with two groups: their confidences, and shares that are a tenth of them."""
    groups = {
        number: {"confidence": value, "gradient_share": value / 10}
        for number, value in (("1", easy), ("2", hard))
    }
    more = {"sample_difficulty": {"groups": groups}}
    if norm is not None:
        more["input_gradient_norm"] = {"mean": norm}
    return line(epoch, 50, **more)


@pytest.fixture
def made(tmp_path):
    """Two objectives of two seeds with groups, one of them with norms, and one without any."""
    names = ["gradient-decay:beta=0.1", "gradient-decay", "soft"]
    runs = [
        run(
            tmp_path,
            name,
            seed,
            [
                looked(1, 0.5 + seed / 10, 0.1, 2 + seed if name == names[0] else None),
                looked(2, 0.9, 0.3 + seed / 10, 4 if name == names[0] else None),
            ],
            objectives=names,
        )
        for name in names[:2]
        for seed in (0, 1)
    ]
    return table(*runs, run(tmp_path, "soft", 0, [line(1, 50), line(2, 60)], objectives=names))


def test_a_line_a_group_and_the_shares_below(made):
    said = Reasons()
    figure = curriculum(made, groups(made), said)
    assert said.lines() == ["soft: no curriculum by epoch: train.reference_run records it"]
    (block,) = figure.subfigs
    above, other, below, _ = block.axes
    assert (above.get_title(), other.get_title()) == ("gradient-decay:beta=0.1", "gradient-decay")
    easy, hard = above.lines
    assert (easy.get_label(), hard.get_label()) == ("group 1, the easiest", "group 2, the hardest")
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
    assert (above.get_ylabel(), below.get_ylabel()) == ("mean confidence", "share of the gradient")
    assert "lowest to highest seed" in figure.get_supxlabel()
    figure.draw_without_rendering()


def test_five_objectives_stand_in_two_rows_and_the_rest_is_empty(tmp_path):
    names = [f"gradient-decay:beta={beta}" for beta in (2, 3, 4, 5, 6)]
    found = table(*(run(tmp_path, n, 0, [looked(1, 0.5, 0.1)], objectives=names) for n in names))
    figure = curriculum(found, groups(found), Reasons())
    shown = [panel for panel in figure.subfigs[0].axes if panel.get_visible()]
    assert len(shown) == 10
    assert all(len(panel.lines) == 2 for panel in shown)


def test_norms_are_a_line_an_objective(made):
    said = Reasons()
    figure = lipschitz(made, groups(made), said)
    (panel,) = figure.subfigs[0].axes
    (drawn,) = panel.lines
    assert drawn.get_label() == "gradient-decay:beta=0.1"
    assert drawn.get_ydata() == pytest.approx([2.5, 4])
    assert len(panel.collections) == 1
    assert said.lines() == [
        "gradient-decay, soft: no input_gradient_norm.mean by epoch",
    ]


def test_runs_without_records_are_not_drawn(tmp_path):
    plain = table(run(tmp_path, "soft", 0, [line(1, 50)]))
    for draw in (curriculum, lipschitz):
        said = Reasons()
        assert draw(plain, groups(plain), said) is None
        assert len(said.lines()) == 1
