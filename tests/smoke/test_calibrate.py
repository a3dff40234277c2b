"""`calibrate` as a user runs it: on a run of the built-in digits, an .npz and a CSV."""

import contextlib
import csv
import io

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from marginctl.calibration.methods import METHODS
from marginctl.cli import run as run_command
from tests.smoke.test_training import QUICK, SMALL

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a trial that was trained once for this module."""
    out = tmp_path_factory.mktemp("store")
    arguments = ("train", *QUICK, *SMALL, "--epochs", "4", "--out", out, "--quiet")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert run_command([str(a) for a in arguments]) == 0
    return next(out.rglob("run.json")).parent


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What a logistic regression says of digits that it was not fitted on, in files."""
    folder = tmp_path_factory.mktemp("outputs")
    x, y = load_digits(return_X_y=True)
    logits = LogisticRegression(max_iter=200).fit(x[:300], y[:300]).decision_function(x[300:900])
    labels = y[300:900]
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.savez(folder / "o.npz", logits=logits.astype(np.float32), labels=labels)
    np.savez(folder / "first.npz", logits=logits[:300], labels=labels[:300])
    np.savez(folder / "rest.npz", logits=logits[300:], labels=labels[300:])
    p = exp / exp.sum(1, keepdims=True)
    with open(folder / "o.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"prob_{c}" for c in range(10)), "label"])
        writer.writerows([*row, label] for row, label in zip(p, labels, strict=True))
    return folder


def test_all_methods_on_a_run(marginctl, run, tmp_path):
    figure = tmp_path / "figure.png"
    ran = marginctl(
        *("calibrate", run, "--device", "cpu", "--repeats", "2", "--bootstrap", "50"),
        *("--json", "--figure", figure),
    )
    assert ran.status == 0, ran.err
    assert f"wrote {figure}" in ran.err
    assert figure.read_bytes().startswith(b"\x89PNG")
    document = ran.json
    assert (document["n"], document["classes"], document["values"]) == (360, 10, "logits")
    assert [m["method"] for m in document["methods"]] == list(METHODS)
    assert "no image that the network was trained on is used" in document["notes"][0]
    top1 = marginctl("eval", run, "--device", "cpu", "--json").json["top1"]
    assert 100 * document["methods"][0]["before"]["accuracy"] == pytest.approx(top1, abs=3)
    heat = document["methods"][1]
    assert heat["parameters"]["temperature"] > 0
    for fit in heat["fits"]:
        assert fit["nll"] <= fit["nll_before"]


def test_eval_with_a_saved_calibrator(marginctl, run, tmp_path):
    saved, other = tmp_path / "calibrator.json", tmp_path / "other.json"
    made = marginctl(
        *("calibrate", run, "--method", "temperature", "--save", saved, "--device", "cpu"),
        *("--repeats", "1", "--bootstrap", "0", "--json"),
    )
    assert made.status == 0, made.err
    plain = marginctl("eval", run, "--device", "cpu", "--json").json
    found = marginctl("eval", run, "--calibration", saved, "--device", "cpu", "--json").json
    one = found.pop("calibrated")
    assert found == plain
    assert one["temperature"] == made.json["methods"][0]["parameters"]["temperature"]
    assert one["top1"] == pytest.approx(plain["top1"])
    assert one["nll"] < plain["nll"] + 0.02
    assert one["note"] == "the calibrator was fitted on 180 of these images"
    shown = marginctl("eval", run, "--calibration", saved, "--device", "cpu").out
    assert f"calibrated: temperature (T = {one['temperature']:.4f}) of" in shown
    few = {"logits": np.random.default_rng(0).normal(size=(20, 4)), "labels": np.arange(20) % 4}
    np.savez(tmp_path / "four.npz", **few)
    options = ("--method", "vector", "--save", other, "--bootstrap", "0")
    assert marginctl("calibrate", tmp_path / "four.npz", *options).status == 0
    refused = marginctl("eval", run, "--calibration", other, "--device", "cpu")
    assert refused.status == 2
    assert "a calibrator of 4 classes, and the network has 10" in refused.err
    assert marginctl("eval", run, "--calibration", run / "run.json").status == 2


def test_a_checkpoint_and_the_formats(marginctl, run):
    checkpoint = next((run / "checkpoints").glob("step-*.pt"))
    small = ("--method", "histogram", "--repeats", "2", "--bootstrap", "20", "--device", "cpu")
    table = marginctl("calibrate", checkpoint, *small)
    assert table.status == 0, table.err
    assert "histogram" in table.out
    assert "over 2 random stratified splits" in table.out
    markdown = marginctl("calibrate", checkpoint, *small, "--format", "markdown").out
    assert "| method | accuracy % | ECE % |" in markdown
    rows = list(
        csv.DictReader(io.StringIO(marginctl("calibrate", run, *small, "--format", "csv").out))
    )
    assert len(rows) == 2 * 7
    assert marginctl("calibrate", run, "--data", "digits", *small).status == 0


def test_an_npz_and_a_csv_of_the_same(marginctl, files):
    options = ("--method", "temperature", "--repeats", "2", "--bootstrap", "10", "--json")
    npz, text = (marginctl("calibrate", files / f"o.{s}", *options).json for s in ("npz", "csv"))
    assert (npz["values"], text["values"]) == ("logits", "probabilities")
    for part in ("before", "after"):
        for name in ("accuracy", "ece", "mce", "nll", "brier", "classwise_ece"):
            ours, theirs = (d["methods"][0][part][name] for d in (npz, text))
            assert ours == pytest.approx(theirs, rel=1e-4), name
    after, before = (npz["methods"][0][part]["nll"] for part in ("after", "before"))
    assert after < before
    (summary,) = text["summaries"].values()
    assert summary == {
        "kind": "outputs",
        "rows": 600,
        "classes": 10,
        "form": "probabilities",
        "remarks": [],
    }
    printed = marginctl("calibrate", files / "o.csv", *options).err
    assert printed.startswith(f"{files / 'o.csv'}: 600 rows of probabilities, 10 classes\n")


def test_samples_of_their_own_to_fit_on(marginctl, files):
    ran = marginctl(
        *("calibrate", files / "rest.npz", "--calibration", files / "first.npz", "--bins", "10"),
        *("--method", "temperature", "--method", "isotonic", "--json", "--seed", "3"),
    )
    document = ran.json
    assert document["bins"] == 10
    assert document["split"]["fitted_on"] == document["split"]["measured_on"] == 300
    assert document["split"]["calibration"] == str(files / "first.npz")
    interval = document["methods"][0]["after"]["interval"]
    assert set(interval) == {
        *("accuracy", "ece", "mce", "adaptive_ece", "classwise_ece", "nll", "brier")
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("o.npz", "--method", "temprature"), "Did you mean 'temperature'?"),
        (("o.npz", "--split", "1"), "'--split': '1': expected a fraction between 0 and 1"),
        (("o.npz", "--split", "nan"), "'--split': 'nan': expected a fraction between 0 and 1"),
        (("o.npz", "--repeats", "0"), "'--repeats': '0': expected an integer of at least 1"),
        (("o.npz", "--bins", "0"), "'--bins': '0': expected an integer of at least 1"),
        (("o.npz", "--bootstrap", "-1"), "'--bootstrap': '-1': expected an integer of at least 0"),
        (
            ("o.npz", "--calibration", "first.npz", "--split", "0.3"),
            "give samples to fit on, or split INPUT",
        ),
        (("o.npz", "--calibration", "absent.npz"), "absent.npz: cannot be read: No such file"),
        (("o.npz", "--save", "m.json"), "--save: one calibrator is saved: name its method"),
        (("o.npz", "--save", "o.npz", "--method", "vector"), "o.npz: is an input of this command"),
        (("o.npz", "--figure", "f.txt"), "expected a file name ending in .png, .svg, .pdf"),
        (("absent",), "does not exist: expected a run of marginctl train, or .npz with logits"),
        (("o.txt",), "no rows below the header"),
        (("o.pt",), "expected the folder of a trial of marginctl train"),
        (("nan.npz",), "logits: nan in row 2, class 1 (from 0): expected finite numbers"),
        (("outside.npz",), "labels: 3, expected 0 to 2"),
        (("one.npz",), "all 6 labels are 1: expected samples of two classes or more"),
        (("softmax.npz",), "these are probabilities: name them so"),
        (("keys.npz",), "keys: scores, y: expected .npz with logits or probabilities"),
        (("empty.npz",), "the file is empty"),
        (("empty.csv",), "the file is empty"),
        (("few.npz",), "2 samples at --split 0.5: 1 to fit on and 1 held out"),
    ],
)
def test_what_is_wrong_is_one_line(marginctl, files, monkeypatch, arguments, message):
    monkeypatch.chdir(files)
    f, y = np.random.default_rng(1).normal(size=(6, 3)), np.arange(6) % 3
    broken = f.copy()
    broken[2, 1] = np.nan
    np.savez("nan.npz", logits=broken, labels=y)
    np.savez("outside.npz", logits=f, labels=y + 1)
    np.savez("one.npz", logits=f, labels=np.ones(6, int))
    np.savez("softmax.npz", logits=np.full((6, 3), 1 / 3), labels=y)
    np.savez("keys.npz", scores=f, y=y)
    np.savez("few.npz", logits=f[:2], labels=y[:2])
    for name in ("empty.npz", "empty.csv"):
        (files / name).touch()
    (files / "o.txt").write_text("text")
    (files / "o.pt").write_text("text")
    ran = marginctl("calibrate", *arguments, "--quiet")
    assert ran.status == 2
    assert message in ran.err
    assert ran.out == ""
    assert len(ran.err.strip().splitlines()) == 1
    assert ran.err.startswith("error: ")
