"""One style: no two lines look alike, in grey either."""

import numpy as np

from marginctl.reports.figures.style import COLORS, DASHES, MARKERS, legend_text, line_style


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
