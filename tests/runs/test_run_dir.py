"""The run store: whole or absent, resumed by presence, locked."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import time

import pytest

from marginctl.errors import StorageError
from marginctl.runs import atomic_io, run_dir
from marginctl.runs.atomic_io import TEMPORARY, write_atomically, write_json
from marginctl.runs.base_record import Result
from marginctl.runs.run_dir import RunDir, digest, file_digest, git_commit, versions


def finished(path):
    folder = RunDir(path)
    assert folder.try_lock()
    folder.start({"trial": "t"})
    document = {"trial": "t", "objective": "soft", "seed": 0, "accuracies": [[1.0]]}
    result = Result.model_validate({**document, "timing": {"seconds": 0.5}})
    folder.finish([{"epoch": 1, "loss": 0.5}], result)
    folder.unlock()
    return folder


def test_a_finished_trial_is_found(tmp_path):
    folder = finished(tmp_path / "t")
    saved = folder.load_result(Result)
    assert saved.problem is None
    assert saved.result.accuracies == [[1.0]]
    run = json.loads((folder.path / "run.json").read_text())
    assert run["versions"] == versions()
    assert set(run["timing"]) == {"started", "host"}
    assert [json.loads(line) for line in (folder.path / "metrics.jsonl").open()] == [
        {"epoch": 1, "loss": 0.5}
    ]


def test_nothing_there_is_no_result_and_no_complaint(tmp_path):
    assert RunDir(tmp_path / "t").load_result(Result) == run_dir.SavedResult(None)


@pytest.mark.parametrize("at", ["every byte"])
def test_a_flipped_or_missing_byte_anywhere_is_seen(tmp_path, at):
    folder = finished(tmp_path / "t")
    path = folder.path / "result.json"
    whole = path.read_bytes()
    for i in range(len(whole)):
        for damaged in (whole[:i], whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :]):
            path.write_bytes(damaged)
            saved = folder.load_result(Result)
            if saved.result is not None:  # blanks between tokens carry nothing
                assert json.loads(damaged) == json.loads(whole)
            else:
                assert "recomputing" in saved.problem


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl"])
def test_a_flipped_or_missing_byte_beside_it_is_seen(tmp_path, name):
    folder = finished(tmp_path / "t")
    path = folder.path / name
    whole = path.read_bytes()
    for i in range(0, len(whole), 7):
        for damaged in (whole[:i], whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :]):
            path.write_bytes(damaged)
            saved = folder.load_result(Result)
            assert f"{name} is missing or corrupt" in saved.problem
            # what a result says does not hang on run.json, which is written anew
            assert (saved.result is not None, saved.run_json_intact) == (
                (True, False) if name == "run.json" else (False, True)
            )


@pytest.mark.parametrize("content", ["", "[]", "null", "3", "{}", '{"sha256": 1}', "\x00"])
def test_foreign_content_is_damage(tmp_path, content):
    (tmp_path / "result.json").write_text(content)
    assert "corrupt" in RunDir(tmp_path).load_result(Result).problem


@pytest.mark.parametrize("package", ["torch", "numpy"])
def test_another_version_starts_anew_and_says_so(tmp_path, package, monkeypatch):
    folder = finished(tmp_path / "t")
    newer = {**versions(), package: "99.1"}
    monkeypatch.setattr(run_dir, "versions", lambda: newer)
    saved = folder.load_result(Result)
    assert saved.result is None
    assert f"from {package} {versions()[package]}, this is 99.1: recomputing" in saved.problem


def test_writing_is_atomic_when_killed_at_any_step(tmp_path, monkeypatch):
    path = tmp_path / "f.json"
    write_json(path, {"a": 1})
    for step in ("fsync", "replace", "chmod"):

        def die(*_args):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(atomic_io.os, step, die)
            with pytest.raises(KeyboardInterrupt):
                write_json(path, {"a": 2})
        assert json.loads(path.read_text()) == {"a": 1}
        assert not list(tmp_path.glob(f"{TEMPORARY}*"))


def test_stale_temporaries_are_swept_with_the_lock(tmp_path):
    (tmp_path / f"{TEMPORARY}xyz").write_text("half")
    folder = RunDir(tmp_path)
    assert folder.try_lock()
    folder.unlock()
    assert not list(tmp_path.glob(f"{TEMPORARY}*"))


def test_a_full_disk_is_one_line_and_harms_nothing(tmp_path, monkeypatch):
    path = tmp_path / "f.json"
    write_json(path, {"a": 1})

    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_io.os, "fsync", full)
    with pytest.raises(
        StorageError, match=r"the disk is full: 12 bytes needed, \d+ free"
    ) as caught:
        write_json(path, {"a": 2})
    assert len(caught.value.lines) == 1
    assert caught.value.exit_status == 1
    assert json.loads(path.read_text()) == {"a": 1}


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        write_atomically(tmp_path / "file" / "x.json", "")
    with pytest.raises(StorageError, match="cannot be written"):
        RunDir(tmp_path / "file" / "t").try_lock()


def _hold(path, ready):
    folder = RunDir(path)
    assert folder.try_lock()
    ready.set()
    time.sleep(60)


def test_a_second_process_sees_the_lock_and_takes_over_a_dead_ones(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_hold, args=(tmp_path, ready))
    process.start()
    assert ready.wait(60)
    folder = RunDir(tmp_path)
    assert not folder.try_lock()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert folder.try_lock()
    folder.unlock()


def test_json_refuses_nan(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"a": float("nan")})


def test_digest_ignores_the_order_of_keys():
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest({"a": [1, 2]}) != digest({"a": [2, 1]})


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_of_the_checkout(tmp_path, monkeypatch):
    git_commit.cache_clear()
    (tmp_path / "marginctl").mkdir()
    monkeypatch.setattr(run_dir.marginctl, "__file__", str(tmp_path / "marginctl" / "__init__.py"))
    assert git_commit() is None
    git_commit.cache_clear()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    assert len(git_commit()) == 40
    git_commit.cache_clear()


def test_what_is_no_file_has_no_digest_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "", "absent"):
        assert file_digest(tmp_path / name) is None


WINDOWS_DEVICES = {
    "con",
    "prn",
    "aux",
    "nul",
    *(f"{d}{i}" for d in ("com", "lpt") for i in range(10)),
}


def test_names_of_files_and_folders_are_allowed_on_windows(marginctl, tmp_path):
    """No colon or other reserved character, no device, no dot or blank at the end."""
    table = tmp_path / "what: a <table>? .csv"
    table.write_text("x,kind\n" + "".join(f"{i * 0.37 % 1:.3f},{i % 2}\n" for i in range(40)))
    store = tmp_path / "with blanks"
    quick = ("--quiet", "--out", store)
    network = ("--data", "digits", "--model", "mlp:width=8", "--objective", "cosine:scale=5")
    for arguments in (
        ("uci-cv", "--csv", table, "--target", "kind", "--no-tune", "--set", "protocol.epochs=1"),
        ("train", *network, "--epochs", "1", "--no-tune", "--device", "cpu"),
    ):
        assert marginctl(*arguments, *quick).status == 0
    names = {part for p in store.rglob("*") for part in p.relative_to(store).parts}
    assert len(names) > 10
    for name in names:
        assert not set(name) & set('<>:"|?*\\'), name
        assert not name.endswith((".", " ")), name
        assert name.partition(".")[0].lower() not in WINDOWS_DEVICES, name
