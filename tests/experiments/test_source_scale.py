"""Scales from the kappa* of the runs in a folder."""

import json

import pytest

from marginctl.errors import RequestError
from marginctl.experiments.records import TrainingResult
from marginctl.experiments.source_scale import scales_from_folders
from marginctl.objectives.parsing import parse

TWICE = "similarity=cosine;scale=fixed(from_run={},times=2)"
QUICK = ("--data", "digits", "--model", "mlp", "--device", "cpu", "--quiet", "--epochs", "1")
QUICK += ("--set", "data.subset_size=50", "--json")


def scale(folder):
    (scale,) = scales_from_folders([parse(TWICE.format(folder))]).values()
    return scale


def refused(folder, said):
    with pytest.raises(RequestError, match=said) as error:
        scale(folder)
    assert len(error.value.lines) == 1


@pytest.fixture
def store(marginctl, tmp_path):
    asked = ("--objective", "soft", "--objective", "cosine-ls", "--seeds", "2")
    assert marginctl("train", *QUICK, *asked, "--out", tmp_path).status == 0
    (folder,) = tmp_path.iterdir()
    return folder


def of(store, objective):
    return sorted(path.parent for path in store.glob(f"*-{objective}-*/run.json"))


def test_the_mean_is_over_the_seeds_that_have_kappa(store):
    texts = [(f / "result.json").read_text() for f in of(store, "cosine-ls")]
    one, two = (TrainingResult.model_validate(json.loads(text)).kappa for text in texts)
    assert scale(store).kappa == pytest.approx((one + two) / 2)
    assert scale(store).value == pytest.approx(one + two)
    assert scale(of(store, "cosine-ls")[1]).kappa == two
    assert scales_from_folders([parse("soft"), parse("cosine")]) == {}


def test_what_has_no_number_is_said_in_one_line(store, tmp_path, marginctl):
    first, second = of(store, "cosine-ls")
    refused(tmp_path / "none", "no trial is there")
    refused(of(store, "soft")[0], "has no kappa")
    asked = ("--objective", "cosine-ls:pool=batch")
    assert marginctl("train", *QUICK, *asked, "--out", tmp_path).status == 0
    refused(store, "kappa. of 2 settings or objectives")
    text = (first / "result.json").read_text()
    (first / "result.json").write_text(text[: len(text) // 2])
    refused(first, "result.json is corrupt")
    (second / "result.json").unlink()
    refused(second, "is not finished")
    (second / "run.json").write_text("{}")
    refused(second, "run.json: is missing, corrupt")
