"""Accuracy, calibration and detection along a number."""

import statistics

import pytest

from marginctl.reports.figures.seed_groups import Omissions
from marginctl.reports.figures.sweeps import grid_sweep, option_sweep
from tests.reports.figures.factories import calibration, record, run, seed_table


def bars(container):
    (segments,) = container.lines[2]
    return [sorted(segment[:, 1]) for segment in segments.get_segments()]


@pytest.mark.parametrize("seeds", [3, 6])
def test_points_are_means_of_the_last_epoch_and_bars_their_spread(tmp_path, seeds):
    tops = {
        (o, share): [50 * share + 7 * s + (s % 2) * (o == "soft") for s in range(seeds)]
        for o in ("soft", "lm-softmax")
        for share in (0.9, 0.5, 0.7)
    }
    table = seed_table(
        *(
            run(
                tmp_path,
                o,
                s,
                [record(1, 1), record(2, top)],
                setting={"data.subset_fraction": share},
                objectives=["soft", "lm-softmax"],
            )
            for (o, share), of in tops.items()
            for s, top in enumerate(of)
        )
    )
    omissions = Omissions()
    figure = grid_sweep(table, omissions)
    assert omissions.lines() == []
    (axes,) = figure.subfigs[0].axes
    assert axes.get_xlabel() == "fraction of the training images (data.subset_fraction)"
    assert [c.get_label() for c in axes.containers] == ["soft", "lm-softmax"]
    for objective, container in zip(("soft", "lm-softmax"), axes.containers, strict=True):
        line_ = container.lines[0]
        assert line_.get_xdata().tolist() == [0.5, 0.7, 0.9]
        want = [tops[objective, share] for share in (0.5, 0.7, 0.9)]
        assert line_.get_ydata() == pytest.approx([statistics.fmean(w) for w in want])
        for (low, high), values in zip(bars(container), want, strict=True):
            mean = statistics.fmean(values)
            if seeds < 5:
                assert (low, high) == (pytest.approx(min(values)), pytest.approx(max(values)))
            else:
                assert high - mean == pytest.approx(statistics.stdev(values))
                assert mean - low == pytest.approx(statistics.stdev(values))
    assert (
        figure.subfigs[0].get_suptitle()
        == f"digits, mlp along data.subset_fraction; n = {seeds} seeds"
    )
    figure.draw_without_rendering()
    low, high = axes.get_xlim()
    assert low < 0.5 < 0.9 < high < 1.1


def test_two_keys_have_panels_for_each(tmp_path):
    table = seed_table(
        *(
            run(
                tmp_path,
                "soft",
                0,
                [record(1, noise * 10 + epochs)],
                setting={
                    "data.label_noise": noise,
                    "train.epochs": epochs,
                    "data.augment": "random-crop",
                },
            )
            for noise in (0.1, 0.2)
            for epochs in (1, 90)
        )
    )
    figure = grid_sweep(table, Omissions())
    titles = [block.get_suptitle() for block in figure.subfigs]
    assert titles == [
        "digits, mlp, epochs=1, augment=random-crop along data.label_noise; n = 1 seed",
        "digits, mlp, epochs=90, augment=random-crop along data.label_noise; n = 1 seed",
        "digits, mlp, label_noise=0.1, augment=random-crop along train.epochs; n = 1 seed",
        "digits, mlp, label_noise=0.2, augment=random-crop along train.epochs; n = 1 seed",
    ]
    assert [b.axes[0].get_xscale() for b in figure.subfigs] == ["linear", "linear", "log", "log"]
    assert figure.subfigs[3].axes[0].containers[0].lines[0].get_ydata() == pytest.approx([3, 92])


@pytest.mark.parametrize("setting", [{}, {"data.augment": "random-crop"}, {"optim.nesterov": True}])
def test_without_numbers_there_is_no_sweep(tmp_path, setting):
    table, omissions = (
        seed_table(run(tmp_path, "soft", 0, [record(1, 50)], setting=setting)),
        Omissions(),
    )
    assert grid_sweep(table, omissions) is None
    assert omissions.lines() == ["no key of a grid has two numbers or more"]


BETAS = {
    "gradient-decay:beta=5": 5.0,
    "gradient-decay": 1.0,
    "gradient-decay:beta=0.1": 0.1,
    "gradient-decay:beta=0.01": 0.01,
}


def finished(folder, objective, seed, top1, ece=0.1, **more):
    evaluation = calibration((10, 0.9, 0.8), ece=ece)
    return run(
        folder, objective, seed, [record(1, 5), record(2, top1)], evaluation=evaluation, **more
    )


def drawn(panel):
    """Each line's label, its values of the option, and its points."""
    return {
        c.get_label(): (c.lines[0].get_xdata().tolist(), c.lines[0].get_ydata().tolist())
        for c in panel.containers
    }


def test_option_points_are_means_and_a_left_out_option_has_its_default(tmp_path):
    tops = {o: [90 + i + s**2 for s in range(3)] for i, o in enumerate(BETAS)}
    errors = {o: [0.01 * (i + 1) + 0.02 * s for s in range(3)] for i, o in enumerate(BETAS)}
    table = seed_table(
        *(
            finished(tmp_path, o, s, tops[o][s], errors[o][s])
            for o in (*list(BETAS)[::2], *list(BETAS)[1::2])
            for s in range(3)
        ),
        finished(tmp_path, "soft", 0, 50),
        finished(tmp_path, "gradient-decay:beta=warm-up(end=1)", 0, 50),
        finished(tmp_path, "similarity=cosine;scale=fixed(value=3)", 0, 50),
    )
    omissions = Omissions()
    figure = option_sweep(table, omissions)
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
    assert omissions.lines() == [
        "gradient-decay:beta=warm-up(end=1): beta is a schedule, not a number"
    ]
    assert "lowest to highest seed" in figure.get_label()


def test_a_block_for_each_set_of_the_other_options_and_a_line_for_each_row(tmp_path):
    names = ("arcface:scale=30", "arcface", "arcface:scale=30,margin=0.3", "arcface:margin=0.3")
    table = seed_table(
        *(
            finished(
                tmp_path, name, 0, 10 * i + 50 * share, setting={"data.subset_fraction": share}
            )
            for i, name in enumerate(names)
            for share in (0.5, 1.0)
        )
    )
    figure = option_sweep(table, Omissions())
    found = {
        block.get_suptitle().partition(";")[0]: drawn(block.axes[0]) for block in figure.subfigs
    }
    assert found == {
        "arcface along scale": {
            "digits, mlp, subset_fraction=0.5": ([30, 64], [25, 35]),
            "digits, mlp, subset_fraction=1.0": ([30, 64], [50, 60]),
        },
        "arcface:scale=30 along margin": {
            "digits, mlp, subset_fraction=0.5": ([0.3, 0.5], [45, 25]),
            "digits, mlp, subset_fraction=1.0": ([0.3, 0.5], [70, 50]),
        },
        "arcface:margin=0.3 along scale": {
            "digits, mlp, subset_fraction=0.5": ([30, 64], [45, 55]),
            "digits, mlp, subset_fraction=1.0": ([30, 64], [70, 80]),
        },
        "arcface along margin": {
            "digits, mlp, subset_fraction=0.5": ([0.3, 0.5], [55, 35]),
            "digits, mlp, subset_fraction=1.0": ([0.3, 0.5], [80, 60]),
        },
    }
    assert {b.axes[0].get_xscale() for b in figure.subfigs} == {"linear"}


@pytest.mark.parametrize(("low", "scale"), [("2.9", "log"), ("3", "linear"), ("0", "linear")])
def test_the_axis_is_logarithmic_above_a_factor_of_20(tmp_path, low, scale):
    names = (f"cosine:scale={low}", "cosine", "cosine:scale=60")
    table = seed_table(*(finished(tmp_path, name, 0, 50) for name in names))
    figure = option_sweep(table, Omissions())
    assert [panel.get_xscale() for panel in figure.subfigs[0].axes] == [scale, scale]


def test_seeds_without_ece_are_reported_and_have_no_point(tmp_path):
    table = seed_table(
        finished(tmp_path, "cosine", 0, 60, 0.3),
        finished(tmp_path, "cosine:scale=10", 0, 50, 0.2),
        run(tmp_path, "cosine:scale=20", 0, [record(1, 55)]),
    )
    omissions = Omissions()
    left, right = option_sweep(table, omissions).subfigs[0].axes
    assert drawn(left)["digits, mlp"] == ([10, 20, 30], [50, 55, 60])
    assert drawn(right)["digits, mlp"][0] == [10, 30]
    assert omissions.lines() == [
        "cosine:scale=20: no evaluation.calibration in result.json: no ECE is drawn"
    ]
    bare = seed_table(
        *(run(tmp_path / "bare", o, 0, [record(1, 5)]) for o in ("cosine", "cosine:scale=10"))
    )
    _, right = option_sweep(bare, Omissions()).subfigs[0].axes
    assert not right.get_visible()


def test_diverged_seeds_make_no_point(tmp_path):
    table = seed_table(
        finished(tmp_path, "cosine", 0, 60),
        finished(tmp_path, "cosine:scale=10", 0, 50),
        run(tmp_path, "cosine:scale=20", 0, [record(1, 5)], diverged="at step 3", last=None),
    )
    left, _ = option_sweep(table, Omissions()).subfigs[0].axes
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
def test_an_option_needs_two_numbers(tmp_path, objectives):
    table, omissions = seed_table(*(finished(tmp_path, o, 0, 50) for o in objectives)), Omissions()
    assert option_sweep(table, omissions) is None
    assert omissions.lines() == ["no two objectives differ in one option that is a number"]
