"""Following trials that are being trained."""

import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest

from marginctl.reports import followed, watch
from marginctl.reports.followed import Reader, State, last_line
from marginctl.results.collect import collect
from marginctl.runs.run_dir import TrialFolder
from tests.reports.stores import change_run, copied, make, trial

pytestmark = pytest.mark.smoke

TRAIN = "train --data digits --model mlp --objective soft --objective cosine --quiet"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make(tmp_path_factory.mktemp("whole") / "store")


@pytest.fixture
def half(whole, tmp_path):
    """A store in which one trial of train has no result."""
    store = copied(whole, tmp_path / "half")
    (trial(store, "digits-mlp-soft") / "result.json").unlink()
    return store


def started(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "marginctl", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(what, process):
    deadline = time.monotonic() + 60
    while not what():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def state_of(store, start="digits-mlp-soft"):
    return next(t for t in Reader().follow([store]) if t.name.startswith(start))


def test_a_running_train_is_followed_to_its_end(marginctl, tmp_path):
    store = tmp_path / "runs"
    process = started(*TRAIN.split(), "--epochs", 40, "--out", store)
    wait_for(lambda: list(store.rglob("metrics.jsonl")), process)
    seen = state_of(store)
    assert seen.state is State.running
    assert seen.progress.startswith("epoch ")
    assert seen.progress.endswith(" of 40")
    ran = marginctl("report", store, "--watch", "--every", "0.1")
    assert process.wait(60) == 0, process.stderr.read()  # nobody took its locks
    assert ran.status == 0
    assert "digits-mlp-soft-0-" in ran.err
    assert "running, epoch " in ran.err
    assert ran.err.splitlines()[-1] == "2 finished"
    assert len(list(store.rglob("result.json"))) == 2
    assert "digits, mlp" in ran.out
    assert not ran.out.startswith("{")


def test_ctrl_c_is_130_and_a_trial_of_a_dead_process_is_stopped(half):
    assert state_of(half).state is State.stopped
    process = started("report", half, "--watch", "--every", "0.2")
    line = process.stderr.readline()
    assert "stopped, epoch 1 of 1, checkpoint at step 12, loss " in line
    assert process.stderr.readline() == "3 finished, 1 stopped\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err == "error: interrupted\n"


def test_no_lock_is_taken_and_held_ones_are_seen(half, monkeypatch):
    folder = TrialFolder(trial(half, "digits-mlp-soft"))
    assert folder.try_lock()
    try:
        held = followed.held_locks()
        assert held is not None
        assert os.stat(folder.path / ".lock").st_ino in held
        monkeypatch.setattr(fcntl, "flock", lambda *a: pytest.fail("a lock was tried"))
        assert state_of(half).state is State.running
        assert not state_of(half).over
    finally:
        monkeypatch.undo()
        folder.unlock()
    assert state_of(half).state is State.stopped


def test_a_finished_trial_that_is_still_locked_is_not_over(whole):
    folder = TrialFolder(trial(whole, "digits-mlp-soft"))
    assert state_of(whole).over
    assert folder.try_lock()
    try:
        seen = state_of(whole)
        assert (seen.state, seen.over) == (State.finished, False)
    finally:
        folder.unlock()


def test_where_locks_cannot_be_seen_a_recent_change_is_work(half, monkeypatch, tmp_path):
    monkeypatch.setattr(followed, "LOCKS", tmp_path / "none")
    assert followed.held_locks() is None
    assert state_of(half).state is State.running
    later = time.time() + followed.ALIVE + 1
    (seen,) = (t for t in Reader().follow([half], later) if t.name.startswith("digits-mlp-soft"))
    assert seen.state is State.stopped
    assert seen.age == pytest.approx(followed.ALIVE + 1, abs=60)


def test_a_line_that_is_being_written_is_passed_over(half):
    folder = trial(half, "digits-mlp-soft")
    path = folder / "metrics.jsonl"
    whole_line = path.read_text()
    assert last_line(str(folder))["epoch"] == 1
    for torn in ('{"epoch": 2, "tr', '{"epoch": 2}', "\n\n", '{"epoch": 2,}\n', "\xff\x00\n"):
        path.write_text(whole_line + torn)
        assert last_line(str(folder))["epoch"] == 1
    path.write_text("x" * 10**6 + "\n" + whole_line)
    assert last_line(str(folder))["epoch"] == 1
    path.unlink()
    assert last_line(str(folder)) is None
    os.mkfifo(path)
    assert last_line(str(folder)) is None


def test_failed_and_damaged_trials_end_the_watch(marginctl, half):
    (trial(half, "digits-mlp-soft") / "error.txt").write_text("Traceback")
    (trial(half, "digits-mlp-cosine") / "run.json").write_text("[]")
    ran = marginctl("report", half, "--watch", "--every", "0.1")
    assert ran.status == 0
    assert "failed, epoch 1 of 1" in ran.err
    assert "run.json is damaged (a list: expected an object)" in ran.err
    assert "2 finished, 1 failed, 1 damaged" in ran.err
    assert "iris" in ran.out


def test_what_has_not_changed_is_read_once(whole, monkeypatch):
    reads = []
    read_run = followed.read_run
    monkeypatch.setattr(followed, "read_run", lambda f: reads.append(f) or read_run(f))
    reader = Reader()
    for _ in range(3):
        reader.follow([whole])
        assert len(collect([whole], reader.read).tables) == 1
    assert len(reads) == 4


def test_on_a_terminal_it_is_drawn(marginctl, half, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    folder = trial(half, "digits-mlp-soft")
    drawn = []

    def finish(seconds):
        drawn.append(seconds)
        if len(drawn) == 2:
            (folder / "error.txt").write_text("Traceback")

    monkeypatch.setattr(watch.time, "sleep", finish)
    with watch.Watching() as display:
        display.show(Reader().follow([half]), collect([half]))
        console = display.console
        with console.capture() as captured:
            console.print(display._render())
    shown = captured.get()
    for word in ("3 finished, 1 stopped", "epoch 1 of 1", "ago", "iris", "accuracy"):
        assert word in shown
    ran = marginctl("report", half, "--watch")
    assert ran.status == 0
    assert drawn == [2.0] * 3


def test_names_are_escaped(marginctl, half):
    folder = trial(half, "digits-mlp-soft")
    (folder / "error.txt").write_text("x")
    folder.rename(folder.with_name("a\x1b[2J\nb"))
    change_run(trial(half, "iris-soft"), recipe__name="r\x1b]0;t\x07")
    ran = marginctl("report", half, "--watch", "--every", "0.1")
    assert "\x1b" not in ran.err + ran.out
    assert "a\\x1b[2J\\nb: failed" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--watch",), "STORE is missing"),
        (("--watch", "nowhere"), "no run store at nowhere"),
        (("--every", "1", "S"), "--every 1: says how often --watch looks: add --watch"),
        (("--watch", "S", "--every", "0"), "--every"),
        (("--watch", "S", "--format", "json"), "--format: not beside --watch"),
        (("--watch", "S", "--paper", "arcgrad"), "--paper: not beside --watch"),
    ],
)
def test_mistakes(marginctl, whole, arguments, message):
    ran = marginctl("report", *(whole if a == "S" else a for a in arguments))
    assert ran.status == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""
