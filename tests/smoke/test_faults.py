"""What a store says of data that has changed, and of files that are damaged."""

import pytest

from tests.faults.harness import records

pytestmark = pytest.mark.smoke


def test_a_table_that_has_changed(marginctl, tmp_path):
    table = tmp_path / "flowers.csv"
    rows = [f"{i % 7},{i % 5},{'ab'[i % 2]}" for i in range(30)]
    table.write_text("\n".join(["x,y,class", *rows]) + "\n")
    line = ("uci-cv", "--csv", table, "--target", "class", "--folds", "2", "--repeats", "1")
    line += ("--objective", "soft", "--set", "protocol.epochs=1", "--workers", "1")
    line += ("--out", tmp_path / "runs")
    assert "changed since" not in marginctl(*line).err
    first = records(tmp_path / "runs")
    table.write_text(table.read_text().replace("6,1,a", "6,1,b"))
    ran = marginctl(*line)
    assert ran.status == 0
    assert (
        "how they are read, changed since: flowers.csv (finished trials: 4): recomputing" in ran.err
    )
    assert first.items() < records(tmp_path / "runs").items()
    assert "changed since" not in marginctl(*line).err


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl"])
@pytest.mark.parametrize("command", ["train", "uci-cv"])
def test_a_damaged_file_beside_a_result(marginctl, tmp_path, command, name):
    lines = {
        "train": ("--data", "digits", "--set", "data.subset_size=100", "--model", "mlp:width=8"),
        "uci-cv": ("--dataset", "iris", "--folds", "2", "--repeats", "1", "--workers", "1"),
    }
    epochs = {"train": ("--epochs", "1"), "uci-cv": ("--set", "protocol.epochs=1")}
    line = (command, *lines[command], *epochs[command], "--objective", "soft", "--out", tmp_path)
    assert marginctl(*line).status == 0
    before = records(tmp_path)
    (path,) = tmp_path.rglob(name)
    path.write_bytes(path.read_bytes()[:-9])
    ran = marginctl(*line)
    assert ran.status == 0
    assert f"{path.parent}: {name} is missing or corrupt: " in ran.err
    assert records(tmp_path) == before
    assert "has no whole" not in marginctl(*line).err
