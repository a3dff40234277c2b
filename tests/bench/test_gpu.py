"""The benchmark of a GPU, on the CPU in place of one."""

import json

import pytest

from marginctl.bench import gpu
from tests import cuda_graphs

TINY = ("minutes=0.05", "models=['mlp:width=8']", "images=200", "datasets=[iris]", "repeats=1")
TINY += ("epochs=2", "rounds=1", "presets=[soft,adacos]")


@pytest.fixture
def bench(marginctl, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "check_gpu", lambda device: None)
    cuda_graphs.install(monkeypatch)
    settings = [word for text in TINY for word in ("--set", text)]

    def run(*more):
        out = ("--out", tmp_path / "runs", "--data-dir", tmp_path, "--device", "cpu")
        return marginctl("bench", "gpu", *settings, *out, *more)

    return run


def test_it_compares_times_and_leaves_json(bench, tmp_path):
    ran = bench()
    assert ran.status == 0, ran.err
    (result,) = json.loads((tmp_path / "runs" / "bench-gpu.json").read_text())["benchmarks"]
    measured = {m["measured"]: m["value"] for m in result["measurements"]}
    assert measured["difference from the CPU"]["high"] == 0
    assert measured["difference from the CPU with cuda_graphs"]["high"] == 0
    assert measured["difference from the CPU with gpu_fast_path"]["high"] < 1e-3
    assert cuda_graphs.RecordedGraph.replays
    assert measured["epoch with cuda_graphs, mlp:width=8"]["median"] > 0
    assert any(name.startswith("epoch") and "mlp" in name for name in measured)
    assert measured["evaluation, mlp:width=8"]["median"] > 0
    skipped = {row["measured"]: row["reason"] for row in result["skipped"]}
    assert "Table 2" in " ".join(skipped)  # no CIFAR-100 here
    assert "difference from the CPU" in ran.out


def test_a_wrong_device_fails(bench, monkeypatch):
    differences = {("adacos", None): 3.0, ("soft", "cuda_graphs"): float("nan")}
    get = lambda preset, device, option: differences.get((preset, option), 0.0)  # noqa: E731
    monkeypatch.setattr(gpu, "_difference", get)
    ran = bench("--json")
    assert ran.status == 1
    text = "after 8 steps a weight has a difference from the CPU"
    assert ran.err.splitlines()[-2:] == [
        f"error: adacos: {text} of 3 %",
        f"error: soft: {text} with cuda_graphs of nan %",
    ]


def test_without_a_gpu_it_is_one_line(marginctl, tmp_path):
    ran = marginctl("bench", "gpu", "--device", "cpu", "--out", tmp_path)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "bench gpu: the device is cpu" in ran.err
