"""What the trials of stores are at right now. Reads alone: no lock is taken, however briefly."""

import enum
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginctl.results.collect import trial_folders
from marginctl.results.load_run import Run, read_about, read_run
from marginctl.runs.safe_read import DamageError, document_in, read_bytes
from marginctl.utils.text import printable

LOCKS = Path("/proc/locks")  # of Linux: every lock with its file's inode
ALIVE = 600.0  # seconds; where locks cannot be seen, what changed since is taken to be at work
_TAIL = 2**16  # bytes of metrics.jsonl that hold its last line
_STEP = re.compile(r"step-(\d{9})-[0-9a-f]{16}\.pt")


class State(enum.StrEnum):
    """running: a process holds its lock. stopped: it is not finished, and nobody is at work."""

    finished = "finished"
    running = "running"
    failed = "failed"
    stopped = "stopped"
    damaged = "damaged"


@dataclass(frozen=True)
class Followed:
    """A trial as it stands.

    Attributes:
        folder: its folder.
        name: the folder's name.
        state: what it is at.
        progress: how far it is, in words.
        line: the last whole line of metrics.jsonl, None where there is none.
        age: seconds since something in the folder changed.
        problem: what is wrong with it, where it is damaged.
        held: whether a process is at work on it, as far as can be seen.
    """

    folder: str
    name: str
    state: State
    progress: str
    line: dict[str, Any] | None
    age: float
    problem: str | None = None
    held: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more will come of it unless it is run again."""
        return not self.held and self.state in (State.finished, State.failed, State.damaged)


class Reader:
    """Reads runs, those that have not changed only once.

    Of what is read again and again nothing but the files' times is looked up.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, Run | DamageError]] = {}

    def read(self, folder: str) -> Run:
        """As `read_run`.

        Raises:
            DamageError: as `read_run`.
        """
        names = ("run.json", "result.json", "error.txt")
        mark = [_mark(os.path.join(folder, name)) for name in names]
        known = self._known.get(folder)
        if known is None or known[0] != mark:
            found: Run | DamageError
            try:
                found = read_run(folder)
            except DamageError as error:
                found = error
            known = self._known[folder] = (mark, found)
        if isinstance(known[1], DamageError):
            raise known[1].with_traceback(None)
        return known[1]

    def follow(self, stores: Iterable[Path], now: float | None = None) -> list[Followed]:
        """Every trial of the stores as it stands.

        Args:
            stores: run stores, or folders in them.
            now: seconds since the epoch; None for this moment.

        Raises:
            RequestError: a store that is not there.
        """
        now = time.time() if now is None else now
        held = held_locks()
        return [self._followed(folder, held, now) for folder in trial_folders(stores, [])]

    def _followed(self, folder: str, held: frozenset[int] | None, now: float) -> Followed:
        name = printable(os.path.basename(folder))
        locked = held is not None and is_held(folder, held)
        try:
            self.read(folder)
            return Followed(folder, name, State.finished, "", None, 0.0, held=locked)
        except DamageError as error:
            problem = str(error)
        age = max(0.0, now - _changed(folder))
        at_work = locked if held is not None else age < ALIVE
        line = last_line(folder)
        if at_work:
            state = State.running
        elif problem.startswith("failed"):
            state = State.failed
        elif problem == "not finished":
            state = State.stopped
        else:
            return Followed(folder, name, State.damaged, "", None, age, problem)
        return Followed(folder, name, state, _progress(folder, line), line, age, held=at_work)


def held_locks() -> frozenset[int] | None:
    """Inodes of the files that a living process has locked; None where that cannot be seen.

    The system's list is read. To try a lock would hold it for a moment, and a trial that began just
    then would believe that another process is at work on it.
    """
    try:
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return None
    # a line: `1: FLOCK ADVISORY WRITE 4711 fe:00:3524997 0 EOF`; devices of layered file systems
    # have two numbers, so that the inode alone is compared
    fields = [line.split() for line in lines]
    held = [f[5].rpartition(":")[2] for f in fields if len(f) > 5 and f[1] == "FLOCK"]
    return frozenset(int(inode) for inode in held if inode.isdigit())


def is_held(folder: str, held: frozenset[int]) -> bool:
    """Whether the lock of a trial's folder is among the held ones."""
    try:
        return os.stat(os.path.join(folder, ".lock")).st_ino in held
    except OSError:
        return False


def last_line(folder: str) -> dict[str, Any] | None:
    """The last whole line of metrics.jsonl; one that is being written is passed over."""
    try:
        data = read_bytes(os.path.join(folder, "metrics.jsonl"), last=_TAIL)
    except DamageError:
        return None
    lines = data.decode(errors="replace").split("\n")
    for line in reversed(lines[:-1]):  # what no line end closes is not whole
        try:
            return document_in(line)
        except DamageError:
            continue
    return None


def _progress(folder: str, line: dict[str, Any] | None) -> str:
    """`epoch 3 of 10, checkpoint at step 240`, as far as the folder says it."""
    said = []
    try:
        about, _ = read_about(folder)
    except DamageError:
        return ""
    recipe = about["recipe"]
    if about.get("task", "uci-cv") != "uci-cv":
        epoch = line.get("epoch", 0) if line else 0
        said.append(f"epoch {epoch} of {recipe['train'].get('epochs')}")
    else:
        folds, repeats = recipe["protocol"]["folds"], recipe["protocol"]["repeats"]
        said.append(f"{folds} folds x {repeats} repeats")
    try:
        names = os.listdir(os.path.join(folder, "checkpoints"))
    except OSError:
        names = []
    steps = [int(found[1]) for name in names if (found := _STEP.fullmatch(name))]
    if steps:
        said.append(f"checkpoint at step {max(steps)}")
    return ", ".join(said)


def _mark(path: str) -> tuple[int, ...] | None:
    """What changes where a file changes."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_mode


def _changed(folder: str) -> float:
    """When something in a folder last changed, in seconds since the epoch."""
    names = ("", ".lock", "run.json", "metrics.jsonl", "error.txt", "checkpoints")
    found = []
    for name in names:
        try:
            found.append(os.stat(os.path.join(folder, name)).st_mtime)
        except OSError:
            continue
    return max(found, default=0.0)
