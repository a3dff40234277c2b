"""`runs list` and `runs remove` on the trials of real commands."""

import pytest


@pytest.fixture
def runs(marginctl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ("--set", "data.subset_size=60", "--epochs", "2", "--device", "cpu", "--quiet")
    ran = marginctl("train", "--data", "digits", "--model", "mlp:width=8", *small)
    assert ran.status == 0, ran.err
    return tmp_path / "runs"


def test_list_and_remove(marginctl, runs):
    (row,) = marginctl("runs", "list", "--json").json
    assert (row["folder"], row["trials"], row["finished"]) == ("runs/digits-mlp-width-8", 1, 1)
    lines = marginctl("runs", "list").out.splitlines()
    assert lines[0].split("  ")[0] == "folder"
    assert lines[-1].startswith("total ")
    report = marginctl("report", "runs").out
    ran = marginctl("runs", "remove", "runs", "--checkpoints")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: the checkpoints of 1 finished trial, 0.")
    assert ran.err.endswith(" MB: nothing was removed: add --yes\n")
    ran = marginctl("runs", "remove", "runs", "--checkpoints", "--yes")
    assert ran.out == "removed checkpoints of 1 trial\n"
    assert marginctl("report", "runs").out == report
    (trial,) = (path.parent for path in runs.rglob("run.json"))
    assert "has no intact checkpoint" in marginctl("eval", str(trial)).err
    assert marginctl("runs", "remove", "runs", "--yes").out == "removed 1 trial\n"
    assert [*runs.iterdir()] == []
    assert marginctl("runs", "list").err == (
        "error: runs: holds no trials: expected a runs folder, or a folder in it\n"
    )


def test_a_finished_trial_holds_no_optimizer(runs):
    from marginctl.training import checkpoint

    (trial,) = (path.parent for path in runs.rglob("run.json"))
    last, best = (checkpoint.load_latest(trial, k)[0] for k in (checkpoint.LAST, checkpoint.BEST))
    assert "optimizer" not in last[1]
    assert "optimizer" not in best[1]
    assert last[1]["step"] == 2 * last[1]["steps_per_epoch"]
