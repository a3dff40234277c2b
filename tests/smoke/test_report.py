"""`report` on stores in every state."""

import csv
import io
import json
import os
import threading

import pytest

pytestmark = pytest.mark.smoke


@pytest.fixture
def store(marginctl, tmp_path, quick):
    tmp_path = tmp_path / "store"
    arguments = ["--dataset", "iris", "--objective", "soft", "--objective", "arcgrad:scale=5"]
    assert marginctl("uci-cv", *arguments, *quick, "--out", tmp_path).status == 0
    return tmp_path


def test_it_prints_the_table_of_uci_cv_again(marginctl, store, quick):
    arguments = ["--dataset", "iris", "--objective", "soft", "--objective", "arcgrad:scale=5"]
    printed = marginctl("uci-cv", *arguments, *quick, "--out", store)
    again = marginctl("report", store)
    assert again.status == 0
    assert again.err == ""
    title, _, table = again.out.partition("\n\n")
    assert title.startswith("arcgrad/table1 (arcgrad, table I): hidden=[30,30,30]")
    verdicts = ("verdicts: 2 ∦ not comparable, 103", "reproduced: the 95 %", "∦  not comparable: ")
    assert sum(line.startswith(verdicts) for line in table.splitlines()) == 3

    def words(text):  # without rules and verdicts
        lines = (line for line in text.splitlines() if not line.startswith((*verdicts, "─")))
        return " ".join(lines).replace("∦ ", "").split()

    assert words(table) == words(printed.out)


def test_every_format(marginctl, store):
    document = marginctl("report", store, "--format", "json").json
    (table,) = document["tables"]
    assert document["problems"] == []
    assert [t["test"] for t in table["tests"]].count("corrected resampled t") == 1
    rows = list(csv.DictReader(io.StringIO(marginctl("report", store, "--format", "csv").out)))
    assert [float(r["mean"]) for r in rows] == [c["mean"] for c in table["cells"]]
    assert "| iris | " in marginctl("report", store, "--format", "markdown").out
    assert "arcgrad:" in marginctl("report", store, "--baseline", "arcgrad:scale=5").out


def test_damaged_runs_are_named_and_the_rest_is_shown(marginctl, store, quick):
    marginctl("uci-cv", "--dataset", "iris", "--objective", "center", *quick, "--out", store)
    folders = sorted(p.parent for p in store.rglob("result.json"))
    names = {f.name.rsplit("-", 1)[0]: f for f in folders}
    soft, center, arcgrad = (names[n] for n in ("iris-soft", "iris-center", "iris-arcgrad-scale-5"))
    (soft / "result.json").write_text('{"accuracies": [[1')
    (center / "result.json").unlink()
    (store / "foreign").mkdir()
    (store / "foreign" / "run.json").write_text("[]")
    (store / "notes.txt").write_text("hello")
    ran = marginctl("report", store)
    assert ran.status == 0
    assert f"{soft}: result.json is corrupt" in ran.err
    assert f"{center}: not finished: skipped" in ran.err
    assert f"{store / 'foreign'}: run.json is corrupt (a list" in ran.err
    assert len(ran.err.splitlines()) == 3
    assert "scale=5" in ran.out
    (arcgrad / "run.json").unlink()
    ran = marginctl("report", store, "--format", "json")
    assert ran.status == 0
    assert ran.json["tables"] == []


def forge(folder, **changes):
    """Changes a result and gives it a checksum that fits."""
    from marginctl.runs.run_dir import digest

    path = folder / "result.json"
    record = json.loads(path.read_text())
    record.pop("sha256")
    for key, value in changes.items():
        record.pop(key) if value is None else record.update({key: value})
    path.write_text(json.dumps({**record, "sha256": digest(record)}))


@pytest.mark.parametrize(
    "changes",
    [
        {"accuracies": [[1.0]]},
        {"accuracies": [["a", 1, 2], [1, 2, 3]]},
        {"accuracies": [[1, 2], [1, 2]]},
        {"accuracies": [[10**400, 1, 2], [1, 2, 3]]},
        {"split": None},
        {"seed": "x"},
        {"dataset": 5},
        {"objective": "nix"},
        {"versions": None},
        {"versions": {}},
        {"diverged": 5},
        {"trial": "another"},
    ],
    ids=str,
)
def test_whole_but_foreign_results_are_left_out_and_computed_anew(marginctl, store, quick, changes):
    arguments = ["--dataset", "iris", "--objective", "soft", "--objective", "arcgrad:scale=5"]
    arguments = ["uci-cv", *arguments, *quick, "--out", store, "--json"]
    before = marginctl(*arguments).json["cells"]
    folder = next(p.parent for p in store.rglob("result.json") if "iris-soft" in str(p))
    forge(folder, **changes)
    ran = marginctl("report", store, "--explain", "iris/arcgrad:scale=5")
    assert ran.status == 0
    if changes != {"versions": {}}:  # that is enough to be shown, but not to be resumed
        assert f"{folder}: result.json is not a result of this trial (" in ran.err
    mended = marginctl(*arguments)
    assert "recomputing" in mended.err
    for a, b in zip(before, mended.json["cells"], strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


def test_explain(marginctl, store):
    ran = marginctl("report", store, "--explain", "iris/arcgrad:scale=5")
    assert ran.status == 0
    for word in ("n = 6", "3 folds x 2 repeats x 1 seed", "epochs=3", "seed 0", "torch "):
        assert word in ran.out
    assert "published (arcgrad, table I): 96.93 ± 4.26 over n = 100" in ran.out
    assert "against soft: " in ran.out
    ran = marginctl("report", store, "--explain", "iris/arcgrad:scale=6")
    assert ran.status == 2
    assert "Did you mean 'iris/arcgrad:scale=5'?" in ran.err


def test_other_protocols_are_other_tables_and_later_data_wins(marginctl, store, quick, tmp_path):
    marginctl(
        *("uci-cv", "--dataset", "iris", "--objective", "soft", *quick, "--out", store),
        *("--set", "protocol.epochs=2"),
    )
    assert len(marginctl("report", store, "--format", "json").json["tables"]) == 2
    run = next(p for p in store.rglob("run.json") if "iris-soft" in str(p))
    twin = run.parent.with_name("twin")
    twin.mkdir()
    about = json.loads(run.read_text())
    result = json.loads((run.parent / "result.json").read_text())
    about["trial"] = result["trial"] = "twin"
    about["timing"]["started"] = "2999-01-01T00:00:00+0000"
    result.pop("sha256")
    result["timing"].pop("sha256")
    from marginctl.runs.run_dir import digest

    (twin / "run.json").write_text(json.dumps(about))
    (twin / "result.json").write_text(json.dumps({**result, "sha256": digest(result)}))
    ran = marginctl("report", store)
    assert f"{run.parent}: a later run has that cell: skipped" in ran.err


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("run.json", lambda text: text + " ", "run.json has changed since the run finished"),
        (
            "run.json",
            lambda text: text.replace('"system": "', '"system": "x'),
            "run.json has changed since the run finished",
        ),
        (
            "run.json",
            lambda text: text.replace('"started": "2', '"started": "1'),
            "run.json has changed since the run finished",
        ),
        (
            "result.json",
            lambda text: text.replace("0.", "1.", 1),
            "result.json is corrupt (checksum mismatch)",
        ),
    ],
)
def test_a_record_that_changed_is_named_and_left_out(marginctl, store, name, change, message):
    path = next(store.rglob(name))
    cells = len(marginctl("report", store, "--format", "json").json["tables"][0]["cells"])
    old = path.read_text()
    path.write_text(change(old))
    assert path.read_text() != old
    ran = marginctl("report", store, "--format", "json")
    assert ran.status == 0
    assert f"{path.parent}: {message}" in ran.err
    left = [cell for table in ran.json["tables"] for cell in table["cells"] if cell["mean"]]
    assert len(left) < cells or cells == 1


def test_mistakes(marginctl, tmp_path, store):
    ran = marginctl("report", tmp_path / "nowhere")
    assert ran.status == 2
    assert "no such runs folder" in ran.err
    assert marginctl("report", store, "--baseline", "m-soft").status == 2
    refused = marginctl("report", store, "--metric", "auroc")
    assert refused.status == 2
    assert "--metric auroc: none of these runs is a comparison of your own" in refused.err
    assert "unknown paper 'nobody'" in marginctl("report", store, "--paper", "nobody").err
    assert marginctl("report", store, "--table", "II").err == "no finished runs found\n"


def test_the_average_ranks_are_drawn(marginctl, tmp_path, data_dir):
    names = ("iris", "balance-scale", "haberman", "hayes-roth", "breast-tissue")
    datasets = [a for name in names for a in ("--dataset", name)]
    objectives = [a for name in ("soft", "m-soft", "cosine") for a in ("--objective", name)]
    short = ("--folds", "2", "--repeats", "1", "--set", "protocol.epochs=1", "--workers", "1")
    marginctl("uci-cv", *datasets, *objectives, *short, "--out", tmp_path / "runs")
    ran = marginctl("report", tmp_path / "runs", "--figure", tmp_path / "ranks.png")
    assert ran.status == 0
    assert "wrote" in ran.err
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")
    few = marginctl("report", tmp_path / "runs", "--paper", "gradient-decay", "--figure", "a.png")
    assert few.status == 2


def test_a_figure_is_of_one_table(marginctl, store, tmp_path):
    arguments = ("--dataset", "iris", "--objective", "soft", "--folds", "2", "--repeats", "1")
    short = ("--set", "protocol.epochs=1", "--workers", "1")
    marginctl("uci-cv", *arguments, *short, "--out", store)
    refused = marginctl("report", store, "--figure", tmp_path / "a.png")
    assert refused.status == 2
    assert "2 tables (arcgrad/table1, arcgrad/table1): expected one" in refused.err


def test_an_output_is_a_file_of_its_own(marginctl, store, tmp_path):
    trial = next(store.rglob("result.json"))
    before = trial.read_bytes()
    for path, said in (
        (trial, "lies in a run directory"),
        (store, "is a folder: name a file"),
        ("", "is a folder: name a file"),
    ):
        ran = marginctl("report", store, "--format", "csv", "--output", path)
        assert ran.status == 2
        assert ran.err.startswith("error: --output ")
        assert said in ran.err
    assert trial.read_bytes() == before
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("old")
    link.symlink_to(target)
    assert marginctl("report", store, "--format", "csv", "--output", link).status == 0
    assert link.is_symlink()
    assert target.read_text().startswith("recipe,paper,table,")


def test_a_pipe_stays_a_pipe(marginctl, store, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert marginctl("report", store, "--format", "csv", "--output", pipe).status == 0
    reader.join(timeout=10)
    assert read[0].startswith("recipe,paper,table,")
    assert pipe.is_fifo()


def test_explain_of_training(marginctl, tmp_path):
    arguments = ("train", "--data", "digits", "--model", "mlp:width=8", "--epochs", "1")
    assert marginctl(*arguments, "--seeds", "2", "--device", "cpu", "--out", tmp_path).status == 0
    ran = marginctl("report", tmp_path, "--explain", "digits, mlp:width=8/soft")
    assert ran.out.startswith(
        "digits, mlp:width=8 / soft in digits-mlp-width-8\n  last epoch: mean "
    )
    assert ran.out.count("  run ") == 2
    asked = ("--explain", "digits, mlp:width=8/soft", "--output", tmp_path / "e.txt")
    assert marginctl("report", tmp_path, *asked).out == ""
    assert (tmp_path / "e.txt").read_text() == ran.out
    assert marginctl("report", tmp_path, *asked, "--format", "latex").status == 2


def test_explain_of_a_fixed_test_set(marginctl, tmp_path):
    lines = [f"{i * 0.37 % 1:.3f},{i * 0.71 % 1:.3f},{i % 2}" for i in range(90)]
    for name, part in (("train", lines[:50]), ("test", lines[50:])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,z,kind", *part, ""]))
    ran = marginctl(
        *("uci-cv", "--train-csv", tmp_path / "train.csv", "--test-csv", tmp_path / "test.csv"),
        *("--target", "kind", "--objective", "soft", "--objective", "arcface", "--no-tune"),
        *("--set", "protocol.epochs=5", "--repeats", "2", "--out", tmp_path / "runs", "--quiet"),
    )
    assert ran.status == 0, ran.err
    for objective, words in (
        ("arcface", "percentage points, paired test over 40 test rows: "),
        ("majority", "n = 2 initializations: a fixed test set x 2 repeats x 1 seed"),
    ):
        ran = marginctl("report", tmp_path / "runs", "--explain", f"train.csv+test.csv/{objective}")
        assert ran.status == 0, ran.err
        assert words in ran.out
    assert "hidden=" not in ran.out
