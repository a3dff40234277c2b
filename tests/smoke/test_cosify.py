"""`cosify`, and `eval` and `report` of what it makes, as a user runs them."""

import json
import shutil
import signal

import pytest

from marginctl.training import session

pytestmark = pytest.mark.smoke

SMALL = ("--data", "digits", "--device", "cpu", "--set", "data.samples=300", "--quiet")


@pytest.fixture
def store(marginctl, tmp_path):
    """A store with a softmax network of digits."""
    ran = marginctl(
        *("train", *SMALL, "--model", "mnist-cnn:feature_dim=8", "--objective", "soft"),
        *("--set", "train.batch_size=50", "--set", "optim.lr=0.01", "--epochs", 2, "--seed", 0),
        *("--set", "optim.optimizer=adam", "--out", tmp_path / "start"),
    )
    assert ran.status == 0
    return tmp_path


def results(store):
    return [json.loads(p.read_text()) for p in sorted((store / "out").rglob("result.json"))]


def test_before_and_after_side_by_side(marginctl, store):
    arguments = ("cosify", "--from", store / "start/digits-mnist-cnn-feature_dim-8", "--device")
    arguments += ("cpu", "--blocks", 4, "--blocks", "3-4", "--epochs", 2, "--out", store / "out")
    planned = marginctl(*arguments, "--dry-run")
    assert "2 trials, 2 to do" in planned.out
    ran = marginctl(*arguments, "--json", "--quiet")
    assert ran.status == 0, ran.err
    assert [c["row"].rpartition("=")[2] for c in ran.json["cells"]] == ["4", "3-4"]
    (before,) = ran.json["before"]
    records = results(store)
    source = json.loads(next((store / "start").rglob("result.json")).read_text())
    assert before["top1"] == source["last"]["top1"]
    own, theirs = (r["evaluation"]["detection"]["miss"] for r in (records[0], source))
    assert before["detection"]["miss"] == theirs != own
    assert all(r["before"] == records[0]["before"] and r["task"] == "cosify" for r in records)
    table = marginctl(*arguments, "--format", "csv").out.splitlines()
    assert len(table) == 4
    assert ",before,1," in table[1]
    assert marginctl(*arguments, "--format", "markdown").out.count("\n") == 5
    assert "before" in marginctl(*arguments).out
    folders = [p.parent for p in (store / "out").rglob("result.json")]
    shutil.rmtree(store / "start")  # what was made needs no start
    for folder in folders:
        found = marginctl("eval", folder, "--json").json
        record = json.loads((folder / "result.json").read_text())
        assert found["top1"] == pytest.approx(record["last"]["top1"], abs=0.3)
    assert "blocks=3-4" in marginctl("report", store / "out", "--format", "csv").out


def test_a_killed_one_goes_on_to_the_same_weights(marginctl, store, monkeypatch):
    start = store / "start/digits-mnist-cnn-feature_dim-8"
    arguments = ("cosify", "--from", start, "--device", "cpu", "--blocks", 4, "--epochs", 2)
    arguments += ("--set", "train.batch_size=50", "--quiet", "--out")
    assert marginctl(*arguments, store / "whole").status == 0
    run = session.run

    def killed(*given, **options):
        class Listener:
            def message(self, text):
                pass

            def epoch(self, trial, line):
                pass

            def step(self, trial, step, total):
                if step == 3:
                    signal.raise_signal(signal.SIGTERM)

        return run(given[0], Listener(), **options)

    with monkeypatch.context() as patched:
        patched.setattr(session, "run", killed)
        stopped = marginctl(*arguments, store / "out")
    assert stopped.status == 143
    assert "step 3 of" in stopped.err
    assert marginctl(*arguments, store / "out").status == 0
    (one,) = results(store)
    whole = json.loads(next((store / "whole").rglob("result.json")).read_text())
    assert one["weights_sha256"] == whole["weights_sha256"]


def test_what_cannot_be_gone_on_from_is_one_line(marginctl, store):
    start = store / "start/digits-mnist-cnn-feature_dim-8"
    for arguments, said in (
        (("--from", store / "none"), "is not there: expected the folder of a finished trial"),
        (("--from", start, "--set", "model=mlp"), "is mnist-cnn:feature_dim=8: leave 'model' out"),
        (("--from", "efficientnet-lite0"), "nothing says its images: name some: --data"),
        (("--from", start, "--blocks", "2"), "expected '1-4', '2-4', '3-4' or '4'"),
    ):
        ran = marginctl("cosify", *arguments, "--out", store / "out")
        assert (ran.status, ran.err.count("\n")) == (2, 1)
        assert said in ran.err
    for file in start.rglob("*.pt"):
        file.write_bytes(b"no checkpoint")
    ran = marginctl("cosify", "--from", start, "--out", store / "out")
    assert ran.status == 2
    assert "Traceback" not in ran.err
    assert "no whole checkpoint" in ran.err
