"""Long tails in two stages as a user runs them: `train`, `eval` and `report`, and what stops."""

import csv
import json
import signal

import numpy as np
import pytest

from marginctl.experiments import execution
from marginctl.training import checkpoint
from tests.data.helpers import load_in_memory, paint

pytestmark = pytest.mark.smoke

RECIPE = """
task: train
data: {name: digits, imbalance_factor: 20, max_per_class: 140}
model: "mnist-cnn:feature_dim=8"
objectives: [soft, cosine-ls]
optim: {optimizer: adam, lr: 0.01, weight_decay: 0}
train: {epochs: 2, batch_size: 50, precision: fp32}
second_stage: {epochs: 2, lr: 0.02}
"""
COUNTS = [140, 100, 71, 51, 36, 26, 19, 13, 9, 7]
QUIET = ("--device", "cpu", "--quiet", "--out")


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "tail.yaml"
    path.write_text(RECIPE)
    return path


def results(out, stage=""):
    found = [json.loads(p.read_text()) for p in sorted(out.rglob("result.json"))]
    return {r["objective"]: r for r in found if r["setting"].get("stage", "").startswith(stage)}


def test_both_stages_stand_side_by_side(marginctl, recipe, tmp_path):
    out = tmp_path / "out"
    planned = marginctl("train", recipe, "--dry-run", *QUIET, out)
    assert f"472 training images of 10 classes: {' '.join(map(str, COUNTS))} (1 " in planned.out
    assert "4 trials, 4 pending" in planned.out
    plan = marginctl("train", recipe, "--dry-run", "--json", *QUIET, out).json["dry_run"]
    (tail,) = plan["tails"]
    assert (tail["counts"], tail["groups"]) == (COUNTS, {"many": 1, "medium": 5, "few": 4})
    ran = marginctl("train", recipe, "--json", *QUIET, out)
    assert (ran.status, ran.err) == (0, "")
    rows = [(c["row"].partition("stage=")[2], c["objective"]) for c in ran.json["cells"]]
    second = "second:epochs=2:lr=0.02"
    assert rows == [(s, o) for s in ("first", second) for o in ("soft", "cosine-ls")]
    labels = load_in_memory("digits", tmp_path).test_y
    number = [int(np.isin(labels, c).sum()) for c in ([0], [1, 2, 3, 4, 5], [6, 7, 8, 9])]
    for cell, record in zip(ran.json["cells"], ran_records(out, rows), strict=True):
        groups = record["evaluation"]["long_tail"]
        assert [groups[name]["images"] for name in ("many", "medium", "few")] == number
        shares = [groups[name]["accuracy"] for name in ("many", "medium", "few")]
        assert np.dot(shares, number) / 3.6 == pytest.approx(record["last"]["top1"])
        assert cell["few"]["seeds"] == [pytest.approx(100 * shares[2])]
    for objective, record in results(out, "second").items():
        backbones = [backbone_of(out, r) for r in (results(out, "first")[objective], record)]
        assert backbones[0] == backbones[1] == record["source_model"]["weights_sha256"]
    stamps = {p: p.stat().st_mtime_ns for p in out.rglob("result.json")}
    table = marginctl("train", recipe, "--format", "csv", *QUIET, out).out.splitlines()
    assert {p: p.stat().st_mtime_ns for p in out.rglob("result.json")} == stamps
    assert all(f",{name}_mean," in table[0] for name in ("many", "medium", "few"))
    assert len(table) == 5
    said = marginctl("report", out).out
    assert "Top-1 accuracy of classes by their number of training images" in said
    assert said.count(f"stage={second}") > 2
    cell = f"digits, mnist-cnn:feature_dim=8, stage={second}/soft"
    told = marginctl("report", out, "--explain", cell).out
    assert "\n  second_stage: epochs=2, sampling=class-balanced, lr=0.02\n" in told
    made = marginctl("report", out, "--format", "json").json["trained"]
    assert [len(one["cells"]) for one in made] == [4]  # one table
    assert {t["metric"] for t in made[0]["tests"]} >= {"many", "medium", "few"}
    own = results(out, "second")["soft"]
    found = marginctl("eval", out / "tail" / own["trial"], "--json").json
    assert found["long_tail"] == own["evaluation"]["long_tail"]
    text = marginctl("eval", out / "tail" / own["trial"]).out
    assert "few-shot " in text
    other = marginctl("eval", out / "tail" / own["trial"], "--data", "digits", "--json").json
    assert "long_tail" not in other


def ran_records(out, rows):
    return [results(out, stage)[objective] for stage, objective in rows]


def backbone_of(out, record):
    found, _ = checkpoint.load_latest(out / "tail" / record["trial"])
    return checkpoint.weights_digest(found[1]["model"])


def test_a_first_stage_that_is_done_is_not_done_again(marginctl, recipe, tmp_path):
    """The first stage is the trial of the recipe without a second one, and serves several."""
    out, objective = tmp_path / "out", ("--objective", "soft")
    assert (
        marginctl("train", recipe, "--set", "second_stage=null", *objective, *QUIET, out).status
        == 0
    )
    (plain,) = results(out).values()
    weights = backbone_of(out, plain)
    for epochs in (1, 2):
        own = ("--set", f"second_stage.epochs={epochs}", "--set", "second_stage.sampling=random")
        assert marginctl("train", recipe, *own, *objective, *QUIET, out).status == 0
    assert results(out, "first")["soft"]["trial"] == plain["trial"]
    assert results(out, "first")["soft"]["timing"] == plain["timing"]
    assert backbone_of(out, plain) == weights
    assert len(list(out.rglob("result.json"))) == 3


@pytest.mark.parametrize("stage", ["first", "end of the first", "second"])
def test_killed_and_resumed_it_is_the_same(marginctl, recipe, tmp_path, monkeypatch, stage):
    asked = ("train", recipe, "--objective", "soft", *QUIET)
    assert marginctl(*asked, tmp_path / "whole").status == 0
    run = execution.run_trials

    def killed(session, callback, checkpoints, on_done, workers):
        class Callback:
            def message(self, text):
                pass

            note = message

            def epoch(self, trial, line):
                pass

            def done(self, trial, record):
                pass

            def step(self, trial, step, total):
                last = total if stage == "end of the first" else 4
                if (trial.first_stage is not None) == (stage == "second") and step == last:
                    signal.raise_signal(signal.SIGTERM)

        return run(session, Callback(), checkpoints, Callback().done)

    with monkeypatch.context() as patched:
        patched.setattr(execution, "run_trials", killed)
        stopped = marginctl(*asked, tmp_path / "out")
    assert stopped.status == 143
    assert len(results(tmp_path / "out")) == (0 if stage == "first" else 1)
    assert marginctl(*asked, tmp_path / "out").status == 0
    for which in ("first", "second"):
        one, whole = (results(tmp_path / out, which)["soft"] for out in ("out", "whole"))
        assert one["weights_sha256"] == whole["weights_sha256"]
        assert one["evaluation"] == whole["evaluation"]


def test_a_first_stage_without_a_network_fails_the_second(marginctl, recipe, tmp_path):
    out = tmp_path / "out"
    asked = ("train", recipe, "--objective", "soft")
    diverging = ("--set", "optim.optimizer=sgd", "--set", "optim.lr=1e6")
    ran = marginctl(*asked, *diverging, *QUIET, out)
    assert ran.status == 1
    assert "stage=second:epochs=2:lr=0.02 / soft (seed 0): not trained: its first stage" in ran.err
    assert "Traceback" not in ran.err
    assert marginctl(*asked, "--set", "second_stage=null", *QUIET, out).status == 0
    for file in out.rglob("*.pt"):
        file.unlink()
    ran = marginctl(*asked, *QUIET, out)
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "has no intact checkpoint" in ran.err


def test_a_new_head_on_what_cosify_starts_from(marginctl, recipe, tmp_path):
    start = tmp_path / "start"
    alone = ("--objective", "soft", "--set", "second_stage=null")
    assert marginctl("train", recipe, *alone, *QUIET, start).status == 0
    ran = marginctl(
        *("cosify", "--from", start / "tail", "--blocks", "head", "--epochs", 1, "--json"),
        *("--set", "train.sampling=class-balanced", *QUIET, tmp_path / "out"),
    )
    assert (ran.status, ran.err) == (0, "")
    (cell,) = ran.json["cells"]
    assert cell["row"].endswith("blocks=head")
    assert cell["few"]["mean"] is not None
    table = marginctl(
        *("cosify", "--from", start / "tail", "--blocks", "head", "--epochs", 1, "--format", "csv"),
        *("--set", "train.sampling=class-balanced", *QUIET, tmp_path / "out"),
    ).out.splitlines()
    before, after = csv.DictReader(table)
    assert (before["few_mean"], float(after["few_mean"])) == ("", cell["few"]["mean"])


@pytest.fixture
def lists(tmp_path):
    """Lists in the form of ImageNet-LT, of 25, 5 and 2 training images; their paths are not."""
    root, rows = tmp_path / "data" / "tail-lt", {"train": [], "test": []}
    for part, counts in (("train", (25, 5, 2)), ("test", (2, 2, 2))):
        for c, count in enumerate(counts):
            for i in range(count):
                name = f"{part}/n{c:08d}/n{c:08d}_{i}.JPEG"
                paint(root / name, (90 * c, 9 * i, 0))
                rows[part].append(f"{name} {c}")
        (root / f"{part}.txt").write_text("\n".join(rows[part]) + "\n")
    return root


def test_lists_of_a_long_tail_in_two_stages(marginctl, lists, tmp_path):
    asked = (
        "train",
        "--data",
        "list:tail-lt",
        "--data-dir",
        lists.parent,
        "--model",
        "mlp:width=8",
    )
    asked += (
        "--set",
        "data.image_size=16",
        "--set",
        "data.augment=random-crop-flip",
        "--epochs",
        1,
        "--set",
    )
    asked += ("train.batch_size=10", "--set", "second_stage.epochs=1", *QUIET, tmp_path / "out")
    ran = marginctl(*asked, "--json")
    assert (ran.status, ran.err) == (0, "")
    assert len(ran.json["cells"]) == 2
    record = results(tmp_path / "out", "second")["soft"]
    shots = record["evaluation"]["long_tail"]
    assert [shots[name]["images"] for name in ("many", "medium", "few")] == [0, 2, 4]
    assert shots["reasons"] == {"many": "no class with more than 100 training images"}
    for line, said in (
        (
            "train/n00000000/n00000000_0.JPEG",
            ":33: 'train/n00000000/n00000000_0.JPEG': expected an",
        ),
        ("train/n00000000/n00000000_0.JPEG 2", ":33: label 2 of train/n00000000/n00000000_0.JPEG"),
        ("train/none.JPEG 1", "no image file"),
        ("test/n00000000/n00000000_0.JPEG 4", "train.txt: no image of class 3 ('3'): add images"),
    ):
        whole = (lists / "train.txt").read_text()
        (lists / "train.txt").write_text(f"{whole}{line}\n")
        ran = marginctl(*asked)
        assert (ran.status, ran.err.count("\n")) == (2, 1)
        assert said in ran.err
        (lists / "train.txt").write_text(whole)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["second_stage.blocks=4"], "unknown key"),
        (["second_stage.epochs=0"], "second_stage.epochs = 0: expected greater than or equal to 1"),
        (["second_stage=2"], "second_stage = 2"),
        (
            ["data.subset_size=100"],
            "data.imbalance_factor = 20 and data.subset_size = 100: expected one of",
        ),
        (
            ["data.max_per_class=150"],
            "data.max_per_class = 150: class 0 ('0') of digits has 142 training",
        ),
        (["train.sampling=balanced"], "expected 'random' or 'class-balanced'"),
    ],
)
def test_what_is_refused_is_one_line(marginctl, recipe, tmp_path, changes, said):
    given = [part for change in changes for part in ("--set", change)]
    ran = marginctl("train", recipe, *given, *QUIET, tmp_path / "out")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert said in ran.err
    assert not (tmp_path / "out").exists()
