"""Space of runs folders: what is counted, and what is removed."""

import json

import pytest

from marginctl.errors import RequestError
from marginctl.runs.disk_usage import remove_runs, stored_runs
from marginctl.runs.run_dir import RunDir


@pytest.fixture
def root(tmp_path):
    """Two recipes: one with a finished and an unfinished trial, one with a finished trial."""
    for recipe, trial, finished in (("a", "one", True), ("a", "two", False), ("b/c", "one", True)):
        folder = tmp_path / recipe / trial
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"trial": trial}))
        (folder / "checkpoints" / "step.pt").write_bytes(bytes(1000))
        if finished:
            (folder / "result.json").write_text("{}")
    (tmp_path / "a" / "a.yaml").write_text("task: train\n")
    return tmp_path


def test_trials_and_bytes_by_folder(root):
    rows = [(row.folder, row.trials, row.finished, row.checkpoints) for row in stored_runs(root)]
    assert rows == [(str(root / "a"), 2, 1, 2000), (str(root / "b" / "c"), 1, 1, 1000)]
    written = len('{"trial": "one"}')
    assert [row.size for row in stored_runs(root)] == [2002 + 2 * written, 1002 + written]
    assert stored_runs(root / "a" / "one")[0].trials == 1


def test_only_checkpoints_of_finished_trials(root):
    assert remove_runs([root], checkpoints_only=True) == (2, [])
    assert [row.checkpoints for row in stored_runs(root)] == [1000, 0]
    assert (root / "a" / "one" / "result.json").exists()
    assert (root / "a" / "two" / "checkpoints" / "step.pt").exists()


def test_trials_their_recipe_and_their_folder_go(root):
    assert remove_runs([root / "a" / "one"], checkpoints_only=False) == (1, [])
    assert (root / "a" / "a.yaml").exists()  # of the other trial
    (root / "b" / "c" / "notes.txt").write_text("of the user")
    assert remove_runs([root], checkpoints_only=False) == (2, [])
    assert not (root / "a").exists()
    assert [path.name for path in (root / "b" / "c").iterdir()] == ["notes.txt"]


def test_folders_of_other_programs_stay(root):
    """Other programs write a run.json, too; a trial's names its folder."""
    for name, content in (("logs", '{"id": 1}'), ("copy", '{"trial": "one"}'), ("torn", "{")):
        (root / name).mkdir()
        (root / name / "run.json").write_text(content)
    assert remove_runs([root], checkpoints_only=False) == (3, [])
    assert sorted(path.name for path in root.iterdir()) == ["b", "copy", "logs", "torn"]


def test_what_cannot_be_removed_is_said(root, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shutil.rmtree", refuse)
    count, skipped = remove_runs([root / "b"], checkpoints_only=True)
    folder = root / "b" / "c" / "one" / "checkpoints"
    expected = [f"{folder}: cannot be removed: Permission denied: skipped"]
    assert (count, skipped) == (0, expected)


def test_a_trial_that_runs_stays(root):
    running = RunDir(root / "a" / "two")
    assert running.try_lock()
    count, skipped = remove_runs([root], checkpoints_only=False)
    running.unlock()
    assert (count, skipped) == (2, [f"{root / 'a' / 'two'}: is used by another process: skipped"])
    assert (root / "a" / "two" / "checkpoints" / "step.pt").exists()


def test_a_folder_without_trials_is_refused_before_anything_goes(root, tmp_path):
    with pytest.raises(RequestError, match="holds no trials: expected a runs folder"):
        remove_runs([root, tmp_path / "b" / "c" / "one" / "checkpoints"], checkpoints_only=False)
    assert len(stored_runs(root)) == 2
