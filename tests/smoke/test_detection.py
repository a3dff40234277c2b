"""Errors and foreign images told from the rest, by `train`, `eval` and `report`."""

import json

import pytest

from marginctl.data.images.registry import OPENOOD_SETS

pytestmark = pytest.mark.smoke

SMALL = (
    "--set",
    "data.subset_size=600",
    "--set",
    "optim.lr=0.02",
    "--epochs",
    "2",
    "--device",
    "cpu",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def store(marginctl, data_dir, folder):
    """Trained by the first test of each process: the same command again recomputes nothing."""
    if not any(folder.rglob("result.json")):
        assert trained(marginctl, folder).status == 0
    return folder


def trained(marginctl, store, *more):
    objectives = ("--objective", "soft", "--objective", "cosine:scale=10")
    foreign = ("--ood", "near=fashion-mnist", "--ood", "digits")
    options = ("--data", "mnist", "--model", "mlp:width=32", *objectives, *foreign, *SMALL)
    return marginctl(
        "train", *options, "--seeds", "2", "--no-tune", "--out", store, "--quiet", *more
    )


def test_a_training_records_what_its_networks_tell_apart(marginctl, data_dir, store):
    ran = trained(marginctl, store, "--json")
    assert ran.status == 0, ran.err
    cell = ran.json["cells"][0]
    assert 0 < cell["detection"]["misclassification aupr_in max_similarity"]["mean"] <= 1
    results = sorted(store.rglob("result.json"))
    assert len(results) == 4
    assert all(path.stat().st_size < 40_000 for path in results)
    found = json.loads(results[0].read_text())["evaluation"]["detection"]
    fashion, digits = found["ood"]
    assert [(one["name"], one["group"]) for one in found["ood"]] == [
        ("fashion-mnist", "near"),
        ("digits", None),
    ]
    assert (fashion["n_in"], fashion["n_out"], digits["n_out"]) == (10_000, 10_000, 360)
    assert found["misclassification"]["n_in"] + found["misclassification"]["n_out"] == 10_000
    low, high = fashion["scores"]["max_similarity"]["auroc_interval"]
    assert low < fashion["scores"]["max_similarity"]["auroc"] < high
    assert found["groups"]["near"]["energy"]["auroc"] == fashion["scores"]["energy"]["auroc"]
    run = json.loads((results[0].parent / "run.json").read_text())
    assert run["ood"] == [["near", fashion["digest"]], [None, digits["digest"]]]
    assert trained(marginctl, store, "--dry-run", "--json").json["dry_run"]["to_do"] == 0


def test_eval_finds_what_the_training_recorded(marginctl, data_dir, store, tmp_path):
    folder = next(path.parent for path in sorted(store.rglob("result.json")))
    record = json.loads((folder / "result.json").read_text())["evaluation"]["detection"]
    figure = tmp_path / "detection.svg"
    arguments = ("eval", folder, "--ood", "near=fashion-mnist", "--device", "cpu")
    ran = marginctl(*arguments, "--figure", figure, "--json")
    assert ran.status == 0, ran.err
    assert (ran.err, figure.stat().st_size > 10_000) == (f"wrote {figure}\n", True)
    found = ran.json["detection"]
    for ours, theirs in (
        (found["misclassification"], record["misclassification"]),
        (found["ood"][0], record["ood"][0]),
    ):
        for name, score in theirs["scores"].items():
            for key, value in score.items():
                assert ours["scores"][name][key] == pytest.approx(value), (name, key)
    assert len(found["misclassification"]["scores"]["max_similarity"]["roc"]) == 101
    text = marginctl("eval", folder, "--device", "cpu").out
    assert "correct (in)" in text
    assert f"{record['misclassification']['scores']['max_similarity']['aupr_in']:8.4f}" in text
    assert "OOD" not in text


def test_the_report_shows_them_in_every_format(marginctl, data_dir, store, tmp_path):
    for kind in ("table", "markdown", "latex", "html"):
        file = tmp_path / f"report.{kind}"
        assert marginctl("report", store, "--format", kind, "--output", file).status == 0
        out = file.read_text().replace("\\_", "_").replace("<wbr>", "")
        assert "Misclassification detection (MISS)" in out, kind
        for score in ("max similarity", "feature norm"):
            assert f"OOD fashion-mnist detection by {score}; -In, -Out: " in out, kind
        assert out.count("FPR95-Out") == out.count("AUPR-Out") >= 6, kind
        assert out.count("AUROC") >= 6, kind
    document = marginctl("report", store, "--format", "json").json
    tests = document["trained"][0]["tests"]
    paired = [t for t in tests if t["metric"] == "ood digits auroc feature_norm"]
    assert [t["n"] for t in paired] == [2]


def test_openood_names_the_sets_and_those_without_a_name(
    marginctl, data_dir, store, tmp_path, monkeypatch
):
    sets = {"near": ("digits", "no-such-set"), "far": ("fashion-mnist",)}
    monkeypatch.setitem(OPENOOD_SETS, "mnist", sets)
    line = "ood openood: not available by name: no-such-set (near): add their images by --ood "
    folder = next(path.parent for path in sorted(store.rglob("result.json")))
    ran = marginctl("eval", folder, "--ood", "openood", "--device", "cpu", "--json")
    assert (ran.status, ran.err.startswith(line), ran.err.count("\n")) == (0, True, 1)
    ood = [(one["name"], one["group"]) for one in ran.json["detection"]["ood"]]
    assert ood == [("digits", "near"), ("fashion-mnist", "far")]
    recipe = tmp_path / "own.yaml"
    recipe.write_text("task: train\ndata: {name: mnist}\nmodel: mlp\nood: [openood]\n")
    ran = marginctl("train", recipe, "--dry-run", "--device", "cpu", "--out", tmp_path / "runs")
    assert (ran.status, ran.err.startswith(line), ran.err.count("\n")) == (0, True, 1)
    monkeypatch.delitem(OPENOOD_SETS, "mnist")
    ran = marginctl("train", recipe, "--dry-run", "--device", "cpu", "--out", tmp_path / "runs")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "ood openood: not defined for mnist: expected data cifar-10, cifar-100, im" in ran.err


def test_a_recipe_with_other_names_is_refused_before_anything_runs(marginctl, tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text("task: train\nood: [near=mnst, digit]\n")
    ran = marginctl("recipes", "validate", recipe)
    assert (ran.status, ran.err.count("\n")) == (2, 2)
    assert "unknown image set 'mnst'" in ran.err
    assert "unknown image set 'digit'" in ran.err
    ran = marginctl("train", "--data", "digits", "--ood", "digits", "--out", tmp_path / "runs")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: ood digits: these are the test images of digits")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ood", "near=mnst"), "unknown image set 'mnst'"),
        (("--ood", "mnist"), "ood mnist: these are the test images of mnist"),
        (("--ood", "svhn"), "no test_32x32.mat in"),
        (("--ood", "digits", "--ood", "far=digits"), "ood far=digits: duplicate"),
        (("--figure", "a.txt"), "expected a file name ending in .png, .svg, .pdf"),
    ],
)
def test_what_cannot_be_is_one_line(marginctl, data_dir, store, arguments, said):
    folder = next(path.parent for path in sorted(store.rglob("result.json")))
    ran = marginctl("eval", folder, *arguments, "--device", "cpu")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err
