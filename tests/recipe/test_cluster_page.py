"""The page on clusters: every command of it is accepted, on a small stand-in where it trains."""

import re
import shlex

import pytest

from marginctl.recipe.load import recipes_folder

TEXT = (recipes_folder() / "cluster.md").read_text("utf-8")


def commands():
    """The command lines of marginctl in the page, those after srun and torchrun among them."""
    joined = TEXT.replace("\\\n", " ")
    found = re.findall(r"(?:^|-m |srun |\")marginctl (.+)", joined, re.MULTILINE)
    return [line.removesuffix(" &").removesuffix(' --scheduler"') for line in found]


def test_the_page_has_them_all():
    assert len(commands()) == 9
    assert {line.split()[0] for line in commands()} == {"train", "uci-cv", "report"}


@pytest.mark.parametrize("line", commands())
def test_its_commands_are_accepted(line, marginctl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    arguments = [str(tmp_path / "runs") if a == "/shared/runs" else a for a in shlex.split(line)]
    if arguments[-1] == "dask":
        arguments += ["--scheduler", "tcp://127.0.0.1:9"]
    if "--backend" in arguments:  # all its options are read: what is missing is a scheduler alone
        ran = marginctl(*arguments, "--offline", "--dry-run")
        assert ran.status == 2
        assert "no dask scheduler answers there" in ran.err
        return
    if arguments[0] == "train":
        arguments += [
            "--data",
            "digits",
            "--model",
            "mlp",
            "--dry-run",
            "--set",
            "data.subset_size=50",
        ]
        arguments += ["--set", "data.augment=none", "--set", "train.batch_size=10"]
    ran = marginctl(*arguments)
    assert ran.status == 0, ran.err
