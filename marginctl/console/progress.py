"""Progress on stderr: a bar that is redrawn on a terminal, a plain line now and then elsewhere."""

import contextlib
import heapq
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from marginctl.experiments.records import CVResult, TrainingResult
from marginctl.results.cv_cells import Grid
from marginctl.runs.run_dir import SAVE_SECONDS
from marginctl.utils.text import printable

if TYPE_CHECKING:
    from marginctl.experiments.training_trial import Trial

LOG_INTERVAL = 5.0  # seconds between plain lines
MIN_TIMED = 1.0  # seconds of steps that an ETA needs
MAX_SILENCE = 30.0  # seconds without a line while a long trial trains
SHOWN_EPOCHS = 8
BAR_WIDTH, STEP_BAR_WIDTH = 30, 10


def format_duration(seconds: float) -> str:
    """Return `2:05` for 125 seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def log_lines(lines: Iterable[Any]) -> None:
    """Print plain lines on stderr, without control characters."""
    with contextlib.suppress(OSError):  # the reader of a pipe may leave; the work goes on
        for line in lines:
            print(printable(str(line)), file=sys.stderr, flush=True)


@contextlib.contextmanager
def phase(text: str, *, quiet: bool = False) -> Iterator[None]:
    """Show what runs, and for how long, until it ends: on a terminal, and unless `quiet`."""
    columns = (TextColumn("{task.description}"), BarColumn(BAR_WIDTH), TimeElapsedColumn())
    disable = quiet or not sys.stderr.isatty()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=disable) as bar:
        bar.add_task(text, total=None)
        yield


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


class ProgressDisplay(ABC):
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
            BarColumn(BAR_WIDTH),
            TextColumn("{task.fields[count]} " + unit),
            console=self.console,
            get_time=time.monotonic,
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

    def update(self, completed: float, total: float, count: str) -> None:
        """Move the bar; `count` is shown with the unit."""
        self._progress.update(self._task, completed=completed, total=total, count=count)

    @abstractmethod
    def remaining_seconds(self) -> float | None:
        """Return the estimated time that the rest takes; None where nothing is known."""

    @property
    def time_text(self) -> str:
        """`elapsed 0:05, ETA 0:08`."""
        elapsed = f"elapsed {format_duration(self._progress.tasks[0].elapsed or 0.0)}"
        seconds = self.remaining_seconds()
        return elapsed if seconds is None else f"{elapsed}, ETA {format_duration(seconds)}"

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
    """The progress of trials by the estimated seconds that their networks take a worker."""

    _finished = _cost = 0.0  # of all trials, and of the networks since `begin_trials`
    _first: tuple[float, float] | None = None  # time and cost of the first finished work
    _last = 0.0  # when work was last finished

    def begin_trials(self, total: float, trials: int) -> None:
        """Begin other trials than before.

        Args:
            total: the cost of all that is still to be done, by these trials and later ones.
            trials: the number of these trials, finished ones included.
        """
        self._total, self._trials, self._done = self._finished + total, trials, 0
        self._cost = 0.0
        self._show()

    def count_trial(self, *, reused: bool) -> None:
        """Count a finished trial; `reused` if its result is of an earlier command."""
        self._done += 1
        self._finish(0.0 if reused else SAVE_SECONDS)

    def progress(self, cost: float) -> None:
        """Move the bar to the cost of the networks that have been trained since the beginning."""
        if cost > self._cost:
            self._finish(cost - self._cost)
            self._cost = cost
        fraction = self._finished / self._total if self._total else 1.0  # no pending trial
        self.log(f"{fraction:.0%} trained, {self.time_text}", MAX_SILENCE)

    def remaining_seconds(self) -> float | None:
        if self._first is None or self._last == self._first[0]:
            return None
        first_step, cost = self._first
        speed = (self._finished - cost) / (self._last - first_step)
        return max(0.0, (self._total - self._finished) / speed - (time.monotonic() - self._last))

    def _finish(self, cost: float) -> None:
        if cost:
            self._finished, self._last = self._finished + cost, time.monotonic()
            if self._first is None:  # what is before it is mostly the start of the workers
                self._first = self._last, self._finished
        self._show()

    def _show(self) -> None:
        self.update(self._finished, self._total, f"{self._done}/{self._trials}")


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
        self.count_trial(reused=reused)
        if cell and not reused:
            paper = f" (paper {cell.paper.mean:.2f}±{cell.paper.std:.2f})" if cell.paper else ""
            self.log(
                f"{self._done}/{self._trials} {cell.dataset} {cell.objective} "
                f"{cell.mean:.2f}±{cell.std:.2f}{paper}, {self.time_text}",
                0.0 if self._done == self._trials else LOG_INTERVAL,
            )


@dataclass
class _Pace:
    """How long trials take: seconds for steps, and for what is before and after them."""

    seconds: float = 0.0
    work: float = 0.0  # the cost of the steps
    overhead: float = 0.0
    trials: int = 0  # finished ones, which have an overhead

    def __add__(self, other: "_Pace") -> "_Pace":
        return _Pace(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass
class _RunningTrial:
    """What is shown of a trial that runs, and how long its steps have taken.

    Attributes:
        setup: seconds before its first step.
        first_step: when that ended.
        last: when its last step ended.
        timed: the steps in between, without those of an earlier command.
    """

    setup: float
    first_step: float
    last: float
    title: str
    timed: int = -1
    candidate: str | None = None  # of tuning
    step: int = 0
    total: int = 0
    epochs: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        tuned = f"tuning {self.candidate}: " if self.candidate else ""
        return f"{self.title}: {tuned}step {self.step} of {self.total}"


class TrainProgress(ProgressDisplay):
    """The progress of image tasks: a bar over the steps of all trials, and one for each that runs.

    Args:
        steps: of each unfinished trial.
        trials: their number, finished ones included.
        costs: of a step of each, relative to those of the others; all equal if empty.
    """

    def __init__(
        self,
        steps: Mapping["Trial", int],
        trials: int,
        *,
        quiet: bool,
        costs: Mapping["Trial", float] = MappingProxyType({}),
    ) -> None:
        super().__init__("trials", self._text, quiet=quiet)
        self._left = {trial.id: n for trial, n in steps.items()}  # steps left
        self._costs = {trial.id: cost for trial, cost in costs.items()}
        self._trials, self._ended, self._done = trials, trials - len(steps), 0.0
        self._kinds = {trial.id: (trial.row, n) for trial, n in steps.items()}
        self._finished: dict[Any, _Pace] = {}  # of finished trials, by their kind
        self._free: list[float] = []  # when those ended whose place no trial has taken
        self._running: dict[str, _RunningTrial] = {}
        self._show()

    def remaining_seconds(self) -> float | None:
        """Return the time until the last trial ends, if each takes the place that is free first."""
        paces = dict(self._finished)
        for name, one in self._running.items():
            steps = _Pace(one.last - one.first_step, one.timed * self._cost(name))
            paces[self._kind(name)] = paces.get(self._kind(name), _Pace()) + steps
        mean = sum(paces.values(), _Pace())
        if mean.seconds < MIN_TIMED or not self._left:
            return None

        def rest(name: str) -> float:
            pace = paces.get(self._kind(name), _Pace())
            # a few steps are a poor estimate: a second at the mean pace counts, too
            added = 0.0 if pace.trials else MIN_TIMED
            seconds: float = (pace.seconds + added) / (pace.work + added * mean.work / mean.seconds)
            known = pace if pace.trials else mean
            overhead = known.overhead / known.trials if known.trials else 0.0
            return self._work_left(name) * seconds + (0.0 if name in self._running else overhead)

        now = time.monotonic()
        running = {name: one for name, one in self._running.items() if name in self._left}
        ends = [max(0.0, rest(name) - (now - one.last)) for name, one in running.items()]
        ends += [0.0] * max(1 - len(ends), len(self._free))
        heapq.heapify(ends)
        for name in self._left:
            if name not in running:
                heapq.heapreplace(ends, ends[0] + rest(name))
        return max(ends)

    def step(self, trial: "Trial", step: int, total: int, candidate: str | None = None) -> None:
        """Record a finished step of a trial, or of a candidate of its tuning."""
        running = self._of(trial)
        continues = running.candidate == candidate and running.step < step
        steps = step - running.step if continues and running.step else 1  # not those of a resume
        running.timed += steps
        running.last = time.monotonic()
        self._done += steps * self._cost(trial.id)
        left = self._left.get(trial.id, 0)
        self._left[trial.id] = total - step if candidate is None else max(0, left - steps)
        running.candidate, running.step, running.total = candidate, step, total
        self._show()
        self.log(f"{running.text}, {self.time_text}", MAX_SILENCE)

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
        running, left = self._running.pop(trial.id, None), self._left.pop(trial.id, None)
        if running is not None:
            now, kind = time.monotonic(), self._kind(trial.id)
            # the steps that it did not need count: the next trial may not need them either
            work = (running.timed + (left or 0)) * self._cost(trial.id)
            steps = _Pace(running.last - running.first_step, work)
            overhead = _Pace(overhead=running.setup + now - running.last, trials=1)
            self._finished[kind] = self._finished.get(kind, _Pace()) + steps + overhead
            self._free.append(now)
            if self.is_live and record is not None and record.last is not None:
                seconds = format_duration(record.timing.seconds)
                self.message(f"{running.title}: test {record.last.top1:.2f} %, {seconds}")
        self._ended += left is not None
        self._show()

    def _kind(self, name: str) -> Any:
        """Return what is equal for trials that take about as long: row and number of steps."""
        return self._kinds.get(name)

    def _cost(self, name: str) -> float:
        return self._costs.get(name, 1.0)

    def _work_left(self, name: str) -> float:
        return self._left[name] * self._cost(name)

    def _of(self, trial: "Trial") -> _RunningTrial:
        if trial.id not in self._running:
            number = min(self._ended + len(self._running) + 1, self._trials)
            now = time.monotonic()
            free = self._free.pop(0) if self._free else now
            # the first trials of a kind wait for data and workers, too: that is none of their time
            setup = now - free if self._kind(trial.id) in self._finished else 0.0
            title = f"{number}/{self._trials} {trial}"
            self._running[trial.id] = _RunningTrial(setup, now, now, title)
        return self._running[trial.id]

    def _show(self) -> None:
        total = self._done + sum(map(self._work_left, self._left))
        self.update(self._done if total else 1, total or 1, f"{self._ended}/{self._trials}")

    def _text(self) -> RenderableType:
        shown = SHOWN_EPOCHS if len(self._running) == 1 else 1
        lines = Table.grid(padding=(0, 1, 0, 0))
        for trial in self._running.values():
            bar = ProgressBar(trial.total or None, trial.step, width=STEP_BAR_WIDTH)
            lines.add_row(bar, Text(printable(trial.text)))
            for text in trial.epochs[-shown:]:
                lines.add_row("", Text(printable(text)))
        return lines if self._running else Text("loading data" if self._left else "")

    def _render(self) -> Group:
        return Group(self._progress.get_renderable(), Text(self.time_text), self._body())
