"""The rules of the house: what may import what, what is fast, what is frozen."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from marginctl.cli import app

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "marginctl"

# Data flows from the left to the right; a package imports only what stands before it.
ORDER = ["base", "utils", "objectives", "data", "models", "recipe", "papers", "runs", "metrics"]
ORDER += ["calibration", "crossval", "training", "transfer", "experiments", "bench", "search"]
ORDER += ["results", "console", "reports", "doctor", "cli"]
BASE = {"errors"}


def package_of(module: str) -> str:
    name = module.split(".")[1] if "." in module else "base"
    return "base" if name in BASE else name


def test_imports_follow_the_flow_of_the_data():
    for path in PACKAGE.rglob("*.py"):
        own = package_of("marginctl." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts))
        if own in ("__init__", "__main__"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("marginctl"):
                # `from marginctl import recipe` names a module in its list
                names = (
                    [node.module]
                    if "." in node.module
                    else [
                        f"marginctl.{a.name}"
                        for a in node.names
                        if (PACKAGE / f"{a.name}.py").exists()
                    ]
                )
            elif isinstance(node, ast.Import):
                names = [a.name for a in node.names if a.name.startswith("marginctl.")]
            for name in names:
                assert ORDER.index(package_of(name)) <= ORDER.index(own), f"{path}: {name}"


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()


def test_reading_imports_no_torch():
    code = """
import sys
import marginctl.cli, marginctl.recipe, marginctl.papers, marginctl.data.tabular.uci
import marginctl.objectives, marginctl.runs.run_dir, marginctl.reports.tables.cv_table
import marginctl.console.progress, marginctl.experiments.uci_cv_session
marginctl.recipe.summaries(); marginctl.papers.table("arcgrad", "I")
marginctl.objectives.available()
print(sorted({"torch", "torchvision", "sklearn", "pandas"} & set(sys.modules)))
"""
    assert python(code) == "[]"


def test_uci_cv_imports_neither_torchvision_nor_scikit_learn(tmp_path):
    code = f"""
import sys
from marginctl.cli import run
arguments = "uci-cv --dataset iris --objective soft --folds 2 --repeats 1 --workers 1 --quiet"
assert run([*arguments.split(), "--set", "protocol.epochs=1", "--out", {str(tmp_path)!r}]) == 0
print("\\n" + str(sorted({{"torch", "torchvision", "sklearn", "pandas"}} & set(sys.modules))))
"""
    assert python(code).splitlines()[-1] == "['torch']"


def test_a_finished_command_imports_no_torch(tmp_path, marginctl):
    arguments = ["uci-cv", "--dataset", "iris", "--objective", "soft", "--folds", "2"]
    arguments += ["--repeats", "1", "--set", "protocol.epochs=1", "--out", str(tmp_path)]
    marginctl(*arguments, "--workers", "1")
    code = f"""
import sys
from marginctl.cli import run
assert run({arguments!r}) == 0
print("torch" in sys.modules)
"""
    assert python(code).splitlines()[-1] == "False"


@pytest.mark.parametrize(("arguments", "limit"), [(["--help"], 0.4), (["recipes", "list"], 0.8)])
def test_start_up(arguments, limit):
    """The best of five, in seconds of the processor: not what else the machine does."""
    seconds = []
    for _ in range(5):
        line = [sys.executable, "-m", "marginctl", *arguments]
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
        seconds.append(used.ru_utime + used.ru_stime)
    assert min(seconds) < limit


def surface() -> str:
    """Every command with its arguments and options, a line each."""
    lines = []

    def walk(command, path):
        for parameter in command.params:
            if parameter.name == "help":
                continue
            names = "/".join([*parameter.opts, *parameter.secondary_opts])
            many = " (repeatable)" if parameter.multiple else ""
            default = parameter.default
            shown = "" if default in (None, False) or callable(default) else f" = {default}"
            lines.append(f"{path} {names}{many}{shown}")
        for name, inner in getattr(command, "commands", {}).items():
            lines.append(f"{path} {name}")
            walk(inner, f"{path} {name}")

    walk(typer.main.get_command(app), "marginctl")
    return "\n".join(lines) + "\n"


def test_the_command_line_is_frozen():
    """A change of the surface is a change of the contract: change the file on purpose."""
    frozen = Path(__file__).parent / "cli" / "surface.txt"
    assert surface() == frozen.read_text()


def test_tests_mirror_the_package():
    folders = {p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and p.name[0] not in "_."}
    packages = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name[0] not in "_."}
    assert folders - {"smoke", "faults", "fuzz"} <= packages


def test_the_project_speaks_of_itself_alone():
    """No path of one machine in what is committed."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=False
    ).stdout.split("\n")
    for name in filter(None, listed):
        path = ROOT / name
        if path.is_file() and path.suffix in (".py", ".md", ".yaml", ".toml", ".txt", ""):
            text = path.read_text("utf-8")
            assert str(ROOT.parent) + "/" not in text, name
