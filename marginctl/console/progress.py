"""Progress of a cross-validation on stderr: a table that fills, or plain lines in a log."""

import contextlib
import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from marginctl.reports.tables.cv_table import live_table
from marginctl.results.cv_cells import Collector
from marginctl.utils.text import printable

LOG_EVERY = 5.0  # seconds between plain lines
SILENT_AT_MOST = 30.0  # seconds without one while a long trial trains


class Display:
    """Something on stderr that is drawn over and over on a terminal, and lines that stay.

    Args:
        shown: whether it is drawn where stderr is a terminal.
    """

    def __init__(self, *, shown: bool) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._shown = shown and self.console.is_terminal
        self._live: Live | None = None

    def _render(self) -> Group:
        """What is drawn."""
        return Group()

    def __enter__(self) -> Self:
        if self._shown:
            self._live = Live(
                console=self.console,
                get_renderable=self._render,
                transient=True,
                refresh_per_second=4,
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def message(self, text: str) -> None:
        """One line that stays."""
        if self._live:
            self.console.print(Text(printable(text)))
        else:
            say([text])


class Progress(Display):
    """Shows what is done, and about how long the rest takes.

    On a terminal the table fills in place and vanishes at the end; elsewhere one plain line is
    written now and then. Quiet shows messages alone.

    Args:
        collector: takes the records and holds the table as it stands.
        total: cost of all that is to be trained (in the units that `progress` gets).
        trials: how many there are, done ones included.
        quiet: whether to leave out all but messages.
    """

    def __init__(self, collector: Collector, total: float, trials: int, *, quiet: bool) -> None:
        super().__init__(shown=not quiet and total > 0)
        self._collector, self._total, self._trials = collector, total, trials
        self._done, self._cost, self._quiet = 0, 0.0, quiet
        self._started = self._said = time.monotonic()
        self._first = (self._started, 0.0)

    def done(self, record: dict[str, Any], *, reused: bool) -> None:
        """A trial is done."""
        cell = self._collector.add(record)
        self._done += 1
        if reused or self._quiet or self._live:
            return
        now = time.monotonic()
        if cell and (now - self._said > LOG_EVERY or self._done == self._trials):
            self._said = now
            paper = f" (paper {cell.paper.mean:.2f}±{cell.paper.std:.2f})" if cell.paper else ""
            self.message(
                f"{self._done}/{self._trials} {cell.dataset} {cell.objective} "
                f"{cell.mean:.2f}±{cell.std:.2f}{paper}, {self._time_left()}"
            )

    def progress(self, cost: float) -> None:
        if cost > 0 and not self._cost:
            self._first = (time.monotonic(), cost)  # the start of the workers is over
        self._cost = cost
        now = time.monotonic()
        if not (self._live or self._quiet) and now - self._said > SILENT_AT_MOST:
            self._said = now
            self.message(f"{cost / self._total:.0%} trained, {self._time_left()}")

    def _time_left(self) -> str:
        now = time.monotonic()
        gone = f"{minutes(now - self._started)} gone"
        since, first = self._first
        if self._cost <= first:
            return gone
        left = (now - since) / (self._cost - first) * max(0.0, self._total - self._cost)
        return f"{gone}, about {minutes(left)} left"

    def _render(self) -> Group:
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=max(self._total, 1.0), completed=self._cost, width=30),
            f"{self._done}/{self._trials} trials",
            self._time_left(),
        )
        return Group(live_table(self._collector.grid), bar)


def minutes(seconds: float) -> str:
    """`2:05` of 125 seconds."""
    seconds = round(seconds)
    return f"{seconds // 60}:{seconds % 60:02d}"


def say(lines: Iterable[Any]) -> None:
    """Plain lines on stderr, no name in which a terminal would obey."""
    with contextlib.suppress(OSError):  # who reads the log may leave; the work goes on
        for line in lines:
            print(printable(str(line)), file=sys.stderr, flush=True)


class LogLine:
    """Plain lines on stderr, one now and then: what happens at the moment, of work that is long."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._said = quiet, time.monotonic()

    def __call__(self, text: str) -> None:
        """Says it, unless something was said less than `LOG_EVERY` seconds ago."""
        now = time.monotonic()
        if not self._quiet and now - self._said > LOG_EVERY:
            self._said = now
            say([text])
