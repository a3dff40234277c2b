"""The estimate of `train --dry-run`: what is timed, and what is made of it."""

import pytest
import torch
from PIL import Image

from marginctl.experiments import estimate

DRY = (
    "train",
    "--data",
    "digits",
    "--device",
    "cpu",
    "--set",
    "data.subset_size=200",
    "--epochs",
    "3",
)
DRY += ("--set", "train.batch_size=50", "--dry-run")
MLP = ("--model", "mlp:width=8")


@pytest.fixture
def timed(monkeypatch):
    """Every step takes as long as the test says; what was timed."""
    asked = []

    def set_(seconds):
        def times(trial, images, device, size):
            asked.append((str(trial.recipe.model), size))
            return [seconds(size), seconds(size)]

        monkeypatch.setattr(estimate, "_step_seconds", times)
        return asked

    return set_


def test_a_few_images_stand_for_a_slow_batch(marginctl, timed, tmp_path):
    """A second for 16 images is 3.125 for 50: 4 x 3 steps, and 3 x 360 / 50 / 3 for the tests."""
    asked = timed(lambda size: 1.0)
    plan = marginctl(*DRY, *MLP, "--json", "--out", tmp_path).json["dry_run"]
    assert asked == [("mlp:width=8", 16)]
    assert plan["seconds"] == pytest.approx(3.125 * (12 + 7.2)) == pytest.approx(60.0)
    (row,) = plan["rows"]
    assert (row["epochs"], row["steps"], row["seconds"]) == (3, 12, plan["seconds"])
    assert (row["timed_steps"], row["timed_images"], row["reason"]) == (2, 16, None)
    text = marginctl(*DRY, *MLP, "--out", tmp_path).out
    assert text.splitlines() == [
        "digits, mlp:width=8 / soft (seed 0): 3 epochs, 12 steps, about 1 min on cpu "
        "(from 2 timed steps of 16 images)",
        f"1 trial, 1 pending on cpu: about 1 min; runs in {tmp_path / 'digits-mlp-width-8'}",
        "Estimate excludes start-up, reading the data, checkpoints, bootstrap intervals.",
    ]


def test_tuning_is_counted(marginctl, timed, tmp_path):
    """Of 200 images 170 are fitted, 4 batches of 50; evaluations cost a third of a step.

    Round 1: 11 candidates, an epoch of 3/4 of 170 (3 batches); round 2: 4, an epoch (4 batches).
    """
    timed(lambda size: size / 50)
    plan = marginctl(*DRY, *MLP, "--tune", "--json", "--out", tmp_path).json["dry_run"]
    (row,) = plan["rows"]
    assert row["steps"] == 3 * 4 + 11 * 3 + 4 * 4
    evaluated = 3 * 30 + 360 + (11 + 4) * 30
    assert row["seconds"] == pytest.approx(row["steps"] + evaluated / 50 / 3)


def test_foreign_images_and_pairs_are_counted_once_and_a_kept_part_is_said(
    marginctl, timed, tmp_path
):
    """Three foreign images, and the same three in pairs: a third of 6/50 of a step's second."""
    timed(lambda size: size / 50)
    odd = tmp_path / "odd" / "val" / "a"
    odd.mkdir(parents=True)
    for i in range(3):
        Image.new("L", (9, 9), 80 * i).save(odd / f"{i}.png")
    pairs = tmp_path / "odd" / "pairs.txt"
    pairs.write_text("val/a/0.png val/a/1.png 1\nval/a/0.png val/a/2.png 0\n")
    plain = marginctl(*DRY, *MLP, "--json", "--out", tmp_path).json["dry_run"]
    more = ("--ood", f"folder:{tmp_path / 'odd'}", "--set", f"pairs=[{pairs}]")
    plan = marginctl(*DRY, *MLP, *more, "--json", "--out", tmp_path).json["dry_run"]
    assert plan["seconds"] - plain["seconds"] == pytest.approx(6 / 50 / 3)
    assert plan["not_counted"] == plain["not_counted"]
    second = ("--set", "second_stage={epochs: 1}")
    said = marginctl(*DRY, *MLP, *second, "--out", tmp_path).out.splitlines()[-1]
    assert said.endswith("bootstrap intervals, what cached features of frozen blocks save.")


def test_whole_batches_are_timed_where_they_are_fast(marginctl, timed, tmp_path):
    asked = timed(lambda size: 0.1 + 0.001 * size)
    plan = marginctl(*DRY, *MLP, "--json", "--out", tmp_path).json["dry_run"]
    assert asked == [("mlp:width=8", 16), ("mlp:width=8", 50)]
    assert plan["seconds"] == pytest.approx(0.15 * (12 + 7.2))
    rare = marginctl(*DRY, *MLP, "--set", "train.evaluate_every=2", "--json", "--out", tmp_path)
    # after epochs 2 and 3
    assert rare.json["dry_run"]["seconds"] == pytest.approx(0.15 * (12 + 4.8))


def test_every_kind_of_work_is_timed_once(marginctl, timed, tmp_path):
    asked = timed(lambda size: 1.0)
    grid = "grid={model: ['mlp:width=8', 'mlp:width=9'], optim.lr: [0.1, 0.01]}"
    more = ("--set", grid, "--objective", "soft", "--objective", "arcface", "--seeds", "2")
    plan = marginctl(*DRY, *more, "--json", "--out", tmp_path).json["dry_run"]
    assert plan["trials"] == plan["to_do"] == len(plan["rows"]) == 16
    assert asked == [("mlp:width=8", 16), ("mlp:width=9", 16)]
    assert plan["seconds"] == pytest.approx(16 * 60.0)


def test_finished_trials_are_said_and_left_out(marginctl, timed, tmp_path):
    timed(lambda size: 1.0)
    arguments = [a for a in (*DRY, *MLP, "--out", tmp_path) if a != "--dry-run"]
    assert marginctl(*arguments).status == 0
    plan = marginctl(*DRY, *MLP, "--seeds", "3", "--json", "--out", tmp_path).json["dry_run"]
    assert (plan["trials"], plan["done"], plan["to_do"]) == (3, 1, 2)
    assert plan["seconds"] == pytest.approx(120.0)
    said = marginctl(*DRY, *MLP, "--seeds", "3", "--out", tmp_path).out
    assert "3 trials, 1 done, 2 pending on cpu: about 2 min; runs in " in said
    assert "(seed 0)" not in said
    nothing = marginctl(*DRY, *MLP, "--out", tmp_path).out
    assert nothing.startswith("1 trial, 1 done, 0 pending on cpu; runs in ")


def test_beyond_the_budget_nothing_is_timed(marginctl, timed, tmp_path, monkeypatch):
    asked = timed(lambda size: 1.0)
    monkeypatch.setattr(estimate.estimate_training, "__defaults__", (0.0,))
    text = marginctl(*DRY, *MLP, "--out", tmp_path).out
    assert asked == []
    assert "12 steps, not timed (beyond the 0 s for timing)" in text
    assert "1 trial, 1 pending on cpu: 1 not timed; runs in " in text
    plan = marginctl(*DRY, *MLP, "--json", "--out", tmp_path).json["dry_run"]
    assert (plan["seconds"], plan["not_timed"], plan["rows"][0]["seconds"]) == (0.0, 1, None)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--model", "mnist-cnn", "--set", "optim.lr=1e6"), "the loss is not finite"),
        (("--model", "resnet18", "--set", "train.batch_size=1"), "batch normalisation needs"),
    ],
)
def test_what_cannot_be_trained_says_so(marginctl, tmp_path, more, reason):
    ran = marginctl(*DRY, *MLP, *more, "--out", tmp_path)
    assert ran.status == 0
    assert f"not timed ({reason}" in ran.out


def test_no_memory_is_said(marginctl, tmp_path, monkeypatch):
    def times(*_):
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(estimate, "_step_seconds", times)
    ran = marginctl(*DRY, *MLP, "--out", tmp_path)
    assert "not timed (cpu has no memory for 50 images)" in ran.out


def test_real_steps_are_timed_and_nothing_is_written(marginctl, tmp_path):
    more = ("--set", "train.grad_accum_steps=2", "--set", "data.augment=random-crop", "--set")
    ran = marginctl(*DRY, *MLP, *more, "train.compile=true", "--json", "--out", tmp_path / "runs")
    (row,) = ran.json["dry_run"]["rows"]
    assert row["timed_steps"] >= 2
    assert row["timed_images"] == 50
    assert 0 < row["seconds"] < 60
    assert not (tmp_path / "runs").exists()


def test_what_is_watched_is_counted(marginctl, timed, tmp_path):
    """Of 200 images: 50 of them forward and back at each of 3 evaluations are 3 steps of 50."""
    timed(lambda size: 1.0)
    plain = marginctl(*DRY, *MLP, "--json", "--out", tmp_path).json["dry_run"]["seconds"]
    more = ("--set", "train.gradient_norm_samples=50", "--json", "--out", tmp_path)
    watched = marginctl(*DRY, *MLP, *more).json["dry_run"]["seconds"]
    assert watched - plain == pytest.approx(3.125 * 3)


def test_of_files_a_long_epoch_is_begun(marginctl, tmp_path, data_dir):
    """To start the decoding processes is no step: they are started once."""
    lines = [f"{p} {int('bees' in str(p))}\n" for p in (data_dir / "hymenoptera").rglob("*.jpg")]
    for name in ("train.txt", "val.txt"):
        (tmp_path / name).write_text("".join(lines))
    arguments = ("train", "--data", f"list:{tmp_path}", "--model", "mlp:width=4", "--epochs", "2")
    small = ("--set", "data.image_size=16", "--set", "train.batch_size=8", "--device", "cpu")
    plan = marginctl(*arguments, *small, "--dry-run", "--json", "--out", tmp_path / "r").json
    (row,) = plan["dry_run"]["rows"]
    assert row["timed_steps"] >= 2
    assert row["reason"] is None


def test_operations_are_those_of_the_layers(marginctl, tmp_path):
    """A multiplication and an addition a weight and image, thrice in a step."""
    line = ("--model", "mlp:width=16", "--out", tmp_path, "--json")
    plan = marginctl(*DRY, *line, "--set", "train.evaluate_every=1").json["dry_run"]
    (row,) = plan["rows"]
    forward = 2 * (64 * 16 + 16 * 16)
    images = row["epochs"] * (200 + 360 / 3)
    assert row["operations"] == pytest.approx(3 * forward * images)
    assert plan["operations"] == row["operations"]
