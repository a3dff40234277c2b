"""`marginctl transfer` by real commands on small data."""

import csv
import json
import shutil

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from marginctl.runs.model_file import load_model_file
from marginctl.training.image_model import ImageRecord

SMALL = ("--device", "cpu", "--quiet")


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """A store of networks of digits: two objectives, two seeds."""
    from marginctl.cli import run

    store = tmp_path_factory.mktemp("networks")
    arguments = ["train", "--model", "mlp:width=16", "--epochs", "1", "--seeds", "2", *SMALL]
    arguments += ["--no-tune"]
    arguments += ["--objective", "soft", "--objective", "cosine:scale=10", "--out", str(store)]
    assert run(arguments) == 0
    return store


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Two classes, red and green, of awkward files in an awkward folder."""
    folder = tmp_path_factory.mktemp("Fotos für Ö")
    stream = np.random.default_rng(0)
    for part, count in (("train", 6), ("val", 3)):
        for number, label in enumerate(("grüne Blätter", "rote")):
            (folder / part / label).mkdir(parents=True)
            for i in range(count):
                pixels = stream.integers(0, 90, size=(20 + i, 24, 3), dtype=np.uint8)
                pixels[..., 1 - number] += 150
                Image.fromarray(pixels).save(folder / part / label / f"ein Bild {i}.png")
    image = Image.fromarray(pixels)
    image.convert("CMYK").save(folder / "train" / "rote" / "cmyk.jpg")
    image.resize((1, 1)).save(folder / "train" / "rote" / "one.png")
    return folder


@pytest.fixture(scope="module")
def convolutional(tmp_path_factory, photographs):
    """A network of those photographs, which takes images of any size."""
    from marginctl.cli import run

    store = tmp_path_factory.mktemp("convolutional")
    arguments = ["train", "--data", f"folder:{photographs}", "--model", "mobilenet:width=0.1"]
    arguments += ["--set", "data.image_size=16", "--epochs", "1", "--out", str(store), *SMALL]
    assert run(arguments) == 0
    return store


def test_a_sweep_of_networks_is_probed_row_by_row(marginctl, networks, tmp_path):
    arguments = ("transfer", "--from", networks, "--data", "digits", "--out", tmp_path, *SMALL)
    few = ("--set", "probe.l2_penalties=[0.1, 0.01]", "--set", "data.subset_size=300")
    planned = marginctl(*arguments, *few, "--dry-run").out
    assert "features of 660 images: about" in planned
    assert planned.splitlines()[-1].endswith("bootstrap intervals, the fit of a probe.")
    found = marginctl(*arguments, *few, "--json", "--predictions", tmp_path / "p.csv")
    assert found.status == 0, found.err
    cells = found.json["cells"]
    assert [(c["objective"], c["n"]) for c in cells] == [("cosine:scale=10", 2), ("soft", 2)]
    for cell in cells:
        assert cell["source_model"] == "digits, mlp:width=16"
        assert [t["source_model"]["seed"] for t in cell["trials"]] == [0, 1]
        assert cell["top1"]["mean"] == pytest.approx(np.mean([t["top1"] for t in cell["trials"]]))
        for trial in cell["trials"]:
            assert trial["top1"] > 40
            assert trial["n"] == 360
            low, high = trial["interval"]
            assert low < trial["top1"] < high
            assert trial["probe"]["fit"]["converged"]
            assert len(trial["per_class"]) == 10
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 360
    first = [r for r in rows if (r["objective"], r["source_seed"]) == ("soft", "0")]
    right = sum(r["label"] == r["predicted"] for r in first)
    assert 100 * right / 360 == pytest.approx(cells[1]["trials"][0]["top1"])
    # again: nothing is computed, and another seed takes the features that are there
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "features").iterdir()}
    assert len(kept) == 8
    assert marginctl(*arguments, *few, "--json").json["cells"] == cells
    assert (
        "features of 660 images: cached"
        in marginctl(*(*arguments, *few, "--seed", "1", "--dry-run")).out
    )
    assert marginctl(*arguments, *few, "--seed", "1").status == 0
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "features").iterdir()} == kept
    # what is damaged is said and made anew
    damaged = next(iter(kept))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    ran = marginctl(*arguments, *few, "--seed", "2")
    assert f"{damaged}: is corrupt: recomputing" in ran.err
    assert "cosine:scale=10" in ran.out
    found = marginctl(*arguments, *few, "--seed", "2", "--format", "markdown")
    assert "| data: source model | probe | n |" in found.out
    assert "| digits: digits, mlp:width=16 (soft) | " in found.out
    printed = marginctl(*arguments, *few, "--seed", "2", "--format", "csv").out
    assert printed.startswith("source_model,")
    # predictions that are gone come back
    path = next(tmp_path.rglob("predictions.csv"))
    path.unlink()
    marginctl(*arguments, *few, "--seeds", "3")
    assert path.exists()
    # a report compares what the networks were trained with, seed by seed
    report = marginctl("report", tmp_path, "--format", "json")
    assert report.err == ""
    of_store = {(c["row"], c["objective"]): c["n"] for c in report.json["trained"][0]["cells"]}
    row = "digits, probe of digits, mlp:width=16"
    assert [of_store[row + seed, "soft"] for seed in ("", ", seed=1", ", seed=2")] == [2, 2, 2]
    # a probe has no epochs, of which one could be the best
    assert {c["best"]["mean"] for c in report.json["trained"][0]["cells"]} == {None}
    said = marginctl("report", tmp_path).out
    assert "paired t-test" in said
    assert "Test top-1 in percent: mean ± standard deviation over n = 2 seeds" in said
    assert "best epoch" not in said


def test_fine_tuning_is_tuned_and_a_probe_is_not(marginctl, networks, tmp_path):
    (run, *_) = sorted(networks.rglob("run.json"))
    arguments = ("transfer", "--from", run.parent, "--data", "digits", "--out", tmp_path, *SMALL)
    more = ("--objective", "soft", "--objective", "cosine:scale=10", "--epochs", "1")
    ran = marginctl(*arguments, *more, "--method", "fine-tune", "--method", "probe", "--json")
    assert ran.status == 0, ran.err
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("result.json")]
    tuned = {(r["method"], r["candidates"]) for r in records if r["method"] == "fine-tune"}
    assert tuned == {("fine-tune", 11)}
    assert all("candidates" not in r for r in records if r["method"] == "probe")
    refused = marginctl(*arguments, "--tune")
    assert (refused.status, "add --method fine-tune" in refused.err) == (2, True)


def test_fine_tuning_beside_a_probe(marginctl, networks, tmp_path):
    arguments = ("transfer", "--from", networks, "--data", "digits", "--out", tmp_path, *SMALL)
    more = ("--method", "fine-tune", "--method", "probe", "--epochs", "2")
    more += ("--objective", "cosine:scale=10", "--set", "data.subset_size=200")
    found = marginctl(*arguments, *more, "--json", "--predictions", tmp_path / "p.csv")
    assert found.status == 0, found.err
    methods = {(c["method"], c["classifier"]) for c in found.json["cells"]}
    assert methods == {("fine-tune", "cosine:scale=10"), ("probe", "soft:bias=true")}
    tuned = next(c for c in found.json["cells"] if c["method"] == "fine-tune")["trials"][0]
    folder = next(tmp_path.rglob(f"{tuned['trial']}"))
    evaluated = marginctl("eval", folder, "--json", "--device", "cpu")
    assert evaluated.json["top1"] == pytest.approx(tuned["top1"], rel=1e-12)
    with (tmp_path / "p.csv").open() as file:
        own = [r for r in csv.DictReader(file) if r["method"] == "fine-tune"]
    assert len(own) == 4 * 360
    shown = marginctl(*arguments, *more, "--format", "markdown").out
    assert "| fine-tune, cosine:scale=10 | probe | n |" in shown
    assert "fine-tune, cosine:scale=10 against probe" in shown
    (first, _) = found.json["tests"]
    assert (first["baseline"], first["n"]) == ("probe", 2)
    refused = marginctl(*arguments, "--objective", "arcface", "--set", "seeds=[0]")
    assert refused.status == 2
    assert "objectives = arcface with method = probe: expected none" in refused.err
    assert marginctl("report", tmp_path).err == ""
    # a store that holds results of transfer beside networks is a folder of starts all the same
    shutil.copytree(networks, tmp_path, dirs_exist_ok=True)
    again = marginctl("transfer", "--from", tmp_path, *arguments[3:], *more, "--json")
    assert again.json["cells"][0]["n"] == 2


def test_a_folder_of_ones_own_needs_no_recipe(marginctl, convolutional, photographs, tmp_path):
    data = f"folder:{photographs}"
    arguments = ("transfer", "--from", convolutional, "--data", data, "--out", tmp_path, *SMALL)
    found = marginctl(*arguments, "--json", "--predictions", tmp_path / "p.csv")
    assert found.status == 0, found.err
    (trial,) = found.json["cells"][0]["trials"]
    assert trial["probe"]["images"] == 14
    assert [c["name"] for c in trial["per_class"]] == ["grüne Blätter", "rote"]
    text = (tmp_path / "p.csv").read_text("utf-8")
    assert "val/grüne Blätter/ein Bild 0.png,grüne Blätter," in text
    # decoded batch by batch: another cut, and other features
    found = marginctl(*arguments, "--set", "data.load=stream", "--json")
    assert found.status == 0, found.err
    assert len(list((tmp_path / "features").iterdir())) == 4


def test_a_folder_without_parts_is_divided_as_the_recipe_says(
    marginctl, convolutional, photographs, tmp_path
):
    data = f"folder:{photographs / 'train'}"
    share = ("--set", "data.test_fraction=0.5")
    arguments = ("transfer", "--from", convolutional, "--data", data, *share, "--out", tmp_path)
    found = marginctl(*arguments, "--json", "--predictions", tmp_path / "p.csv", *SMALL)
    assert found.status == 0, found.err
    (trial,) = found.json["cells"][0]["trials"]
    assert (trial["probe"]["images"], trial["n"]) == (7, 7)
    tested = [row["image"] for row in csv.DictReader((tmp_path / "p.csv").open(encoding="utf-8"))]
    assert len(set(tested)) == 7
    assert all((photographs / "train" / name).is_file() for name in tested)
    # a network trained so is evaluated on its test part alone
    small = ("--model", "mlp:width=4", "--epochs", "1", "--set", "data.image_size=8", *SMALL)
    assert marginctl("train", "--data", data, *share, "--out", tmp_path / "t", *small).status == 0
    trial = next((tmp_path / "t").rglob("result.json")).parent
    found = marginctl("eval", trial, "--json", "--device", "cpu")
    assert found.status == 0, found.err
    assert found.json["n"] == 7


def copy_of(photographs, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(photographs, root)
    return root


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("truncated", "rote/cut.png"),
        ("sixteen", "rote/deep.png"),
        ("text", "rote/text.jpg"),
        ("empty", "leer"),
        ("only tested", "class 'neu'"),
        ("no validation", "val"),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_line(
    marginctl, convolutional, photographs, tmp_path, change, said
):
    root = copy_of(photographs, tmp_path)
    train, picture = root / "train", root / "train" / "rote" / "ein Bild 0.png"
    if change == "truncated":
        (train / "rote" / "cut.png").write_bytes(picture.read_bytes()[:200])
    elif change == "sixteen":
        deep = np.full((20, 20), 40_000, np.uint16)
        Image.fromarray(deep).save(train / "rote" / "deep.png")
    elif change == "text":
        (train / "rote" / "text.jpg").write_text("no image")
    elif change == "empty":
        (train / "leer").mkdir()
    elif change == "only tested":
        (root / "val" / "neu").mkdir()
        shutil.copy(picture, root / "val" / "neu")
    else:
        shutil.rmtree(root / "val")
    for more in ((), ("--set", "data.load=stream")):
        ran = marginctl(
            *("transfer", "--from", convolutional, "--data", f"folder:{root}", *more),
            *("--out", tmp_path / "runs", *SMALL),
        )
        assert ran.status in (1, 2)
        assert said in ran.err
        assert len(ran.err.strip().splitlines()) == 1
        assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--data", "digits"), "key 'source_models' is missing"),
        (("--from", "NETWORKS"), "data.name is missing"),
        (("--from", "gone/", "--data", "digits"), "source_models = gone/: does not exist"),
        (("--from", "EMPTY", "--data", "digits"), "no finished trial is there"),
        (("--from", "NETWORKS", "--data", "nothing"), "unknown image set 'nothing'"),
        (("--from", "NETWORKS", "--data", "folder:gone"), "gone/train"),
        (
            ("--from", "NETWORKS", "--data", "digits", "--method", "prob"),
            "is not one of 'probe', 'fine-tune'",
        ),
        (
            ("--from", "NETWORKS", "--data", "digits", "--set", "data.label_noise=0.1"),
            "label_noise = 0.1 with method = probe",
        ),
        (
            ("--from", "NETWORKS", "--data", "digits", "--set", "ood=[mnist]"),
            "unknown key 'ood'",
        ),
        (
            ("--from", "NETWORKS", "--data", "digits", "--set", "model=resnet18"),
            "model = resnet18: the network of",
        ),
        (
            ("--from", "NETWORKS", "--data", "digits", "--set", "probe.l2_penalties=[0]"),
            "probe.l2_penalties.0 = 0",
        ),
        (("--from", "NETWORKS", "--data", "PHOTOGRAPHS"), "is no mlp:width=16 for images of 3 x"),
    ],
)
def test_a_wrong_request_is_one_line(
    marginctl, networks, photographs, tmp_path, monkeypatch, arguments, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    stand_for = {"NETWORKS": networks, "EMPTY": "empty", "PHOTOGRAPHS": f"folder:{photographs}"}
    ran = marginctl("transfer", *(stand_for.get(a, a) for a in arguments), *SMALL)
    assert ran.status == 2
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_a_trial_that_cannot_be_a_start_is_left_out_and_said(marginctl, networks, tmp_path):
    store = tmp_path / "networks"
    shutil.copytree(networks, store)
    first, *_ = sorted(store.rglob("result.json"))
    first.unlink()
    arguments = ("transfer", "--from", store, "--data", "digits", "--out", tmp_path / "r", *SMALL)
    few = ("--set", "probe.l2_penalties=[0.1]", "--set", "data.subset_size=100")
    ran = marginctl(*arguments, *few, "--json")
    assert f"source_models = {first.parent}: is not finished" in ran.err
    assert sum(cell["n"] for cell in ran.json["cells"]) == 3
    # one trial alone, and its checkpoint, are the same network
    trial = sorted(store.rglob("result.json"))[0].parent
    checkpoint = next((trial / "checkpoints").glob("step-*.pt"))
    found = marginctl(*arguments, *few, "--from", trial, "--from", checkpoint, "--json")
    assert sum(cell["n"] for cell in found.json["cells"]) == 3


def test_a_record_that_was_changed_is_named_by_a_report(marginctl, networks, tmp_path):
    few = ("--set", "probe.l2_penalties=[0.1]", "--set", "data.subset_size=100", *SMALL)
    marginctl("transfer", "--from", networks, "--data", "digits", "--out", tmp_path, *few)
    path = next(tmp_path.rglob("result.json"))
    from marginctl.runs.run_dir import checked_document, digest

    record = checked_document(path.read_text())
    del record["source_model"]["row"]
    path.write_text(json.dumps({**record, "sha256": digest(record)}))
    assert "'source_model.row' is missing" in marginctl("report", tmp_path).err


@pytest.mark.parametrize("scaling", ["standardised", "unit", "raw"])
def test_a_saved_probe_predicts_what_it_predicted(
    marginctl, convolutional, photographs, tmp_path, scaling
):
    data, model, predictions = f"folder:{photographs}", tmp_path / "m.model", tmp_path / "p.csv"
    arguments = ("transfer", "--from", convolutional, "--data", data, "--out", tmp_path, *SMALL)
    ran = marginctl(
        *(*arguments, "--set", f"probe.features={scaling}", "--predictions", predictions),
        *("--save-model", model),
    )
    assert ran.status == 0, ran.err
    new = marginctl("predict", model, photographs / "val", "--json")
    assert new.status == 0, new.err
    classes, expected = new.json["classes"], {}
    with predictions.open() as file:
        for row in csv.DictReader(file):
            expected[row["image"].removeprefix("val/")] = row
    assert len({row["predicted"] for row in expected.values()}) == 2  # it has learned
    for one in new.json["predictions"]:
        row = expected[one["file"]]
        assert one["prediction"] == row["predicted"]
        probability = one["probabilities"][classes.index(row["predicted"])]
        assert probability == pytest.approx(float(row["probability"]), abs=1.5e-6)


def test_the_best_of_two_heads_is_saved(marginctl, convolutional, photographs, tmp_path):
    data, model = f"folder:{photographs}", tmp_path / "m.model"
    arguments = ("transfer", "--from", convolutional, "--data", data, "--out", tmp_path / "r")
    both = (*arguments, *SMALL, "--method", "probe", "--method", "fine-tune", "--no-tune")
    both += ("--set", "optim.lr=1e-6", "--epochs", "1", "--save-model", model)
    refused = marginctl(*both)
    assert refused.status == 2
    assert "2 settings without a validation part" in refused.err
    ran = marginctl(*both, "--set", "data.val_fraction=0.3")
    assert ran.status == 0, ran.err
    assert "McNemar" in ran.out or "classify the same samples" in ran.out or "no test" in ran.out
    predicted = marginctl("predict", model, photographs / "val", "--json").json["predictions"]
    assert {one["prediction"] for one in predicted} == {"grüne Blätter", "rote"}


def test_a_report_of_heads_has_them_as_columns(marginctl, networks, tmp_path):
    arguments = ("transfer", "--from", networks, "--data", "digits", "--out", tmp_path, *SMALL)
    more = ("--method", "fine-tune", "--method", "probe", "--epochs", "1", "--no-tune")
    assert marginctl(*arguments, *more, "--set", "data.subset_size=200").status == 0
    report = marginctl("report", tmp_path, "--format", "json").json
    (table,) = report["trained"]
    assert {cell["objective"] for cell in table["cells"]} == {"probe", "fine-tune, soft:bias=true"}
    assert {cell["row"].partition(" (")[0] for cell in table["cells"]} == {
        "digits: digits, mlp:width=16"
    }
    assert {test["baseline"] for test in table["tests"]} == {"probe"}
    assert table["answers"][0]["n"] == 2
    row = table["cells"][0]["row"]
    explained = marginctl("report", tmp_path, "--explain", f"{row}/probe")
    page = marginctl("report", tmp_path, "--format", "html", "--output", tmp_path / "page.html")
    assert page.status == 0, page.err
    assert explained.status == 0, explained.err


def test_single_networks_are_tested_over_the_test_images(marginctl, networks, tmp_path):
    run = next(p.parent for p in sorted(networks.rglob("run.json")))
    arguments = ("transfer", "--from", run, "--data", "digits", "--out", tmp_path, *SMALL)
    more = ("--method", "fine-tune", "--method", "probe", "--epochs", "1", "--no-tune")
    ran = marginctl(*arguments, *more, "--json", "--predictions", tmp_path / "p.csv")
    (test,) = ran.json["tests"]
    assert test["test"] == "McNemar over test images"
    right = {}
    with (tmp_path / "p.csv").open() as file:
        for row in csv.DictReader(file):
            correct = row["label"] == row["predicted"]
            right.setdefault(row["method"], []).append(correct)
    a, b = np.array(right["fine-tune"]), np.array(right["probe"])
    assert test["n"] == len(a) == 360
    by_loss = marginctl(*arguments, *more, "--json", "--metric", "log_loss").json
    assert by_loss["answers"][0]["metric"] == "nll"
    losses = {c["head"]: c["metrics"]["nll"]["mean"] for c in by_loss["cells"]}
    assert by_loss["answers"][0]["best"] == min(losses, key=losses.get)
    expected = stats.binomtest(int((a & ~b).sum()), int((a ^ b).sum())).pvalue
    assert test["p"] == pytest.approx(expected)


def test_settings_of_fine_tuning_are_refused_for_a_probe(marginctl, networks, tmp_path):
    arguments = ("transfer", "--from", networks, "--data", "digits", "--out", tmp_path, *SMALL)
    refused = marginctl(*arguments, "--set", "optim.lr=0.1", "--epochs", "3")
    assert refused.status == 2
    assert "optim.lr, train.epochs with method = probe: expected none" in refused.err


def test_fine_tuning_on_own_data_is_compared_with_a_probe(marginctl, networks, tmp_path):
    run = next(p.parent for p in sorted(networks.rglob("run.json")))
    arguments = ("transfer", "--from", run, "--data", "digits", "--out", tmp_path, *SMALL)
    more = ("--method", "fine-tune", "--epochs", "1", "--no-tune")
    ran = marginctl(*arguments, *more, "--json", "--save-model", tmp_path / "m.model")
    assert ran.status == 0, ran.err
    assert [c["head"] for c in ran.json["cells"]] == ["fine-tune, soft:bias=true", "probe"]
    model = load_model_file(tmp_path / "m.model")
    assert "fine-tune" in model.record("images", ImageRecord).chosen  # no baseline is saved
    (table,) = marginctl("report", tmp_path, "--format", "json").json["trained"]
    assert {c["objective"] for c in table["cells"]} == {"probe", "fine-tune, soft:bias=true"}
    alone = marginctl(*arguments, *more, "--set", "baselines=[]", "--json")
    assert [c["head"] for c in alone.json["cells"]] == ["fine-tune, soft:bias=true"]
