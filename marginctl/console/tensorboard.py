"""What a training records of each epoch, as events for TensorBoard. tensorboard is an extra."""

import importlib.util
import io
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marginctl.errors import RequestError
from marginctl.experiments.training_trial import Trial
from marginctl.results.load_run import read_metrics
from marginctl.runs.atomic_io import check_writable

if TYPE_CHECKING:
    from marginctl.console.train_progress import TrainProgress
    from marginctl.experiments.training_session import Session

OPTION = "--tensorboard"
PREFIX = "events.out.tfevents."
# what of a record is no curve
_LEFT_OUT = {"epoch", "timing", "n", "bin"}


def check(folder: Path) -> None:
    """Finds out before the work whether events can be written below a folder; it is not made.

    Raises:
        RequestError: tensorboard is not installed, or the folder, or the nearest one above it that
            is there, is a file or cannot be written.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise RequestError(
            f"{OPTION} {folder}: tensorboard is not installed: pip install 'marginctl[tensorboard]'"
        )
    there = next(p for p in (folder, *folder.absolute().parents) if os.path.lexists(p))
    if not os.path.isdir(there):
        at = "" if there == folder else f"{there} "
        raise RequestError(f"{OPTION} {folder}: {at}is a file: name a folder")
    try:
        check_writable(there / PREFIX)
    except RequestError as error:
        raise RequestError(f"{OPTION} {folder}: {error}: name another one") from None


class TensorBoard:
    """Hears of a training, tells another listener, and writes an event folder a trial.

    `<folder>/<recipe name>/<trial id>/` holds one file. It is written anew, from metrics.jsonl,
    when a trial starts or goes on: no epoch stands twice, whatever a killed run has left. Where
    events cannot be written, that is said once, and the training goes on without them.

    Args:
        listener: is told everything.
        session: whose trials they are.
        folder: from --tensorboard.
    """

    def __init__(self, listener: "TrainProgress", session: "Session", folder: Path) -> None:
        self._listener, self._session = listener, session
        self._folder = folder / session.name
        self._trial: Trial | None = None
        self._path = folder
        self._on = True

    def message(self, text: str) -> None:
        """As the other listener has it."""
        self._listener.message(text)

    def step(self, trial: Trial, step: int, total: int) -> None:
        """As the other listener has it."""
        self._listener.step(trial, step, total)

    def epoch(self, trial: Trial, line: dict[str, Any]) -> None:
        """An epoch is done; its line stands in metrics.jsonl."""
        self._listener.epoch(trial, line)
        self._write(trial, [line])

    def done(self, trial: Trial, record: dict[str, Any]) -> None:
        """A trial has its result: its events are written also where no epoch was left to train."""
        self._listener.done(trial, record)
        self._write(trial, [])

    def _write(self, trial: Trial, lines: list[dict[str, Any]]) -> None:
        """The events of some epochs, after all those before them where the trial is another."""
        if not self._on:
            return
        try:
            if trial is not self._trial:
                self._begin(trial)
            elif lines:
                self._append(events(lines))
        except OSError as error:
            # epochs of training are worth more than their curves
            self._on = False
            self.message(
                f"{self._path}: cannot be written: {error.strerror or error}: the training goes on "
                f"without {OPTION}; the same command again writes what is missing"
            )

    def _begin(self, trial: Trial) -> None:
        """One file with the epochs that are done, in place of those of an earlier call."""
        self._trial = trial
        own = self._folder / trial.id
        before = list(own.glob(f"{PREFIX}*"))
        self._path = own / f"{PREFIX}{time.time_ns()}.marginctl"
        lines = read_metrics(self._session.folder_of(trial).path / "metrics.jsonl")
        self._append(_version() + events(lines))
        for path in before:
            path.unlink(missing_ok=True)

    def _append(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(data)


def events(lines: list[dict[str, Any]]) -> bytes:
    """The records of epochs as TensorBoard's file format has them, by the number of the epoch."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary

    written = b""
    for line in lines:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in curves(line)]
        values += [
            Summary.Value(tag=tag, histo=HistogramProto(**content))
            for tag, content in histograms(line)
        ]
        event = Event(wall_time=time.time(), step=line["epoch"], summary=Summary(value=values))
        written += _framed(event)
    return written


def curves(record: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a record with its path: `train/loss`, `objective/optimal_scale/mean`."""
    for key, value in record.items():
        if isinstance(value, Mapping) and key not in _LEFT_OUT:
            yield from curves(value, f"{at}{key}/")
        elif isinstance(value, int | float) and key not in _LEFT_OUT:  # `collapsed` is 0 or 1
            yield f"{at}{key}", float(value)


def histograms(record: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every histogram of a record with its path: counts of equal bins from 0 on.

    TensorBoard's sum of squares is of the middles of the bins: the values are not kept.
    """
    for key, value in record.items():
        if not isinstance(value, Mapping):
            continue
        yield from histograms(value, f"{at}{key}/")
        counts, width = value.get("histogram", ()), value.get("bin", 0)
        filled = [i for i, count in enumerate(counts) if count]
        if filled:
            yield (
                f"{at}{key}",
                {
                    "min": width * filled[0],
                    "max": width * (filled[-1] + 1),
                    "num": sum(counts),
                    "sum": value["mean"] * sum(counts),
                    "sum_squares": sum(n * (width * (i + 0.5)) ** 2 for i, n in enumerate(counts)),
                    "bucket_limit": [width * (i + 1) for i in range(len(counts))],
                    "bucket": counts,
                },
            )


def _version() -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event

    return _framed(Event(wall_time=time.time(), file_version="brain.Event:2"))


def _framed(event: Any) -> bytes:
    """An event with its length and checksums."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    content = io.BytesIO()
    RecordWriter(content).write(event.SerializeToString())
    return content.getvalue()
