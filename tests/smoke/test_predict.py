"""A model that is saved, and predicts new data in another process."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest

from marginctl.crossval.tabular_model import TabularModel
from marginctl.data.tabular.custom import read_table
from marginctl.runs.model_file import load_model_file

pytestmark = pytest.mark.smoke

QUICK = ("--folds", "3", "--repeats", "1", "--set", "protocol.epochs=6", "--workers", "1")
NEW = "colour;extra;width;height\nred;1;1,5;2,25\npurple;2;;0,75\n;3;-0,5;1,125\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, and a model of it."""
    from marginctl.cli import run

    root = tmp_path_factory.mktemp("models")
    stream = np.random.default_rng(0)
    lines = ["width,height,colour,kind"]
    for i in range(80):
        width, height = stream.normal(i % 2, 0.7), stream.normal()
        colour = ["red", "green", "blue", ""][i % 4]
        lines.append(f"{'' if i % 9 == 0 else f'{width:.4f}'},{height:.4f},{colour},{'AB'[i % 2]}")
    (root / "t.csv").write_text("\n".join(lines))
    arguments = ["uci-cv", "--csv", root / "t.csv", "--target", "kind", "--objective", "soft"]
    arguments += ["--objective", "arcgrad", *QUICK, "--set", "tune.rates=[0.003, 0.03]"]
    arguments += ["--out", root / "runs", "--save-model", root / "m.safetensors"]
    assert run([str(a) for a in arguments]) == 0
    (root / "new.csv").write_text(NEW)
    return root


def in_another_process(folder, *arguments):
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "marginctl", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, check=False, timeout=100
    )


def test_another_process_predicts_the_probabilities_of_the_model(folder, tmp_path):
    (tmp_path / "m").write_bytes((folder / "m.safetensors").read_bytes())
    ran = in_another_process(tmp_path, "predict", "m", folder / "new.csv")
    assert ran.returncode == 0, ran.stderr
    rows = list(csv.DictReader(io.StringIO(ran.stdout)))
    assert [row["row"] for row in rows] == ["1", "2", "3"]
    # as the columns of the training table: width, height, colour (blue, green, red)
    x = np.array([[1.5, 2.25, 2], [np.nan, 0.75, np.nan], [-0.5, 1.125, np.nan]])
    expected = TabularModel.from_file(load_model_file(folder / "m.safetensors")).predict_proba(x)
    probabilities = [[float(row["p_A"]), float(row["p_B"])] for row in rows]
    assert np.allclose(probabilities, expected, atol=1e-6, rtol=0)
    assert [row["prediction"] for row in rows] == ["AB"[int(b > a)] for a, b in expected.tolist()]
    assert "column 'colour': 'purple': not in the training table, read as missing (1)" in ran.stderr
    assert "columns that the model does not use: extra" in ran.stderr


def test_labels_give_the_accuracy_and_are_not_used(folder, marginctl, tmp_path):
    output = tmp_path / "p.csv"
    ran = marginctl("predict", folder / "m.safetensors", folder / "t.csv", "--output", output)
    assert (ran.status, ran.out) == (0, "")
    rows = list(csv.DictReader(output.open()))
    right = np.mean([row["prediction"] == "AB"[i % 2] for i, row in enumerate(rows)])
    assert f"accuracy {100 * right:.2f} % by column 'kind' (80 labelled rows)" in ran.err
    model = TabularModel.from_file(load_model_file(folder / "m.safetensors"))
    expected = model.predict_proba(read_table(folder / "t.csv", "kind").x)
    document = marginctl("predict", folder / "m.safetensors", folder / "t.csv", "--json").json
    assert [p["probabilities"] for p in document["predictions"]] == expected.tolist()
    assert document["classes"] == ["A", "B"]


def test_the_saved_objective_is_the_best_by_inner_validation(folder, marginctl, tmp_path):
    arguments = ["uci-cv", "--csv", folder / "t.csv", "--target", "kind", *QUICK, "--objective"]
    arguments += ["soft", "--objective", "arcgrad", "--set", "tune.rates=[0.003, 0.03]"]
    arguments += ["--out", folder / "runs", "--save-model", tmp_path / "m"]
    ran = marginctl(*arguments)
    runs = [json.loads(p.read_text()) for p in (folder / "runs").rglob("result.json")]
    runs = [r for r in runs if r["objective"] in ("soft", "arcgrad")]
    best = max(runs, key=lambda r: (r["inner_accuracy"], r["objective"] == "soft"))
    line = next(line for line in ran.err.splitlines() if line.startswith("saved "))
    assert line.startswith(f"saved {best['objective'].partition(':')[0]}")
    assert f"best inner accuracy {best['inner_accuracy']:.1f} %" in line
    assert line.endswith(f"refitted on all 80 training rows: {tmp_path / 'm'}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--csv", "t.csv", "--csv", "u.csv"), "2 rows of a table: expected one data set"),
        (("--csv", "t.csv", "--no-tune"), "4 objectives without tuning: inner folds choose"),
    ],
)
def test_requests_without_one_model_are_refused(folder, marginctl, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    (folder / "u.csv").write_text((folder / "t.csv").read_text())
    ran = marginctl("uci-cv", *arguments, "--target", "kind", "--save-model", "x")
    assert ran.status == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_new_table_without_a_column_and_a_foreign_model_are_one_line(folder, marginctl, tmp_path):
    (tmp_path / "n.csv").write_text("width,colour\n1,red\n")
    for model, new, message in (
        (folder / "m.safetensors", tmp_path / "n.csv", "no column 'height', which the model"),
        (folder / "t.csv", tmp_path / "n.csv", "no intact model of marginctl"),
        (folder / "m.safetensors", tmp_path, "is a folder: expected a table"),
    ):
        ran = marginctl("predict", model, new)
        assert (ran.status, ran.out) == (2, "")
        assert message in ran.err
        assert len(ran.err.splitlines()) == 1
