"""Parts and presets from another package: the README's example, installed and run."""

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from marginctl.errors import RequestError
from marginctl.objectives import extension
from marginctl.objectives.extension import Extension, Kind, Option, Preset, Spec, part

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
    composed = "similarity=cosine;scale=fixed(value=20);loss=focal(gamma=0.5)"
    arguments = ["uci-cv", "--dataset", "iris", "--objective", "focal", "--objective", composed]
    arguments += ["--objective", "focal:gamma=0", "--objective", "soft", "--folds", "3"]
    arguments += ["--repeats", "1", "--workers", "2", "--format", "csv"]
    ran = run(installed, tmp_path, *arguments)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 5
    means = {line.split(",")[1]: line.split(",")[2] for line in lines[1:]}
    assert means["focal:gamma=0"] == means["soft"]  # gamma 0 is cross-entropy
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
UNMADE = Extension({("loss", "cubic"): Kind({"m": Option(1.0, "m")})})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:X", "cannot be loaded: ModuleNotFoundError: No module named"),
        (f"{__name__}:NO_SUCH", "cannot be loaded: AttributeError"),
        (f"{__name__}:NOT_AN_EXTENSION", "is no Extension but int"),
        (f"{__name__}:TAKEN", "the name 'soft' is taken"),
        (f"{__name__}:SHOUTED", "'Soft Max': expected a name of small letters"),
        (f"{__name__}:ROLE", "role 'logit': expected one of similarity"),
        (f"{__name__}:UNMADE", "part 'cubic': made_by is missing"),
    ],
)
def test_a_bad_extension_is_named(monkeypatch, value, message):
    point = EntryPoint("bad", value, extension.GROUP)
    monkeypatch.setattr(extension, "entry_points", lambda group: [point])
    with pytest.raises(RequestError) as caught:
        extension.load.__wrapped__()
    assert "the extension 'bad'" in str(caught.value)
    assert message in str(caught.value)
    assert len(caught.value.lines) == 1


@pytest.mark.parametrize(
    ("made_by", "message"),
    [
        ("no_such_module:X", "no_such_module:X cannot be imported"),
        ("math:no_such", "math:no_such cannot be imported"),
        ("fractions:Fraction", "is no Loss"),
    ],
)
def test_a_part_that_cannot_be_made_is_named(monkeypatch, made_by, message):
    from marginctl.objectives import compose
    from marginctl.objectives.spec import PARTS

    monkeypatch.setitem(PARTS["loss"], "odd", Kind({}, made_by=made_by))
    with pytest.raises(RequestError, match=message):
        compose(3, 4, similarity=part("linear"), loss=part("odd"))
