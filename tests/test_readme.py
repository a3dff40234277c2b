"""Every command of the README and of the cluster page runs, on small stand-ins."""

import re
import shlex
from pathlib import Path

import pytest

from tests.place import make, small

ROOT = Path(__file__).parents[1]


def commands() -> list[str]:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line for b in blocks for line in b.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("marginctl ")]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make(tmp_path_factory.mktemp("place"))


@pytest.mark.parametrize("line", commands())
def test_a_command_runs(line, marginctl, place, monkeypatch):
    monkeypatch.chdir(place)
    arguments = shlex.split(line.split(" > ")[0], comments=True)[1:]
    ran = marginctl(*small(arguments, place))
    assert ran.status == 0, ran.err
