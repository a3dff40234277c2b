"""Saved networks on images predict, in another process, what the network does in memory."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from marginctl.errors import RequestError
from marginctl.experiments.evaluate import predict_run
from marginctl.runs.model_file import load_model_file
from marginctl.training.image_model import ImageModel, ImageRecord


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of two classes, and a saved network."""
    from marginctl.cli import run

    root = tmp_path_factory.mktemp("images")
    stream = np.random.default_rng(0)
    for part, count in (("train", 12), ("val", 5), ("test", 5)):
        for label, colour in (("ant", 90), ("bee", 160)):
            (root / "data" / part / label).mkdir(parents=True)
            for i in range(count):
                pixels = stream.normal(colour, 40, (20, 30, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(root / "data" / part / label / f"{i}.png")
    line = ["train", "--data", f"folder:{root / 'data'}", "--model", "mobilenet:width=0.25"]
    line += ["--objective", "soft", "--objective", "arcface", "--epochs", "2", "--no-tune"]
    line += ["--set", "data.image_size=16", "--device", "cpu", "--out", str(root / "runs")]
    assert run([*line, "--save-model", str(root / "m.safetensors")]) == 0
    return root


def test_another_process_gives_the_probabilities_of_the_network(folder, tmp_path):
    (tmp_path / "m").write_bytes((folder / "m.safetensors").read_bytes())
    new = folder / "data" / "test"
    command = [sys.executable, "-m", "marginctl", "predict", "m", str(new)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.returncode == 0, ran.stderr
    rows = list(csv.DictReader(io.StringIO(ran.stdout)))
    assert [row["file"] for row in rows] == sorted(
        f"{c}/{i}.png" for c in ("ant", "bee") for i in range(5)
    )
    results = {p.parent: json.loads(p.read_text()) for p in folder.rglob("result.json")}
    validation = {path: result["validation"] for path, result in results.items()}
    best = max(results, key=lambda path: (validation[path]["top1"], -validation[path]["nll"]))
    predictions = predict_run(best, None, "best", tmp_path, "cpu").predictions
    expected = predictions.logits.double().softmax(-1).numpy()
    predicted = [[float(row["p_ant"]), float(row["p_bee"])] for row in rows]
    assert np.allclose(predicted, expected, atol=1e-6, rtol=0)
    assert np.ptp(predicted) > 1e-5


def test_other_data_and_tensors_are_refused(folder, tmp_path, marginctl):
    model = folder / "m.safetensors"
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty").mkdir()
    for new, message in (("t.csv", "expected a folder of images"), ("empty", "no images")):
        ran = marginctl("predict", model, tmp_path / new)
        assert ran.status == 2
        assert message in ran.err
    file = load_model_file(model)
    file.tensors = {k: v for k, v in file.tensors.items() if k != "objective.weight"}
    with pytest.raises(RequestError, match="its tensors do not fit"):
        ImageModel.from_file(file)


def test_several_objectives_without_validation_are_refused(folder, marginctl, tmp_path):
    line = ["train", "--data", "digits", "--objective", "soft", "--objective", "arcface"]
    line += ["--set", "data.val_fraction=none", "--no-tune", "--out", tmp_path]
    ran = marginctl(*line, "--model", "mlp:width=8", "--save-model", tmp_path / "m")
    assert ran.status == 2
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("extra", [("--no-tune", "--set", "data.val_fraction=0.2"), ("--tune",)])
def test_a_fraction_of_the_training_images_can_choose(marginctl, tmp_path, extra):
    line = ["train", "--data", "digits", "--objective", "soft", "--objective", "arcface", "--out"]
    line += [tmp_path / "runs", "--model", "mlp:width=8", "--epochs", "2", "--device", "cpu"]
    line += ["--set", "data.subset_size=200", "--save-model", tmp_path / "m", *extra]
    ran = marginctl(*line)
    assert ran.status == 0, ran.err
    assert "best validation accuracy" in ran.err.splitlines()[-1]
    assert load_model_file(tmp_path / "m").record("images", ImageRecord).image_size == 8
