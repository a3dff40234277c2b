"""Accuracy along a grid: the right key, the right points, the right bars."""

import statistics

import pytest

from marginctl.reports.figures.grid_sweep import sweep
from marginctl.reports.figures.learning_curves import Reasons, groups
from tests.reports.figures.made import line, run, table


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
    made = table(
        *(
            run(
                tmp_path,
                o,
                s,
                [line(1, 1), line(2, top)],
                setting={"data.subset_fraction": share},
                objectives=["soft", "lm-softmax"],
            )
            for (o, share), of in tops.items()
            for s, top in enumerate(of)
        )
    )
    said = Reasons()
    figure = sweep(made, groups(made), said)
    assert said.lines() == []
    (axes,) = figure.subfigs[0].axes
    assert axes.get_xlabel() == "share of the training images (data.subset_fraction)"
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
        == f"digits, mlp; along data.subset_fraction; n = {seeds} seeds"
    )
    figure.draw_without_rendering()
    low, high = axes.get_xlim()
    assert low < 0.5 < 0.9 < high < 1.1


def test_two_keys_have_panels_for_each(tmp_path):
    made = table(
        *(
            run(
                tmp_path,
                "soft",
                0,
                [line(1, noise * 10 + epochs)],
                setting={
                    "data.label_noise": noise,
                    "train.epochs": epochs,
                    "data.augment": "random-crop",
                },
            )
            for noise in (0.1, 0.2)
            for epochs in (1, 100)
        )
    )
    figure = sweep(made, groups(made), Reasons())
    titles = [block.get_suptitle() for block in figure.subfigs]
    assert titles == [
        "digits, mlp, epochs=1, augment=random-crop; along data.label_noise; n = 1 seed",
        "digits, mlp, epochs=100, augment=random-crop; along data.label_noise; n = 1 seed",
        "digits, mlp, label_noise=0.1, augment=random-crop; along train.epochs; n = 1 seed",
        "digits, mlp, label_noise=0.2, augment=random-crop; along train.epochs; n = 1 seed",
    ]
    assert [b.axes[0].get_xscale() for b in figure.subfigs] == ["linear", "linear", "log", "log"]
    assert figure.subfigs[3].axes[0].containers[0].lines[0].get_ydata() == pytest.approx([3, 102])


@pytest.mark.parametrize("setting", [{}, {"data.augment": "random-crop"}, {"optim.nesterov": True}])
def test_without_numbers_there_is_no_sweep(tmp_path, setting):
    made, said = table(run(tmp_path, "soft", 0, [line(1, 50)], setting=setting)), Reasons()
    assert sweep(made, groups(made), said) is None
    assert said.lines() == ["no key of a grid has two numbers or more"]
