"""Scales from a run, the example's figure and the cost of kappa*, as a user has them."""

import json

import numpy as np
import pytest
from PIL import Image

from marginctl.data.images.readers import read_digits

pytestmark = pytest.mark.smoke

QUICK = ("--data", "digits", "--model", "mnist-cnn:feature_dim=8", "--device", "cpu", "--quiet")
QUICK += ("--no-tune",)
QUICK += ("--set", "data.subset_size=200", "--set", "train.batch_size=50", "--set", "optim.lr=0.05")
TWICE = "similarity=cosine;scale=fixed(from_run=cosine-ls,times=2)"


def results(folder):
    found = [json.loads(path.read_text()) for path in folder.rglob("result.json")]
    return {(r["objective"], r["seed"]): r for r in found}


@pytest.fixture
def trained(marginctl, tmp_path):
    """A store in which the source stands after what depends on it."""
    asked = ("--objective", TWICE, "--objective", "cosine-ls")
    ran = marginctl("train", *QUICK, *asked, "--epochs", "2", "--seeds", "2", "--out", tmp_path)
    assert ran.status == 0
    return tmp_path, ran


def test_a_scale_from_another_objective_is_that_of_its_seed(marginctl, trained):
    store, ran = trained
    found = results(store)
    for seed in (0, 1):
        kappa = found["cosine-ls", seed]["state"]["optimal_scale"]["mean"]
        scale = found[TWICE, seed]["scale_from"]
        assert scale == {
            "from_run": "cosine-ls",
            "times": 2.0,
            "kappa": kappa,
            "value": pytest.approx(2 * kappa, rel=1e-11),
        }
        assert f"= 2 x kappa* {kappa:.4g} of cosine-ls, seed {seed}" in ran.out
    report = marginctl("report", store)
    assert f"of cosine-ls, seed {seed}" in " ".join(report.out.split())


def test_such_a_run_is_evaluated_at_its_number(marginctl, trained):
    store, _ = trained
    for path in store.rglob("result.json"):
        record = json.loads(path.read_text())
        if record["objective"] == TWICE:
            seen = marginctl("eval", path.parent, "--device", "cpu", "--json").json
            assert seen["calibration"]["ece"] == record["evaluation"]["calibration"]["ece"]
            about = json.loads((path.parent / "run.json").read_text())
            assert about.pop("scale_from") == record["scale_from"]
            (path.parent / "run.json").write_text(json.dumps(about))
            assert marginctl("eval", path.parent, "--device", "cpu").status == 2


def test_a_scale_from_a_folder_has_its_number_in_the_name(marginctl, trained):
    store, _ = trained
    (recipe,) = {path.parent.parent for path in store.rglob("result.json")}
    asked = f"similarity=cosine;scale=fixed(from_run={recipe},times=3)"
    ran = marginctl(
        *("train", *QUICK, "--objective", asked, "--epochs", "1", "--out", store / "other")
    )
    assert ran.status == 0
    kappas = [
        r["state"]["optimal_scale"]["mean"]
        for (objective, _), r in results(recipe).items()
        if objective == "cosine-ls"
    ]
    ((name, _),) = results(store / "other")
    assert name == f"similarity=cosine;scale=fixed(value={3 * sum(kappas) / 2:.12g})"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("cosine-ls", "is no objective of this recipe"),
        ("soft", "has no kappa*"),
        ("nowhere", "no trial is there"),
    ],
)
def test_a_source_that_there_is_not_is_one_line(marginctl, tmp_path, source, said):
    asked = f"similarity=cosine;scale=fixed(from_run={source})"
    ran = marginctl(
        *("train", *QUICK, "--objective", "soft", "--objective", asked, "--out", tmp_path)
    )
    assert ran.status == 2
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_elsewhere_a_number_is_asked_for(marginctl):
    asked = "similarity=cosine;scale=fixed(from_run=cosine-ls)"
    for line in (
        ("uci-cv", "--dataset", "iris", "--objective", asked),
        ("bench", "objectives", "--set", f"objectives=['{asked}']"),
    ):
        ran = marginctl(*line)
        assert ran.status == 2
        assert "expected a number here" in ran.err


def test_when_the_source_fails_the_others_go_on(marginctl, tmp_path):
    asked = ("--objective", TWICE, "--objective", "cosine-ls", "--objective", "soft")
    huge = ("--set", "optim.lr=1e6", "--set", "train.precision=fp32")
    ran = marginctl("train", *QUICK, *asked, *huge, "--epochs", "1", "--out", tmp_path)
    assert ran.status == 1
    assert "not trained: the trial that it takes its scale from has no kappa*" in ran.err
    assert {objective for objective, _ in results(tmp_path)} == {"cosine-ls", "soft"}


def test_the_first_and_the_last_epoch_have_an_example_which_is_drawn(marginctl, trained, tmp_path):
    store, _ = trained
    for path in store.rglob("metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        own = json.loads((path.parent / "run.json").read_text())["objective"]
        assert ["example" in line for line in lines] == [own == "cosine-ls"] * 2
        if own == "cosine-ls":
            shown, test = Image.open(path.parent / "example.png"), read_digits()[1][0]
            assert np.array_equal(np.asarray(shown), test[0, :, :, 0])
            assert lines[0]["example"]["class"] == str(lines[0]["example"]["label"])
    ran = marginctl("report", store, "--figures", tmp_path / "figures", "--kind", "example")
    assert ran.status == 0
    assert len(list((tmp_path / "figures").iterdir())) == 1
