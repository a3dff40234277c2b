"""A plan in words."""

import pytest

from marginctl.reports.tables.plan_table import duration, plan_lines


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *((0.04, "0.0 s"), (4.25, "4.2 s"), (9.6, "10 s"), (59.4, "59 s"), (59.6, "1 min")),
        *(
            (3569, "59 min"),
            (3571, "1 h 0 min"),
            (11520, "3 h 12 min"),
            (47.9 * 3600, "47 h 54 min"),
        ),
        *((48 * 3600, "2 d 0 h"), (127 * 3600, "5 d 7 h")),
    ],
)
def test_durations(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("number", "row", "plan"),
    [
        (1, "1 epoch, 1 step, about 4.0 s on cpu (from 1 timed step of 1 image)", "1 trial"),
        (2, "2 epochs, 2 steps, about 4.0 s on cpu (from 2 timed steps of 2 images)", "2 trials"),
    ],
)
def test_one_is_no_plural(number, row, plan):
    counts = dict.fromkeys(("epochs", "steps", "timed_steps", "timed_images"), number)
    found = plan_lines(
        {
            "rows": [{"trial": "T", "seconds": 4.0, "reason": None, **counts}],
            "trials": number,
            "done": 0,
            "to_do": number,
            "not_timed": 0,
            "operations": 0,
            "seconds": 4.0,
            "device": "cpu",
            "folder": "runs/x",
            "not_counted": ["start-up", "checkpoints"],
        }
    )
    assert found == [
        f"T: {row}",
        f"{plan}, {number} pending on cpu: about 4.0 s; runs in runs/x",
        "Estimate excludes start-up, checkpoints.",
    ]


@pytest.mark.parametrize(
    ("device", "operations", "said"),
    [
        ("cpu", 1.8e17, "On a GPU that sustains 50 TFLOP/s: about 1 h 0 min."),
        ("cpu", 1e14, None),
        ("cuda:0", 1.8e17, None),
    ],
)
def test_a_long_plan_says_its_time_on_a_gpu(device, operations, said):
    plan = {"rows": [], "trials": 1, "done": 0, "to_do": 1, "not_timed": 1, "folder": "runs"}
    lines = plan_lines(plan | {"device": device, "operations": operations, "not_counted": []})
    assert lines[1:] == ([said] if said else [])
