"""`marginctl bench`: all benchmarks as one table, of very little work."""

import importlib.util
from dataclasses import replace

import pytest

from marginctl.bench import suite, uci_cv
from marginctl.bench.kappa import Shape
from marginctl.recipe import Protocol

pytestmark = pytest.mark.smoke

SMALL = replace(
    suite.QUICK,
    tables={"iris": 1, "haberman": 1},
    layer=(8, 10, 16),
    pairs=1,
    images=4,
    steps=1,
    epochs=1,
    shapes=(Shape("Cifar10", "mnist-cnn:feature_dim=16", 16, 10, 16, 4),),
    features=(100, 3, 10),
)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(suite, "QUICK", SMALL)
    monkeypatch.setattr(suite, "MODEL", "mlp:width=8")
    monkeypatch.setattr(uci_cv, "protocol", lambda epochs: Protocol(epochs=epochs, repeats=1))


def test_all_ratios_and_where_they_were_measured(marginctl, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(suite.os, "getloadavg", lambda: (9.5, 2.0, 1.0))
    ran = marginctl("bench", "--quick", "--json", "--data-dir", tmp_path)
    assert ran.status == 0, ran.err
    document = ran.json
    assert document["quick"]
    rows = document["rows"]
    measured = [row for row in rows if row["ratio"]]
    assert {row["benchmark"] for row in measured} == {
        *("uci-cv", "objectives", "train", "kappa", "probe")
    }
    for row in measured:
        assert 0 < row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
        assert row["reason"] is None
        assert row["n"] == 1
    # a ratio is the one that the benchmark itself gives, told the same way round
    table = document["benchmarks"]["uci-cv iris"]["datasets"][0]
    (other,) = [row for row in measured if row["what"] == "scikit-learn, iris"]
    assert other["ratio"]["median"] == table["ratios"]["scikit-learn"][0]
    (search,) = [row for row in measured if row["benchmark"] == "kappa"]
    share = document["benchmarks"]["kappa"]["rows"][0]["search_percent"]["median"]
    assert search["ratio"]["median"] == pytest.approx(share / 100)
    reasons = {row["benchmark"]: row["reason"] for row in rows if not row["ratio"]}
    assert "haberman" in reasons["uci-cv"]  # no file, no network asked
    assert "--device cuda" in reasons["networks"]
    about = document["environment"]
    assert about["load_before"] == [9.5, 2.0, 1.0]
    assert about["cores"] >= 1
    assert about["threads"] >= 1
    assert "torch" in about["versions"]


def test_the_table(marginctl, tiny, tmp_path, monkeypatch):
    """Also where a package is not installed and the system tells no load."""
    find, other = importlib.util.find_spec, "pytorch_metric_learning"
    without = lambda name, *more: None if name == other else find(name, *more)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", without)
    monkeypatch.setattr(suite, "QUICK", replace(SMALL, tables={}))
    monkeypatch.delattr(suite.os, "getloadavg")
    ran = marginctl("bench", "--quick", "--data-dir", tmp_path)
    assert ran.status == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].split() == ["benchmark", "what", "against", "ratio", "range", "n"]
    assert any("arcgrad" in line and "cross-entropy" in line for line in lines)
    assert "not run: pytorch-metric-learning is not installed: pip install" in ran.out
    assert "load before (of 1, 5, 15 min): not known here" in ran.out
    assert "other work ran beside it" not in ran.out
    assert "so little work says little" in ran.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--device", "cpu", "train"), "--device: stands before 'train': put it behind"),
        (("--json", "probe"), "--json: stands before 'probe': put it behind"),
        (("--quick", "kappa"), "--quick: is of 'bench' alone, not of 'kappa': leave it out"),
        (("--quick", "--device", "cpu"), "--quick: is not of --device"),
    ],
)
def test_what_does_not_go_together(marginctl, arguments, said):
    ran = marginctl("bench", *arguments)
    assert ran.status == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
