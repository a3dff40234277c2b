"""`marginctl bench`: each benchmark and all together, at tiny sizes."""

import importlib.util

import pytest

from marginctl.bench import kappa, objectives, probe, suite, train, uci_cv

pytestmark = pytest.mark.smoke

SHAPE = {"model": "mnist-cnn:feature_dim=16", "image_size": 16, "batch_size": 16}
SHAPES = [
    {"name": "Cifar10", "classes": 10, "cpu_batch_size": 4, **SHAPE},
    {"name": "other", "classes": 40, "cpu_batch_size": 16, **SHAPE},
]
TINY = {
    uci_cv: {"rounds": 1, "datasets": ["iris", "haberman"], "epochs": 1, "repeats": 1},
    objectives: {"rounds": 1, "objectives": ["soft", "arcface"], "shapes": [[8, 10, 16]]},
    train: {"rounds": 1, "model": "mlp:width=8", "batch_size": 4, "steps": 1},
    kappa: {"rounds": 1, "shapes": SHAPES},
    probe: {"rounds": 1, "images": 100, "classes": 3, "features": 10},
}


@pytest.fixture
def tiny(monkeypatch):
    for module, settings in TINY.items():
        monkeypatch.setattr(module, "QUICK", settings)


def test_all_benchmarks(marginctl, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(suite.os, "getloadavg", lambda: (9.5, 2.0, 1.0))
    ran = marginctl("bench", "--quick", "--json", "--data-dir", tmp_path, "--device", "cpu")
    assert ran.status == 0, ran.err
    document = ran.json
    assert document["quick"]
    results = {result["benchmark"]: result for result in document["benchmarks"]}
    assert set(results) == {"uci-cv", "objectives", "train", "kappa", "probe"}
    for result in results.values():
        assert result["seconds"] > 0
        for m in result["measurements"]:
            assert m["value"]["low"] <= m["value"]["median"] <= m["value"]["high"]
            assert m["n"] == 1
            assert (m["reference"] is None) == (
                m["unit"] not in ("x", "%") and "overhead" not in m["measured"]
            )
    found = {m["measured"]: m for result in results.values() for m in result["measurements"]}
    for name in ("scikit-learn, iris", "torch loop, iris", "bare torch loop"):
        assert found[name]["reference"] == "marginctl"
    assert found["sweep over 8 penalties"]["unit"] == "x"
    # the step of 16 images is scaled from one of 4, and the paper's time is given
    step = found["training step, Cifar10"]
    assert step["value"]["median"] == pytest.approx(
        4 * found["training step of 4 images, Cifar10"]["value"]["median"]
    )
    assert step["published"] == pytest.approx(33.8, abs=0.1)
    parts = [found[f"{part}, Cifar10"]["value"]["median"] for part in ("errors", "argmin")]
    share = found["search for kappa*, Cifar10"]["value"]["median"]
    assert share == pytest.approx(100 * sum(parts) / step["value"]["median"])
    assert found["training step, other"]["published"] is None
    (haberman,) = results["uci-cv"]["skipped"]  # no file, and no download is tried
    assert haberman["measured"] == "haberman"
    networks, gpu = document["skipped"]
    assert "marginctl bench throughput --device cuda" in networks["reason"]
    assert "marginctl bench gpu --device cuda" in gpu["reason"]
    environment = document["environment"]
    assert environment["load_before"] == [9.5, 2.0, 1.0]
    assert environment["cores"] >= 1
    assert environment["threads"] >= 1
    assert "torch" in environment["versions"]


def test_the_table(marginctl, tiny, tmp_path, monkeypatch):
    """Also where a package is missing and the system reports no load."""
    find, other = importlib.util.find_spec, "pytorch_metric_learning"
    without = lambda name, *more: None if name == other else find(name, *more)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", without)
    modules = {name: suite.BENCHMARKS[name] for name in ("objectives", "throughput")}
    monkeypatch.setattr(suite, "BENCHMARKS", modules)
    monkeypatch.delattr(suite.os, "getloadavg")
    ran = marginctl("bench", "--quick", "--data-dir", tmp_path)
    assert ran.status == 0, ran.err
    heading = ran.out.splitlines()[0].split()
    assert heading == [
        "benchmark",
        "measured",
        "relative",
        "to",
        "median",
        "range",
        "n",
        "published",
    ]
    assert any("arcface" in line and "cross-entropy" in line for line in ran.out.splitlines())
    assert "skipped: pytorch-metric-learning: pytorch-metric-learning is not installed" in ran.out
    assert "load averages before (1, 5, 15 min): unknown" in ran.out
    assert "the machine was busy" not in ran.out
    assert "sizes are too small for reliable ratios" in ran.out


def test_one_benchmark(marginctl):
    size = ("--set", "shapes=[[8,10,16]]", "--rounds", "2")
    ran = marginctl("bench", "objectives", *size, "--device", "cpu", "--json")
    assert ran.status == 0, ran.err
    (result,) = ran.json["benchmarks"]
    measured = [m["measured"] for m in result["measurements"] if m["unit"] == "x"]
    assert len([m for m in measured if m.startswith("pytorch-metric-learning")]) == 5
    assert len(measured) == 21 + 5  # every preset
    assert "arcface" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prob",), "unknown benchmark 'prob': expected one of uci-cv, objectives, train, kappa"),
        (("--set", "epochs=1"), "--set epochs=1: requires a benchmark: name one"),
        (("probe", "--set", "image=1"), "--set image=1: unknown key 'image': expected one of"),
        (("probe", "--set", "images=3"), "images = 3: expected at least 2 per class (200)"),
        (("objectives", "--set", "shapes=[[8,10]]"), "shapes.0 = [8, 10]: expected"),
        (("objectives", "--set", "objectives=[sof]"), "Did you mean 'soft'?"),
        (("train", "--set", "model=vgg"), "vgg"),
        (("uci-cv", "--set", "datasets=[haberman]"), "haberman"),
        (("throughput", "--device", "cuda:7"), "--device cuda:7: this machine has"),
        (("probe", "--rounds", "0"), "'0': expected an integer of at least 1"),
    ],
)
def test_a_bad_request_is_one_line(marginctl, tmp_path, arguments, message):
    ran = marginctl("bench", *arguments, "--data-dir", tmp_path)
    assert ran.status == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1
