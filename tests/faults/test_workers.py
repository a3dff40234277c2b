"""Trials side by side: the results of one after another, whoever is killed or stopped."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.faults.harness import Command, records
from tests.faults.scenarios import without_seconds

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="no /proc")

DIGITS = ("train", "--data", "digits", "--model", "mlp:width=16", "--device", "cpu", "--json")
DIGITS += ("--set", "data.subset_size=300", "--no-tune")
TWICE = "similarity=cosine;scale=fixed(from_run=cosine-ls,times=2)"
LONG = [*DIGITS, "--objective", "soft", "--objective", "adacos", "--seeds", "2"]
LONG += ["--epochs", "200", "--checkpoint-minutes", "0.001"]
ALONE, SIDE_BY_SIDE = (Command([*LONG, "--workers", str(n)]) for n in (1, 2))


def numbers(stdout):
    """What a command printed, without seconds."""
    return without_seconds(json.loads(stdout)["cells"])


def both_ways(tmp_path, arguments, status=0):
    """Run a command in this process and with two workers: the same records and output."""
    found = []
    for workers in ("1", "2"):
        out = tmp_path / workers
        process = Command([*arguments, "--workers", workers]).start(out, text=True)
        stdout, stderr = process.communicate(timeout=300)
        assert process.returncode == status, stderr
        assert ("2 trials run side by side" in stderr) == (workers == "2")
        errors = [line for line in stderr.splitlines() if line.startswith("error: ")]
        found.append((records(out), numbers(stdout), errors))
        assert not list(out.rglob(".tmp-*"))
    assert found[0] == found[1]
    return found[0]


def test_scales_from_other_trials_and_diverged_ones(tmp_path):
    """What depends on a trial waits for it; one that diverges stops no other."""
    arguments = [*DIGITS, "--objective", "cosine-ls", "--objective", TWICE, "--seeds", "2"]
    arguments += ["--epochs", "2", "--set", "grid.optim.lr=[0.01, 1e6]"]
    trained, _, errors = both_ways(tmp_path, arguments, status=1)
    results = [result for _, result, _ in trained.values()]
    assert sum(r["diverged"] is None for r in results) == 4
    assert sum("scale_from" in run for run, *_ in trained.values()) == 2
    assert sum(": diverged: " in line for line in errors) == 2
    assert sum(": not trained: " in line for line in errors) == 2


def test_second_stages_and_tuning(tmp_path):
    recipe = tmp_path / "tail.yaml"
    recipe.write_text(
        "task: train\ndata: {name: digits, subset_size: 200, val_fraction: 0.2}\n"
        "model: mlp:width=8\nobjectives: [soft, adacos]\ntrain: {epochs: 2}\n"
        "second_stage: {epochs: 1}\n"
    )
    trained, *_ = both_ways(tmp_path, ["train", recipe, "--device", "cpu", "--json"])
    assert len(trained) == 4
    tuned = [a for a in DIGITS if a != "--no-tune"] + ["--tune", "--epochs", "4"]
    both_ways(tmp_path / "tuned", [*tuned, "--objective", "soft", "--objective", "center"])


def test_transfer_and_cosify(tmp_path):
    """Probes share their features in the parent; fine-tuned networks train in workers."""
    Command([*DIGITS, "--objective", "soft", "--epochs", "1"]).run(tmp_path / "source")
    (source,) = (path.parent for path in (tmp_path / "source").rglob("result.json"))
    common = ["--from", source, "--device", "cpu", "--json", "--epochs", "1"]
    data = ["--data", "digits", "--set", "data.subset_size=100", "--method", "probe"]
    arguments = ["transfer", *common, *data, "--method", "fine-tune", "--seeds", "2"]
    trained, *_ = both_ways(tmp_path / "transfer", arguments)
    assert len(trained) == 4
    trained, *_ = both_ways(
        tmp_path / "cosify", ["cosify", *common, "--blocks", "4", "--blocks", "1-4"]
    )
    assert len(trained) == 2


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    ALONE.run(out)
    return records(out)


def started(command, out):
    """A process, once two of its trials have a checkpoint, and the ids of its workers."""
    process = command.start(out)
    deadline = time.monotonic() + 120
    while len({path.parent for path in out.rglob("step-*.pt")}) < 2:
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return process, [pid for pid in children(process.pid) if b"spawn_main" in command_line(pid)]


def wait_until_dead(group, seconds=1.0):
    """Wait until no process of a group runs; init may take longer to collect the dead."""
    deadline = time.monotonic() + seconds
    while running := [
        pid
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc")))
        if is_running(pid, group)
    ]:
        assert time.monotonic() < deadline, running
        time.sleep(0.02)


def is_running(pid, group):
    try:
        state, _, process_group = (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:3]
        )
    except OSError:
        return False
    return int(process_group) == group and state not in "ZX"


def children(pid):
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def command_line(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_the_workers_of_a_killed_parent_leave_within_a_second(tmp_path, undisturbed):
    process, workers = started(SIDE_BY_SIDE, tmp_path)
    assert len(workers) == 2
    process.kill()
    process.wait()
    wait_until_dead(process.pid)
    ran = SIDE_BY_SIDE.run(tmp_path)
    assert ran.stderr.count("resuming from step") == 2
    assert records(tmp_path) == undisturbed


@pytest.mark.parametrize(
    ("send", "number", "status"),
    [(os.kill, signal.SIGTERM, 143), (os.killpg, signal.SIGINT, 130)],
)
def test_a_signal_leaves_checkpoints_of_all_trials(tmp_path, undisturbed, send, number, status):
    process, _ = started(SIDE_BY_SIDE, tmp_path)
    send(process.pid, number)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (status, b"")
    assert stderr.decode().count("has a checkpoint at step") == 2
    assert "Traceback" not in stderr.decode()
    wait_until_dead(process.pid)
    ran = ALONE.run(tmp_path)
    assert ran.stderr.count("resuming from step") == 2
    assert records(tmp_path) == undisturbed


def test_a_second_signal_ends_at_once(tmp_path):
    process, workers = started(SIDE_BY_SIDE, tmp_path)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)  # no checkpoint is written
    for _ in range(2):
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 143
    assert "Traceback" not in stderr.decode()
    wait_until_dead(process.pid)


@pytest.mark.parametrize("killed", [1, 2])
def test_a_killed_worker_fails_its_trial_alone(tmp_path, undisturbed, killed):
    process, workers = started(SIDE_BY_SIDE, tmp_path)
    for worker in workers[:killed]:
        os.kill(worker, signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    lines = [li for li in stderr.decode().splitlines() if li.startswith("error: ")]
    assert len(lines) == killed
    assert all("its worker process has died (SIGKILL)" in line for line in lines)
    assert "Traceback" not in stderr.decode()
    assert json.loads(stdout)["failed"] == [line.removeprefix("error: ") for line in lines]
    assert len(list(tmp_path.rglob("result.json"))) == 4 - killed
    SIDE_BY_SIDE.run(tmp_path)
    assert records(tmp_path) == undisturbed


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_image_that_becomes_unreadable_is_one_line(tmp_path, workers):
    paths = [tmp_path / "train" / "ab"[i % 2] / f"{i}.png" for i in range(40)]
    for path in [*paths, *(tmp_path / "val" / name / "0.png" for name in "ab")]:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
        Image.fromarray(pixels).save(path)
    arguments = ["train", "--data", f"folder:{tmp_path}", "--model", "mlp:width=8", "--no-tune"]
    arguments += ["--set", "data.load=stream", "--set", "data.image_size=16", "--epochs", "1000"]
    arguments += ["--set", "train.batch_size=4", "--checkpoint-minutes", "0", "--device", "cpu"]
    arguments += ["--objective", "soft", "--objective", "center", "--workers", workers]
    process = Command(arguments).start(tmp_path / "out")
    while not list((tmp_path / "out").rglob("step-*.pt")):
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.005)
    for path in paths:
        path.write_bytes(path.read_bytes()[:100])
    _, stderr = process.communicate(timeout=60)
    (line,) = [li for li in stderr.decode().splitlines() if li.startswith("error: ")]
    assert "cannot be decoded" in line
    assert "Traceback" not in stderr.decode()
    assert process.returncode == 2
    wait_until_dead(process.pid)


def test_quiet_and_dry_runs(marginctl, tmp_path):
    arguments = [*DIGITS, "--objective", "soft", "--seeds", "2", "--epochs", "1", "--out", tmp_path]
    planned = [marginctl(*arguments, "--workers", n, "--dry-run").json for n in (1, 2)]
    assert planned[0]["dry_run"]["to_do"] == planned[1]["dry_run"]["to_do"] == 2
    assert not list(tmp_path.rglob("run.json"))
    ran = marginctl(*arguments, "--workers", "2", "--quiet")
    assert (ran.status, ran.err) == (0, "")
    assert len(list(tmp_path.rglob("result.json"))) == 2
    again = marginctl(*arguments)
    assert (again.status, again.json) == (0, ran.json)


def test_workers_are_refused_beside_processes_of_torchrun(marginctl, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    ran = marginctl("train", "--data", "digits", "--workers", "3")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == (
        "error: --workers 3: torchrun has started 2 processes that train together: leave one of "
        "them out\n"
    )
