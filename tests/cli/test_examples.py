"""The examples under each command's help, what a shell completes, and doctor."""

import json
import re
import shlex

import pytest

from marginctl.cli import COMMANDS, GROUPS, completion, examples
from tests.place import make, small

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make(tmp_path_factory.mktemp("place"))


LINES = [line for command in examples.EXAMPLES.values() for line in command]


@pytest.mark.parametrize("line", LINES)
def test_every_example_runs(line, marginctl, place, monkeypatch):
    monkeypatch.chdir(place)
    arguments = small(shlex.split(line)[1:], place)
    ran = marginctl(*arguments)
    assert ran.status == 0, ran.err
    assert ran.out or "report.html" in arguments


def test_every_command_has_examples_that_name_it():
    assert set(examples.EXAMPLES) == {*COMMANDS, *GROUPS}
    for command, lines in examples.EXAMPLES.items():
        assert all(line.startswith(f"marginctl {command}") for line in lines)
        assert all(f"`{line}`" in examples.of(command) for line in lines)


@pytest.mark.parametrize(
    ("of", "begin", "expected"),
    [
        (completion.recipe, "arcgrad/table1-", ["arcgrad/table1-fair", "arcgrad/table1-search"]),
        (completion.objective, "arcg", ["arcgrad"]),
        (completion.objective, "arcface:scale=3,m", ["arcface:scale=3,margin="]),
        (completion.objective, "nothing:", []),
        (completion.uci_set, "iri", ["iris"]),
        (completion.images, "fo", ["folder:"]),
        (completion.model, "mlp", ["mlp"]),
    ],
)
def test_what_a_shell_completes(of, begin, expected):
    assert of(begin) == expected


def test_a_shell_completes_by_the_program(monkeypatch, capsys):
    from marginctl.cli import run

    monkeypatch.setenv("_MARGINCTL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "marginctl uci-cv --objective arcg")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert run([]) == 0
    assert capsys.readouterr().out.split() == ["arcgrad"]


def of_topic(document, topic):
    return [f for f in document["findings"] if f["topic"] == topic]


def test_doctor_says_what_is_there(marginctl, place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    ran = marginctl("doctor", "--json", "--data-dir", tmp_path / "data")
    assert ran.status == 0, ran.out
    assert ran.json["problems"] == 0
    (runs,) = of_topic(ran.json, "runs")
    assert runs["state"] == "ok"
    assert "not" in runs["said"]
    assert "marginctl report runs" in runs["advice"]
    (packages,) = of_topic(ran.json, "packages")
    assert "torch " in packages["said"]
    assert {"dask", "pretrained", "tensorboard", "timm"} == {
        f["said"].partition(":")[0] for f in of_topic(ran.json, "extra")
    }
    (uci,) = of_topic(ran.json, "UCI sets")
    assert uci["said"].startswith("2 of 15: ")  # those that are built in
    assert uci["advice"] == "marginctl data fetch"
    (folder,) = of_topic(ran.json, "data folder")
    assert "made when it is needed" in folder["said"]
    assert "elsewhere" in folder["advice"]  # its name may be a slip
    text = marginctl("doctor").out
    assert all(topic in text for topic in ("threads", "device", "recipes", "-> "))


def test_doctor_breaks_no_word_on_a_narrow_terminal(marginctl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    wide = marginctl("doctor").out
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "70")
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", marginctl("doctor").out)
    assert max(map(len, wide.splitlines())) > 70
    assert max(map(len, narrow.splitlines())) <= 70
    for text in (wide, narrow):
        assert all(line.strip() for line in text.splitlines())
    assert narrow.split("run store")[0].split() == wide.split("run store")[0].split()


def test_doctor_names_what_is_amiss(marginctl, place, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    unfinished = tmp_path / "runs" / "r" / "t"
    unfinished.mkdir(parents=True)
    (unfinished / "run.json").write_text(json.dumps({}))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    ran = marginctl("doctor", "--json", "--data-dir", tmp_path / "file", "--out", tmp_path / "runs")
    assert ran.status == 1
    assert ran.json["problems"] == 1
    (data,) = of_topic(ran.json, "data folder")
    assert data["state"] == "problem"
    assert "is no folder" in data["said"]
    assert of_topic(ran.json, "runs")[0]["said"] == "0 finished, 1 not"
    assert "no folder" in marginctl("doctor", "--data-dir", tmp_path / "file").out
    ran = marginctl("doctor", "--device", "cuda:99")
    assert ran.status == 2
    assert "--device cuda:99" in ran.err


def test_doctor_names_a_package_that_is_too_old_or_gone(marginctl, monkeypatch):
    from importlib import metadata

    from marginctl import doctor

    wanted = ["numpy>=99", "not-there>=1", "timm>=99; extra == 'timm'", "torch>=2"]
    monkeypatch.setattr(metadata, "requires", lambda name: wanted)
    found = marginctl("doctor", "--json").json["findings"]
    problems = [f["said"] for f in found if f["state"] == "problem"]
    assert problems[0].startswith("numpy ")
    assert "expected >=99" in problems[0]
    assert problems[1] == "not-there is not installed"
    advice = [f["advice"] for f in found if f["state"] == "problem"]
    assert advice == ["pip install 'numpy>=99'", "pip install 'not-there>=1'"]
    assert any(f["said"] == "timm: no timm" for f in found)
    assert doctor.OF_TESTS == "test"
