"""One style: no two lines look alike, in grey either."""

import warnings

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.text import Text

from marginctl.reports.figures.style import (
    COLORS,
    DASHES,
    MARKERS,
    legend_text,
    line_style,
    save,
    styled,
)


def test_line_styles_are_distinct():
    looks = [tuple(line_style(i, 10).values()) for i in range(105)]
    assert len(set(looks)) == 105
    in_grey = [(x["linestyle"], x["marker"]) for x in (line_style(i, 10) for i in range(15))]
    assert len(set(in_grey)) == len(DASHES) * len(MARKERS) == 15
    assert [line_style(0, n)["markevery"] for n in (1, 10, 200)] == [1, 1, 20]
    assert "marker" not in line_style(0)


def test_colours_contrast_with_white():
    for color in COLORS:
        rgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        contrast = 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05)  # WCAG 2
        assert contrast > 2, color


def test_legend_text_breaks_long_names():
    assert legend_text("arcface:scale=20,margin=0.1,gradient=exact", 24).split("\n") == [
        "arcface:scale=20,",
        "margin=0.1,",
        "gradient=exact",
    ]
    assert (
        legend_text("digits, mlp,subset_fraction=0.1;soft", 80)
        == "digits, mlp, subset_fraction=0.1; soft"
    )


NAMES = [
    "logits_$lr=1e-3_$bs",
    "$\\frac{1",
    "a\\nb",
    "_hidden",
    "100 % {x} ^2_i",
    "\U0001f600 ok",
    "$$",
]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_as_it_is(tmp_path, suffix, name):
    with styled():
        figure = Figure()
        axes = figure.subplots()
        axes.plot([0, 1], label=legend_text(name))
        axes.set(title=name, xlabel=name, ylabel=name)
        axes.set_xticks([0, 1], [name, name])
        (shown,) = axes.legend().get_texts()
        figure.suptitle(name)
    assert shown.get_text().lstrip("\u200b") == legend_text(name).lstrip("\u200b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(figure, tmp_path / f"a.{suffix}")
    assert (tmp_path / f"a.{suffix}").stat().st_size > 1000
    assert not any(text.get_parse_math() for text in figure.findobj(Text))


@pytest.mark.parametrize(
    "settings",
    [
        {"font.family": "No such font", "svg.fonttype": "none"},
        {"axes.facecolor": "black", "axes.prop_cycle": "cycler('color', ['red'])"},
        {"figure.figsize": (30, 30), "savefig.bbox": "tight", "text.usetex": True},
    ],
)
def test_a_users_matplotlibrc_changes_nothing(tmp_path, settings):
    def draw(name):
        with styled():
            figure = Figure()
            figure.add_subplot(title="a title").plot([1, 2])
        save(figure, tmp_path / name)
        return (tmp_path / name).read_bytes()

    plain = draw("a.svg")
    with rc_context(settings):
        assert draw("b.svg") == plain
