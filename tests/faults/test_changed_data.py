"""A file of data that changes between two calls of one command: said, and never mixed."""

import shutil

import numpy as np
import pytest
from PIL import Image

from marginctl.training import trainer
from tests.faults.harness import records

SMALL = ("--device", "cpu", "--set", "train.batch_size=4", "--epochs", "1")


@pytest.fixture
def photographs(tmp_path):
    """Two classes of 4 images to train on and 2 to test on, of noise."""
    stream = np.random.default_rng(0)
    for part, count in (("train", 4), ("val", 2)):
        for label in ("a", "b"):
            (tmp_path / "images" / part / label).mkdir(parents=True)
            for i in range(count):
                pixels = stream.integers(0, 255, size=(8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "images" / part / label / f"{i}.png")
    return tmp_path / "images"


def other(folder, part):
    path = folder / part / "a" / "0.png"
    Image.new("RGB", (8, 8), "red").save(path)


@pytest.mark.parametrize("part", ["train", "val"])
def test_the_images_of_a_training(marginctl, tmp_path, photographs, part):
    name = f"folder:{photographs}"
    line = ("train", "--data", name, "--set", "data.image_size=8", "--model", "mlp:width=4", *SMALL)
    line += ("--out", tmp_path / "runs")
    assert "changed since" not in marginctl(*line).err
    first = records(tmp_path / "runs")
    (trial,) = (path.parent for path in (tmp_path / "runs").rglob("result.json"))
    other(photographs, part)
    # other seeds have nothing to compare with
    assert "changed since" not in marginctl(*line, "--seed", "5", "--dry-run").err
    ran = marginctl("eval", trial)
    assert (ran.status, ran.out) == (2, "")
    assert "has changed since the training" in ran.err
    ran = marginctl(*line)
    assert ran.status == 0
    assert f"how they are read, changed since: {name} (finished trials: 1): recomputing" in ran.err
    assert first.items() < records(tmp_path / "runs").items()
    assert "changed since" not in marginctl(*line).err


def test_the_images_of_a_transfer(marginctl, tmp_path, photographs):
    name = f"folder:{photographs}"
    line = ("train", "--data", name, "--set", "data.image_size=8", "--model", "mlp:width=4", *SMALL)
    assert marginctl(*line, "--out", tmp_path / "start").status == 0
    line = ("transfer", "--from", tmp_path / "start", "--data", name, *SMALL)
    line += ("--method", "probe", "--method", "fine-tune", "--out", tmp_path / "runs")
    assert "changed since" not in marginctl(*line).err
    first = records(tmp_path / "runs")
    other(photographs, "val")
    ran = marginctl(*line)
    assert ran.status == 0
    assert f"how they are read, changed since: {name} (finished trials: 2): recomputing" in ran.err
    assert first.items() < records(tmp_path / "runs").items()


def test_the_outputs_that_a_map_was_fitted_on(marginctl, tmp_path):
    """A file of outputs is digested: its map says what it was fitted on."""
    stream, outputs, kept = np.random.default_rng(0), tmp_path / "o.npz", tmp_path / "map.json"
    labels = stream.integers(0, 3, 60)
    line = ("calibrate", outputs, "--method", "temperature", "--bootstrap", "0", "--save", kept)
    digests = []
    for noise in (1.0, 2.0):
        logits = noise * stream.normal(size=(60, 3)) + np.eye(3)[labels]
        np.savez(outputs, logits=logits, labels=labels)
        assert marginctl(*line).status == 0
        digests.append(kept.read_text())
    assert digests[0] != digests[1]


def test_images_that_vanish_during_training(marginctl, tmp_path, photographs, monkeypatch):
    """Files that are read as they are needed: one line with the file, exit 2, and it resumes."""
    line = ("train", "--data", f"folder:{photographs}", "--set", "data.image_size=8", "--set")
    line += ("data.load=stream", "--model", "mlp:width=4", *SMALL, "--epochs", "4")
    line += ("--checkpoint-minutes", "0")
    assert marginctl(*line, "--out", tmp_path / "whole").status == 0
    steps, real = [], trainer.Trainer._train_step

    def train_step(self, *batch):
        steps.append(1)
        if len(steps) == 3:
            shutil.move(photographs, tmp_path / "moved")
        real(self, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_train_step", train_step)
        ran = marginctl(*line, "--out", tmp_path / "runs")
    assert (ran.status, ran.out) == (2, ""), ran.err
    (said,) = [text for text in ran.err.splitlines() if text.startswith("error: ")]
    assert f"{photographs}/" in said
    shutil.move(tmp_path / "moved", photographs)
    assert marginctl(*line, "--out", tmp_path / "runs").status == 0
    assert records(tmp_path / "runs") == records(tmp_path / "whole")
