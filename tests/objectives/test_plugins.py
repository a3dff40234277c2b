"""Parts and presets from another package: the README's example, installed and run."""

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from marginctl.errors import RequestError
from marginctl.objectives import plugins
from marginctl.objectives.functional import try_out
from marginctl.objectives.losses import Loss
from marginctl.objectives.margins import Margin
from marginctl.objectives.module import Objective
from marginctl.objectives.plugins import Extension, Kind, Option, Preset, Spec, part
from marginctl.objectives.regularizers import Regularizer
from marginctl.objectives.spec import PARTS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The three files of the README, built and installed into a folder of their own."""
    section = (ROOT / "README.md").read_text().split("### A part of your own")[1]
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", section, re.DOTALL)
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    for name, text in zip(("focal_loss.py", "focal.py", "pyproject.toml"), blocks, strict=False):
        (source / name).write_text(text)
    python_lines = [line for text in blocks[:2] for line in text.splitlines() if line.strip()]
    assert len(python_lines) <= 16
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


def test_the_example_of_the_readme_works_in_every_command(installed, tmp_path):
    listed = run(installed, tmp_path, "objectives", "list")
    assert "Focal loss" in listed.stdout
    shown = run(installed, tmp_path, "objectives", "show", "focal:gamma=1")
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
    assert '"extensions": [' in (folder / "run.json").read_text()
    assert "focal 0.1" in (folder / "run.json").read_text()
    (plain,) = (tmp_path / "runs").rglob("iris-soft-*")
    assert "extensions" not in (plain / "run.json").read_text()


def test_reading_the_example_imports_no_torch(installed):
    code = """
import sys
from marginctl.objectives import available
assert available()["focal"] == {"gamma": 2.0}
print("torch" in sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)])},
    )
    assert ran.stdout.strip() == "False", ran.stderr


def test_a_part_by_its_value_alone_equals_one_with_its_derivative_written_out(installed):
    code = """
import torch
from marginctl.objectives import create
torch.manual_seed(0)
x, y = torch.randn(9, 6, dtype=torch.float64, requires_grad=True), torch.randint(4, (9,))
made = create("focal", 4, 6).double()
assert torch.autograd.gradcheck(lambda f: made(f, y), (x,))
print("right")
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)])},
    )
    assert ran.stdout.strip() == "right", ran.stderr


def linear(_):
    return Spec(part("linear"))


NOT_AN_EXTENSION = 3
TAKEN = Extension(presets=[Preset("soft", "", "", "", linear)])
SHOUTED = Extension(presets=[Preset("Soft Max", "", "", "", linear)])
ROLE = Extension({("logit", "cubic"): Kind({}, made_by="a:b")})
MAPPING = Extension({("loss", "cubic"): {}})
BARE = Extension({("loss", "cubic"): Kind({"m": 1.0}, made_by="a:b")})
REQUIRED = Extension({("loss", "cubic"): Kind({"m": Option(None, "m")}, made_by="a:b")})
RAISES = Extension(presets=[Preset("mine", "", "", "", lambda o: 1 / 0)])
BUILDS_NOTHING = Extension(presets=[Preset("mine", "", "", "", lambda o: 5)])
UNKNOWN_PART = Extension(
    presets=[Preset("mine", "", "", "", lambda o: Spec(part("linear"), loss=part("nonesuch")))]
)


def __getattr__(name):
    if name == "LEAVES":
        raise SystemExit("bye")
    raise AttributeError(name)


UNMADE = Extension({("loss", "cubic"): Kind({"m": Option(1.0, "m")})})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:X", "cannot be loaded: ModuleNotFoundError: No module named"),
        (f"{__name__}:NO_SUCH", "cannot be loaded: AttributeError"),
        (f"{__name__}:NOT_AN_EXTENSION", "expected an Extension, found int"),
        (f"{__name__}:LEAVES", "cannot be loaded: SystemExit"),
        (f"{__name__}:MAPPING", "the part: expected Kind, found {}"),
        (f"{__name__}:BARE", "option 'm' of 'cubic': expected Option, found 1.0"),
        (f"{__name__}:REQUIRED", "option 'm' of 'cubic': expected a default"),
        (f"{__name__}:RAISES", "cannot be loaded: ZeroDivisionError"),
        (f"{__name__}:BUILDS_NOTHING", "what preset 'mine' builds: expected Spec, found 5"),
        (f"{__name__}:UNKNOWN_PART", "loss = 'nonesuch': expected one of cross-entropy"),
        (f"{__name__}:TAKEN", "the name 'soft' is taken"),
        (f"{__name__}:SHOUTED", "'Soft Max': expected a name of small letters"),
        (f"{__name__}:ROLE", "role 'logit': expected one of similarity"),
        (f"{__name__}:UNMADE", "part 'cubic': made_by is missing"),
    ],
)
def test_a_bad_extension_is_named(monkeypatch, value, message):
    point = EntryPoint("bad", value, plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    with pytest.raises(RequestError) as caught:
        plugins.load.__wrapped__()
    assert "the extension 'bad'" in str(caught.value)
    assert message in str(caught.value)
    assert len(caught.value.lines) == 1


@pytest.mark.parametrize(
    ("made_by", "message"),
    [
        ("no_such_module:X", "no_such_module:X cannot be imported"),
        ("math:no_such", "math:no_such cannot be imported"),
        ("fractions:Fraction", "expected a class below Loss"),
    ],
)
def test_a_part_that_cannot_be_made_is_named(monkeypatch, made_by, message):
    from marginctl.objectives import compose

    monkeypatch.setitem(PARTS["loss"], "odd", Kind({}, made_by=made_by))
    with pytest.raises(RequestError, match=message):
        compose(3, 4, similarity=part("linear"), loss=part("odd"))


class Scalar(Loss):
    def forward(self, logits, targets):
        return logits.sum()


class Nothing(Loss):
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
    on = "target"

    def __init__(self):
        super().__init__(1.0)

    def penalty(self, looked_at, targets, state):
        return looked_at.squeeze(-1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Scalar", "has shape .* for 5 samples"),
        ("Nothing", "fails: NotImplementedError"),
        ("Infinite", "its gradient is not finite"),
        ("Wants", "fails: TypeError"),
    ],
)
def test_a_part_that_fails_is_found_before_training(monkeypatch, name, message):
    monkeypatch.setitem(PARTS["loss"], "odd", Kind({}, made_by=f"{__name__}:{name}"))
    with pytest.raises(RequestError, match=message):
        try_out(Spec(part("linear"), loss=part("odd")), 3)


@pytest.mark.parametrize("scale", ["learned", "feature-norm", "feature-norm-weight-norm"])
def test_a_slope_on_the_logit_reaches_the_scale(monkeypatch, scale):
    """And a gradient that is one expanded number is written to without harm."""
    monkeypatch.setitem(PARTS["margin"], "tilted", Kind({}, made_by=f"{__name__}:Tilted"))
    monkeypatch.setitem(PARTS["loss"], "expanded", Kind({}, made_by=f"{__name__}:Expanded"))
    for loss in ("cross-entropy", "expanded"):
        spec = Spec(part("cosine"), part(scale), part("tilted"), part(loss))
        made = Objective(spec, 4, 3, torch.float64)
        x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
        names = [n for n, _ in made.named_parameters()]

        def value(features, *parameters, made=made, names=names):
            given = dict(zip(names, parameters, strict=True))
            return torch.func.functional_call(
                made, given, (features, torch.tensor([0, 1, 2, 3, 0]))
            )

        parameters = [p.detach().clone().requires_grad_() for p in made.parameters()]
        assert torch.autograd.gradcheck(value, (x, *parameters))


def test_two_regularisers_of_one_thing_add_up(monkeypatch):
    monkeypatch.setitem(PARTS["regularizers"], "bare", Kind({}, made_by=f"{__name__}:Bare"))
    spec = Spec(part("gaussian"), regularizers=(part("bare"), part("likelihood")))
    made = Objective(spec, 4, 3, torch.float64)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda f: made(f, torch.tensor([0, 1, 2, 3, 0])), (x,))
