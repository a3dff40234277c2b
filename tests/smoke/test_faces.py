"""Identities in folders, and verification on others: `train`, `eval --pairs`, `report`.

Digits stand for faces: the networks see 0 to 6, and the pairs are of 7 to 9.
"""

import csv
import json
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from marginctl.metrics.verification import verification_metrics
from tests.data.helpers import load_in_memory, write

pytestmark = pytest.mark.smoke

PER_FOLD = 10


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """`known/digit0/...`, `others/digit7/...`, and LFW's list of pairs of the others."""
    root, stream = tmp_path_factory.mktemp("faces"), np.random.default_rng(0)
    digits = load_in_memory("digits", root)
    for digit in range(10):
        name = f"digit{digit}"
        folder = root / ("known" if digit < 7 else "others") / name
        folder.mkdir(parents=True)
        rows = np.flatnonzero(digits.train_y == digit)
        for i, row in enumerate(rows[:120], 1):
            Image.fromarray(digits.train.x[row, :, :, 0]).save(folder / f"{name}_{i:04d}.png")
    lines = [f"10\t{PER_FOLD}"]
    for _ in range(10):
        for _ in range(PER_FOLD):
            i, j = stream.choice(120, 2, replace=False) + 1
            lines.append(f"digit{stream.integers(7, 10)}\t{i}\t{j}")
        for _ in range(PER_FOLD):
            (a, b), (i, j) = stream.choice(3, 2, replace=False) + 7, stream.integers(1, 121, 2)
            lines.append(f"digit{a}\t{i}\tdigit{b}\t{j}")
    (root / "others" / "pairs.txt").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def store(marginctl, faces, folder):
    """Trained by the first test of each process: the same command again recomputes nothing."""
    if not any(folder.rglob("result.json")):
        assert trained(marginctl, faces, folder).status == 0
    return folder


def trained(marginctl, faces, store, *more):
    data = (
        "--set",
        "data.test_fraction=0.1",
        "--set",
        "data.image_size=16",
        "--set",
        "data.augment=none",
    )
    rate = (
        "--set",
        "optim.lr=polynomial(start=0.05,end=0,power=2)",
        "--set",
        "train.batch_size=32",
    )
    model = ("--model", "mnist-cnn:embedding=32,feature_dim=64")
    objectives = ("--objective", "cosine:scale=10", "--objective", "soft", "--no-tune")
    return marginctl(
        *("train", "--data", "folder:known", *data, *model, *objectives, *rate),
        *("--pairs", "others/pairs.txt", "--data-dir", faces, "--epochs", "3", "--device", "cpu"),
        *("--out", store, "--quiet", *more),
    )


def test_a_network_of_some_identities_verifies_others(marginctl, faces, store):
    ran = trained(marginctl, faces, store, "--json")
    assert ran.status == 0, ran.err
    cell = ran.json["cells"][0]
    assert cell["last"]["mean"] > 80
    accuracy = cell["verification"]["pairs others/pairs.txt accuracy"]["mean"]
    assert accuracy > 62  # chance is 50, its standard deviation 3.5
    folder = next(store.rglob("result.json")).parent
    (found,) = json.loads((folder / "result.json").read_text())["evaluation"]["verification"]
    assert (found["n"], found["folds"], found["folds_from"]) == (200, 10, "file")
    run = json.loads((folder / "run.json").read_text())
    assert run["pairs"] == [found["digest"]]
    assert run["recipe"]["pairs"] == ["others/pairs.txt"]
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rates = [json.loads(line)["lr"] for line in lines]
    steps = len(rates) * -(-7 * 108 // 32)
    last = [(e + 1) * steps // len(rates) - 1 for e in range(len(rates))]
    assert rates == pytest.approx([0.05 * (1 - step / steps) ** 2 for step in last])
    again = trained(marginctl, faces, store, "--dry-run", "--json")
    assert again.json["dry_run"]["to_do"] == 0
    shown = trained(marginctl, faces, store).out
    assert "others/pairs.txt accuracy %" in shown
    assert "Verification accuracy: after the last epoch, the mean over folds." in shown


def test_eval_verifies_as_the_training_did_and_keeps_the_scores(marginctl, faces, store, tmp_path):
    result = next(store.rglob("result.json"))
    (record,) = json.loads(result.read_text())["evaluation"]["verification"]
    pairs, scores = faces / "others" / "pairs.txt", tmp_path / "scores.csv"
    arguments = ("eval", result.parent, "--pairs", pairs, "--device", "cpu")
    ran = marginctl(*arguments, "--predictions", scores, "--json")
    assert ran.status == 0, ran.err
    (found,) = ran.json["verification"]
    assert ran.json["embedding"] == 32
    assert found == record | {"name": str(pairs)}
    rows = list(csv.DictReader(scores.open()))
    assert len(rows) == 200
    again = verification_metrics(
        *(np.array([float(row["cosine"]) for row in rows]),),
        *(np.array([row["same"] == "1" for row in rows]),),
        np.array([int(row["fold"]) - 1 for row in rows]),
    )
    assert again["auroc"] == pytest.approx(found["auroc"], abs=1e-4)
    text = marginctl(*arguments, "--flip").out
    assert "each with its mirror image's, 32 numbers" in text
    assert "pairs.txt: 100 pairs of one identity, 100 of two" in text
    assert "n = 10 folds (given by the file)" in text
    assert "no TAR at FAR 0.001, 0.0001: 100 pairs of two identities: fewer than one" in text


def test_eval_on_the_same_folder_tests_no_image_that_was_trained_on(marginctl, faces, store):
    """A folder that the training divided is divided so again, however it is named."""
    run = next(store.rglob("result.json")).parent
    given = ("eval", run, "--data-dir", faces, "--device", "cpu")
    own = marginctl(*given, "--json").json
    for name in ("folder:known", f"folder:{faces}/known"):
        again = marginctl(*given, "--data", name, "--json")
        assert again.status == 0, again.err
        assert [again.json[key] for key in ("n", "nll")] == [own[key] for key in ("n", "nll")]
    other = marginctl(*given, "--data", "folder:others")
    assert other.status == 2
    assert "class 'digit7' is none of the 7 classes of the network" in other.err


def test_the_report_has_a_column_of_it(marginctl, faces, store):
    ran = marginctl("report", store)
    assert ran.status == 0, ran.err
    assert "Verification of the pairs of others/pairs.txt, after the last epoch" in ran.out
    assert "EER %" in ran.out


def test_images_elsewhere_and_in_colour_for_a_network_of_streamed_ones(marginctl, faces, tmp_path):
    """Whole squares, streamed: prepared as in memory, and verified from a list elsewhere."""
    stream = ("--set", "data.load=stream", "--set", "data.augment=flip")
    data = (
        "--data",
        "folder:known",
        "--set",
        "data.test_fraction=0.1",
        "--set",
        "data.image_size=16",
    )
    options = ("--objective", "soft", "--epochs", "1", "--device", "cpu", "--quiet", "--json")
    ran = marginctl(
        *("train", *data, *stream, "--model", "mlp:width=32,depth=1,embedding=8", *options),
        *("--data-dir", faces, "--out", tmp_path / "runs"),
    )
    assert ran.status == 0, ran.err
    folder = next(tmp_path.rglob("result.json")).parent
    files = sorted((faces / "others").rglob("*.png"))[::20]
    lines = [f"{a} {b} {int(a.parent == b.parent)}" for a, b in pairwise(files)]
    pairs = write(tmp_path / "own.txt", "\n".join(lines).encode())
    given = ("eval", folder, "--pairs", pairs, "--pairs", faces / "others" / "pairs.txt")
    ran = marginctl(*given, "--images", faces / "others", "--device", "cpu", "--json")
    assert ran.status == 0, ran.err
    own, lfw = ran.json["verification"]
    assert (own["folds"], own["folds_from"], own["images"]) == (2, "order", len(files))
    assert lfw["folds_from"] == "file"


def refused(marginctl, *arguments):
    ran = marginctl(*arguments)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
    return ran.err


def test_what_cannot_be_is_one_line(marginctl, faces, store, tmp_path):
    folder = next(store.rglob("result.json")).parent
    pairs = faces / "others" / "pairs.txt"
    ask = ("eval", folder, "--device", "cpu", "--pairs")
    said = refused(marginctl, *ask, pairs, "--ood", "digits")
    assert said.startswith("error: --ood: cannot be combined with --pairs")
    said = refused(marginctl, "eval", folder, "--flip")
    assert said.startswith("error: --flip: needs --pairs FILE")
    assert "own.txt: cannot be read" in refused(marginctl, *ask, tmp_path / "own.txt")
    good = faces / "others" / "digit7" / "digit7_0001.png"
    bad = write(tmp_path / "bad.png", b"no image")
    own = write(tmp_path / "own.txt", f"{good} gone.png 1\n".encode())
    assert f"{own}: no pair of two identities among 1" in refused(marginctl, *ask, own)
    own.write_text(f"{good} bad.png 0\n{good} gone.png 1\n")
    assert f"{own}:2: no image {tmp_path}/gone.png" in refused(marginctl, *ask, own)
    own.write_text(f"{good} {faces}/others/digit7/digit7_0002.png 1\n{good} bad.png 0\n")
    said = refused(marginctl, *ask, own)
    assert said.startswith(f"error: {own}:2: {bad}: cannot be decoded: ")
    assert said.endswith("repair it, or remove its pairs from the list\n")
    elsewhere = ("--pairs", "others/none.txt", "--out", tmp_path / "runs")
    said = refused(marginctl, "train", "--data", "digits", *elsewhere)
    assert said.startswith("error: others/none.txt") or "none.txt: cannot be read" in said
    twice = ("--pairs", str(pairs), "--pairs", "others/pairs.txt", "--out", tmp_path / "runs")
    said = refused(marginctl, "train", "--data", "digits", *twice, "--data-dir", faces)
    assert said == "error: pairs others/pairs.txt: duplicate: name each list once\n"
    assert not (tmp_path / "runs").exists()
