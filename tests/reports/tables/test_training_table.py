"""The tables of training: of a command, of a report, and with the source model above."""

import csv
import io

from marginctl.metrics.registry import METRICS, metrics_in
from marginctl.recipe.cosify import CosifyRecipe
from marginctl.recipe.train import TrainRecipe
from marginctl.reports.formats.registry import FORMATS
from marginctl.reports.tables.training_table import (
    own_class_tables,
    own_table,
    source_cells,
    training_cells,
    training_report,
    training_table,
)
from marginctl.results.compare import compare_seeds
from tests.results.factories import training_result

NAMES = ["data, model", "objective", "n", "top-1 %", "kappa*", "MISS AUPR-In max similarity"]
NAMES += ["MISS AUPR-In feature norm", "OOD cifar-10 AUPR-In max similarity"]
NAMES += ["OOD cifar-10 AUPR-In feature norm"]


def detection(ap):
    def scores(value):
        return {
            name: {"aupr_in": value, "auroc": value - 0.1}
            for name in ("max_similarity", "feature_norm")
        }

    return {
        "misclassification": {"scores": scores(ap)},
        "ood": [{"name": "cifar-10", "scores": scores(ap - 0.2)}],
    }


def record(blocks, seed, last, scale, **before):
    measured = {"top1": 70.0, "interval": [68.0, 72.0], "n": 100, "kappa": 9.5, "reason": None}
    epoch = {"epoch": 3, "top1": last, "nll": 1.0}
    fields = {
        "row": f"cifar-100, resnet18, blocks={blocks}",
        "data": "cifar-100",
        "model": "resnet18",
        "source_model": {"path": "runs/x", "weights_sha256": "0" * 64},
        "objective": "cosine-ls",
        "seed": seed,
        "last": epoch,
        "best": epoch,
        "diverged": None,
        "collapsed": False,
        "state": {"optimal_scale": {"mean": scale}},
        "evaluation": {"detection": detection(0.9 + seed / 100)},
        "timing": {"seconds": 1.0, "epoch_seconds": 0.3},
        "baseline": {**measured, "detection": detection(0.8), **before},
    }
    return training_result(**fields)


def texts_of(tables):
    return {
        table.caption: [
            [table.label_heading, *table.columns],
            *([row.label, *(cell.text for cell in row.cells)] for row in table.rows),
        ]
        for table in tables
    }


RECORDS = [record(b, s, 70 + s, 12 + s) for b in ("4", "3-4") for s in (0, 1)]
UNKNOWN = {"top1": None, "interval": None, "n": None, "kappa": None, "detection": None}
UNKNOWN["reason"] = "it tells 1000 classes apart, and the data has 100"


COSIFY = CosifyRecipe.model_validate({"task": "cosify", "source_model": "runs/x"})


def table_of(*records):
    return training_table(
        training_cells(records),
        source_cells(records),
        [],
        "cosine-ls",
        key="k",
        title="a title",
        runs={},
    )


def test_a_row_for_the_source_model_and_one_for_each_choice_of_blocks():
    report = training_report(RECORDS, COSIFY, [])
    ((caption, (names, before, last, more)),) = texts_of(report.tables).items()
    assert caption.startswith("On the test set after the last epoch: mean ± standard deviation")
    assert names == NAMES
    where = "cifar-100, resnet18"
    assert before == [where, "before", "1", "70.00", "9.50", "0.8000", "0.8000", "0.6000", "0.6000"]
    values = ["70.50 ± 0.71", "12.50 ± 0.71", *["0.9050 ± 0.0071"] * 2, *["0.7050 ± 0.0071"] * 2]
    assert last == [f"{where}, blocks=4", "cosine-ls", "2", *values]
    assert more[0] == f"{where}, blocks=3-4"
    first, second, _ = csv.DictReader(io.StringIO(FORMATS["csv"].load()(report, None)))
    assert (first["objective"], float(first["last_mean"]), first["n"]) == ("before", 70, "1")
    assert (float(second["last_mean"]), second["last_seeds"]) == (70.5, "70.0 71.0")
    key = "detection_misclassification aupr_in max_similarity_mean"
    assert (float(first[key]), float(second[key])) == (0.8, 0.905)


def test_a_source_model_that_was_not_measured_has_a_reason():
    (table,) = training_report([record("4", 0, 70.0, 12.0, **UNKNOWN)], COSIFY, []).tables
    assert table.notes == (
        "cifar-100, resnet18, source model: not measured: it tells 1000 classes apart, and the "
        "data has 100",
    )
    assert [cell.text for cell in table.rows[0].cells] == ["before", *["-"] * 7]


def test_json_has_both():
    document = training_report(RECORDS, COSIFY, []).document
    assert document["command"] == "cosify"
    (before,) = document["baseline"]
    assert (before["top1"], before["source_model"]["path"], before["data"]) == (
        70.0,
        "runs/x",
        "cifar-100",
    )
    assert [cell["kappa"]["mean"] for cell in document["cells"]] == [12.5, 12.5]


def test_a_report_has_the_source_model_above_the_others():
    lists = texts_of(table_of(*RECORDS).details)
    (scale,) = (rows for caption, rows in lists.items() if caption.startswith("Least-squares"))
    assert scale == [
        ["data, model", "objective", "kappa*"],
        ["cifar-100, resnet18", "before", "9.50"],
        ["cifar-100, resnet18, blocks=4", "cosine-ls", "12.50 ± 0.71"],
        ["cifar-100, resnet18, blocks=3-4", "cosine-ls", "12.50 ± 0.71"],
    ]
    miss = {c.partition(";")[0]: rows for c, rows in lists.items() if "(MISS)" in c}
    subject = "Misclassification detection (MISS) by"
    assert list(miss) == [f"{subject} max similarity", f"{subject} feature norm"]
    for rows in miss.values():
        assert rows[0][2:] == ["AUPR-In", "AUROC"]
        assert rows[1] == ["cifar-100, resnet18", "before", "0.8000", "0.7000"]
        assert len(rows) == 4
    assert [c for c in lists if c.startswith("OOD cifar-10 detection by feature norm; -In, -Out: ")]


def test_a_report_leaves_out_what_was_not_measured():
    table = table_of(record("4", 0, 70.0, 12.0, **UNKNOWN))
    for caption, (_, *rows) in texts_of(table.details).items():
        assert [row[1] for row in rows] == ["cosine-ls"], caption


def test_footnotes_and_counts_of_diverged_and_collapsed_runs():
    plain = [record("4", seed, 70.0, 12.0) for seed in range(3)]
    for one in plain:
        one.baseline = None
    plain[0].diverged = "the loss is not finite"
    plain[1].collapsed = True
    report = training_report(plain, TrainRecipe(task="train"), [])
    (table,) = report.tables
    assert table.columns[:4] == ("objective", "n", "last epoch", "best epoch")
    assert (table.rows[0].cells[1].text, table.rows[0].cells[2].footnotes) == ("2", "dc")
    where = "cosine-ls on cifar-100, resnet18, blocks=4"
    assert table.notes == (
        f"d  diverged, left out: {where}: 1 of 3 runs",
        f"c  collapsed (constant prediction): {where}: 1 of 2 runs",
    )
    assert report.document["cells"][0]["diverged"] == 1


def own(*results, metric=METRICS["top1"]):
    cells = training_cells(results)
    comparisons = [c for m in metrics_in(results) for c in compare_seeds(results, "soft", m)]
    table = training_table(
        cells, [], comparisons, "soft", key="k", title="t", runs={}, metric=metric
    )
    return own_table(table, results, cells, comparisons, "soft", metric)[0]


def measured(objective, seed, top1, nll):
    epoch = {"epoch": 1, "top1": top1, "nll": nll}
    return training_result(objective=objective, seed=seed, last=epoch)


def test_the_metric_ranks_and_is_tested():
    runs = [
        measured(o, s, top1 + more * s, nll + s / 100)
        for o, top1, more, nll in (("soft", 50.0, 1, 0.5), ("arcface", 60.0, 2, 0.9))
        for s in range(3)
    ]
    table = own(*runs, metric=METRICS["nll"])
    assert [c.text for c in table.rows[0].cells] == ["0.5100 ± 0.0100", "0.9100 ± 0.0100"]
    assert [c.best for c in table.rows[0].cells] == [True, False]
    assert table.caption.startswith("Test NLL: mean ± standard deviation over n = 3 seeds")
    assert table.answers[0].startswith("Best on digits, mlp by NLL: soft 0.5100")
    assert sum("arcface against soft in NLL" in note for note in table.notes) == 1
    accuracy = texts_of(table.details)[
        "Top-1 accuracy on the test set, after the last epoch; ▲ ▼ "
        "better or worse than soft, same test as above"
    ]
    assert accuracy[1][2] == "51.00 ± 1.00"
    untested = own(*runs[:3], metric=METRICS["nll"])
    assert "Top-1 accuracy on the test set, after the last epoch" in texts_of(untested.details)
    by_accuracy = own(*runs)
    assert by_accuracy.answers[0].startswith("Best on digits, mlp: arcface 62.0 %")


def test_recall_and_confusion_are_summed_over_the_seeds():
    counts = {0: [[8, 2], [1, 9]], 1: [[10, 0], [3, 7]]}
    runs = [
        training_result(
            seed=seed,
            evaluation={
                "per_class": [
                    {"name": name, "n": sum(row), "correct": row[i]}
                    for i, (name, row) in enumerate(zip(("cat", "dog"), matrix, strict=True))
                ],
                "confusion": matrix,
            },
        )
        for seed, matrix in counts.items()
    ]
    recall, confusion = own_class_tables(runs, training_cells(runs), METRICS["top1"])
    assert [[r.label, *(c.text for c in r.cells)] for r in recall.rows] == [
        ["cat", "90.0", "20"],
        ["dog", "80.0", "20"],
    ]
    assert [[c.text for c in r.cells] for r in confusion.rows] == [["18", "2"], ["4", "16"]]
    assert confusion.columns == ("cat", "dog")


def test_an_own_comparison_says_how_it_was_tuned_and_what_is_not_compared():
    def trained(objective, seed, **fields):
        return training_result(objective=objective, seed=seed, **fields)

    notes = own(
        trained("soft", 0), trained("soft", 1), trained("arcface", 1), trained("arcface", 2)
    ).notes
    assert notes[0].startswith("one fixed protocol for all objectives")
    assert notes[-1] == "arcface on digits, mlp: seed 2 without a run of soft: not compared"
    assert own(trained("soft", 0), trained("soft", 1)).notes == ()
    notes = own(trained("soft", 0, candidates=9), trained("arcface", 0, candidates=9)).notes
    assert notes[0] == (
        "each network chose from 9 candidates by the validation part of its training data"
    )
