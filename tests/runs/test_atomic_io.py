"""Outputs of the user: what is refused before the work, and what is never overwritten."""

import os
import subprocess
import sys

import pytest

from marginctl.errors import RequestError, StorageError
from marginctl.runs.atomic_io import check_outputs, write_output


def refusal(*args, **kwargs):
    with pytest.raises(RequestError) as caught:
        check_outputs(*args, **kwargs)
    assert len(caught.value.lines) == 1
    return str(caught.value)


def run_directory(folder, record="run.json"):
    (folder / "checkpoints").mkdir(parents=True)
    (folder / record).write_text("{}")
    return folder


@pytest.mark.parametrize("record", ["run.json", "result.json"])
@pytest.mark.parametrize(
    "name",
    [
        "run.json",
        "result.json",
        "metrics.jsonl",
        "new.csv",
        "checkpoints/step-1.pt",
        "figures/a.png",
    ],
)
def test_a_file_of_a_run_directory_is_refused(tmp_path, record, name):
    run = run_directory(tmp_path / "run", record)
    line = refusal({"--save": run / name})
    assert line.startswith(f"--save {run / name}: lies in a run directory")
    link = tmp_path / "link"
    link.symlink_to(run / name)
    assert "lies in a run directory" in refusal({"--save": link})
    assert "lies in a run directory" in refusal({}, folders={"--figures": run / "checkpoints"})
    assert not (run / "figures").exists()


def test_an_input_and_the_file_of_another_option_are_refused(tmp_path):
    path, link = tmp_path / "in.csv", tmp_path / "link.csv"
    path.write_text("a")
    link.symlink_to(path)
    for output in (path, link, tmp_path / "x" / ".." / "in.csv"):
        assert refusal({"--save": output}, [path]) == (
            f"--save {output}: is an input of this command: name another file"
        )
    both = {"--save": tmp_path / "a", "--figure": tmp_path / "a"}
    assert refusal(both) == (f"--figure {tmp_path / 'a'}: is the file of --save: name another file")
    check_outputs({"--save": tmp_path / "a", "--figure": tmp_path / "b", "--other": None}, [path])


@pytest.mark.parametrize("mode", [0o444, 0o400, 0o555])
def test_a_read_only_file_is_refused_and_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "a.csv"
    path.write_text("old")
    path.chmod(mode)
    assert refusal({"--output": path}) == (
        f"--output {path}: is read-only: name another file, or make it writable"
    )
    with pytest.raises(StorageError, match="is read-only"):
        write_output(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("old", mode)


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_a_replaced_file_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "a.csv"
    path.write_text("old")
    path.chmod(mode)
    check_outputs({"--output": path})
    write_output(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", mode)


def test_no_file_is_named_by_a_dash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from pathlib import Path

    assert refusal({"--save": Path("-")}) == "--save -: stdout has the results: name a file"
    with pytest.raises(RequestError, match="--figures -: stdout has the results: name a folder"):
        check_outputs({}, folders={"--figures": Path("-")})
    assert os.listdir() == []
    check_outputs({"--save": Path("/dev/stdout")})


@pytest.mark.parametrize("earlier", ["", "a line\n", "a\nb\n" * 9])
def test_stdout_that_is_a_file_keeps_its_lines(tmp_path, earlier):
    log = tmp_path / "log"
    log.write_text(earlier)
    code = "from marginctl.runs.atomic_io import write_output; from pathlib import Path\n"
    code += "write_output(Path('/dev/stdout'), 'new')"
    with log.open("a") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert log.read_text() == f"{earlier}new"


@pytest.mark.parametrize("name", ["iris", "folder-d-mlp", "a b"])
def test_the_recipe_of_runs_is_not_overwritten(tmp_path, name):
    folder = tmp_path / name
    recipe = folder / f"{name}.yaml"
    folder.mkdir()
    recipe.write_text("task: train")
    check_outputs({"--output": recipe})
    (folder / "trial").mkdir()
    (folder / "trial" / "run.json").write_text("{}")
    assert refusal({"--output": recipe}).endswith(
        "is the recipe of the runs there: name another file"
    )
    check_outputs({"--output": folder / "report.yaml"})
