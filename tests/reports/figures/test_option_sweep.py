"""Accuracy and ECE along an option: which objectives differ in it alone, and their means."""

import statistics

import pytest

from marginctl.reports.figures.learning_curves import Reasons, groups
from marginctl.reports.figures.option_sweep import options
from tests.reports.figures.made import calibration, line, run, table

BETAS = {
    "gradient-decay:beta=5": 5.0,
    "gradient-decay": 1.0,
    "gradient-decay:beta=0.1": 0.1,
    "gradient-decay:beta=0.01": 0.01,
}


def finished(folder, objective, seed, top1, ece=0.1, **more):
    evaluation = calibration((10, 0.9, 0.8), ece=ece)
    return run(folder, objective, seed, [line(1, 5), line(2, top1)], evaluation=evaluation, **more)


def drawn(panel):
    """Each line's label, its values of the option, and its points."""
    return {
        c.get_label(): (c.lines[0].get_xdata().tolist(), c.lines[0].get_ydata().tolist())
        for c in panel.containers
    }


def test_the_default_counts_and_points_are_means_of_the_last_epoch(tmp_path):
    tops = {o: [90 + i + s**2 for s in range(3)] for i, o in enumerate(BETAS)}
    errors = {o: [0.01 * (i + 1) + 0.02 * s for s in range(3)] for i, o in enumerate(BETAS)}
    made = table(
        *(
            finished(tmp_path, o, s, tops[o][s], errors[o][s])
            for o in (*list(BETAS)[::2], *list(BETAS)[1::2])
            for s in range(3)
        ),
        finished(tmp_path, "soft", 0, 50),
        finished(tmp_path, "gradient-decay:beta=warm-up(end=1)", 0, 50),
        finished(tmp_path, "similarity=cosine;scale=fixed(value=3)", 0, 50),
    )
    said = Reasons()
    figure = options(made, groups(made), said)
    (block,) = figure.subfigs
    assert block.get_suptitle() == "gradient-decay along beta; n = 3 seeds"
    left, right = block.axes
    assert left.get_xlabel() == right.get_xlabel() == "beta"
    assert left.get_xscale() == right.get_xscale() == "log"
    order = sorted(BETAS, key=BETAS.__getitem__)
    for panel, values, factor in ((left, tops, 1), (right, errors, 100)):
        ((label, (at, points)),) = drawn(panel).items()
        assert label == "digits, mlp"
        assert at == [0.01, 0.1, 1.0, 5.0]
        assert points == pytest.approx([factor * statistics.fmean(values[o]) for o in order])
        (segments,) = panel.containers[0].lines[2]
        for o, segment in zip(order, segments.get_segments(), strict=True):
            want = [factor * min(values[o]), factor * max(values[o])]
            assert sorted(segment[:, 1]) == pytest.approx(want)
    assert said.lines() == [
        "gradient-decay:beta=warm-up(end=1): beta is a schedule, no number: left out"
    ]
    assert "lowest to highest seed" in figure.get_supxlabel()


def test_a_block_for_each_set_of_the_other_options_and_a_line_for_each_row(tmp_path):
    names = ("arcface:scale=30", "arcface", "arcface:scale=30,margin=0.3", "arcface:margin=0.3")
    made = table(
        *(
            finished(
                tmp_path, name, 0, 10 * i + 50 * share, setting={"data.subset_fraction": share}
            )
            for i, name in enumerate(names)
            for share in (0.5, 1.0)
        )
    )
    figure = options(made, groups(made), Reasons())
    found = {
        block.get_suptitle().partition(";")[0]: drawn(block.axes[0]) for block in figure.subfigs
    }
    assert found == {
        "arcface along scale": {
            "digits, mlp, subset_fraction=0.5": ([20, 30], [35, 25]),
            "digits, mlp, subset_fraction=1.0": ([20, 30], [60, 50]),
        },
        "arcface:scale=30 along margin": {
            "digits, mlp, subset_fraction=0.5": ([0.1, 0.3], [25, 45]),
            "digits, mlp, subset_fraction=1.0": ([0.1, 0.3], [50, 70]),
        },
        "arcface:margin=0.3 along scale": {
            "digits, mlp, subset_fraction=0.5": ([20, 30], [55, 45]),
            "digits, mlp, subset_fraction=1.0": ([20, 30], [80, 70]),
        },
        "arcface along margin": {
            "digits, mlp, subset_fraction=0.5": ([0.1, 0.3], [35, 55]),
            "digits, mlp, subset_fraction=1.0": ([0.1, 0.3], [60, 80]),
        },
    }
    assert {b.axes[0].get_xscale() for b in figure.subfigs} == {"linear"}


@pytest.mark.parametrize(("low", "scale"), [("2.9", "log"), ("3", "linear"), ("0", "linear")])
def test_the_axis_is_logarithmic_above_a_factor_of_20(tmp_path, low, scale):
    names = (f"cosine:scale={low}", "cosine", "cosine:scale=60")
    made = table(*(finished(tmp_path, name, 0, 50) for name in names))
    figure = options(made, groups(made), Reasons())
    assert [panel.get_xscale() for panel in figure.subfigs[0].axes] == [scale, scale]


def test_seeds_without_ece_are_said_and_have_no_point(tmp_path):
    made = table(
        finished(tmp_path, "cosine", 0, 60, 0.3),
        finished(tmp_path, "cosine:scale=10", 0, 50, 0.2),
        run(tmp_path, "cosine:scale=20", 0, [line(1, 55)]),
    )
    said = Reasons()
    left, right = options(made, groups(made), said).subfigs[0].axes
    assert drawn(left)["digits, mlp"] == ([10, 20, 30], [50, 55, 60])
    assert drawn(right)["digits, mlp"][0] == [10, 30]
    assert said.lines() == [
        "cosine:scale=20: no evaluation.calibration in result.json: its point is missing on the "
        "right"
    ]
    bare = table(
        *(run(tmp_path / "bare", o, 0, [line(1, 5)]) for o in ("cosine", "cosine:scale=10"))
    )
    _, right = options(bare, groups(bare), Reasons()).subfigs[0].axes
    assert not right.get_visible()


def test_diverged_seeds_make_no_point(tmp_path):
    made = table(
        finished(tmp_path, "cosine", 0, 60),
        finished(tmp_path, "cosine:scale=10", 0, 50),
        run(tmp_path, "cosine:scale=20", 0, [line(1, 5)], diverged="at step 3", last=None),
    )
    left, _ = options(made, groups(made), Reasons()).subfigs[0].axes
    assert drawn(left)["digits, mlp"][0] == [10, 30]


@pytest.mark.parametrize(
    "objectives",
    [
        ("soft", "cosine"),
        ("soft", "soft:bias=true"),
        ("gradient-decay", "gradient-decay:beta=warm-up(end=1)"),
        ("arcface", "arcface:scale=30,margin=0.3"),
    ],
)
def test_without_two_numbers_there_is_no_figure(tmp_path, objectives):
    made, said = table(*(finished(tmp_path, o, 0, 50) for o in objectives)), Reasons()
    assert options(made, groups(made), said) is None
    assert said.lines() == ["no two objectives differ in one option that is a number"]
