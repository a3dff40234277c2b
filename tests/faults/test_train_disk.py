"""A disk that is full and a folder that cannot be written: one line, nothing harmed, resumable."""

import errno
import os
import re
import shutil
import tempfile

import pytest

from marginctl.training import checkpoint
from tests.faults.harness import records, small_disk

ARGUMENTS = ("train", "--data", "digits", "--model", "mlp:width=16", "--device", "cpu", "--quiet")
ARGUMENTS += (
    "--set",
    "data.subset_size=100",
    "--set",
    "train.batch_size=50",
    "--objective",
    "adacos",
)
ARGUMENTS += ("--checkpoint-minutes", "0", "--epochs", "2", "--json")

FULL = re.compile(
    r"error: (?P<path>\S+): the disk is full: (?P<needed>\d+) bytes needed, (?P<free>\d+) free\. "
    r"Finished trials are kept: free some space and run the same command again, or name another "
    r"folder with --out\n"
)


@pytest.fixture
def undisturbed(marginctl, tmp_path):
    assert marginctl(*ARGUMENTS, "--out", tmp_path / "undisturbed").status == 0
    return records(tmp_path / "undisturbed")


def whole_checkpoints(out):
    """The steps of the checkpoints below a store; a damaged one fails."""
    return sorted(
        (path.name[:4], checkpoint.load(path)["step"]) for path in out.rglob("checkpoints/*.pt")
    )


class Disk:
    """Takes so many syncs, then is full."""

    def __init__(self, monkeypatch, takes):
        self.takes, self.syncs = takes, 0
        real = os.fsync

        def fsync(handle):
            self.syncs += 1
            if self.syncs > self.takes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(handle)

        monkeypatch.setattr(os, "fsync", fsync)


def test_a_full_disk_at_each_write(marginctl, tmp_path, undisturbed, monkeypatch):
    """Whichever file it is that no longer fits, and each later one too."""
    with monkeypatch.context() as patch:
        disk = Disk(patch, takes=10**9)
        assert marginctl(*ARGUMENTS, "--out", tmp_path / "counted").status == 0
    assert disk.syncs > 10
    before = {}
    for takes in range(disk.syncs):
        out = tmp_path / str(takes)
        with monkeypatch.context() as patch:
            Disk(patch, takes)
            ran = marginctl(*ARGUMENTS, "--out", out)
        assert (ran.status, ran.out) == (1, ""), takes
        found = FULL.fullmatch(ran.err)
        assert found, ran.err
        assert found["path"].startswith(str(out))
        assert int(found["free"]) == pytest.approx(shutil.disk_usage(out).free, rel=0.1)
        assert not list(out.rglob(".tmp-*"))
        kept = whole_checkpoints(out)
        # what stood there before the write that failed stands there still
        assert max((s for k, s in kept if k == "step"), default=0) >= before.get("step", 0)
        before = dict(kept)
        again = marginctl(*ARGUMENTS, "--out", out)
        assert again.status == 0, again.err
        assert records(out) == undisturbed, takes
    assert before == {"step": 4, "best": before["best"]}


def test_a_folder_that_cannot_be_written(marginctl, tmp_path, undisturbed, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkstemp", refused)
        ran = marginctl(*ARGUMENTS, "--out", tmp_path / "runs")
    assert ran.status == 1
    (line,) = ran.err.splitlines()
    assert line.startswith(f"error: {tmp_path / 'runs'}")
    assert line.endswith(
        ": cannot be written: Permission denied: make the folder writable or name another one "
        "with --out"
    )
    assert marginctl(*ARGUMENTS, "--out", tmp_path / "runs").status == 0
    assert records(tmp_path / "runs") == undisturbed


def test_a_folder_below_a_file(marginctl, tmp_path):
    (tmp_path / "file").write_text("mine")
    ran = marginctl(*ARGUMENTS, "--out", tmp_path / "file" / "runs")
    assert ran.status == 1
    (line,) = ran.err.splitlines()
    assert "cannot be written: Not a directory: make the folder writable or name another" in line
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("kilobytes", [8, 40, 60])
def test_a_small_disk(marginctl, tmp_path, undisturbed, kilobytes):
    """No checkpoint fits, or one does, or two: 18 kilobytes each."""
    with small_disk(tmp_path / "disk", kilobytes) as again:
        out = tmp_path / "disk" / "runs"
        ran = marginctl(*ARGUMENTS, "--out", out)
        found = FULL.fullmatch(ran.err)
        assert ran.status == 1
        assert found, ran.err
        assert int(found["free"]) < int(found["needed"])
        assert len(whole_checkpoints(out)) == {8: 0, 40: 1, 60: 2}[kilobytes]
        again("size=8m")
        assert marginctl(*ARGUMENTS, "--out", out).status == 0
        assert records(out) == undisturbed
