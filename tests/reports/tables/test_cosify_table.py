"""Before and after side by side: in the table of `cosify`, and in a report of its runs."""

import csv
import io

import pytest

from marginctl.recipe.cosify import CosifyRecipe
from marginctl.reports.tables.cosify_table import as_json, print_as
from marginctl.reports.tables.metric_tables import metric_tables
from marginctl.reports.tables.train_table import rows_of

NAMES = ["data, model", "objective", "n", "top-1 %", "kappa*", "MISS AP-in max similarity"]
NAMES += ["MISS AP-in norm", "OOD cifar-10 AP-in max similarity", "OOD cifar-10 AP-in norm"]


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
    return {
        "row": f"cifar-100, resnet18, blocks={blocks}",
        "data": "cifar-100",
        "model": "resnet18",
        "start": {"from": "runs/x", "weights_sha256": "0" * 64},
        "objective": "cosine-ls",
        "seed": seed,
        "last": epoch,
        "best": epoch,
        "diverged": None,
        "collapsed": False,
        "state": {"optimal_scale": {"mean": scale}},
        "evaluation": {"detection": detection(0.9 + seed / 100)},
        "timing": {"seconds": 1.0, "epoch_seconds": 0.3},
        "before": {**measured, "detection": detection(0.8), **before},
    }


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


def test_a_row_before_and_one_for_each_choice_of_blocks(capsys):
    print_as("csv", RECORDS)
    names, before, last, more = csv.reader(io.StringIO(capsys.readouterr().out))
    assert names == NAMES
    where = "cifar-100, resnet18"
    assert before == [where, "before", "1", "70.00", "9.50", "0.8000", "0.8000", "0.6000", "0.6000"]
    values = ["70.50 ± 0.71", "12.50 ± 0.71", *["0.9050 ± 0.0071"] * 2, *["0.7050 ± 0.0071"] * 2]
    assert last == [f"{where}, blocks=4", "cosine-ls", "2", *values]
    assert more[0] == f"{where}, blocks=3-4"
    print_as("markdown", RECORDS)
    shown = capsys.readouterr().out.splitlines()
    assert shown[2].startswith("| cifar-100, resnet18 | before | 1 | 70.00 |")


def test_what_was_not_measured_is_told(capsys):
    print_as("table", [record("4", 0, 70.0, 12.0, **UNKNOWN)])
    shown = capsys.readouterr().out
    assert "before, cifar-100, resnet18: not measured: it tells 1000 classes apart" in shown
    (row,) = (line for line in shown.splitlines() if " before " in line and "not" not in line)
    assert row.split()[-7:] == ["-"] * 7


def test_json_has_both():
    recipe = CosifyRecipe.model_validate({"task": "cosify", "source_model": "runs/x"})
    document = as_json(RECORDS, recipe, [])
    assert document["command"] == "cosify"
    (before,) = document["before"]
    assert (before["top1"], before["start"]["from"], before["data"]) == (
        70.0,
        "runs/x",
        "cifar-100",
    )
    assert [cell["kappa"]["mean"] for cell in document["cells"]] == [12.5, 12.5]


def test_a_report_has_before_above_the_others():
    cells = rows_of(RECORDS)
    lists = texts_of(metric_tables(cells, [], "cosine-ls"))
    caption = "The least-squares scale of the test images after the last epoch, their mean"
    assert lists[caption] == [
        ["data, model", "objective", "kappa*"],
        ["cifar-100, resnet18", "before", "9.50"],
        ["cifar-100, resnet18, blocks=4", "cosine-ls", "12.50 ± 0.71"],
        ["cifar-100, resnet18, blocks=3-4", "cosine-ls", "12.50 ± 0.71"],
    ]
    (miss,) = (rows for told, rows in lists.items() if "(MISS)" in told)
    assert miss[1] == ["cifar-100, resnet18", "before", *["0.8000"] * 2, *["0.7000"] * 2]
    assert len(miss) == 4


@pytest.mark.parametrize("place", ["kappa", "detection"])
def test_a_report_of_what_was_not_measured(place):
    cells = rows_of([record("4", 0, 70.0, 12.0, **UNKNOWN)])
    lists = texts_of(metric_tables(cells, [], "cosine-ls"))
    (rows,) = (r for told, r in lists.items() if ("scale" if place == "kappa" else "MISS") in told)
    before = [row for row in rows if row[1] == "before"]
    assert before == ([["cifar-100, resnet18", "before", "-"]] if place == "kappa" else [])
