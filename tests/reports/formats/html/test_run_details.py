"""Runs behind the cells: each once, what all share once for a table, values as short texts."""

import statistics

import pytest

from marginctl.reports.formats.html.run_details import fact_text, run_facts, run_groups
from tests.reports.formats.html.factories import run, table


def groups_of(*tables):
    return run_groups((f"t{i}", one) for i, one in enumerate(tables, 1))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "true"),
        (0.1 + 0.2, "0.3"),
        (97.123456789, "97.1235"),
        (12, "12"),
        ([], "none"),
        ({}, "none"),
        ([30, 30], "30, 30"),
        ([[1, 2], [3]], "1, 2, 3"),
        ([0.5] * 20, "20 times 0.5"),
        ([{"lo": 0}], "1 entries (see the file)"),
        ([{"lo": 0}] * 20, "20 entries (see the file)"),
        (list("abcdefghijklm"), "13 entries (see the file)"),
        (list(range(180)), "180 entries (see the file)"),
        ([["a", "b"]] * 6, "a, b, a, b, a, b, a, b, a, b, a, b"),
    ],
)
def test_fact_text(value, text):
    assert fact_text(value) == text


def test_a_long_list_is_summarized():
    numbers = [float(i * i % 97) for i in range(100)]
    mean, std = statistics.fmean(numbers), statistics.stdev(numbers)
    text = run_facts(run(accuracies=[numbers[:50], numbers[50:]]))["accuracies"]
    assert text == f"100 numbers: {mean:.6g} ± {std:.6g}, from 0 to 96"


def test_diverged_networks_are_counted():
    assert run_facts(run(diverged=[7, 99]))["diverged"] == "2 networks"
    assert run_facts(run(diverged=[]))["diverged"] == "0 networks"


def test_keys_are_dotted_and_none_is_lost():
    one = run(last={"top1": 98.5, "n": 360}, new=1)
    one.info.model_extra["new"] = {"inner": 2}
    facts = run_facts(one)
    assert (facts["last.top1"], facts["last.n"], facts["new"]) == ("98.5", "360", "1")
    assert facts["recipe.protocol.hidden"] == "30, 30"
    assert {name: text for name, text in facts.items() if name.startswith("run.")} == {
        "run.device": "cpu",
        "run.numerics": "3",
        "run.versions.torch": "2.14.1",
        "run.versions.python": "3.11.7",
        "run.git_commit": "b1bbf267",
        "run.timing.host.system": "Linux",
        "run.new.inner": "2",
    }


def test_facts_that_all_runs_of_a_table_share_are_written_once():
    cells = {("iris", "soft"): [run()], ("wine", "soft"): [run("wine", rows=9)]}
    ((group,), _) = groups_of(table(cells))
    assert group.count == 2
    assert group.shared["recipe.protocol.lr"] == "0.003"
    assert group.shared["accuracies"] == "90, 91, 92, 93"
    names = [list(block.facts) for block in group.blocks]
    assert names == [["rows", "folder", "data digest"]] * 2


def test_the_runs_of_a_cell_are_columns_in_the_order_of_their_seeds():
    seeds = [run(seed=s, top1=90.0 + s, n=5) for s in (2, 0, 1)]
    cells = {("iris", "soft"): seeds, ("iris", "arcface"): [run("iris", "arcface")]}
    ((group,), _) = groups_of(table(cells))
    block = group.blocks[0]
    assert block.seeds == ("seed 0", "seed 1", "seed 2")
    assert (block.facts["top1"], block.facts["n"]) == (["90", "91", "92"], ["5"])


def test_cells_with_the_same_runs_link_to_one_block():
    few, more = [run(seed=0)], [run(seed=0), run(seed=1)]
    one = table({("iris", "soft"): more, ("iris", "best"): few})
    other = table({("iris", "again"): more[::-1]})
    groups, numbers = groups_of(one, other)
    assert len(groups) == 1
    assert [block.cell for block in groups[0].blocks] == ["t1-0-0", "t1-0-1"]
    assert sorted(numbers.values()) == [1, 2]
