"""One test image's logits and softmax."""

import numpy as np
import pytest
from PIL import Image

from marginctl.metrics.scoring_rules import softmax
from marginctl.reports.figures.example_image import example_image, smallest_set
from marginctl.reports.figures.seed_groups import Omissions
from tests.reports.figures.factories import record, run, seed_table

Z = [0.1, -0.2, 0.4, 0.0]


def shown(epoch, kappa, **names):
    example = {"image": 0, "label": 1, "kappa": kappa, "cosines": Z, **names}
    return record(epoch, 50, example=example)


def test_the_panels_hold_logits_and_softmax(tmp_path):
    lines = [shown(1, 100.0), record(2, 60), shown(3, 2.0)]
    table = seed_table(
        run(tmp_path, "cosine-ls", 0, lines), run(tmp_path, "soft", 0, [record(1, 50)])
    )
    omissions = Omissions()
    figure = example_image(table, omissions)
    panels = figure.subfigs[0].axes
    assert [p.get_title() for p in panels[1:3]] == ["epoch 1: kappa* = 100", "epoch 3: kappa* = 2"]
    assert not any(panels[i].get_visible() for i in (0, 3))  # a run without its image
    for column, kappa in enumerate((100.0, 2.0)):
        top, below = panels[1 + column], panels[4 + column]
        weight = softmax(kappa * np.array([Z]))[0]
        assert top.lines[0].get_ydata() == pytest.approx(Z)
        assert below.lines[0].get_ydata() == pytest.approx(weight)
        assert below.lines[1].get_xdata() == [1]
        assert below.lines[2].get_ydata().sum() >= 0.5
        assert below.get_xlabel() == "number of the class"
    assert [line_ for line_ in omissions.lines() if line_.startswith("soft: no example")]


def test_the_image_and_the_names_of_the_classes(tmp_path):
    names = {"class": "bee", "classes": ["ant", "bee", "cat", "dog"]}
    made = run(tmp_path, "cosine-ls", 0, [shown(1, 2.0, **names)])
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    Image.fromarray(pixels).save(made.path / "example.png")
    image, above, hidden, below = example_image(seed_table(made), Omissions()).subfigs[0].axes
    assert image.get_title() == "class: bee"
    assert np.allclose(image.images[0].get_array()[..., :3] * 255, pixels)
    assert not hidden.get_visible()
    assert [text.get_text() for text in below.get_xticklabels()] == names["classes"]
    assert {text.get_text() for text in above.get_xticklabels()} == {""}


def test_smallest_set():
    assert smallest_set(np.array([0.1, 0.6, 0.3])).tolist() == [1]
    assert smallest_set(np.array([0.3, 0.4, 0.3])).tolist() == [1, 0]
    assert len(smallest_set(np.full(1000, 0.001))) == 10
