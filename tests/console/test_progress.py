"""Progress on stderr."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.text import Text

from marginctl.console import progress
from marginctl.console.progress import (
    LOG_INTERVAL,
    CostProgress,
    ThrottledLog,
    TrainProgress,
    format_duration,
    phase,
)


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_throttled_log_prints_a_line_now_and_then(clock, capsys):
    log, quiet = ThrottledLog(quiet=False), ThrottledLog(quiet=True)
    for i in range(10):
        log(f"line {i}")
        quiet(f"quiet {i}")
        clock[0] += LOG_INTERVAL / 2
    assert capsys.readouterr().err.split("\n") == ["line 3", "line 6", "line 9", ""]


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (5, "0:05"), (125, "2:05")])
def test_format_duration(seconds, text):
    assert format_duration(seconds) == text


def test_the_eta_of_costs_leaves_out_the_start_of_the_workers(clock, capsys):
    display = CostProgress("trials", Text, quiet=False)
    display.begin_trials(100, 2)
    assert display.time_text == "elapsed 0:00"
    clock[0] += 7
    display.progress(20)
    assert display.time_text == "elapsed 0:07"
    for cost in (30, 40):
        clock[0] += 5
        display.progress(cost)
    assert display.time_text == "elapsed 0:17, ETA 0:30"
    clock[0] += 5  # the estimate goes on while nothing ends
    assert display.time_text == "elapsed 0:22, ETA 0:25"
    display.begin_trials(30, 3)  # a second round, with less to do than was planned
    clock[0] += 10
    display.progress(20)
    assert display.time_text == "elapsed 0:32, ETA 0:06"  # 40 in 25 s; 10 are left
    display.count_trial(reused=True)
    assert display._progress.tasks[0].fields["count"] == "1/3"


def test_a_terminal_shows_the_bar_and_keeps_messages():
    display = CostProgress("trials", lambda: Text("the table"), quiet=False)
    display.console = Console(file=io.StringIO(), force_terminal=True, width=80)
    display.update(1, 4, "1/4")
    display.console.print(display._render())
    shown = display.console.file.getvalue()
    assert "the table" in shown
    assert "1/4 trials" in shown
    assert "elapsed 0:00" in shown


class Trained:
    """A trial, as far as it is shown."""

    def __init__(self, name, row="", epochs=2):
        self.id = self.name = name
        self.row = row
        self.recipe = SimpleNamespace(train=SimpleNamespace(epochs=epochs))

    def __str__(self):
        return self.name


def test_one_bar_over_trials_side_by_side(clock, capsys):
    """The ETA is that of all trials; steps before a resume are not timed."""
    a, b, c = Trained("a"), Trained("b"), Trained("c")
    display = TrainProgress({a: 100, b: 100, c: 100}, 5, quiet=False)
    display.step(a, 1, 100)
    display.step(b, 61, 100)  # resumed
    for step in range(2, 12):
        clock[0] += 2
        display.step(a, step, 100)
        display.step(b, 60 + step, 100)
    # 2 s a step; b ends after 29 steps, and c, which follows, 100 steps later
    assert display.time_text == "elapsed 0:20, ETA 4:18"
    line = {"epoch": 2, "train": {"loss": 0.5, "top1": 90.0}, "test": {"top1": 80.0}}
    display.epoch(b, line)
    assert capsys.readouterr().err == (
        "4/5 b: epoch 2: loss 0.5000, train 90.00 %, test 80.00 %, elapsed 0:20, ETA 4:18\n"
    )
    console = Console(file=io.StringIO(), width=80)
    console.print(display._render())
    lines = console.file.getvalue().splitlines()
    assert [line.strip(" ━╸╺") for line in lines[1:]] == [
        "elapsed 0:20, ETA 4:18",
        "3/5 a: step 11 of 100",
        "4/5 b: step 71 of 100",
        "epoch 2: loss 0.5000, train 90.00 %, test 80.00 %",
    ]
    display.done(b, None)
    assert list(display._running) == ["a"]
    display.step(c, 1, 100)
    assert display._running["c"].setup == 0
    display.done(c, None)
    display.done(a, None)
    assert display._progress.tasks[0].fields["count"] == "5/5"
    assert display.remaining_seconds() is None


def test_trials_of_one_row_and_length_share_a_pace(clock):
    """The time of a finished trial holds its evaluation."""
    rows = [Trained("a", "probe"), Trained("b", "fine-tune"), Trained("c", "fine-tune")]
    display = TrainProgress(dict.fromkeys(rows, 10), 3, quiet=False)
    for trial, seconds in zip(rows[:2], (1, 4), strict=True):
        for step in range(1, 11):
            clock[0] += seconds
            display.step(trial, step, 10)
        clock[0] += 5
        display.done(trial, None)
    # the end of a trial; what was before the first one of a kind may have been a start of workers
    assert display.remaining_seconds() == pytest.approx(10 * 4 + 5)
    clock[0] += 2
    display.step(rows[2], 1, 10)
    assert display._running["c"].setup == 2


def test_trials_of_an_unknown_pace_have_that_of_others_by_the_cost_of_a_step(clock):
    all_blocks, last_block = Trained("a", "1-4"), Trained("b", "4")
    costs = {all_blocks: 4e9, last_block: 1e9}
    display = TrainProgress(dict.fromkeys(costs, 10), 2, quiet=False, costs=costs)
    for step in range(1, 11):
        clock[0] += 4
        display.step(all_blocks, step, 10)
    display.done(all_blocks, None)
    assert display.remaining_seconds() == pytest.approx(10 * 1)
    for step in range(1, 4):  # the first one is not timed; two steps in 4 s are more than 1 s
        clock[0] += 2
        display.step(last_block, step, 10)
    # the mean pace: 9 x 4 + 2 units of work in 40 s
    assert display.remaining_seconds() == pytest.approx(7 * (4 + 1) / (2 + 38 / 40))


def test_steps_of_candidates_count_with_their_trial(clock):
    a = Trained("a")
    display = TrainProgress({a: 100}, 1, quiet=False)
    for candidate in ("lr=1", "lr=2"):
        for step in range(1, 11):
            clock[0] += 1
            display.step(a, step, 10, candidate)
    assert display._running["a"].text == "1/1 a: tuning lr=2: step 10 of 10"
    assert display.time_text == "elapsed 0:20, ETA 1:20"
    display.step(a, 1, 80)
    assert display._left == {"a": 79}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "quiet", "shown"), [(Terminal, False, True), (Terminal, True, False)]
)
def test_a_phase_is_shown_on_a_terminal(monkeypatch, stream, quiet, shown):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress.sys, "stderr", stream())
    with phase("reading runs", quiet=quiet):
        pass
    assert ("reading runs" in progress.sys.stderr.getvalue()) == shown


def test_a_phase_prints_nothing_into_a_log(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with phase("reading runs"):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_finished_trial_stays_as_a_line_on_a_terminal(monkeypatch):
    lines, trial = [], Trained("a")
    display = TrainProgress({trial: 10}, 1, quiet=False)
    display.is_live = True
    monkeypatch.setattr(display, "message", lines.append)
    display.step(trial, 10, 10)
    timing = SimpleNamespace(seconds=65.0)
    display.done(trial, SimpleNamespace(last=SimpleNamespace(top1=97.5), timing=timing))
    assert lines == ["1/1 a: test 97.50 %, 1:05"]
