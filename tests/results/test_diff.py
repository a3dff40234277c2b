"""Two stores side by side."""

import csv
import io
import json
import math
import shutil
import statistics

import pytest
from scipy.stats import ttest_rel

from marginctl.results.diff import compare_folders
from tests.reports.stores import another, change_result, change_run, copied, make, trial


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make(tmp_path_factory.mktemp("whole") / "store")


def test_a_copy_is_identical_to_the_last_bit(marginctl, whole, tmp_path):
    other = copied(whole, tmp_path / "b")
    ran = marginctl("report", "--diff", whole, other)
    assert (ran.status, ran.err) == (0, "")
    assert "4 cells in both, 4 bit-identical" in ran.out
    assert "Only in" not in ran.out
    found = marginctl("report", "--diff", whole, other, "--format", "json").json
    assert found["command"] == "report"
    assert [(c["difference"], c["identical"]) for c in found["diff"]["cells"]] == [(0, True)] * 4
    assert [c["note"] for c in found["diff"]["cells"]] == [None] * 4


def test_means_difference_and_interval_are_those_of_scipy(whole, tmp_path):
    other = copied(whole, tmp_path / "b")
    changed = [[50.0, 60.0, 72.5], [61.0, 80.25, 90.0]]
    change_result(trial(other, "iris-soft"), accuracies=changed)
    diff = compare_folders(whole, other)
    cell = next(c for c in diff.cells if (c.row, c.objective) == ("iris", "soft"))
    assert cell.identical is False
    assert list(cell.b) == [a for repeat in changed for a in repeat]
    assert cell.difference == pytest.approx(statistics.fmean(cell.b) - statistics.fmean(cell.a))
    expected = ttest_rel(cell.b, cell.a).confidence_interval(0.95)
    assert cell.interval == pytest.approx((expected.low, expected.high))
    assert sum(c.identical for c in diff.cells) == 3


def test_one_bit_is_seen(whole, tmp_path):
    other = copied(whole, tmp_path / "b")
    folder = trial(other, "digits-mlp-cosine")
    before = compare_folders(whole, other)
    cell = next(c for c in before.cells if c.objective == "cosine")
    last = json.loads((folder / "result.json").read_text())["last"]
    change_result(folder, last=last | {"top1": math.nextafter(last["top1"], 0)})
    after = next(c for c in compare_folders(whole, other).cells if c.objective == "cosine")
    assert (cell.identical, after.identical) == (True, False)
    assert after.interval is None  # one number each


def test_seeds_and_cells_that_one_alone_has(marginctl, whole, tmp_path):
    other = copied(whole, tmp_path / "b")
    another(trial(other, "iris-soft"), other / "more" / "seed-1", seed=1)
    shutil.rmtree(trial(other, "digits-mlp-cosine"))
    found = marginctl("report", "--diff", whole, other, "--format", "json").json["diff"]
    assert len(found["cells"]) == 3
    (only_a,), (only_b,) = found["only_a"], found["only_b"]
    assert (only_a["objective"], only_a["seeds"], only_a["b"]) == ("cosine", [0], None)
    assert (only_b["row"], only_b["seeds"], only_b["a"]) == ("iris", [1], None)
    ran = marginctl("report", "--diff", whole, other)
    assert "Only in A" in ran.out
    assert "Only in B" in ran.out


def test_another_protocol_under_one_name_is_said_and_not_compared(marginctl, whole, tmp_path):
    other = copied(whole, tmp_path / "b")
    for start in ("iris-soft", "iris-arcgrad"):
        change_run(trial(other, start), recipe__protocol__epochs=7)
    for start in ("digits-mlp-soft", "digits-mlp-cosine"):
        change_run(trial(other, start), recipe__optim__momentum=0.5)
    found = marginctl("report", "--diff", whole, other, "--format", "json").json["diff"]
    assert found["cells"] == []
    assert (len(found["only_a"]), len(found["only_b"])) == (4, 4)
    assert found["protocols"] == [
        "digits-mlp: optim.momentum = 0.9 in A, 0.5 in B",
        "arcgrad/table1: protocol.epochs = 2 in A, 7 in B",
    ]
    ran = marginctl("report", "--diff", whole, other)
    assert "different protocol: arcgrad/table1: protocol.epochs = 2 in A, 7 in B" in ran.out


def test_other_data_versions_and_names_are_noted(whole, tmp_path):
    other = copied(whole, tmp_path / "b")
    folder = trial(other, "iris-soft")
    change_run(folder, data="0" * 64, numerics=99, recipe__name="mine")
    change_result(folder, versions={"torch": "1.0", "numpy": "1.0", "marginctl": "0"})
    cells = compare_folders(whole, other).cells
    cell = next(c for c in cells if (c.row, c.objective) == ("iris", "soft"))
    for said in ("other data", "| 99", "| 1.0", "recipe arcgrad/table1 | mine"):
        assert said in cell.note


def test_a_diverged_network_has_no_number(whole, tmp_path):
    other = copied(whole, tmp_path / "b")
    change_result(trial(other, "digits-mlp-soft"), diverged="at step 1", last=None, best=None)
    cells = compare_folders(whole, other).cells
    cell = next(c for c in cells if (c.row, c.objective) == ("digits, mlp", "soft"))
    assert (cell.b, cell.difference, cell.identical) == ((), None, False)


def test_every_format_has_the_same_and_a_file_takes_it(marginctl, whole, tmp_path):
    other = copied(whole, tmp_path / "b")
    ran = marginctl("report", "--diff", whole, other, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [row["identical"] for row in rows] == ["yes"] * 4
    markdown = marginctl("report", "--diff", whole, other, "--format", "markdown").out
    assert markdown.count("\n| ") == 4
    assert "| iris | soft | 0 |  | 6 |" in markdown
    file = tmp_path / "diff.csv"
    marginctl("report", "--diff", whole, other, "--format", "csv", "--output", file)
    assert file.read_text() == ran.out


def test_damaged_runs_are_named(marginctl, whole, tmp_path):
    other = copied(whole, tmp_path / "b")
    (trial(other, "iris-soft") / "result.json").write_text("{")
    ran = marginctl("report", "--diff", whole, other)
    assert ran.status == 0
    assert "result.json is corrupt" in ran.err
    assert "3 cells in both" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--diff", "S"), "--diff: 1 runs folders: expected two, as in report --diff A B"),
        (("--diff", "S", "S", "S"), "--diff: 3 runs folders: expected two"),
        (("--diff", "S", "nowhere"), "nowhere: no such runs folder"),
        (("--diff", "S", "S", "--format", "latx"), "unknown format 'latx': expected one of table"),
        (("--list", "--diff"), "--diff: cannot be combined with --list"),
    ],
)
def test_mistakes(marginctl, whole, arguments, message):
    ran = marginctl("report", *(whole if a == "S" else a for a in arguments))
    assert ran.status == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1
