"""Progress on stderr: a bar that is redrawn on a terminal, a plain line now and then elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from marginctl.experiments.records import CVResult, TrainingResult
from marginctl.results.cv_cells import Collector
from marginctl.utils.text import printable

if TYPE_CHECKING:
    from marginctl.experiments.training_trial import Trial

LOG_INTERVAL = 5.0  # seconds between plain lines
MAX_SILENCE = 30.0  # seconds without a line while a long trial trains
SHOWN_EPOCHS = 8
SPEED_WINDOW = 3600.0  # seconds over which the ETA averages


def format_duration(seconds: float) -> str:
    """Return `2:05` for 125 seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def log_lines(lines: Iterable[Any]) -> None:
    """Print plain lines on stderr, without control characters."""
    with contextlib.suppress(OSError):  # the reader of a pipe may leave; the work goes on
        for line in lines:
            print(printable(str(line)), file=sys.stderr, flush=True)


class ThrottledLog:
    """Prints plain lines on stderr, at most one in `LOG_INTERVAL` seconds."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._last = quiet, time.monotonic()

    def __call__(self, text: str, interval: float = LOG_INTERVAL) -> None:
        """Print a line, unless another one was printed less than `interval` seconds ago."""
        now = time.monotonic()
        if not self._quiet and now - self._last > interval:
            self._last = now
            log_lines([text])


class ProgressDisplay:
    """A progress bar with the time that the rest takes, and lines that stay.

    Where stderr is no terminal, or `quiet`, nothing is drawn.

    Args:
        unit: of the count next to the bar.
        body: returns what is drawn above the bar.
    """

    def __init__(self, unit: str, body: Callable[[], RenderableType], *, quiet: bool) -> None:
        self._body, self._quiet = body, quiet
        self.console = Console(stderr=True, highlight=False)
        self.is_live = not quiet and sys.stderr.isatty()  # rich's answer depends on FORCE_COLOR
        self.log = ThrottledLog(quiet=quiet or self.is_live)
        self._progress = Progress(
            BarColumn(30),
            TextColumn("{task.fields[count]} " + unit),
            console=self.console,
            get_time=time.monotonic,
            speed_estimate_period=SPEED_WINDOW,
        )
        self._task = self._progress.add_task("", total=None, count="0")
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.is_live:
            self._live = Live(console=self.console, get_renderable=self._render, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def restart(self, total: float) -> None:
        """Set the bar and the clock back to 0 of `total`."""
        self._progress.reset(self._task, total=total)

    def update(self, completed: float, count: str) -> None:
        """Move the bar; `count` is shown with the unit."""
        self._progress.update(self._task, completed=completed, count=count)

    @property
    def time_text(self) -> str:
        """`elapsed 0:05, ETA 0:08`."""
        task = self._progress.tasks[0]
        elapsed = f"elapsed {format_duration(task.elapsed or 0.0)}"
        remaining = None if task.finished else task.time_remaining
        return elapsed if remaining is None else f"{elapsed}, ETA {format_duration(remaining)}"

    def message(self, text: str) -> None:
        """Print a line that stays."""
        if self._live:
            self.console.print(Text(printable(text)))
        else:
            log_lines([text])

    def note(self, text: str) -> None:
        """Print a line that stays, unless the display is quiet."""
        if not self._quiet:
            self.message(text)

    def _render(self) -> Group:
        return Group(self._body(), self._progress.get_renderable(), Text(self.time_text))


class CostProgress(ProgressDisplay):
    """The progress of trials by the cost of their networks."""

    def begin_trials(self, total: float, trials: int) -> None:
        """Set the bar to 0 of the cost of pending trials; `trials` counts finished ones, too."""
        self._total, self._trials, self._done, self._cost = total, trials, 0, 0.0
        self.restart(total)
        self.update(0.0, f"0/{trials}")

    def count_trial(self) -> None:
        """Count a finished trial."""
        self._done += 1
        self.update(self._cost, f"{self._done}/{self._trials}")

    def progress(self, cost: float) -> None:
        """Move the bar to the cost of all networks that have been trained."""
        self._cost = cost
        self.update(cost, f"{self._done}/{self._trials}")
        fraction = cost / self._total if self._total else 1.0  # no pending trial
        self.log(f"{fraction:.0%} trained, {self.time_text}", MAX_SILENCE)


class CvProgress(CostProgress):
    """The progress of a cross-validation, below a table that `table` returns."""

    def __init__(
        self,
        collector: Collector,
        total: float,
        trials: int,
        table: Callable[[], RenderableType],
        *,
        quiet: bool,
    ) -> None:
        super().__init__("trials", table, quiet=quiet or not total)
        self._collector = collector
        self.begin_trials(total, trials)

    def done(self, record: CVResult, *, reused: bool) -> None:
        """Add the record of a finished trial."""
        cell = self._collector.add(record)
        self.count_trial()
        if cell and not reused:
            paper = f" (paper {cell.paper.mean:.2f}±{cell.paper.std:.2f})" if cell.paper else ""
            self.log(
                f"{self._done}/{self._trials} {cell.dataset} {cell.objective} "
                f"{cell.mean:.2f}±{cell.std:.2f}{paper}, {self.time_text}",
                0.0 if self._done == self._trials else LOG_INTERVAL,
            )


class TrainProgress(ProgressDisplay):
    """The progress of image tasks: steps of a trial, and its last epochs."""

    def __init__(self, trials: int, *, quiet: bool) -> None:
        super().__init__("steps", self._text, quiet=quiet)
        self._trials, self._done = trials, 0
        self._trial: Trial | None = None
        self._epochs: list[str] = []

    def step(self, trial: "Trial", step: int, total: int) -> None:
        """Record a finished step."""
        if trial is not self._trial:
            self._trial, self._epochs = trial, []
            self.restart(total)
            self.update(step - 1, f"{step - 1}/{total}")  # of a resumed trial: not timed
        self.update(step, f"{step}/{total}")
        self.log(f"{self._title()}: step {step} of {total}, {self.time_text}", MAX_SILENCE)

    def epoch(self, trial: "Trial", line: dict[str, Any]) -> None:
        """Record a finished epoch with its record of metrics.jsonl."""
        train = line["train"]
        text = f"epoch {line['epoch']}: loss {train['loss']:.4f}, train {train['top1']:.2f} %"
        for part in ("val", "test"):
            text += f", {part} {line[part]['top1']:.2f} %" if part in line else ""
        self._epochs = [*self._epochs, text][-SHOWN_EPOCHS:]
        is_last = line["epoch"] == trial.recipe.train.epochs
        self.log(f"{self._title()}: {text}, {self.time_text}", 0.0 if is_last else LOG_INTERVAL)

    def done(self, trial: "Trial", record: TrainingResult) -> None:
        """Record a finished trial."""
        self._done += 1

    def _title(self) -> str:
        return f"{self._done + 1}/{self._trials} {self._trial}"

    def _text(self) -> RenderableType:
        title = printable(self._title()) if self._trial else "loading data"
        return Group(Text(title), *map(Text, self._epochs))
