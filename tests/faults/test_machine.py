"""A disk that is full or read-only, folders that vanish, no home, a clock that jumps."""

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.faults.harness import records, small_disk
from tests.sampling import diagonal

DIGITS = ("--data", "digits", "--device", "cpu", "--set", "data.subset_size=100")
TRAIN = ("train", *DIGITS, "--model", "mlp:width=8", "--objective", "adacos", "--epochs", "2")
CROSS = ("uci-cv", "--dataset", "iris", "--repeats", "1", "--folds", "2", "--objective", "soft")
CROSS += ("--set", "protocol.epochs=2", "--workers", "1")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What other commands start from: a store with a network, and outputs."""
    from marginctl.cli import run

    root = tmp_path_factory.mktemp("made")
    assert run([str(a) for a in (*TRAIN, "--quiet", "--out", root / "store")]) == 0
    assert run([str(a) for a in (*CROSS, "--quiet", "--out", root / "store")]) == 0
    stream = np.random.default_rng(0)
    labels = stream.integers(0, 3, 90)
    np.savez(root / "o.npz", logits=stream.normal(size=(90, 3)) + np.eye(3)[labels], labels=labels)
    return root


def commands(made, disk):
    """Command lines that write on a disk."""
    out = ("--out", disk / "runs")
    trial = next((made / "store").glob("digits*"))
    probe = ("transfer", "--from", trial, *DIGITS, "--method", "probe")
    probe += ("--set", "probe.l2_penalties=[0.1]")
    calibrate = ("calibrate", made / "o.npz", "--method", "vector", "--bootstrap", "0")
    return {
        "train": (*TRAIN, *out),
        "cosify": ("cosify", "--from", trial, "--device", "cpu", "--epochs", "1", *out),
        "probe": (*probe, *out),
        "uci-cv": (*CROSS, *out),
        "predictions": (*CROSS, "--out", made / "other", "--predictions", disk / "p.csv"),
        "probe predictions": (*probe, "--out", made / "other", "--predictions", disk / "p.csv"),
        "map": (*calibrate, "--save", disk / "map.json"),
        "figure": (*calibrate, "--figure", disk / "f.png"),
        "report": ("report", made / "store", "--format", "html", "--output", disk / "r.html"),
        "figures": ("report", made / "store", "--figures", disk / "figures"),
        "recipe": ("recipes", "copy", "arcgrad/table1", disk / "mine.yaml"),
    }


OF_RUNS = ["train", "cosify", "probe", "uci-cv"]
OF_FILES = ["predictions", "probe predictions", "map", "figure", "report", "figures", "recipe"]
AFTER_RESULTS = ["predictions", "probe predictions", "map", "figure", "figures"]
WHY = {
    True: ("Finished trials are kept: ", "--out"),
    False: ("free some space, or name another file",),
}


def content(folder):
    """What a command has left: records, and whole files beside them."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "ballast"]
    beside = {p.name: p.read_bytes() for p in files if (folder / "runs") not in p.parents}
    return records(folder), beside


@pytest.mark.parametrize("name", OF_RUNS + OF_FILES)
def test_a_full_disk(marginctl, tmp_path, made, name):
    """One line, exit 1, nothing half; with room, the same command ends as on a large one."""
    (tmp_path / "large").mkdir()
    assert marginctl(*commands(made, tmp_path / "large")[name]).status == 0
    with small_disk(tmp_path / "disk", 128) as again:
        disk = tmp_path / "disk"
        with (disk / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            for _ in range(1000):
                file.write(bytes(4096))
        ran = marginctl(*commands(made, disk)[name])
        assert ran.status == 1
        assert bool(ran.out) == (name in AFTER_RESULTS)  # results are printed before files are made
        (said,) = [line for line in ran.err.splitlines() if line.startswith("error: ")]
        assert said.startswith(f"error: {disk}/")
        assert "the disk is full: " in said
        assert all(word in said for word in WHY[name in OF_RUNS])
        assert content(disk) == ({}, {})
        again("size=16m")
        assert marginctl(*commands(made, disk)[name]).status == 0
        assert content(disk) == content(tmp_path / "large")


@pytest.mark.parametrize("name", OF_RUNS + OF_FILES)
def test_a_disk_that_is_mounted_read_only(marginctl, tmp_path, made, name):
    """A store is read where it is done; what is to be written is refused in one line."""
    with small_disk(tmp_path / "disk", 16384) as again:
        disk = tmp_path / "disk"
        line = commands(made, disk)[name]
        again("ro")
        ran = marginctl(*line)
        assert (ran.status, ran.out) == (1 if name in OF_RUNS else 2, "")
        (said,) = [line for line in ran.err.splitlines() if line.startswith("error: ")]
        assert f"{disk}/" in said
        assert "cannot be written: Read-only file system" in said
        assert not list(disk.iterdir())
        again("rw")
        first = marginctl(*line)
        assert first.status == 0
        if name in OF_RUNS:
            again("ro")
            ran = marginctl(*line)
            assert (ran.status, ran.out) == (0, first.out)


class Removed:
    """Removes a folder when a command has written so many times."""

    def __init__(self, monkeypatch, folder, after):
        self.left = after
        real = os.replace

        def replace(*names):
            real(*names)
            self.left -= 1
            if not self.left:
                shutil.rmtree(folder)

        monkeypatch.setattr(os, "replace", replace)


@pytest.mark.parametrize(("name", "after"), diagonal(OF_RUNS, [2, 4, 7]))
def test_the_runs_folder_vanishes(marginctl, tmp_path, made, monkeypatch, name, after):
    """Whenever it is: no traceback, and no result that is not there."""
    (tmp_path / "whole").mkdir()
    assert marginctl(*commands(made, tmp_path / "whole")[name]).status == 0
    disk = tmp_path / "disk"
    disk.mkdir()
    line = commands(made, disk)[name]
    with monkeypatch.context() as patch:
        Removed(patch, disk, after)
        ran = marginctl(*line)
    assert ran.status in (0, 1)
    if ran.status == 1:
        (said,) = [line for line in ran.err.splitlines() if line.startswith("error: ")]
        assert f"{disk}/" in said
    else:
        assert records(disk) == records(tmp_path / "whole")
    disk.mkdir(exist_ok=True)
    assert marginctl(*line).status == 0
    assert records(disk) == records(tmp_path / "whole")


@pytest.mark.parametrize(
    ("name", "own"),
    [("train", {}), ("report", {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none/cache"})],
    ids=["none is set", "they cannot be written"],
)
def test_no_home_and_no_cache(tmp_path, made, name, own):
    kept = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME")}
    line = [sys.executable, "-m", "marginctl", *map(str, commands(made, tmp_path)[name])]
    ran = subprocess.run(
        line, capture_output=True, text=True, env=kept | own, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("name", OF_RUNS)
def test_the_clock_jumps(marginctl, tmp_path, made, monkeypatch, name):
    """At every second look at it the wall clock is an hour ahead of the looks between."""
    (tmp_path / "whole").mkdir()
    assert marginctl(*commands(made, tmp_path / "whole")[name]).status == 0
    looks, real = itertools.count(), time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600 * (next(looks) % 2))
    ran = marginctl(*commands(made, tmp_path)[name])
    assert ran.status == 0, ran.err
    assert records(tmp_path / "runs") == records(tmp_path / "whole")
    assert not re.search(r"-\d+:\d\d", ran.err)
    for path in (tmp_path / "runs").rglob("result.json"):
        timing = json.loads(path.read_text())["timing"]
        assert 0 <= timing["seconds"] < 60
