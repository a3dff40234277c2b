"""Parts and presets of plug-ins: the README's example, installed and run, and parts that fail."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from marginctl.errors import RequestError
from marginctl.objectives import ObjectiveSpec, PartEntry, part
from marginctl.objectives.functional import check_plugin_parts
from marginctl.objectives.losses import Loss
from marginctl.objectives.margins import Margin
from marginctl.objectives.module import Objective
from marginctl.objectives.regularizers import Regularizer
from marginctl.utils import plugins
from marginctl.utils.plugins import LoadedPlugin

ROOT = Path(__file__).parents[2]


PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "focal"
version = "0.1"

[project.entry-points."marginctl.plugins"]
focal = "focal:PLUGIN"

[tool.hatch.build.targets.wheel]
include = ["focal.py", "focal_loss.py"]
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The README's plug-in as a package whose class is in a module of its own, installed."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (text,) = (block for block in blocks if "PLUGIN = " in block)
    imports, rest = text.split("from marginctl.objectives.losses", 1)
    loss, entries = rest.split("def compose")
    files = {
        "focal_loss.py": f"from marginctl.objectives.losses{loss}",
        "focal.py": f"{imports}def compose{entries}".replace("focal:Focal", "focal_loss:Focal"),
        "pyproject.toml": PYPROJECT,
    }
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    for name, text in files.items():
        (source / name).write_text(text)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--target", str(target), str(source)]
    subprocess.run(command, check=True, timeout=120)
    return target


def run(installed, tmp_path, *arguments):
    path = os.pathsep.join([str(installed), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "marginctl", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        timeout=300,
    )


@pytest.mark.slow
def test_the_example_of_the_readme_works_in_every_command(installed, tmp_path):
    shown = run(installed, tmp_path, "objectives", "show", "focal:gamma=1")
    assert "Focal loss" in shown.stdout
    assert "from focal 0.1" in shown.stdout
    composed = "similarity=cosine;scale=fixed(value=20);loss=focal(gamma=1)"
    arguments = ["uci-cv", "--dataset", "iris", "--objective", "focal", "--objective", composed]
    arguments += ["--objective", "soft", "--folds", "3"]
    arguments += ["--repeats", "1", "--workers", "2", "--format", "csv"]
    arguments += ["--set", "protocol.epochs=3"]
    ran = run(installed, tmp_path, *arguments)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 4
    (folder,) = (tmp_path / "runs").rglob("iris-focal-[0-9a-f]*")
    assert '"plugins": [' in (folder / "run.json").read_text()
    assert "focal 0.1" in (folder / "run.json").read_text()
    (plain,) = (tmp_path / "runs").rglob("iris-soft-*")
    assert '"plugins"' not in (plain / "run.json").read_text()


def test_the_example_is_listed_without_torch_and_has_the_right_gradient(installed):
    code = """
import sys
from marginctl.objectives import available, create
assert available()["focal"] == {"gamma": 2.0}
assert "torch" not in sys.modules
import torch
torch.manual_seed(0)
x, y = torch.randn(9, 6, dtype=torch.float64, requires_grad=True), torch.randint(4, (9,))
objective = create("focal", 4, 6).double()
assert torch.autograd.gradcheck(lambda f: objective(f, y), (x,))
print("right")
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)])},
    )
    assert ran.stdout.strip() == "right", ran.stderr


@pytest.fixture
def install(monkeypatch):
    """Return a function that installs a plug-in with classes of this module as parts."""

    def install(**classes):
        entries = {
            kind: {cls.lower(): PartEntry(f"{__name__}:{cls}")} for kind, cls in classes.items()
        }
        loaded = (LoadedPlugin("plug-in 'odd'", "odd 1.0", entries),)
        monkeypatch.setattr(plugins, "load_plugins", lambda: loaded)

    return install


class Scalar(Loss):
    def forward(self, logits, targets):
        return logits.sum()


class Unfinished(Loss):
    pass


class Infinite(Loss):
    def forward(self, logits, targets):
        return logits.sum(-1) * torch.inf


class Expanded(Loss):
    """Its gradient comes from autograd as one expanded number."""

    def forward(self, logits, targets):
        return logits.sum(-1)


class Wants(Loss):
    def __init__(self, gamma):
        pass


class Tilted(Margin):
    stage = "logit"

    def apply(self, target):
        return target * 0.9 - 0.1


class Bare(Regularizer):
    acts_on = "target"

    def __init__(self):
        super().__init__(1.0)

    def penalty(self, inputs, targets, state):
        return inputs.squeeze(-1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Scalar", "has shape .* for 5 samples"),
        ("Unfinished", "fails: NotImplementedError"),
        ("Infinite", "its gradient is not finite"),
        ("Wants", "fails: TypeError"),
    ],
)
def test_a_failing_part_is_found_before_training(install, name, message):
    install(loss=name)
    with pytest.raises(RequestError, match=message):
        check_plugin_parts(ObjectiveSpec(part("linear"), loss=part(name.lower())), 3)


@pytest.mark.parametrize("scale", ["learned", "feature-norm", "feature-norm-weight-norm"])
def test_a_slope_on_the_logit_reaches_the_scale(install, scale):
    """And a gradient that is one expanded number is written to without harm."""
    install(margin="Tilted", loss="Expanded")
    for loss in ("cross-entropy", "expanded"):
        spec = ObjectiveSpec(part("cosine"), part(scale), part("tilted"), part(loss))
        module = Objective(spec, 4, 3, torch.float64)
        x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
        names = [n for n, _ in module.named_parameters()]

        def value(features, *parameters, module=module, names=names):
            given = dict(zip(names, parameters, strict=True))
            return torch.func.functional_call(
                module, given, (features, torch.tensor([0, 1, 2, 3, 0]))
            )

        parameters = [p.detach().clone().requires_grad_() for p in module.parameters()]
        assert torch.autograd.gradcheck(value, (x, *parameters))


def test_two_regularizers_of_the_same_input_add_up(install):
    install(regularizer="Bare")
    spec = ObjectiveSpec(part("gaussian"), regularizers=(part("bare"), part("likelihood")))
    module = Objective(spec, 4, 3, torch.float64)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda f: module(f, torch.tensor([0, 1, 2, 3, 0])), (x,))


@pytest.mark.parametrize("kind", ["loss", "margin", "regularizer"])
def test_a_plugin_part_is_not_differentiated_twice(install, kind):
    """Its derivative comes from autograd without a graph: it would count as a constant."""
    classes = {"loss": "Expanded", "margin": "Tilted", "regularizer": "Bare"}
    install(**{kind: classes[kind]})
    own = part(classes[kind].lower())
    parts = {"regularizers": (own,)} if kind == "regularizer" else {kind: own}
    module = Objective(ObjectiveSpec(part("gaussian"), **parts), 4, 3)
    x = torch.randn(5, 3, requires_grad=True)
    loss = module(x, torch.tensor([0, 1, 2, 3, 0]))
    with pytest.raises(RequestError, match=f"{classes[kind]}: create_graph=True"):
        torch.autograd.grad(loss, x, create_graph=True)
