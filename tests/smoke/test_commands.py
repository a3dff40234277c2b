"""Real commands on small real data. These tests alone reach 85 % of marginctl/."""

import csv
import io
import json

import pytest

pytestmark = pytest.mark.smoke


def test_the_table_resumes_and_prints_in_every_format(marginctl, tmp_path, quick):
    arguments = ("uci-cv", *quick, "--out", tmp_path)
    first = marginctl(*arguments, "--json")
    assert first.status == 0
    document = first.json
    assert document["schema"] == 1
    assert document["command"] == "uci-cv"
    assert len(document["cells"]) == 2 * 7
    assert {s["dataset"] for s in document["skipped"]} >= {"haberman", "hayes-roth"}
    assert len(document["skipped"]) == 13
    assert document["protocol"]["folds"] == 3
    assert sum(document["wins"].values()) == pytest.approx(2)
    cell = document["cells"][0]
    assert set(cell) == {
        *("dataset", "objective", "mean", "std", "n", "seconds", "paper", "note"),
    }
    assert cell["n"] == 6
    assert 0 <= cell["mean"] <= 100
    assert cell["paper"] == {"mean": 96.80, "std": 6.76}

    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("result.json")}
    again = marginctl(*arguments, "--json")
    assert again.json == document
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("result.json")} == stamps

    table = marginctl(*arguments)
    assert "96.80±6.76" in table.out
    assert "skipped 13" in table.out
    assert "run marginctl data fetch uci, or put the original UCI files" in table.out
    assert "n = 6" in table.out
    markdown = marginctl(*arguments, "--format", "markdown").out
    assert "| iris | " in markdown
    rows = list(csv.DictReader(io.StringIO(marginctl(*arguments, "--format", "csv").out)))
    assert [float(r["mean"]) for r in rows] == [c["mean"] for c in document["cells"]]


def test_one_cell_equals_that_cell_of_the_whole_table(marginctl, tmp_path, quick):
    whole = marginctl("uci-cv", *quick, "--out", tmp_path / "a", "--json").json
    one = marginctl(
        *("uci-cv", "--dataset", "iris", "--objective", "soft", *quick),
        *("--out", tmp_path / "b", "--json"),
    ).json
    assert len(one["cells"]) == 1
    for key in ("mean", "std", "n"):
        assert one["cells"][0][key] == whole["cells"][0][key]
    a, b = (
        json.loads(next((tmp_path / s).rglob("iris-soft-*/result.json")).read_text()) for s in "ab"
    )
    assert a["accuracies"] == b["accuracies"]


def test_every_column_on_two_classes_says_why_adacos_is_untrained(marginctl, tmp_path, data_dir):
    ran = marginctl(
        *("uci-cv", "--dataset", "haberman", "--dataset", "breast-tissue", "--folds", "3"),
        *("--repeats", "2", "--set", "protocol.epochs=3", "--workers", "1", "--out", tmp_path),
        "--json",
    )
    notes = {(c["dataset"], c["objective"]): c["note"] or "" for c in ran.json["cells"]}
    assert "scale is 0 for two classes: AdaCos cannot learn" in notes["haberman", "adacos"]
    assert "scale is 0" not in notes["haberman", "soft"]
    assert "scale is 0" not in notes["breast-tissue", "adacos"]


@pytest.mark.parametrize(
    "changes",
    [
        ["optimizer=sgd", "scaling=minmax", "stratified=true"],
        ["optimizer=adamw", "scaling=none", "hidden=[]"],
    ],
)
def test_other_protocols(marginctl, tmp_path, quick, changes):
    overrides = [a for change in changes for a in ("--set", f"protocol.{change}")]
    ran = marginctl(
        *("uci-cv", "--dataset", "iris", "--objective", "soft:bias=true"),
        *("--objective", "arcface:gradient=straight-through", *quick, *overrides),
        *("--out", tmp_path, "--json", "--seed", "3"),
    )
    assert ran.status == 0
    assert [c["paper"] for c in ran.json["cells"]] == [None, None]


def test_several_seeds_make_one_cell(marginctl, tmp_path, quick):
    ran = marginctl(
        *("uci-cv", "--dataset", "iris", "--objective", "soft", *quick, "--set", "seeds=[0, 1]"),
        *("--out", tmp_path, "--json"),
    )
    assert [c["n"] for c in ran.json["cells"]] == [12]
    assert len(list(tmp_path.rglob("result.json"))) == 2


def test_two_workers_give_the_numbers_of_one(marginctl, tmp_path, quick):
    arguments = ("uci-cv", "--dataset", "iris", *quick, "--json")
    one = marginctl(*arguments, "--out", tmp_path / "1").json["cells"]
    two = marginctl(*arguments, "--out", tmp_path / "2", "--workers", "2").json["cells"]
    for a, b in zip(one, two, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


def test_the_live_table_on_a_terminal(marginctl, tmp_path, quick, monkeypatch, on_terminal):
    monkeypatch.setenv("COLUMNS", "80")
    ran = marginctl("uci-cv", *quick, "--out", tmp_path)
    assert ran.status == 0
    assert "14/14 trials" in ran.err
    assert "elapsed 0:0" in ran.err
    assert max(len(line) for line in _plain(ran.out).splitlines()[:20]) <= 80


def _plain(text):
    import re

    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_dry_run_trains_nothing(marginctl, tmp_path, quick):
    ran = marginctl("uci-cv", *quick, "--out", tmp_path / "runs", "--dry-run")
    assert ran.out.startswith("14 trials, 14 pending: 84 networks, 1 worker, about ")
    assert not (tmp_path / "runs").exists()


def test_a_run_folder_explains_itself(marginctl, tmp_path, quick):
    marginctl("uci-cv", "--dataset", "iris", "--objective", "arcgrad", *quick, "--out", tmp_path)
    (folder,) = (tmp_path / "arcgrad" / "table1").iterdir()
    assert folder.name.startswith("iris-arcgrad-")
    run = json.loads((folder / "run.json").read_text())
    assert run["protocol"].items() >= {"epochs": 3, "folds": 3, "repeats": 2}.items()
    assert "momentum" not in run["protocol"]  # a default
    assert len(run["data"]) == 64
    assert run["numerics"] == 4
    assert {"torch", "numpy", "marginctl", "python"} == set(run["versions"])
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    assert [m["epoch"] for m in metrics] == [1, 2, 3]
    assert metrics[2]["loss"] < metrics[0]["loss"]
    result = json.loads((folder / "result.json").read_text())
    assert [len(r) for r in result["accuracies"]] == [3, 3]
    # 17 of the 50 rows of each class in each of three folds, rounded up
    assert [sum(r) for r in result["tested"]] == [153, 153]


def test_classes_smaller_than_the_folds_are_said(marginctl, tmp_path):
    ran = marginctl(
        *("uci-cv", "own-data", "--dataset", "iris", "--objective", "soft", "--folds", "60"),
        *("--repeats", "1", "--set", "protocol.epochs=1", "--set", "baselines=[]"),
        *("--workers", "1", "--out", tmp_path),
    )
    assert ran.status == 0
    assert "iris: fewer rows than folds in class 'Iris-setosa' (50)" in ran.err


def test_damage_is_said_and_mended(marginctl, tmp_path, quick):
    arguments = ("uci-cv", "--dataset", "iris", *quick, "--out", tmp_path, "--json")
    whole = marginctl(*arguments).json
    victim = next(tmp_path.rglob("result.json"))
    victim.write_text(victim.read_text()[:-20])
    mended = marginctl(*arguments)
    assert "result.json: is corrupt (invalid JSON: " in mended.err
    for a, b in zip(whole["cells"], mended.json["cells"], strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


def test_recipes(marginctl, tmp_path):
    rows = marginctl("recipes", "list", "--json").json
    assert [set(row) for row in rows] == [
        {"name", "path", "paper", "table", "task", "data", "cost", "status", "your_runs"}
    ] * len(rows)
    on_cpu = marginctl(
        "recipes", "list", "--cpu", "--paper", "arcgrad", "--task", "train", "--json"
    )
    chosen = [row for row in rows if row["paper"] == "arcgrad" and row["task"] == "train"]
    assert on_cpu.json == [row for row in chosen if "GPU" not in row["cost"]]
    assert 0 < len(on_cpu.json) < len(chosen)
    assert marginctl("recipes", "list", "--task", "training").err == (
        "error: unknown task 'training': expected one of uci-cv, train, cosify, transfer\n"
    )
    (tmp_path / "arcgrad" / "smoke" / "a-trial").mkdir(parents=True)
    (tmp_path / "arcgrad" / "smoke" / "a-trial" / "result.json").touch()
    counted = marginctl("recipes", "list", "--out", tmp_path, "--json").json
    assert {row["name"]: row["your_runs"] for row in counted if row["your_runs"]} == {
        "arcgrad/smoke": 1
    }
    assert "arcgrad/table1" in marginctl("recipes", "list").out
    shown = marginctl("recipes", "show", "arcgrad/table1").out
    assert shown.startswith("# Table I of ArcGrad")
    mine = tmp_path / "mine.yaml"
    assert marginctl("recipes", "copy", "arcgrad/table1", mine).status == 0
    assert mine.read_text() == shown
    assert "exists already" in marginctl("recipes", "copy", "arcgrad/table1", mine).err
    assert marginctl("recipes", "copy", "arcgrad/table1", mine, "--force").status == 0
    assert marginctl("recipes", "validate", mine, "arcgrad/table1").out.count(": valid\n") == 2
    mine.write_text(shown.replace("folds: 10", "folds: 1"))
    ran = marginctl("recipes", "validate", mine)
    assert ran.status == 2
    line = shown.splitlines().index("  folds: 10") + 1
    assert f"mine.yaml:{line}: protocol.folds = 1: expected greater than or equal to 2" in ran.err


def test_objectives_side_by_side_and_drawn(marginctl, tmp_path):
    shown = ("objectives", "show", "arcgrad:scale=1", "lm-softmax", "l-gm", "--classes", "3")
    ran = marginctl(*shown, "--plot", tmp_path / "figure.png")
    assert ran.status == 0
    assert "at a gap of 83.83 degrees" in ran.out
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "wrote" in ran.err
    document = marginctl(*shown, "--json").json
    assert [d["name"] for d in document] == ["arcgrad:scale=1", "lm-softmax", "l-gm"]
    composed = marginctl("objectives", "show", "similarity=cosine;scale=learned")
    assert "scale: learned" in composed.out
    refused = marginctl("objectives", "show", "soft", "--plot", tmp_path / "figure.gif")
    assert refused.status == 2


def test_objectives(marginctl, tmp_path, quick):
    listed = marginctl("objectives", "list")
    assert "lm-softmax" in listed.out
    rows = marginctl("objectives", "list", "--json").json
    for row in rows:
        shown = marginctl("objectives", "show", row["name"])
        assert row["formula"] in shown.out
        assert marginctl("objectives", "show", row["name"], "--json").json == row
    assert "with two classes: scale is 0" in marginctl("objectives", "show", "adacos").out
    assert "Did you mean 'arcgrad'?" in marginctl("objectives", "show", "arcgrd").err
    composed = "similarity=angle;scale=fixed(value=5);regularizers=label-smoothing"
    arguments = ("--objective", composed, "--objective", "soft", *quick, "--out", tmp_path)
    ran = marginctl("uci-cv", "--dataset", "iris", *arguments, "--json")
    assert [c["objective"] for c in ran.json["cells"]] == [composed, "soft"]
    assert "label-" in marginctl("uci-cv", "--dataset", "iris", *arguments).out
    names = [a for row in rows for a in ("--objective", row["name"])]
    ran = marginctl("uci-cv", "--dataset", "iris", *names, *quick, "--out", tmp_path, "--json")
    assert ran.status == 0
    assert len(ran.json["cells"]) == len(rows) == 21


def test_version_and_help(marginctl):
    assert marginctl("--version").out.startswith("marginctl 0.")
    assert "uci-cv" in marginctl("--help").out


SEARCH = """# A small search.
paper: arcgrad
table: I
task: uci-cv
datasets: [iris, balance-scale]
objectives: [soft, "arcface:margin=0.1,scale=20", "arcgrad:scale=5"]
protocol: {folds: 3, epochs: 2}
search:
  protocol: {lr: [1e-3, 3e-2], hidden: [[4], [6, 6]]}
  options: {"arcface:margin=0.1,scale=20": [arcface]}
  rounds: [{repeats: 1, keep: 2}, {repeats: 2, keep: 1}]
"""


def test_a_search_finds_resumes_and_says_how_near_it_is(marginctl, tmp_path):
    path = tmp_path / "near.yaml"
    path.write_text(SEARCH)
    arguments = ("uci-cv", "--search", path, "--out", tmp_path / "runs", "--workers", "1")
    planned = marginctl(*arguments, "--dry-run")
    assert planned.out.startswith("4 of 4 settings: at most ")
    first = marginctl(*arguments, "--json")
    assert first.status == 0
    assert "round 2: 2 settings, 2 repeats" in first.err
    document = first.json
    assert document["rounds"][0] == {"repeats": 1, "settings": 4}
    best = document["leaderboard"][0]
    assert best["repeats"] == 2
    assert best["distance"]["cells"] == 6
    assert set(best["objectives"]) == {"soft", "arcface:margin=0.1,scale=20", "arcgrad:scale=5"}
    assert document["held_out"] == []  # two data sets cannot be parted in three
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("result.json")}
    again = marginctl(*arguments)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("result.json")} == stamps
    # learning rates share a stack: a result that is lost is trained in the same stack again
    lost, kept = (
        next(p for p in stamps if "batched_with" in (p.parent / "run.json").read_text()),
        {},
    )
    for key in ("accuracies", "diverged", "collapsed"):
        kept[key] = json.loads(lost.read_text())[key]
    lost.unlink()
    marginctl(*arguments)
    assert {key: json.loads(lost.read_text())[key] for key in kept} == kept
    assert sum(p.stat().st_mtime_ns != stamps[p] for p in stamps) == 1
    assert "(each row at its own median)" in again.out
    assert marginctl(*arguments, "--quiet").err == ""
    reported = marginctl("report", tmp_path / "runs", "--format", "json").json
    assert reported["problems"] == []
    shown = [(t["protocol"]["lr"], t["protocol"]["repeats"]) for t in reported["tables"]]
    assert len(shown) == 4 + 2  # a table for each setting and number of repeats
    assert {lr for lr, _ in shown} == {1e-3, 3e-2}
    refused = marginctl("uci-cv", "--search", "arcgrad/table1", "--out", tmp_path)
    assert refused.status == 2
    assert "has no section 'search'" in refused.err
    unknown = marginctl(*arguments, "--objective", "cosine")
    assert unknown.status == 2
    assert "no published values for 'cosine'" in unknown.err


def test_a_search_on_a_terminal(marginctl, tmp_path, on_terminal):
    path = tmp_path / "near.yaml"
    path.write_text(SEARCH)
    ran = marginctl("uci-cv", "--search", path, "--out", tmp_path / "runs", "--workers", "1")
    assert ran.status == 0
    assert "points with lr=0.03" in _plain(ran.err)


TUNED = """# Tuned alike.
task: uci-cv
datasets: [iris]
objectives: [soft, arcface]
protocol: {folds: 3, repeats: 2, epochs: 3, hidden: [6]}
tune:
  inner_folds: 2
  protocol: {lr: [1e-3, 3e-2]}
  options: {arcface: ["arcface:margin=0.3"]}
  settings: 2
"""


def test_a_tuned_recipe_says_what_was_chosen(marginctl, tmp_path):
    path = tmp_path / "alike.yaml"
    path.write_text(TUNED)
    arguments = ("uci-cv", path, "--out", tmp_path / "runs", "--workers", "2")
    assert "60 networks" in marginctl(*arguments, "--dry-run").out
    ran = marginctl(*arguments, "--predictions", tmp_path / "p.csv", "--json")
    assert ran.status == 0
    assert [c["n"] for c in ran.json["cells"]] == [6, 6]
    results = [json.loads(p.read_text()) for p in tmp_path.rglob("result.json")]
    assert all(sum(r["chosen"].values()) == 6 for r in results)
    assert all(r["candidates"] == 2 and 0 < r["inner_accuracy"] <= 100 for r in results)
    for cell in ran.json["cells"]:
        counts = [c["networks"] for c in cell["chosen"]]
        assert counts == sorted(counts, reverse=True)
        assert sum(counts) == 6
    most = ran.json["cells"][0]["chosen"][0]
    line = f"chosen most often: {most['candidate']} ({most['networks']} of 6)"
    assert line in _plain(marginctl(*arguments).out)
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert len(rows) == 2 * 2 * 150
    for cell in ran.json["cells"]:
        own = [r for r in rows if r["objective"] == cell["objective"]]
        right = sum(r["truth"] == r["prediction"] for r in own)
        assert right / len(own) * 100 == pytest.approx(cell["mean"])
    explained = marginctl("report", tmp_path / "runs", "--explain", "iris/arcface")
    assert "chosen inside the training rows: " in explained.out


def test_tune_and_no_tune(marginctl, tmp_path):
    out = ("--out", tmp_path / "runs", "--workers", "1", "--dry-run")
    own = ("uci-cv", "own-data", "--dataset", "iris", "--set", "baselines=[]", *out, "--json")
    tuned = marginctl(*own, "--tune").json["dry_run"]
    plain = marginctl(*own, "--no-tune").json["dry_run"]
    assert tuned["networks"] == plain["networks"] * (1 + 11 * 3)
    quick = ("--set", "protocol.epochs=1", "--folds", "2", "--repeats", "1", "--no-tune", "--json")
    columns = []
    for named in ((), ("--objective", "arcface")):  # ArcFace untuned: a setting for few classes
        ran = marginctl(*own[:6], *out[:4], *quick, *named)
        columns.append([cell["objective"] for cell in ran.json["cells"]])
    assert columns == [
        ["soft", "arcface:margin=0.1,scale=20", "arcgrad", "lm-softmax"],
        ["arcface"],
    ]
    grid = ("--set", "grid.epochs=[1,2]")
    gridded = marginctl("uci-cv", "own-data", "--dataset", "iris", "--no-tune", *grid, *out)
    assert gridded.status == 0
    assert tuned["seconds"] > plain["seconds"]
    refused = marginctl("uci-cv", "arcgrad/table1", "--metric", "log_loss", *out)
    assert refused.status == 2
    assert "arcgrad/table1 measures the accuracy alone" in refused.err
    fair = marginctl("uci-cv", "arcgrad/table1-fair", "--dataset", "iris", *out, "--no-tune")
    assert "700 networks" in fair.out
    for option in ("--tune", "--no-tune"):
        refused = marginctl("uci-cv", "arcgrad/table1", "--search", option, *out)
        assert refused.status == 2
        assert "--search: expected no --tune or --no-tune" in refused.err
    refused = marginctl("uci-cv", "arcgrad/figure2", "--tune", *out)
    assert refused.status == 2
    assert "--tune: grid: expected no 'search' or 'tune' in the same recipe" in refused.err


def test_a_grid_makes_a_row_of_each_setting_and_a_figure(marginctl, tmp_path):
    quick = ("--set", "protocol.epochs=1", "--repeats", "1", "--folds", "3", "--workers", "1")
    arguments = ("uci-cv", "arcgrad/figure2", *quick, "--out", tmp_path / "runs")
    drawn = marginctl(*arguments, "--objective", "soft", "--figure", tmp_path / "depth.png")
    assert drawn.status == 0
    rows = [line.split()[1] for line in drawn.out.splitlines() if line.startswith("iris,")]
    assert rows[:4] == ["hidden=10", "hidden=10-10", "hidden=3x10", "hidden=4x10"]
    assert len(rows) == 10
    assert (tmp_path / "depth.png").read_bytes().startswith(b"\x89PNG")
    document = marginctl(*arguments, "--objective", "soft", "--json").json
    assert [len(cell["setting"]["hidden"]) for cell in document["cells"]] == [*range(1, 11)]
    assert {cell["dataset"] for cell in document["cells"]} == {"iris"}
    assert document["ranks"]["friedman"]["reason"].startswith("rows are settings of one protocol")
    assert document["wins"] == {}


def test_angles_are_drawn_from_the_networks(marginctl, tmp_path):
    figure = ("uci-cv", "arcgrad/figure1", "--figure", tmp_path / "angles.svg")
    quick = ("--set", "grid.epochs=[1, 2]", "--folds", "3", "--workers", "1")
    drawn = marginctl(*figure, *quick, "--out", tmp_path / "runs")
    assert drawn.status == 0
    text = (tmp_path / "angles.svg").read_text()
    assert "theoretical gap 83.8 degrees" in text
    assert "theoretical gap 2.1 degrees" in text
    refused = marginctl(*figure, *quick, "--out", tmp_path / "runs", "--objective", "soft")
    assert refused.status == 2
    assert "soft is not on the angle with a fixed scale" in refused.err
    along = marginctl("uci-cv", "--dataset", "iris", "--figure", tmp_path / "no.png")
    assert along.status == 2
    assert "the recipe's grid has 0 keys" in along.err
