"""Every command of the README and of the recipes' pages runs, on small stand-ins."""

import re
import shlex
from pathlib import Path

import pytest

from tests.documented_commands import create_files, runnable

ROOT = Path(__file__).parents[1]


PAGES = [ROOT / "README.md", ROOT / "recipes" / "benchmarks.md"]
PAGES += sorted((ROOT / "recipes").glob("*/README.md"))


def commands() -> list[str]:
    """The command lines in the pages' shell blocks, each once."""
    lines = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            lines += block.replace("\\\n", " ").splitlines()
    return list(dict.fromkeys(line for line in lines if line.startswith("marginctl ")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return create_files(tmp_path_factory.mktemp("place"))


@pytest.mark.parametrize("line", commands())
def test_a_command_runs(line, marginctl, folder, monkeypatch):
    monkeypatch.chdir(folder)
    arguments = shlex.split(line.split(" > ")[0], comments=True)[1:]
    ran = marginctl(*runnable(arguments, folder))
    assert ran.status == 0, ran.err
