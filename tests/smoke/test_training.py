"""`train`, `eval` and `report` as a user runs them, on the built-in digits."""

import base64
import contextlib
import io
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from marginctl.cli import run as run_command
from tests.conftest import Ran

pytestmark = pytest.mark.smoke

QUICK = ("--data", "digits", "--model", "mnist-cnn:feature_dim=16", "--device", "cpu")
SMALL = ("--set", "data.subset_size=300", "--set", "train.batch_size=50", "--set")
HUGE = ("--set", "optim.optimizer=sgd", "--set", "optim.lr=1e6")
SMALL += ("optim.optimizer=adam", "--set", "optim.lr=0.01")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store with two objectives and two seeds, trained once for this module."""
    out = tmp_path_factory.mktemp("store")
    arguments = ("train", *QUICK, *SMALL, "--epochs", "3", "--seeds", "2", "--no-tune")
    arguments += ("--out", out)
    objectives = ("--objective", "soft", "--objective", "cosine-learned", "--json")
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        status = run_command([str(a) for a in (*arguments, *objectives)])
    return out, arguments, Ran(status, stdout.getvalue(), stderr.getvalue())


def test_options_alone_train_and_write_the_recipe(marginctl, trained, tmp_path):
    out, _, ran = trained
    assert ran.status == 0
    cells = ran.json["cells"]
    assert [c["objective"] for c in cells] == ["soft", "cosine-learned"]
    assert all(c["n"] == 2 and c["last"]["mean"] > 30 for c in cells)
    assert all(c["best"]["mean"] >= c["last"]["mean"] for c in cells)
    name = "digits-mnist-cnn-feature_dim-16"
    recipe = out / name / f"{name}.yaml"
    planned = marginctl("train", recipe, "--out", out, "--dry-run", "--json").json["dry_run"]
    assert (planned["trials"], planned["to_do"]) == (4, 0)


def test_what_is_done_is_not_done_again(marginctl, trained):
    out, arguments, _ = trained
    stamps = {p: p.stat().st_mtime_ns for p in out.rglob("result.json")}
    assert len(stamps) == 4
    objectives = ("--objective", "soft", "--objective", "cosine-learned")
    again = marginctl(*arguments, *objectives, "--format", "markdown")
    assert again.status == 0
    assert {p: p.stat().st_mtime_ns for p in out.rglob("result.json")} == stamps
    assert again.out.startswith("Best on digits, ")
    assert "| data, model | objective | n |" in again.out
    assert marginctl(*arguments, *objectives, "--format", "csv").out.count("\n") == 3
    planned = marginctl(*arguments, "--objective", "arcgrad", "--dry-run")
    assert "2 trials, 2 pending on cpu" in planned.out


def test_a_run_folder_explains_itself(trained):
    out, _, _ = trained
    for run in out.rglob("run.json"):
        about = json.loads(run.read_text())
        assert about["recipe"]["train"]["epochs"] == 3
        lines = [json.loads(s) for s in (run.parent / "metrics.jsonl").read_text().splitlines()]
        assert [line["epoch"] for line in lines] == [1, 2, 3]
        assert all(0 < line["lr"] <= 0.1 for line in lines)
        assert {"top1", "top5", "nll", "n", "collapsed"} == set(lines[0]["test"])
        assert sum(lines[0]["objective"]["target_angle"]["histogram"]) == 360
        if "cosine" in about["objective"]:
            assert lines[-1]["objective"]["scale"] != lines[0]["objective"]["scale"]
        result = json.loads((run.parent / "result.json").read_text())
        assert result["last"]["epoch"] == 3
        assert len(result["weights_sha256"]) == 64
        evaluation = result["evaluation"]
        assert sum(b["count"] for b in evaluation["calibration"]["reliability"]) == 360
        assert evaluation["angles"]["samples"] == 360
        assert 0 < result["timing"]["epoch_seconds"] < result["timing"]["seconds"]


def test_report_shows_trained_runs(marginctl, trained):
    out, _, _ = trained
    shown = marginctl("report", out)
    assert shown.status == 0
    assert "digits, mnist-cnn:feature_dim=16" in shown.out
    document = marginctl("report", out, "--format", "json").json
    assert document["problems"] == []
    assert [c["n"] for c in document["trained"][0]["cells"]] == [2, 2]
    assert marginctl("report", out, "--paper", "arcgrad").out == ""


def test_eval_of_a_folder_and_of_a_checkpoint(marginctl, trained, tmp_path):
    out, _, _ = trained
    for run in sorted(out.rglob("run.json")):
        found = marginctl("eval", run.parent, "--json").json
        result = json.loads((run.parent / "result.json").read_text())
        assert found["top1"] == pytest.approx(result["last"]["top1"])
        assert found["nll"] == pytest.approx(result["last"]["nll"], abs=1e-5)
        low, high = found["top1_interval"]
        assert low < found["top1"] < high
        assert sum(map(sum, found["confusion"])) == found["n"] == 360
        assert found["calibration"] == result["evaluation"]["calibration"]
        assert found["angles"] == result["evaluation"]["angles"]
    checkpoint = next(iter((run.parent / "checkpoints").glob("step-*.pt")))
    text = marginctl("eval", checkpoint, "--bins", "10")
    assert "ECE, MCE: 10 bins" in text.out
    best = marginctl("eval", run.parent, "--checkpoint", "best", "--json").json
    assert best["top1"] == pytest.approx(result["best"]["top1"])


def test_eval_names_what_is_wrong(marginctl, trained, tmp_path):
    out, _, _ = trained
    run = next(iter(out.rglob("run.json"))).parent
    absent = marginctl("eval", tmp_path / "absent")
    assert absent.status == 2
    assert "expected the folder of a trial of marginctl train" in absent.err
    assert "expected the folder of a trial of marginctl" in marginctl("eval", tmp_path).err
    copy = tmp_path / "copy"
    (copy / "checkpoints").mkdir(parents=True)
    original = next(iter((run / "checkpoints").glob("step-*.pt")))
    damaged = copy / "checkpoints" / original.name
    damaged.write_bytes(original.read_bytes()[:-9])
    (copy / "run.json").write_text((run / "run.json").read_text())
    assert "is corrupt: checksum mismatch" in marginctl("eval", damaged).err
    damaged.write_bytes(original.read_bytes())
    about = json.loads((run / "run.json").read_text())
    about["recipe"]["model"] = "mlp"
    (copy / "run.json").write_text(json.dumps(about))
    assert "holds another network than mlp" in marginctl("eval", copy).err


def test_a_recipe_with_a_grid(marginctl, tmp_path):
    path = tmp_path / "noise.yaml"
    path.write_text(
        """# Label noise.
task: train
data: {name: digits, subset_size: 200, augment: random-crop}
model: mlp:width=16
objectives: [soft, arcgrad]
optim: {optimizer: adam, lr: 1e-2}
train: {epochs: 2, batch_size: 50, grad_accum_steps: 2, evaluate_every: 2}
grid: {data.label_noise: [0.0, 0.4], train.batch_size: [50]}
"""
    )
    ran = marginctl("train", path, "--out", tmp_path / "runs", "--device", "cpu")
    assert ran.status == 0
    assert "digits, mlp:width=16, label_noise=0.4, batch_size=50" in ran.out
    assert marginctl("recipes", "validate", path).status == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "minst"), "--data: unknown image set 'minst'"),
        (("--model", "resnet19"), "unknown model 'resnet19'"),
        (("--model", "mlp:width=0"), "width = '0': expected an integer at least 1"),
        (("--objective", "sotf"), "unknown objective 'sotf'"),
        (("--set", "optim.lr=0"), "optim.lr = 0: expected a number above 0"),
        (("--set", "optim.lrr=0.1"), "unknown key 'optim.lrr'"),
        (("--set", "train.epochs=0"), "train.epochs = 0: expected greater than or equal to 1"),
        (("--set", "grid={data.shar: [1]}"), "grid: unknown key 'data.shar'"),
        (
            ("--set", "grid={data.subset_fraction: [2.0]}"),
            "grid.data.subset_fraction.0 = 2.0: expected less than",
        ),
        (
            ("--set", "data.subset_size=3"),
            "data.subset_size = 3: expected 10 (one of each class) .. 1437",
        ),
        (("--model", "vgg16"), "model 'vgg16': images of 8 x 8 pixels: expected at least 32"),
        (("--seed", "1", "--seeds", "2"), "--seed and --seeds: give one of them"),
        (("--device", "cuda:99"), "--device cuda:99: this machine has"),
        (("arcgrad/table1",), "run it with marginctl uci-cv arcgrad/table1"),
        (("--data", "folder:/nowhere"), "/nowhere"),
        (("--data", "mnist", "--data-dir", "nowhere"), "nowhere"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_trained(marginctl, tmp_path, arguments, message):
    ran = marginctl("train", *arguments, "--out", tmp_path / "runs")
    assert ran.status == 2
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert all(line.startswith("error: ") for line in ran.err.splitlines())
    assert not (tmp_path / "runs").exists()


def test_divergence_is_a_result_and_exit_1(marginctl, tmp_path):
    arguments = ("train", *QUICK, *SMALL, "--epochs", "2", "--out", tmp_path, "--device", "cpu")
    ran = marginctl(*arguments, *HUGE, "--json")
    assert ran.status == 1
    assert ran.json["cells"][0]["diverged"] == 1
    assert ran.json["cells"][0]["last"]["mean"] is None
    assert "diverged: the loss is not finite at step" in ran.err
    again = marginctl(*arguments, *HUGE)
    assert again.status == 1


def test_training_on_a_terminal(marginctl, tmp_path, on_terminal):
    ran = marginctl("train", *QUICK, *SMALL, "--epochs", "2", "--out", tmp_path)
    assert ran.status == 0
    assert "1/1 trials" in ran.err


@pytest.mark.parametrize(
    "variables",
    [
        {"FORCE_COLOR": "1"},
        {"FORCE_COLOR": "3", "COLUMNS": "40"},
        {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"},
        {"CLICOLOR_FORCE": "1", "TERM": "xterm-256color", "COLORTERM": "truecolor"},
    ],
)
def test_a_log_file_is_plain_whatever_the_environment_says(
    marginctl, tmp_path, monkeypatch, variables
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ran = marginctl("train", *QUICK, *SMALL, "--epochs", "1", "--out", tmp_path)
    assert ran.status == 0
    assert "\x1b" not in ran.out + ran.err
    lines = ran.out.splitlines()
    if "COLUMNS" in variables:  # a pipe honors it, and nothing else
        assert max(map(len, lines)) <= int(variables["COLUMNS"])
        assert [line for line in lines if line.startswith("digits, ")]
        assert "objective: soft" in " ".join(ran.out.split())
        assert re.search(r"last epoch: \d+\.\d\d\n", ran.out)
    else:
        assert any(line.startswith("digits, ") and "soft" in line for line in lines)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of two classes of small pictures."""
    folder = tmp_path_factory.mktemp("Bilder für Ö")
    stream = np.random.default_rng(0)
    for part, count in (("train", 4), ("val", 2)):
        for label in ("bees", "ants"):
            (folder / part / label).mkdir(parents=True)
            for i in range(count):
                picture = stream.integers(0, 256, size=(40, 48, 3), dtype=np.uint8)
                Image.fromarray(picture).save(folder / part / label / f"{i}.png")
    return folder


@pytest.mark.parametrize(
    "model",
    [
        *("layer13:width=0.1", "layer13:last=1x1,width=0.1", "resnet18", "resnet50", "wrn-16-8"),
        *("vgg16", "vgg16-mod", "mobilenet:width=0.25", "mlp:depth=1", "torchvision/mobilenet_v2"),
    ],
)
def test_every_backbone_learns_a_folder_of_pictures(marginctl, pictures, tmp_path, model):
    small = ("--set", "data.image_size=32", "--set", "train.batch_size=8", "--set", "optim.lr=0.01")
    arguments = ("train", "--data", f"folder:{pictures}", "--model", model, *small)
    ran = marginctl(*arguments, "--epochs", "1", "--out", tmp_path, "--json", "--device", "cpu")
    assert ran.status == 0, ran.err
    assert ran.json["cells"][0]["n"] == 1
    assert ran.json["cells"][0]["last"]["mean"] in (0.0, 25.0, 50.0, 75.0, 100.0)


@pytest.mark.parametrize("name", ["mnist", "cifar-100"])
def test_real_images(marginctl, tmp_path, data_dir, name):
    few = ("--set", "data.subset_size=300", "--set", "data.label_noise=0.1", "--epochs", "1")
    ran = marginctl(
        *("train", "--data", name, "--model", "mlp:width=16", "--data-dir", data_dir),
        *(*few, "--out", tmp_path, "--json"),
    )
    assert ran.status == 0, ran.err
    run = next(tmp_path.rglob("run.json")).parent
    found = marginctl("eval", run, "--data-dir", data_dir, "--json").json
    assert found["n"] == 10_000
    assert found["top5"] >= found["top1"]
    other = marginctl("eval", run, "--data", "digits", "--data-dir", data_dir)
    assert other.status == 2
    expected = (
        "does not take the images of digits"
        if name == "mnist"
        else "class '0' is none of the 100 classes"
    )
    assert expected in other.err


MLP = (
    "--model",
    "mlp:width=8",
    "--set",
    "data.subset_size=100",
    "--epochs",
    "3",
    "--device",
    "cpu",
)


def result_in(out):
    (path,) = out.rglob("result.json")
    return path, json.loads(path.read_text())


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"epoch": 1e999}\n', '{"epoch": 2}\nNaN\n'])
def test_lost_metrics_come_back_from_the_checkpoint(marginctl, tmp_path, text):
    arguments = ("train", *MLP, "--out", tmp_path)
    assert marginctl(*arguments).status == 0
    path, before = result_in(tmp_path)
    path.unlink()
    (path.parent / "metrics.jsonl").write_text(text)
    assert marginctl(*arguments).status == 0
    _, after = result_in(tmp_path)
    for record in (before, after):
        del record["timing"]["sha256"]["run.json"]  # it says when the command began
    assert {**after, "sha256": 0} == {**before, "sha256": 0}
    assert len((path.parent / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_checkpoint_of_another_trial_is_not_used(marginctl, tmp_path):
    arguments = ("train", *MLP, "--out", tmp_path, "--seeds", "2")
    marginctl(*arguments)
    one, two = sorted(
        tmp_path.rglob("result.json"), key=lambda p: json.loads(p.read_text())["seed"]
    )
    before = json.loads(one.read_text())["weights_sha256"]
    one.unlink()
    for path in (one.parent / "checkpoints").glob("step-*.pt"):
        path.unlink()
    for path in (two.parent / "checkpoints").glob("step-*.pt"):
        shutil.copy(path, one.parent / "checkpoints")
    again = marginctl(*arguments)
    assert "belongs to another trial" in again.err
    assert "restarting" in again.err
    assert json.loads(one.read_text())["weights_sha256"] == before


def test_other_versions_train_anew(marginctl, tmp_path, monkeypatch):
    from marginctl.training import trainer

    arguments = ("train", *MLP, "--out", tmp_path)
    monkeypatch.setattr(trainer, "versions", lambda: {"torch": "1.0", "numpy": "1.0"})
    marginctl(*arguments)
    path, _ = result_in(tmp_path)
    path.unlink()
    monkeypatch.undo()
    again = marginctl(*arguments)
    assert "its checkpoint is from torch 1.0, this is" in again.err
    assert "resuming from" not in again.err


def test_report_keeps_what_differs_apart(marginctl, tmp_path):
    arguments = ("train", *MLP, "--out", tmp_path)
    for more in ((), ("--set", "data.subset_size=200"), ("--set", "optim.lr=0.01")):
        assert marginctl(*arguments, *more).status == 0
    document = marginctl("report", tmp_path, "--format", "json").json
    assert document["problems"] == []
    assert [cell["n"] for t in document["trained"] for cell in t["cells"]] == [1, 1, 1]
    # a trial that stood alone before enters the rows of a grid
    grid = ("--set", "grid={optim.lr: [0.01, 0.02, 1e-2]}")
    shown = marginctl(*arguments, *grid, "--json").json["cells"]
    assert [(c["row"][-7:], c["n"]) for c in shown] == [("lr=0.01", 1), ("lr=0.02", 1)]
    document = marginctl("report", tmp_path, "--format", "json").json
    assert sorted(len(t["cells"]) for t in document["trained"]) == [1, 1, 2]


def test_other_images_need_not_be_as_many(marginctl, pictures, tmp_path):
    """Trained for more steps than the other images would take."""
    for part in ("train", "val"):
        for label in ("ants", "bees"):
            for i in range(20 if part == "train" else 2):
                target = tmp_path / "more" / part / label / f"{i}.png"
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(pictures / part / label / f"{i % 2}.png", target)
    small = ("--set", "data.image_size=8", "--set", "train.batch_size=2", "--device", "cpu")
    arguments = ("--data", f"folder:{tmp_path / 'more'}", "--model", "mlp:width=4", *small)
    assert marginctl("train", *arguments, "--epochs", "1", "--out", tmp_path / "r").status == 0
    run = next((tmp_path / "r").rglob("run.json")).parent
    found = marginctl("eval", run, "--data", f"folder:{pictures}", "--json")
    assert found.status == 0, found.err
    assert found.json["n"] == 4


def test_what_a_network_cannot_do_is_one_line(marginctl, tmp_path, pictures):
    out = ("--out", tmp_path / "runs", "--device", "cpu")
    small = ("--set", "data.subset_size=11", "--set", "train.batch_size=1", "--epochs", "1")
    ran = marginctl("train", "--model", "resnet18", *small, *out)
    assert ran.status == 2
    assert "batch normalisation needs more than one value per channel" in ran.err
    ran = marginctl("train", "--set", "optim.nesterov=true", "--set", "optim.momentum=0.0", *out)
    assert ran.status == 2
    assert "optim.nesterov = true with optimizer = sgd and momentum = 0" in ran.err
    for part in ("train", "val"):
        shutil.copytree(pictures / part / "ants", tmp_path / "one [b]" / part / "ants")
    ran = marginctl("train", "--data", f"folder:{tmp_path / 'one [b]'}", *out)
    assert ran.status == 2
    assert "1 class: expected at least 2" in ran.err


def test_a_run_json_that_is_gone_comes_back(marginctl, tmp_path):
    arguments = ("train", *MLP, "--out", tmp_path)
    marginctl(*arguments)
    path, _ = result_in(tmp_path)
    (path.parent / "run.json").unlink()
    assert "run.json is missing" in marginctl("report", tmp_path).err
    assert marginctl(*arguments).status == 0
    assert marginctl("report", tmp_path).err == ""
    about = json.loads((path.parent / "run.json").read_text())
    for change in ({"seed": "x"}, {"recipe": {**about["recipe"], "model": "gone"}}, {"timing": {}}):
        (path.parent / "run.json").write_text(json.dumps({**about, **change}))
        ran = marginctl("eval", path.parent)
        assert ran.status == 2
        assert "is missing, corrupt or not of marginctl train" in ran.err
        assert "run.json is" in marginctl("report", tmp_path).err


def test_a_comparison_of_digits_is_tuned_alike(marginctl, tmp_path):
    """Both objectives choose among as many candidates; another rate among these changes nothing."""
    arguments = ("train", *QUICK, *SMALL, "--epochs", "1", "--objective", "soft", "--out", tmp_path)
    both = (*arguments, "--objective", "cosface", "--json")
    first = marginctl(*both)
    assert first.status == 0, first.err
    assert "tuning, round 1 of 2: 11 candidates" in first.err
    other = marginctl(*both, "--set", "optim.lr=0.001")  # SMALL has 0.01
    for one, two in zip(first.json["cells"], other.json["cells"], strict=True):
        assert (one["last"], one["chosen"]) == (two["last"], two["chosen"])
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("result.json")]
    assert {record["candidates"] for record in records} == {11}
    text = marginctl(*arguments, "--objective", "cosface").out
    assert "The epoch is chosen on the validation part; the test part is measured once." in text
    assert f"chosen on the validation part: {first.json['cells'][0]['chosen'][0]}" in " ".join(
        text.split()
    )
    recipe = next(tmp_path.glob("*/*.yaml"))
    run = next(path.parent for path in tmp_path.rglob("result.json") if "cosface" in str(path))
    evaluated = marginctl("eval", run, "--json").json
    record = json.loads((run / "result.json").read_text())
    assert evaluated["top1"] == record["last"]["top1"]
    assert evaluated["nll"] == pytest.approx(record["last"]["nll"], abs=1e-6)
    report = marginctl("report", tmp_path, "--metric", "ece", "--format", "json").json["trained"][0]
    answer, ece = report["answers"][0], {c["objective"]: c["ece"] for c in report["cells"]}
    assert (answer["metric"], answer["best"]) == ("ece", min(ece, key=lambda o: ece[o]["mean"]))
    assert answer["mean"] == ece[answer["best"]]["mean"]
    shown = marginctl("report", tmp_path, "--metric", "ece").out
    assert ": recall of each class in percent" in " ".join(shown.split())
    assert "true classes (rows) and predicted classes (columns)" in " ".join(shown.split())
    page = tmp_path / "page.html"
    marginctl("report", tmp_path, "--metric", "ece", "--format", "html", "--output", page)
    figures = re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page.read_text())
    assert any(b"test ECE %" in base64.b64decode(figure) for figure in figures)  # the dot plot
    ranked = marginctl(*arguments, "--objective", "cosface", "--metric", "macro_f1", "--json").json
    assert {test["metric"] for test in ranked["tests"]} == {"macro_f1"}
    assert "tune:\n  rates: null" in recipe.read_text()


def test_tuning_that_cannot_be_is_refused(marginctl, tmp_path):
    arguments = ("train", *QUICK, "--tune", "--out", tmp_path)
    refused = marginctl(*arguments, "--set", "grid.optim.lr=[0.1,0.01]")
    assert (refused.status, "the grid sets optim.lr" in refused.err) == (2, True)
    refused = marginctl(*arguments, "--set", "second_stage={}")
    assert (refused.status, "second stage" in refused.err) == (2, True)


def test_train_val_and_test_folders(marginctl, tmp_path):
    from PIL import Image

    for part, count in (("train", 6), ("val", 3), ("test", 4)):
        for c, name in enumerate(("dark", "light")):
            (tmp_path / "d" / part / name).mkdir(parents=True)
            for i in range(count):
                place = tmp_path / "d" / part / name / f"{i}.png"
                Image.new("RGB", (8, 8), (200 * c + i, 9, 9)).save(place)
    arguments = ("train", "--data", f"folder:{tmp_path / 'd'}", "--model", "mlp:width=8")
    arguments += ("--epochs", "2", "--set", "data.image_size=8", "--out", tmp_path / "r")
    ran = marginctl(*arguments)
    assert ran.status == 0, ran.err
    assert "val/ is the validation part" in ran.err
    _, record = result_in(tmp_path / "r")
    assert (record["validation"]["n"], record["last"]["n"]) == (6, 8)
    refused = marginctl(*arguments, "--set", "data.val_fraction=0.2")
    assert "leave data.val_fraction out" in refused.err
