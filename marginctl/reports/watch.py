"""Follows trials that are being trained, in a terminal or as lines in a log."""

import contextlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from marginctl.console.progress import LOG_EVERY, Display, minutes
from marginctl.console.train_progress import said_of
from marginctl.reports.followed import Followed, Reader, State
from marginctl.reports.formats.text_table import print_rows
from marginctl.reports.tables.train_table import rows_of, shown_mean
from marginctl.results.collect import Collected, collect

SHOWN_TRIALS, SHOWN_CELLS = 12, 16
COLUMNS = ("recipe", "row", "objective", "n", "accuracy")


def watch(stores: Sequence[Path], every: float = 2.0) -> None:
    """Shows what trials are at until all have ended: none is unfinished and none has its lock held.

    On a terminal it is drawn anew each time; elsewhere a line is written where something changed.
    At the end the short tables go to stdout. No lock is taken, and files that are being written
    are read as far as they are whole.

    Args:
        stores: run stores, or folders in them.
        every: seconds between two looks.

    Raises:
        RequestError: a store that is not there.
    """
    reader, quiet = Reader(), 0
    with Watching() as display:
        while True:
            trials = reader.follow(stores)
            collected = collect(stores, reader.read)
            display.show(trials, collected)
            quiet = quiet + 1 if all(trial.over for trial in trials) else 0
            if quiet == 2:  # between two trials of one command nothing is locked for a moment
                break
            time.sleep(every)
    rows = short_rows(collected)
    if rows:
        print_rows(rows, COLUMNS)


class Watching(Display):
    """What is drawn while trials are followed, or the lines in its place."""

    def __init__(self) -> None:
        super().__init__(shown=True)
        self._trials: list[Followed] = []
        self._rows: list[dict[str, str]] = []
        self._said: dict[str, tuple[State, str, float]] = {}  # by the folder
        self._counts = ""

    def show(self, trials: list[Followed], collected: Collected) -> None:
        """Takes what is there now; where nothing is drawn, says what changed."""
        self._trials, self._rows = trials, short_rows(collected)
        if self._live:
            return
        for trial in trials:
            if trial.state is State.finished:
                continue
            now, said = time.monotonic(), f"{trial.name}: {_standing(trial)}"
            state, before, since = self._said.get(trial.folder, (None, "", 0.0))
            late = now - since > LOG_EVERY
            if state is not trial.state or (said != before and late):
                self._said[trial.folder] = (trial.state, said, now)
                self.message(said)
        counts = counted(trials)
        if counts != self._counts:
            self._counts = counts
            self.message(counts)

    def _render(self) -> Group:
        parts: list[RenderableType] = [Text(counted(self._trials))]
        order = list(State)
        shown = [trial for trial in self._trials if trial.state is not State.finished]
        shown.sort(key=lambda trial: (order.index(trial.state), trial.age))
        if shown:
            table = _table("trial", "state", "last change")
            for trial in shown[:SHOWN_TRIALS]:
                ago = f"{minutes(trial.age)} ago"
                table.add_row(*map(Text, (trial.name, _standing(trial), ago)))
            parts += [Text(""), table, *_more(len(shown) - SHOWN_TRIALS, "trials")]
        if self._rows:
            table = _table(*COLUMNS)
            for row in self._rows[:SHOWN_CELLS]:
                table.add_row(*(Text(row[column]) for column in COLUMNS))
            parts += [Text(""), table, *_more(len(self._rows) - SHOWN_CELLS, "cells")]
        return Group(*parts)


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(name)
    return table


def _more(left: int, what: str) -> list[Text]:
    return [Text(f"and {left} more {what}")] if left > 0 else []


def counted(trials: Iterable[Followed]) -> str:
    """`12 finished, 1 running`: how many trials are in each state."""
    states = [trial.state for trial in trials]
    said = [f"{states.count(state)} {state}" for state in State if state in states]
    return ", ".join(said) or "no trials yet"


def _standing(trial: Followed) -> str:
    """What a trial is at, in a line."""
    if trial.problem is not None:
        return trial.problem
    said = [str(trial.state), trial.progress]
    line = trial.line or {}
    if isinstance(line.get("train"), dict):
        with contextlib.suppress(KeyError, TypeError, ValueError):  # a line of another version
            said.append(said_of(line).partition(": ")[2])
    return ", ".join(part for part in said if part)


def short_rows(collected: Collected) -> list[dict[str, str]]:
    """The finished cells of all tables, a row each, by `COLUMNS`."""
    rows = []
    for made in collected.tables:
        for cell in made.collector().grid.in_order():
            shown = f"{cell.mean:.2f}±{cell.std:.2f}"
            values = (made.recipe, cell.dataset, cell.objective, str(cell.n), shown)
            rows.append(dict(zip(COLUMNS, values, strict=True)))
    for trained in collected.trained:
        for of_seeds in rows_of(run.record for run in trained.runs.values()):
            n, shown = str(len(of_seeds.last)), shown_mean(of_seeds.last)
            values = (trained.recipe, of_seeds.row, of_seeds.objective, n, shown)
            rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows
