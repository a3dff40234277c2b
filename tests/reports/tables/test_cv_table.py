"""Cells, averages and wins; the same numbers in every format."""

import json

import numpy as np
import pytest

from marginctl.papers import PublishedMean
from marginctl.reports.formats.markdown import markdown
from marginctl.reports.formats.registry import render_csv
from marginctl.reports.formats.terminal import rich_table
from marginctl.reports.tables.cv_table import cv_report, cv_table, own_table
from marginctl.results.compare import Comparisons, compare_folds
from marginctl.results.cv_cells import Grid, cell
from tests.results.factories import cv_result as record


def grid(records, seeds=1, published=None, skipped=()):
    return collected(records, seeds, published, skipped)


def collected(records, seeds=1, published=None, skipped=()):
    datasets = list(dict.fromkeys(r.dataset for r in records))
    objectives = list(dict.fromkeys(r.objective for r in records))
    collector = Grid(datasets, objectives, seeds=seeds, published=published or {}, skipped=skipped)
    for r in records:
        collector.add(r)
    return collector


def test_mean_and_std_over_all_fold_accuracies():
    values = np.random.default_rng(0).uniform(0, 100, (10, 10))
    made = cell("iris", [record(accuracies=values)], None)
    assert made.mean == pytest.approx(values.mean(), rel=1e-12)
    assert made.std == pytest.approx(values.std(ddof=1), rel=1e-12)
    assert made.n == 100
    assert made.note is None


def test_seeds_are_gathered_before_a_cell_is_shown():
    collector = Grid(["iris"], ["soft"], seeds=2, published={})
    assert collector.add(record(seed=1)) is None
    assert not collector.cells
    made = collector.add(record(seed=0, accuracies=((0.0, 100.0),)))
    assert made.n == 6
    assert made.seconds == 3.0


def test_ties_share_a_win_and_incomplete_rows_count_nowhere():
    same = ((50.0, 50.0),)
    more = ((60.0, 60.0),)
    made = grid(
        [
            record("a", "soft", same),
            record("a", "arcgrad", same),
            record("a", "m-soft", ((40.0, 40.0),)),
            record("b", "soft", same),
            record("b", "arcgrad", more),
            record("b", "m-soft", same),
            record("c", "soft", more),
        ]
    )
    assert made.wins() == [0.5, 1.5, 0.0]
    assert made.averages() == [50.0, 55.0, 45.0]
    assert made.wins(published=True) is None


def test_notes():
    made = cell(
        "iris",
        [record(objective="adacos", classes=2, diverged=[1], collapsed=[0, 2])],
        PublishedMean(50.0, 1.0, 100),
    )
    assert made.note == (
        "scale is 0 for two classes: AdaCos cannot learn; untrained network; "
        "1 of 4 networks diverged and were frozen; 2 of 4 networks predict one class"
    )
    cells = grid([record(objective="adacos", classes=2, diverged=[1], collapsed=[0, 2])])
    lines = cv_table(cells, UNTESTED).notes
    assert [line[0] for line in lines] == ["u", "d", "c"]
    assert lines[1].endswith("adacos on iris 1/4")


UNTESTED = Comparisons("soft", datasets=2)
RECORDS = [
    record("iris", "soft"),
    record("iris", "arcgrad:scale=5", ((90.0, 80.0), (90.0, 100.0))),
    record("haberman", "soft", ((70.0, 70.0), (70.0, 70.0)), classes=2, collapsed=[0, 1, 2, 3]),
    record("haberman", "arcgrad:scale=5", ((60.0, 70.0), (60.0, 70.0)), classes=2),
]
PUBLISHED = {("iris", "soft"): PublishedMean(96.8, 6.76, 100)}


def test_what_was_chosen_most():
    def tuned(dataset, objective, **chosen):
        return record(dataset, objective, chosen=chosen, candidates=2)

    one = [tuned("a", "soft", x=1, y=3), tuned("a", "arcgrad", z=4, w=0)]
    notes = cv_table(grid(one), UNTESTED).notes
    assert notes[:2] == ("chosen most often: y (3 of 4)", "chosen most often: z (4 of 4)")
    made = collected([*one, tuned("b", "soft", x=2, y=2)])
    assert cv_table(made, UNTESTED).notes[:2] == (
        "chosen most often on a: y (3 of 4); z (4 of 4)",
        "chosen most often on b: x (2 of 4)",
    )
    report = cv_report(made, {}, compare_folds(made, "soft"))
    assert report.document["cells"][0]["chosen"] == [
        {"candidate": "y", "networks": 3},
        {"candidate": "x", "networks": 1},
    ]
    assert report.records[0]["chosen"] == "y"
    plain = collected([record()])
    report = cv_report(plain, {}, compare_folds(plain, "soft"))
    assert "chosen" not in report.document["cells"][0]


def test_golden_markdown():
    made = grid(RECORDS, published=PUBLISHED, skipped=[("hayes-roth", "no files")])
    text = markdown(cv_table(made, UNTESTED))
    assert text == (
        "| data set | `soft` | `arcgrad:scale=5` |\n"
        "|---|---:|---:|\n"
        "| iris | 65.00 ± 12.91 (96.80 ± 6.76) | **90.00** ± 8.16 |\n"
        "| haberman | **70.00** ± 0.00 <sup>c</sup> | 65.00 ± 5.77 |\n"
        "| average | 67.50 | 77.50 |\n"
        "| wins | 1 | 1 |\n"
        "\n"
        "Accuracy in percent: mean ± standard deviation over n = 4 folds; best per row in bold; "
        "published values in brackets.\n"
        "\n"
        "- c  collapsed (constant prediction): soft on haberman 4/4\n"
        "- skipped 1: hayes-roth: no files"
    )


def test_every_format_holds_the_same_numbers():
    made = collected(RECORDS, published=PUBLISHED)
    compared = compare_folds(made, "soft")
    report = cv_report(made, {"folds": 2}, compared)
    document = report.document
    json.dumps(document, allow_nan=False)
    for line, c in zip(render_csv(report).splitlines()[1:], document["cells"], strict=True):
        fields = line.split(",")
        assert fields[:2] == [c["dataset"], c["objective"]]
        assert [float(f) for f in fields[2:4]] == [c["mean"], c["std"]]
    assert document["wins"] == {"soft": 1.0, "arcgrad:scale=5": 1.0}


@pytest.mark.parametrize("width", [40, 80, 120, 10_000])
def test_the_table_fits_the_terminal(width):
    from rich.console import Console

    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(rich_table(cv_table(grid(RECORDS, published=PUBLISHED), UNTESTED), width))
    text = console.export_text()
    for shown in ("65.00±12.91", "90.00±8.16", "c 70.00±0.00", "65.00±5.77", "96.80±6.76"):
        assert shown in text
    table = text.split("Accuracy")[0]
    assert max(len(line.rstrip()) for line in table.splitlines()) <= width


def test_a_grid_without_cells_prints_what_was_skipped():
    empty = Grid(("iris",), ("soft",), {}, skipped=(("iris", "no files"),))
    assert markdown(cv_table(empty, UNTESTED)) == "skipped 1: iris: no files"
    assert cv_report(empty, {}, compare_folds(empty, "soft")).records == []


def measured(dataset, objective, accuracy, log_loss, **fields):
    folds = [[accuracy - 1, accuracy + 1], [accuracy, accuracy]]
    metrics = {
        name: [[log_loss - 0.1, log_loss + 0.1], [log_loss, log_loss]]
        for name in ("balanced_accuracy", "macro_f1", "auroc", "log_loss", "ece")
    }
    return record(
        dataset,
        objective,
        folds,
        metrics=metrics,
        confusion=[[7, 3], [2, 8]],
        class_names=["no", "yes"],
        **fields,
    )


def own(*results, metric):
    names = dict.fromkeys(r.dataset for r in results), dict.fromkeys(r.objective for r in results)
    collector = Grid(*map(list, names), seeds=1, published={}, metric=metric)
    collector.add_all(results)
    comparisons = compare_folds(collector, "soft")
    return own_table(collector, comparisons, [], by_class=True)


def test_several_data_sets_show_the_chosen_metric():
    results = [
        measured(d, o, accuracy, log_loss)
        for d in ("a", "b")
        for o, accuracy, log_loss in (("soft", 70.0, 0.5), ("arcface", 80.0, 0.9))
    ]
    table = own(*results, metric="log_loss")
    assert [cell.text for cell in table.rows[0].cells] == ["0.500 ± 0.082", "0.900 ± 0.082"]
    assert [cell.best for cell in table.rows[0].cells] == [True, False]
    assert table.caption.startswith("Log loss: mean")
    confusions = [t.caption for t in table.details if t.key.endswith("-confusion")]
    assert len(confusions) == 2
    assert all("of soft, test rows" in caption for caption in confusions)


def test_equal_and_different_budgets():
    fixed = own(measured("a", "soft", 70, 0.5), measured("a", "arcface", 71, 0.5), metric="auroc")
    assert fixed.notes[0].startswith("one fixed protocol for all objectives")
    tuned = [measured("a", "soft", 70, 0.5, candidates=11)]
    alike = own(*tuned, measured("a", "arcface", 71, 0.5, candidates=11), metric="auroc")
    assert alike.notes[0].startswith("each network chose from 11 candidates by inner folds")
    unlike = own(*tuned, measured("a", "arcface", 71, 0.5, candidates=3), metric="auroc")
    assert "different numbers of candidates (3 to 11): no significance" in unlike.notes[0]
