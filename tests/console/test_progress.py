"""Progress on stderr."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from marginctl.console import progress
from marginctl.console.progress import (
    LOG_INTERVAL,
    ProgressDisplay,
    ThrottledLog,
    format_duration,
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


def test_the_eta_leaves_out_the_steps_before_a_resume(clock):
    display = ProgressDisplay("steps", Text, quiet=False)
    display.restart(100)
    assert display.time_text == "elapsed 0:00"
    display.update(60, "60/100")  # of an earlier call
    for step in range(61, 71):
        clock[0] += 2
        display.update(step, f"{step}/100")
    assert display.time_text == "elapsed 0:20, ETA 1:00"
    display.restart(10)
    assert display.time_text == "elapsed 0:00"


def test_a_terminal_shows_the_bar_and_keeps_messages():
    display = ProgressDisplay("trials", lambda: Text("the table"), quiet=False)
    display.console = Console(file=io.StringIO(), force_terminal=True, width=80)
    display.restart(4)
    display.update(1, "1/4")
    display.console.print(display._render())
    shown = display.console.file.getvalue()
    assert "the table" in shown
    assert "1/4 trials" in shown
    assert "elapsed 0:00" in shown
