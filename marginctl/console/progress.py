"""Progress on stderr: a bar that is redrawn on a terminal, a plain line now and then elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from marginctl.experiments.records import CVResult, TrainingResult
from marginctl.results.cv_cells import Grid
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
        task, elapsed = self._progress.tasks[0], self._elapsed_text
        remaining = None if task.finished else task.time_remaining
        return elapsed if remaining is None else f"{elapsed}, ETA {format_duration(remaining)}"

    @property
    def _elapsed_text(self) -> str:
        return f"elapsed {format_duration(self._progress.tasks[0].elapsed or 0.0)}"

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
        grid: Grid,
        total: float,
        trials: int,
        table: Callable[[], RenderableType],
        *,
        quiet: bool,
    ) -> None:
        super().__init__("trials", table, quiet=quiet or not total)
        self._grid = grid
        self.begin_trials(total, trials)

    def done(self, record: CVResult, *, reused: bool) -> None:
        """Add the record of a finished trial."""
        cell = self._grid.add(record)
        self.count_trial()
        if cell and not reused:
            paper = f" (paper {cell.paper.mean:.2f}±{cell.paper.std:.2f})" if cell.paper else ""
            self.log(
                f"{self._done}/{self._trials} {cell.dataset} {cell.objective} "
                f"{cell.mean:.2f}±{cell.std:.2f}{paper}, {self.time_text}",
                0.0 if self._done == self._trials else LOG_INTERVAL,
            )


@dataclass
class _RunningTrial:
    """What is shown of a trial that runs."""

    title: str
    candidate: str | None = None  # of tuning
    step: int = 0
    total: int = 0
    epochs: list[str] = field(default_factory=list)

    def lines(self, shown_epochs: int) -> list[str]:
        tuned = f"tuning {self.candidate}: " if self.candidate else ""
        line = f"{self.title}: {tuned}step {self.step} of {self.total}"
        return [line, *(f"  {text}" for text in self.epochs[-shown_epochs:])]


class TrainProgress(ProgressDisplay):
    """The progress of image tasks: a bar over the steps of all trials, and the running ones.

    Args:
        steps: of each unfinished trial, by its id.
        trials: their number, finished ones included.
    """

    def __init__(self, steps: Mapping[str, int], trials: int, *, quiet: bool) -> None:
        super().__init__("trials", self._text, quiet=quiet)
        self._left, self._trials = dict(steps), trials  # steps left, by trial
        self._ended, self._steps = trials - len(steps), 0  # steps since the first one
        self._first_step = 0.0  # when it ended
        self._running: dict[str, _RunningTrial] = {}
        self.restart(1.0)
        self._show()

    @property
    def time_text(self) -> str:
        left = sum(self._left.values())
        if not self._steps or not left:
            return self._elapsed_text
        seconds = (time.monotonic() - self._first_step) / self._steps
        return f"{self._elapsed_text}, ETA {format_duration(left * seconds)}"

    def step(self, trial: "Trial", step: int, total: int, candidate: str | None = None) -> None:
        """Record a finished step of a trial, or of a candidate of its tuning."""
        running = self._of(trial)
        continues = running.candidate == candidate and running.step < step
        steps = step - running.step if continues and running.step else 1  # not those of a resume
        if self._first_step:
            self._steps += steps
        else:
            self._first_step = time.monotonic()
        left = self._left.get(trial.id, 0)
        self._left[trial.id] = total - step if candidate is None else max(0, left - steps)
        running.candidate, running.step, running.total = candidate, step, total
        self._show()
        self.log(f"{running.lines(0)[0]}, {self.time_text}", MAX_SILENCE)

    def epoch(self, trial: "Trial", line: dict[str, Any]) -> None:
        """Record a finished epoch with its record of metrics.jsonl."""
        train, running = line["train"], self._of(trial)
        text = f"epoch {line['epoch']}: loss {train['loss']:.4f}, train {train['top1']:.2f} %"
        for part in ("val", "test"):
            text += f", {part} {line[part]['top1']:.2f} %" if part in line else ""
        running.epochs.append(text)
        is_last = line["epoch"] == trial.recipe.train.epochs
        self.log(f"{running.title}: {text}, {self.time_text}", 0.0 if is_last else LOG_INTERVAL)

    def done(self, trial: "Trial", record: TrainingResult | None) -> None:
        """Record that a trial has ended."""
        self._running.pop(trial.id, None)
        if self._left.pop(trial.id, None) is not None:
            self._ended += 1
        self._show()

    def _of(self, trial: "Trial") -> _RunningTrial:
        number = min(self._ended + len(self._running) + 1, self._trials)
        title = f"{number}/{self._trials} {trial}"
        return self._running.setdefault(trial.id, _RunningTrial(title))

    def _show(self) -> None:
        left = sum(self._left.values())
        fraction = self._steps / (self._steps + left) if self._steps + left else 1.0
        self.update(fraction, f"{self._ended}/{self._trials}")

    def _text(self) -> RenderableType:
        running = [*self._running.values()]
        shown = SHOWN_EPOCHS if len(running) == 1 else 1
        lines = [line for trial in running for line in trial.lines(shown)]
        return Group(*(Text(printable(line)) for line in lines or ["loading data"]))

    def _render(self) -> Group:
        return Group(self._progress.get_renderable(), Text(self.time_text), self._body())
