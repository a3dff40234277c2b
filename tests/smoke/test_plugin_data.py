"""A backbone and an image set of a plug-in: one file, seen by every command."""

import json

import pytest

pytestmark = pytest.mark.smoke

PLUGIN = """
import numpy as np
from torch import nn

from marginctl.data.images.registry import ImageSet
from marginctl.models.backbones.layers import Pooled, convolution
from marginctl.models.registry import BackboneEntry, Stages
from marginctl.objectives.options import Option
from marginctl.utils.plugins import Plugin


class Tiny(Pooled):
    def __init__(self, channels, image_size, *, width):
        layers = [convolution(channels if i == 0 else width, width, stride=2) for i in range(4)]
        super().__init__(nn.Sequential(*layers), width)


def read_stripes():
    splits = []
    for count in (40, 20):
        y = np.arange(count) % 2
        x = np.zeros((count, 16, 16, 1), np.uint8)
        x[y == 0, ::4] = 255
        x[y == 1, :, ::4] = 255
        splits.append((x, y.astype(np.int64)))
    return splits


PLUGIN = Plugin(
    {
        "backbone": {
            "tiny": BackboneEntry(
                "four convolutions",
                "stripes_plugin:Tiny",
                min_size=8,
                options={"width": Option(4, "channels", 1, 64, integer=True)},
                stages=Stages(),
            )
        },
        "dataset": {
            "stripes": ImageSet(
                "stripes in two directions",
                ("horizontal", "vertical"),
                (40, 20),
                embedded="stripes_plugin:read_stripes",
            )
        },
    }
)
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    path = tmp_path / "stripes_plugin.py"
    path.write_text(PLUGIN)
    monkeypatch.setenv("MARGINCTL_PLUGINS", str(path))


def test_a_plugin_adds_a_backbone_and_an_image_set(marginctl, tmp_path, plugin):
    out = tmp_path / "runs"
    small = ("--device", "cpu", "--epochs", "1", "--set", "train.batch_size=10", "--out", out)
    ran = marginctl("train", "--data", "stripes", "--model", "tiny:width=3", *small, "--json")
    assert ran.status == 0, ran.err
    run = next(out.rglob("run.json"))
    record = json.loads(run.read_text())
    assert [origin.split()[0] for origin in record["plugins"]] == ["stripes_plugin.py"]
    recipe = record["recipe"]
    assert (recipe["data"]["name"], recipe["model"]) == ("stripes", "tiny:width=3")
    assert marginctl("eval", run.parent, "--ood", "digits", "--json").json["n"] == 20
    fine_tuned = ("transfer", "--from", run.parent, "--data", "stripes", "--method", "fine-tune")
    ran = marginctl(*fine_tuned, "--set", "blocks=3-4", *small)
    assert ran.status == 0, ran.err
    rows = {row["name"]: row for row in marginctl("data", "list", "--json").json}
    assert (rows["stripes"]["state"], rows["stripes"]["instances"]) == ("built in", 60)
    assert marginctl("data", "verify", "stripes").out == "stripes: built in\n"
    ran = marginctl("train", "--data", "stripe", "--model", "tiny")
    assert "Did you mean 'stripes'?" in ran.err
    ran = marginctl("train", "--data", "stripes", "--model", "tinny")
    assert "Did you mean 'tiny'?" in ran.err
