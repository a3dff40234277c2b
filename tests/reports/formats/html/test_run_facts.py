"""What a run's files say, as short texts."""

import statistics

import pytest

from marginctl.reports.formats.html import run_facts
from tests.reports.formats.html.made import run


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
        ([{"lo": 0}], "1 entries, see the file"),
        ([{"lo": 0}] * 20, "20 entries, see the file"),
        (list("abcdefghijklm"), "13 entries, see the file"),
        (list(range(180)), "180 entries, see the file"),
        ([["a", "b"]] * 6, "a, b, a, b, a, b, a, b, a, b, a, b"),
    ],
)
def test_a_value_is_a_short_text(value, text):
    assert run_facts.results(run(value=value))["value"] == text


def test_a_long_list_is_its_mean_spread_and_range():
    numbers = [float(i * i % 97) for i in range(100)]
    mean, spread = statistics.fmean(numbers), statistics.stdev(numbers)
    said = run_facts.results(run(accuracies=[numbers[:50], numbers[50:]]))["accuracies"]
    assert said == f"100 numbers: {mean:.6g} ± {spread:.6g}, from 0 to 96"


def test_networks_that_diverged_are_counted():
    assert run_facts.results(run(diverged=[7, 99]))["diverged"] == "2 networks"
    assert run_facts.results(run(diverged=None))["diverged"] == "none"


def test_inner_keys_are_dotted_and_nothing_is_lost():
    one = run(last={"top1": 98.5, "n": 360}, new=1)
    found = run_facts.results(one)
    assert (found["last.top1"], found["last.n"], found["new"]) == ("98.5", "360", "1")
    one.about["new"] = {"inner": 2}
    assert run_facts.environment(one) == {
        "device": "cpu",
        "numerics": "3",
        "versions.torch": "2.14.1",
        "versions.python": "3.11.7",
        "git_commit": "b1bbf267",
        "timing.host.system": "Linux",
        "new.inner": "2",
    }
    assert run_facts.settings(one)["protocol.hidden"] == "30, 30"
