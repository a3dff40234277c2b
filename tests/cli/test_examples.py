"""The examples of each command, shell completion, and doctor."""

import re
import shlex
import sys

import pytest

from marginctl.cli import COMMANDS, GROUPS, completion, examples
from tests.documented_commands import create_files, runnable

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return create_files(tmp_path_factory.mktemp("place"))


LINES = [line for command in examples.EXAMPLES.values() for line in command]


@pytest.mark.parametrize("line", LINES)
def test_every_example_runs(line, marginctl, folder, monkeypatch):
    monkeypatch.chdir(folder)
    arguments = runnable(shlex.split(line)[1:], folder)
    ran = marginctl(*arguments)
    assert ran.status == 0, ran.err
    assert ran.out or "report.html" in arguments


def test_every_command_has_examples_that_name_it():
    assert set(examples.EXAMPLES) == {*COMMANDS, *GROUPS}
    for command, lines in examples.EXAMPLES.items():
        assert all(line.startswith(f"marginctl {command}") for line in lines)
        assert all(f"\n  {line}" in examples.epilog(command) for line in lines)


@pytest.mark.parametrize(
    ("complete", "prefix", "expected"),
    [
        (completion.recipe, "arcgrad/table1-", ["arcgrad/table1-fair", "arcgrad/table1-search"]),
        (completion.objective, "arcg", ["arcgrad"]),
        (completion.objective, "arcface:scale=3,m", ["arcface:scale=3,margin="]),
        (completion.objective, "nothing:", []),
        (completion.uci_set, "iri", ["iris"]),
        (completion.images, "fo", ["food-101", "folder:"]),
        (completion.model, "mlp", ["mlp"]),
    ],
)
def test_shell_completion(complete, prefix, expected):
    assert complete(prefix) == expected


def test_shell_completion_by_the_command(monkeypatch, capsys):
    from marginctl.cli import run

    monkeypatch.setenv("_MARGINCTL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "marginctl uci-cv --objective arcg")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert run([]) == 0
    assert capsys.readouterr().out.split() == ["arcgrad"]


def findings_on(document, topic):
    return [f for f in document["findings"] if f["topic"] == topic]


def test_doctor_reports_folders_packages_and_data(marginctl, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    ran = marginctl("doctor", "--json", "--data-dir", tmp_path / "data")
    assert ran.status == 0, ran.out
    assert ran.json["problems"] == 0
    (packages,) = findings_on(ran.json, "packages")
    assert packages["text"] == f"{packages['details'].count(',') + 1} as required"
    assert "torch " in packages["details"]
    assert "timm " in packages["details"]  # of an extra
    (uci,) = findings_on(ran.json, "UCI sets")
    assert (uci["text"], uci["details"].count(",")) == ("2 of 15", 1)  # those that are built in
    assert uci["advice"] == "marginctl data fetch"
    (folder,) = findings_on(ran.json, "data folder")
    assert "created on first use" in folder["text"]
    assert "elsewhere" in folder["advice"]  # its name may be a slip
    text = marginctl("doctor").out
    assert all(topic in text for topic in ("threads", "device", "-> "))
    assert len(text.splitlines()) <= 14  # 10 topics at most, and their advice
    assert "torch 2" not in text
    assert "torch 2" in marginctl("doctor", "-v").out


def test_doctor_wraps_between_words(marginctl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    wide = marginctl("doctor", "-v").out
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "70")
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", marginctl("doctor", "-v").out)
    assert max(map(len, wide.splitlines())) > 70
    assert max(map(len, narrow.splitlines())) <= 70
    for text in (wide, narrow):
        assert all(line.strip() for line in text.splitlines())
    assert narrow.split("runs folder")[0].split() == wide.split("runs folder")[0].split()


def test_doctor_reports_problems(marginctl, folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    ran = marginctl("doctor", "--json", "--data-dir", tmp_path / "file", "--out", tmp_path / "runs")
    assert ran.status == 1
    assert ran.json["problems"] == 1
    (data,) = findings_on(ran.json, "data folder")
    assert data["state"] == "problem"
    assert "is not a folder" in data["text"]
    assert "not a folder" in marginctl("doctor", "--data-dir", tmp_path / "file").out
    ran = marginctl("doctor", "--device", "cuda:99")
    assert ran.status == 2
    assert "--device cuda:99" in ran.err


def test_doctor_reports_outdated_and_missing_packages(marginctl, monkeypatch):
    from importlib import metadata

    wanted = ["numpy>=99", "not-there>=1", "timm>=99; extra == 'timm'", "torch>=2"]
    wanted += ["no-dask>=1; extra == 'dask'", "no-worker>=1; extra == 'dask'"]
    monkeypatch.setattr(metadata, "requires", lambda name: wanted)
    found = marginctl("doctor", "--json").json["findings"]
    problems = [f["text"] for f in found if f["state"] == "problem"]
    assert problems[0].startswith("numpy ")
    assert "expected >=99" in problems[0]
    assert problems[1] == "not-there is not installed, expected >=1"
    advice = [f["advice"] for f in found if f["state"] == "problem"]
    assert advice == ["pip install 'numpy>=99'", "pip install 'not-there>=1'"]
    (extras,) = [f for f in found if f["topic"] == "extras"]
    assert extras["text"] == "not installed: timm,dask"
    assert extras["advice"] == "optional: pip install 'marginctl[timm,dask]'"
    assert extras["details"] == "packages: timm, no-dask, no-worker"
