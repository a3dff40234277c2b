"""The README's objective of one's own, in one file, by real commands."""

import json
import re
import sys
from pathlib import Path

import pytest

from marginctl.utils import plugins

pytestmark = pytest.mark.smoke

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def focal(tmp_path, monkeypatch):
    """The file of the README, named by the variable; what it adds is gone afterwards."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (text,) = (block for block in blocks if "PLUGIN = " in block)
    assert len([line for line in text.splitlines() if line.strip()]) <= 15
    path = tmp_path / "focal.py"
    path.write_text(text)
    monkeypatch.setenv(plugins.FILES, str(path))
    plugins._load.cache_clear()
    yield path
    sys.modules.pop("focal", None)
    plugins._load.cache_clear()


def test_it_stands_beside_the_others(marginctl, focal, tmp_path):
    arguments = ("uci-cv", "--dataset", "iris", "--objective", "soft", "--objective", "focal")
    few = ("--folds", "3", "--repeats", "1", "--set", "protocol.epochs=2", "--workers", "1")
    found = marginctl(*arguments, *few, "--out", tmp_path / "runs", "--json", "--quiet")
    assert found.status == 0, found.err
    assert [c["objective"] for c in found.json["cells"]] == ["soft", "focal"]
    runs = [json.loads(p.read_text()) for p in (tmp_path / "runs").rglob("run.json")]
    named = [run.get("plugins") for run in runs]
    (own,) = [n for n in named if n]
    assert re.fullmatch(r"focal\.py [0-9a-f]{12}", own[0])
    # a file that was changed is another objective: its trial is computed anew
    focal.write_text(focal.read_text() + "# changed\n")
    sys.modules.pop("focal")
    plugins._load.cache_clear()
    assert marginctl(*arguments, *few, "--out", tmp_path / "runs", "--quiet").status == 0
    assert len(list((tmp_path / "runs").rglob("run.json"))) == 3
    assert "focal.py" in marginctl("objectives", "show", "focal").out


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("gone.py", None, "cannot be read: No such file"),
        ("random.py", "", "another module is named 'random'"),
        ("no name.py", "", "expected a Python file, NAME.py"),
        ("broken_plugin.py", "1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("empty_plugin.py", "", "has no attribute 'PLUGIN'"),
        ("other_plugin.py", "PLUGIN = 3", "expected a Plugin, got int"),
    ],
)
def test_a_file_that_is_none_is_named(marginctl, tmp_path, monkeypatch, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    monkeypatch.setenv(plugins.FILES, str(tmp_path / name))
    plugins._load.cache_clear()
    ran = marginctl("objectives", "list")
    assert ran.status == 2
    assert said in ran.err
    assert f"{plugins.FILES}={tmp_path / name}" in ran.err
    assert len(ran.err.splitlines()) == 1
    monkeypatch.delenv(plugins.FILES)
    sys.modules.pop(name.removesuffix(".py"), None) if "plugin" in name else None
    plugins._load.cache_clear()
