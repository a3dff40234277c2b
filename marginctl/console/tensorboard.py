"""The metrics of each epoch as events for TensorBoard, an optional package."""

import contextlib
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marginctl.errors import RequestError
from marginctl.experiments.records import TrainingResult
from marginctl.results.load_run import read_metrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from marginctl.console.progress import TrainProgress
    from marginctl.experiments.training_session import Session
    from marginctl.experiments.training_trial import Trial

OPTION = "--tensorboard"
_NO_CURVES = {"epoch", "timing", "n", "bin"}


def check(folder: Path) -> None:
    """Check before training that events can be written below a folder.

    Raises:
        RequestError: tensorboard is not installed, or the folder cannot be created.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise RequestError(
            f"{OPTION} {folder}: tensorboard is not installed: pip install 'marginctl[tensorboard]'"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(
            f"{OPTION} {folder}: cannot be written ({error.strerror}): name another folder"
        ) from None


class TensorBoard:
    """A training callback that writes events, and forwards all calls to a progress display.

    `<folder>/<recipe name>/<trial id>/` gets a file of events each time a trial begins or resumes,
    with all epochs of metrics.jsonl; readers drop the events of earlier files. If events cannot be
    written, that is reported once, and the training continues without them.
    """

    def __init__(self, progress: "TrainProgress", session: "Session", folder: Path) -> None:
        self.message, self.note, self.step = progress.message, progress.note, progress.step
        self._progress, self._session = progress, session
        self._folder = folder / session.name
        self._writers: dict[str, SummaryWriter] = {}  # of running trials, by id
        self._epochs: dict[str, int] = {}  # the last one written of each
        self._failed = False

    def epoch(self, trial: "Trial", line: dict[str, Any]) -> None:
        self._progress.epoch(trial, line)
        self._write(trial, line)

    def done(self, trial: "Trial", record: TrainingResult | None) -> None:
        """Close the events of a trial that has ended; write them first if it needed no training."""
        self._progress.done(trial, record)
        self._write(trial, None)
        if trial.id in self._writers:
            with contextlib.suppress(OSError):
                self._writers.pop(trial.id).close()

    def _write(self, trial: "Trial", line: dict[str, Any] | None) -> None:
        """Write a record, or all records of metrics.jsonl where the trial is a new one."""
        if self._failed:
            return
        folder = self._folder / trial.id
        try:
            records = [line] if line else []
            if trial.id not in self._writers:
                from torch.utils.tensorboard import SummaryWriter

                self._writers[trial.id] = SummaryWriter(str(folder), purge_step=0)
                records = read_metrics(self._session.run_dir(trial).path / "metrics.jsonl")
            writer = self._writers[trial.id]
            for record in records:
                if record["epoch"] <= self._epochs.get(trial.id, 0):
                    continue  # a worker had written it before the one that was reported
                self._epochs[trial.id] = record["epoch"]
                for tag, value in scalars(record):
                    writer.add_scalar(tag, value, record["epoch"])
                for tag, content in histograms(record):
                    writer.add_histogram_raw(tag, **content, global_step=record["epoch"])
            writer.flush()
        except OSError as error:  # the training is worth more than its curves
            self._failed = True
            self.message(
                f"{folder}: cannot be written ({error.strerror or error}): training continues "
                f"without {OPTION}; run the same command again to write the missing events"
            )


def scalars(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number of a record with its path: `train/loss`, `objective/scale`."""
    for key, value in record.items():
        if isinstance(value, Mapping) and key not in _NO_CURVES:
            yield from scalars(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key not in _NO_CURVES:  # `collapsed` is 0 or 1
            yield f"{prefix}{key}", float(value)


def histograms(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every histogram of a record with its path: counts of equal bins from 0.

    The sum of squares is that of the bins' centres, since the values are not recorded.
    """
    for key, value in record.items():
        if not isinstance(value, Mapping):
            continue
        yield from histograms(value, f"{prefix}{key}/")
        counts, width = value.get("histogram", ()), value.get("bin", 0)
        filled = [i for i, count in enumerate(counts) if count]
        if filled:
            yield (
                f"{prefix}{key}",
                {
                    "min": width * filled[0],
                    "max": width * (filled[-1] + 1),
                    "num": sum(counts),
                    "sum": value["mean"] * sum(counts),
                    "sum_squares": sum(n * (width * (i + 0.5)) ** 2 for i, n in enumerate(counts)),
                    "bucket_limits": [width * (i + 1) for i in range(len(counts))],
                    "bucket_counts": counts,
                },
            )
