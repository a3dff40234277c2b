"""One entry adds a loss, a backbone, a metric, a format or a paper to every command.

The toys below come in one file as a plug-in, and as a module with one registry line each as
built-ins.
"""

import json
import sys

import pytest

from marginctl.metrics.registry import METRICS
from marginctl.models.registry import BACKBONES
from marginctl.objectives.parts import PARTS
from marginctl.objectives.presets import PRESETS
from marginctl.recipe import load
from marginctl.reports.formats.registry import FORMATS
from marginctl.utils import plugins

pytestmark = pytest.mark.smoke

TOYS = """
from pathlib import Path

from torch import nn

from marginctl.metrics.registry import Metric
from marginctl.models.backbone import Backbone
from marginctl.models.registry import BackboneEntry
from marginctl.objectives import ObjectiveSpec, Option, PartEntry, Plugin, Preset, part
from marginctl.objectives.losses import CrossEntropy, Loss
from marginctl.reports.formats.registry import Format


class Squared(Loss):
    def __init__(self, weight):
        self.weight = weight

    def forward(self, logits, targets):
        return self.weight * CrossEntropy().forward(logits, targets) ** 2


class Flat(Backbone):
    def __init__(self, channels, image_size):
        super().__init__(8)
        self.linear = nn.Linear(channels * image_size**2, 8)

    def forward(self, images):
        return self.linear(images.flatten(1))


def error_percent(*, features, logits, similarities, labels):
    return 100 * float((similarities.argmax(1) != labels).mean())


def render(report, width):
    return "TOY " + " | ".join(table.caption or table.title for table in report.tables)


def compose(weight):
    return ObjectiveSpec(part("linear"), loss=part("squared", weight=weight))


OPTIONS = {"weight": Option(1.0, "factor of the loss", minimum=0.0)}
LOSS = PartEntry("toys:Squared", OPTIONS)
PRESET = Preset("Squared cross-entropy", "w (ln p_y)^2", "a test", compose, OPTIONS)
BACKBONE = BackboneEntry("one linear layer", "toys:Flat")
METRIC = Metric("toy-error", "toy error", "%", "lower", function="toys:error_percent")
FORMAT = Format("captions", "toys:render")
PAPER = str(Path(__file__).with_name("toy-paper"))
PLUGIN = Plugin({
    "loss": {"squared": LOSS},
    "preset": {"squared": PRESET},
    "backbone": {"flat": BACKBONE},
    "metric": {"toy-error": METRIC},
    "format": {"captions": FORMAT},
    "paper": {"toy-paper": PAPER},
})
"""
PUBLISHED = """\
title: "A toy paper"
source: "nobody"
tables:
  "1":
    caption: Accuracy on digits
    metric: accuracy
    unit: percent
    direction: higher
    delta: 1.0
    n: 1
    recipes: [toy-paper/table1]
    field: last.top1
    columns:
      - {label: Squared, where: {objective: squared}}
    rows:
      - {label: digits, where: {data.name: digits}, cells: ["90.0"]}
"""
RECIPE = """\
# A toy. Needs: nothing. Time: seconds. Expect: nothing.
paper: toy-paper
table: "1"
about: {data: "digits (built in)", cost: "seconds", status: "never run"}
task: train
data: {name: digits}
model: flat
objectives: [soft, squared]
train: {epochs: 1}
seeds: [0]
"""


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """The file with the toys, and the folder of the paper beside it."""
    folder = tmp_path / "toy-paper"
    folder.mkdir()
    (folder / "published.yaml").write_text(PUBLISHED)
    (folder / "table1.yaml").write_text(RECIPE)
    (tmp_path / "toys.py").write_text(TOYS)
    yield tmp_path
    sys.modules.pop("toys", None)


@pytest.fixture
def plugin(toys, monkeypatch):
    """The toys as a plug-in: one file, no change of the package."""
    monkeypatch.setenv(plugins.FILES, str(toys / "toys.py"))
    return toys


@pytest.fixture
def builtin(toys, monkeypatch):
    """The toys as built-ins: their file, and one entry in each registry."""
    monkeypatch.syspath_prepend(str(toys))
    import toys as module

    entries = [
        (PARTS["loss"], "squared", module.LOSS),
        (PRESETS, "squared", module.PRESET),
        (BACKBONES, "flat", module.BACKBONE),
        (METRICS, "toy-error", module.METRIC),
        (FORMATS, "captions", module.FORMAT),
        (load.papers_registry(), "toy-paper", module.PAPER),
    ]
    for registry, name, entry in entries:
        monkeypatch.setitem(registry.builtin, name, entry)
    return toys


@pytest.mark.parametrize("added", ["plugin", "builtin"])
def test_every_command_and_format_has_the_toys(added, request, marginctl):
    folder = request.getfixturevalue(added)
    assert "squared" in marginctl("objectives", "list").out
    assert "factor of the loss" in marginctl("objectives", "show", "squared:weight=2").out
    assert "toy-paper/table1" in marginctl("recipes", "list").out
    assert "Accuracy on digits" in marginctl("report", "--list").out
    runs = folder / "runs"
    train = ("train", "toy-paper/table1", "--out", runs, "--device", "cpu", "--quiet")
    trained = marginctl(*train, "--json")
    assert trained.status == 0, trained.err
    cells = {cell["objective"]: cell for cell in trained.json["cells"]}
    error = 100 - cells["squared"]["last"]["mean"]
    assert cells["squared"]["metrics"]["toy-error"]["mean"] == pytest.approx(error)
    assert "toy error %" in marginctl(*train).out
    assert marginctl(*train, "--format", "captions").out.startswith("TOY ")
    report = ("report", runs)
    assert marginctl(*report, "--format", "captions").out.startswith("TOY ")
    for name in ("table", "markdown", "latex"):
        assert "toy error" in marginctl(*report, "--format", name).out, name
    assert "toy-error" in marginctl(*report, "--format", "csv").out
    assert "toy-error" in json.dumps(marginctl(*report, "--format", "json").json)
    page = folder / "page.html"
    marginctl(*report, "--format", "html", "--output", page)
    assert "toy error" in page.read_text("utf-8")
    published = marginctl(*report, "--paper", "toy-paper", "--table", "1").out
    assert "90.0" in published
    (run,) = [p.parent for p in runs.rglob("result.json") if "squared" in str(p.parent.name)]
    assert "toy-error" in json.dumps(marginctl("eval", run, "--device", "cpu", "--json").json)
    assert "toy error" in marginctl("eval", run, "--device", "cpu").out
    uci = ("uci-cv", "--dataset", "iris", "--objective", "soft", "--objective", "squared")
    quick = ("--folds", "2", "--repeats", "1", "--set", "protocol.epochs=1", "--workers", "1")
    compared = marginctl(*uci, *quick, "--out", runs, "--json", "--quiet")
    assert [cell["objective"] for cell in compared.json["cells"]] == ["soft", "squared"]
