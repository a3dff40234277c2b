"""`cosify`, and `eval` and `report` of what it makes, as a user runs them."""

import csv
import json
import shutil
import signal

import pytest

from marginctl.experiments import execution
from marginctl.runs.run_dir import digest

pytestmark = pytest.mark.smoke

SMALL = ("--data", "digits", "--device", "cpu", "--set", "data.subset_size=300", "--quiet")


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
    assert "2 trials, 2 pending" in planned.out
    ran = marginctl(*arguments, "--json", "--quiet")
    assert ran.status == 0, ran.err
    assert [c["row"].rpartition("=")[2] for c in ran.json["cells"]] == ["4", "3-4"]
    (before,) = ran.json["baseline"]
    records = results(store)
    source = json.loads(next((store / "start").rglob("result.json")).read_text())
    assert before["top1"] == source["last"]["top1"]
    own, theirs = (r["evaluation"]["detection"]["misclassification"] for r in (records[0], source))
    assert before["detection"]["misclassification"] == theirs != own
    assert all(r["baseline"] == records[0]["baseline"] and r["task"] == "cosify" for r in records)
    table = marginctl(*arguments, "--format", "csv").out.splitlines()
    assert len(table) == 4
    assert ",before,1," in table[1]
    assert marginctl(*arguments, "--format", "markdown").out.count("\n| ") == 3
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
    run = execution.run_trials

    def killed(session, callback, checkpoints, on_done, workers):
        class Callback:
            def message(self, text):
                pass

            note = message

            def epoch(self, trial, line):
                pass

            def step(self, trial, step, total):
                if step == 3:
                    signal.raise_signal(signal.SIGTERM)

        return run(session, Callback(), checkpoints, on_done)

    with monkeypatch.context() as patched:
        patched.setattr(execution, "run_trials", killed)
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
        (("--from", store / "none"), "does not exist: expected the folder of a finished trial"),
        (("--from", start, "--set", "model=mlp"), "is mnist-cnn:feature_dim=8: leave 'model' out"),
        (("--from", "efficientnet-lite0"), "its images are unknown: name images with --data"),
        (("--from", start, "--blocks", "2"), "expected '1-4', '2-4', '3-4', '4' or 'head'"),
    ):
        ran = marginctl("cosify", *arguments, "--out", store / "out")
        assert (ran.status, ran.err.count("\n")) == (2, 1)
        assert said in ran.err
    for file in start.rglob("*.pt"):
        file.write_bytes(b"no checkpoint")
    ran = marginctl("cosify", "--from", start, "--out", store / "out")
    assert ran.status == 2
    assert "Traceback" not in ran.err
    assert "no intact checkpoint" in ran.err


QUICK = ("--device", "cpu", "--epochs", 1, "--quiet")


@pytest.fixture
def starts(marginctl, tmp_path):
    """Two networks of one kind."""
    small = ("--data", "digits", "--set", "data.subset_size=100", "--model", "mlp:width=8")
    objectives = ("--objective", "soft", "--objective", "cosine-ls")
    assert marginctl("train", *small, *QUICK, *objectives, "--out", tmp_path / "start").status == 0
    return [path.parent for path in sorted((tmp_path / "start").rglob("run.json"))]


def test_networks_from_two_starts_stand_in_two_tables(marginctl, tmp_path, starts):
    store = tmp_path / "out"
    for start in starts:
        assert marginctl("cosify", "--from", start, *QUICK, "--out", store).status == 0
    ran = marginctl("report", store, "--format", "json")
    assert (ran.status, ran.err) == (0, "")
    assert [len(made["cells"]) for made in ran.json["trained"]] == [1, 1]
    digests = {made["source_model"]["weights_sha256"] for made in ran.json["trained"]}
    assert len(digests) == 2
    text = marginctl("report", store).out
    assert all(f"source_model={start}" in text for start in starts)
    lines = marginctl("report", store, "--format", "csv").out.splitlines()
    titles = [row["title"] for row in csv.DictReader(lines)]
    assert {title.partition(", source_model=")[2] for title in titles} == set(map(str, starts))


def test_one_start_by_another_path_makes_the_same_trial(marginctl, tmp_path, starts):
    other = shutil.copytree(starts[0], tmp_path / "moved, and with blanks")
    for start, store in ((starts[0], "a"), (other, "b")):
        assert marginctl("cosify", "--from", start, *QUICK, "--out", tmp_path / store).status == 0
    ran = marginctl("report", tmp_path / "a", tmp_path / "b", "--format", "json")
    assert (ran.err, len(ran.json["trained"])) == ("", 1)
    assert f", source_model={other}\n" in marginctl("report", tmp_path / "b").out


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("data", "'data' is missing"),
        ("source_model", "'source_model' is missing"),
        ("baseline.interval", "'baseline.interval' is missing"),
    ],
)
def test_a_result_that_lacks_what_tables_show_is_left_out(marginctl, tmp_path, starts, key, said):
    assert marginctl("cosify", "--from", starts[0], *QUICK, "--out", tmp_path / "out").status == 0
    (path,) = (tmp_path / "out").rglob("result.json")
    record = json.loads(path.read_text())
    *outer, inner = key.split(".")
    del (record[outer[0]] if outer else record)[inner], record["sha256"]
    path.write_text(json.dumps(record | {"sha256": digest(record)}))
    ran = marginctl("report", tmp_path / "out")
    assert (ran.status, ran.err.count("\n")) == (0, 2)
    assert said in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "key 'source_model' is missing: add it, or give --from"),
        (("--from", ""), "--from: source_model = '': expected at least 1 character"),
        (("--from", "x", "--blocks", "4,3-4"), "expected '1-4', '2-4', '3-4', '4' or 'head'"),
    ],
)
def test_a_start_is_asked_for_in_words_of_the_command_line(marginctl, arguments, said):
    ran = marginctl("cosify", *arguments, "--dry-run")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert said in ran.err


def test_a_file_of_another_task_is_named_by_its_path(marginctl, tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text("task: cosify\nstart: x\n")
    ran = marginctl("train", recipe)
    assert f"run it with marginctl cosify {recipe}\n" in ran.err
