"""Corrupt files of finished runs are reported; the same command restores the same numbers."""

import shutil

import numpy as np
import pytest

from tests.faults.harness import records
from tests.sampling import diagonal

DIGITS = ("--data", "digits", "--device", "cpu", "--set", "data.subset_size=100")
TRAIN = ("train", *DIGITS, "--model", "mlp:width=8", "--objective", "adacos", "--epochs", "2")
CROSS = ("uci-cv", "--dataset", "iris", "--repeats", "1", "--folds", "2", "--objective", "soft")
CROSS += ("--set", "protocol.epochs=2", "--workers", "1")


def flipped(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


DAMAGES = {
    "a bit": flipped,
    "cut": lambda data: data[: len(data) * 2 // 3],
    "empty": lambda data: b"",
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Command lines, each with the runs folder that it has filled."""
    from marginctl.cli import run

    root = tmp_path_factory.mktemp("stores")
    kept = ("--predictions", root / "p.csv")
    transfer = ("transfer", "--from", root / "train", *DIGITS, "--method", "probe")
    lines = {
        "train": (*TRAIN, "--seed", "0"),
        "uci-cv": (*CROSS, *kept),
        "transfer": (*transfer, "--predictions", root / "q.csv"),
    }
    for name, line in lines.items():
        assert run([str(a) for a in (*line, "--quiet", "--out", root / name)]) == 0
    return {name: (line, root / name) for name, line in lines.items()}


CASES = [
    *(("train", f) for f in ("run.json", "metrics.jsonl", "result.json")),
    *(("uci-cv", f) for f in ("run.json", "metrics.jsonl", "result.json", "predictions.csv")),
    *(("transfer", f) for f in ("run.json", "result.json", "predictions.csv")),
]


@pytest.mark.parametrize(("case", "damage"), diagonal(CASES, list(DAMAGES)))
def test_a_corrupt_file_is_reported_and_recomputed(marginctl, tmp_path, stores, case, damage):
    name, file = case
    line, store = stores[name]
    out = tmp_path / "out"
    shutil.copytree(store, out)
    (path,) = out.rglob(file)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert marginctl("report", out).status == 0
    ran = marginctl(*line, "--out", out)
    assert ran.status == 0
    assert f"{out}/" in ran.err
    assert path.name in ran.err
    assert "recomputing" in ran.err or "writing it again" in ran.err
    assert records(out) == records(store)
    told = marginctl("report", out, "--format", "csv")
    assert (told.status, told.err) == (0, "")
    again = marginctl(*line, "--out", out)
    assert "recomputing" not in again.err


@pytest.mark.parametrize("damage", DAMAGES)
def test_corrupt_cached_features(marginctl, tmp_path, stores, damage):
    """Cached features are read where a result is missing."""
    line, store = stores["transfer"]
    out = tmp_path / "out"
    shutil.copytree(store, out)
    (next(out.rglob("result.json"))).unlink()
    for path in (out / "features").glob("*.npy"):
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    ran = marginctl(*line, "--out", out)
    assert ran.status == 0
    assert ran.err.count("is corrupt: recomputing") == 2
    assert records(out) == records(store)
    kept = {p.name: p.read_bytes() for p in (out / "features").glob("*")}
    assert kept == {p.name: p.read_bytes() for p in (store / "features").glob("*")}


@pytest.mark.parametrize(("kind", "damage"), diagonal(["step", "best"], list(DAMAGES)))
def test_the_checkpoint_of_a_finished_trial(marginctl, tmp_path, stores, kind, damage):
    """Its result stands; what needs the weights says that they are gone, and what to do."""
    line, store = stores["train"]
    out = tmp_path / "out"
    shutil.copytree(store, out)
    (path,) = out.rglob(f"{kind}-*.pt")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    which = "last" if kind == "step" else "best"
    ran = marginctl("eval", path.parent.parent, "--checkpoint", which)
    assert (ran.status, ran.out) == (2, "")
    assert f"{path}: is corrupt: checksum mismatch" in ran.err
    assert "remove the folder and train it again" in ran.err
    assert marginctl(*line, "--out", out).status == 0
    assert records(out) == records(store)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_corrupt_calibrator_and_corrupt_outputs(marginctl, tmp_path, damage):
    stream = np.random.default_rng(0)
    labels = stream.integers(0, 3, 60)
    outputs, kept = tmp_path / "o.npz", tmp_path / "map.json"
    np.savez(outputs, logits=stream.normal(size=(60, 3)) + np.eye(3)[labels], labels=labels)
    line = ("calibrate", outputs, "--method", "temperature", "--bootstrap", "0", "--save", kept)
    assert marginctl(*line).status == 0
    outputs.write_bytes(DAMAGES[damage](outputs.read_bytes()))
    before = kept.read_bytes()
    ran = marginctl(*line)
    assert (ran.status, ran.out) == (2, "")
    (said,) = ran.err.splitlines()
    assert said.startswith(f"error: {outputs}: ")
    assert kept.read_bytes() == before
