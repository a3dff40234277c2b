"""Progress of training on stderr: a bar and the last epochs, or a plain line now and then."""

import time
from typing import Any

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from marginctl.console.progress import LOG_EVERY, SILENT_AT_MOST, Display, minutes
from marginctl.experiments.training_trial import Trial
from marginctl.utils.text import printable

SHOWN = 8  # epochs


class TrainProgress(Display):
    """Hears of steps, epochs and trials.

    Args:
        trials: how many there are, done ones included.
        quiet: whether to leave out all but messages.
    """

    def __init__(self, trials: int, *, quiet: bool) -> None:
        super().__init__(shown=not quiet)
        self._trials, self._quiet = trials, quiet
        self._done = 0
        self._trial: Trial | None = None
        self._step, self._total, self._first = 0, 1, 0
        self._started = self._said = time.monotonic()
        self._epochs: list[str] = []

    def step(self, trial: Trial, step: int, total: int) -> None:
        """A step is done."""
        if trial is not self._trial:
            self._trial, self._first, self._started = trial, step - 1, time.monotonic()
            self._epochs = []
        self._step, self._total = step, total
        now = time.monotonic()
        if not (self._live or self._quiet) and now - self._said > SILENT_AT_MOST:
            self._said = now
            self.message(f"{self._where()}: step {step} of {total}, {self._time_left()}")

    def epoch(self, trial: Trial, line: dict[str, Any]) -> None:
        """An epoch is done."""
        said = said_of(line)
        self._epochs = [*self._epochs, said][-SHOWN:]
        now = time.monotonic()
        last = line["epoch"] == trial.recipe.train.epochs
        if not (self._live or self._quiet) and (now - self._said > LOG_EVERY or last):
            self._said = now
            self.message(f"{self._where()}: {said}, {self._time_left()}")

    def done(self, trial: Trial, record: dict[str, Any]) -> None:
        """A trial has its result."""
        self._done += 1

    def _where(self) -> str:
        return f"{self._done + 1}/{self._trials} {self._trial}"

    def _time_left(self) -> str:
        gone = time.monotonic() - self._started
        taken = self._step - self._first
        left = gone / max(taken, 1) * (self._total - self._step)
        return f"{minutes(gone)} gone, about {minutes(left)} left"

    def _render(self) -> Group:
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=self._total, completed=self._step, width=30),
            f"{self._step}/{self._total} steps",
            self._time_left() if self._trial else "",
        )
        lines = [Text(printable(self._where()) if self._trial else "starting")]
        return Group(*lines, *(Text(said) for said in self._epochs), bar)


def said_of(line: dict[str, Any]) -> str:
    """An epoch in one line."""
    train, test = line["train"], line.get("test")
    said = f"epoch {line['epoch']}: loss {train['loss']:.4f}, train {train['top1']:.2f} %"
    return said + (f", test {test['top1']:.2f} %" if test else "")
