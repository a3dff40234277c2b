"""Plain lines in a log: one now and then."""

from marginctl.console import progress
from marginctl.console.progress import LOG_EVERY, LogLine


def test_a_line_now_and_then(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    line, quiet = LogLine(quiet=False), LogLine(quiet=True)
    for i in range(10):
        line(f"at {i}")
        quiet(f"quietly {i}")
        now[0] += LOG_EVERY / 2
    assert capsys.readouterr().err.split("\n") == ["at 3", "at 6", "at 9", ""]
