"""kappa*: the mean and the quantiles of the images; a scale: its mean and band over the seeds."""

import pytest

from marginctl.reports.figures.learning_curves import Reasons, groups
from marginctl.reports.figures.scale_by_epoch import kappa
from tests.reports.figures.made import line, run, table

NAMES = ("0.05", "0.25", "0.5", "0.75", "0.95")


def kappa_line(epoch, mean, *quantiles):
    optimal = {"mean": mean, "quantiles": dict(zip(NAMES, quantiles, strict=True))}
    return line(epoch, 50, objective={"optimal_scale": optimal})


def test_lines_and_bands_are_means_over_the_seeds(tmp_path):
    made = table(
        run(tmp_path, "cosine-ls", 0, [kappa_line(e, 10 * e, 1, 2, 3 * e, 4, 5) for e in (1, 2)]),
        run(tmp_path, "cosine-ls", 1, [kappa_line(e, 20 * e, 3, 4, 5 * e, 8, 9) for e in (1, 2)]),
        *(
            run(
                tmp_path, "adacos", s, [line(e, 50, objective={"scale": 5 + s * e}) for e in (1, 2)]
            )
            for s in range(3)
        ),
        run(tmp_path, "soft", 0, [line(1, 50)]),
    )
    said = Reasons()
    figure = kappa(made, groups(made), said)
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
    assert [line_ for line_ in said.lines() if line_.startswith("soft: no scale by epoch")]
    assert "lowest to highest seed" in figure.get_supxlabel()


def test_without_a_scale_there_is_no_figure(tmp_path):
    made, said = table(run(tmp_path, "soft", 0, [line(1, 50)])), Reasons()
    assert kappa(made, groups(made), said) is None
    assert len(said.lines()) == 1
