"""TensorBoard's events, read back with TensorBoard's own reader."""

import errno
import json
import sys

import pytest

from marginctl.console.tensorboard import histograms, scalars

pytestmark = pytest.mark.smoke

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ModuleNotFoundError:
    EventAccumulator = None

needs_tensorboard = pytest.mark.skipif(
    EventAccumulator is None, reason="tensorboard is not installed"
)

ARGUMENTS = ("train", "--data", "digits", "--model", "mlp:width=8", "--device", "cpu", "--quiet")
ARGUMENTS += ("--no-tune",)
ARGUMENTS += ("--set", "data.subset_size=200", "--objective", "cosine-ls", "--objective", "adacos")


def read(folder):
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    return found.Reload()


def lines_in(run):
    return [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]


def runs_in(out):
    return sorted(path.parent for path in out.rglob("result.json"))


def test_numbers_of_a_record():
    record = {
        "epoch": 3,
        "lr": 0.1,
        "train": {"loss": 2.0, "top1": 50.0},
        "test": {"nll": None, "n": 360, "collapsed": False},
        "objective": {"optimal_scale": {"mean": 7.0, "quantiles": {"0.5": 6}}},
        "timing": {"seconds": 1.0},
    }
    assert dict(scalars(record)) == {
        "lr": 0.1,
        "train/loss": 2.0,
        "train/top1": 50.0,
        "test/collapsed": 0.0,
        "objective/optimal_scale/mean": 7.0,
        "objective/optimal_scale/quantiles/0.5": 6.0,
    }
    assert list(histograms(record)) == []


def test_a_histogram_of_angles():
    """Three angles: two of 15 degrees and one of 45."""
    record = {"target_angle": {"mean": 25.0, "histogram": [0, 2, 0, 0, 1, 0], "bin": 10}}
    ((tag, found),) = histograms({"objective": record})
    assert tag == "objective/target_angle"
    assert (found["min"], found["max"], found["num"], found["sum"]) == (10, 50, 3, 75.0)
    assert found["sum_squares"] == 2 * 15**2 + 45**2
    assert found["bucket_limits"] == [10, 20, 30, 40, 50, 60]
    empty = {"a": {"mean": 0.0, "histogram": [0, 0], "bin": 10}}
    assert list(histograms(empty)) == []


@needs_tensorboard
def test_every_epoch_of_every_trial_has_events(marginctl, tmp_path):
    board = tmp_path / "board"
    arguments = (*ARGUMENTS, "--epochs", "3", "--out", tmp_path / "runs", "--tensorboard", board)
    assert marginctl(*arguments).status == 0
    runs = runs_in(tmp_path / "runs")
    assert len(runs) == 2
    for run in runs:
        folder = board / run.relative_to(tmp_path / "runs")
        events, lines = read(folder), lines_in(run)
        for tag, value in {
            "train/loss": lambda line: line["train"]["loss"],
            "train/top1": lambda line: line["train"]["top1"],
            "train/top5": lambda line: line["train"]["top5"],
            "test/top1": lambda line: line["test"]["top1"],
            "test/top5": lambda line: line["test"]["top5"],
            "test/nll": lambda line: line["test"]["nll"],
            "lr": lambda line: line["lr"],
            "objective/rho": lambda line: line["objective"]["rho"],
            "objective/target_angle/mean": lambda line: line["objective"]["target_angle"]["mean"],
        }.items():
            found = events.Scalars(tag)
            assert [point.step for point in found] == [1, 2, 3]
            assert [p.value for p in found] == pytest.approx([value(x) for x in lines], rel=1e-6)
        angles = events.Histograms("objective/target_angle")
        assert [point.step for point in angles] == [1, 2, 3]
        expected = lines[-1]["objective"]["target_angle"]["histogram"]
        assert list(angles[-1].histogram_value.bucket) == expected
        assert angles[-1].histogram_value.num == 360
    scales = {
        tag for run in runs for tag in read(board / run.parent.name / run.name).Tags()["scalars"]
    }
    assert "objective/scale" in scales
    assert {"objective/optimal_scale/mean", "objective/optimal_scale/quantiles/0.05"} <= scales


@needs_tensorboard
def test_tuned_trials_side_by_side_have_each_epoch_once(marginctl, tmp_path):
    arguments = [a for a in ARGUMENTS if a != "--no-tune"] + ["--tune", "--epochs", "4"]
    arguments += ["--workers", "2", "--out", tmp_path / "runs", "--tensorboard", tmp_path]
    assert marginctl(*arguments).status == 0
    runs = runs_in(tmp_path / "runs")
    assert len(runs) == 2
    for run in runs:
        events = read(tmp_path / run.relative_to(tmp_path / "runs"))
        assert [point.step for point in events.Scalars("lr")] == [1, 2, 3, 4]


@needs_tensorboard
def test_a_resumed_trial_has_each_epoch_once(marginctl, tmp_path, monkeypatch):
    """Stopped in its third epoch: readers find each epoch once."""
    from marginctl.training.trainer import Trainer

    board, out = tmp_path / "board", tmp_path / "runs"
    arguments = (*ARGUMENTS[:-2], "--epochs", "4", "--out", out, "--tensorboard", board)
    arguments += ("--checkpoint-minutes", "0")
    whole = Trainer.run_epoch

    def killed(self, after_step):
        if self.epoch == 2:
            raise KeyboardInterrupt
        return whole(self, after_step)

    monkeypatch.setattr(Trainer, "run_epoch", killed)
    assert marginctl(*arguments).status == 130
    (run,) = {path.parent for path in board.rglob("events.*")}
    assert [point.step for point in read(run).Scalars("lr")] == [1, 2]
    monkeypatch.undo()
    assert marginctl(*arguments).status == 0
    assert len(list(run.iterdir())) == 2
    assert [point.step for point in read(run).Scalars("lr")] == [1, 2, 3, 4]
    # events of a finished trial in another folder come from its metrics.jsonl
    other = tmp_path / "other"
    assert (
        marginctl(*arguments[:-4], "--tensorboard", other, "--checkpoint-minutes", "0").status == 0
    )
    (file,) = other.rglob("events.*")
    assert [point.step for point in read(file.parent).Scalars("lr")] == [1, 2, 3, 4]


def test_without_tensorboard_the_extra_is_named_before_any_training(
    marginctl, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    board = tmp_path / "board"
    ran = marginctl(*ARGUMENTS, "--out", tmp_path / "runs", "--tensorboard", board)
    assert ran.status == 2
    assert ran.err == (
        f"error: --tensorboard {board}: tensorboard is not installed: "
        "pip install 'marginctl[tensorboard]'\n"
    )
    assert not (tmp_path / "runs").exists()


@needs_tensorboard
def test_a_folder_that_cannot_be_written_is_reported_before_training(marginctl, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone" / "sub")
    for folder, message in (
        (file, f"--tensorboard {file}: cannot be written (File exists): name another folder"),
        (file / "sub", f"--tensorboard {file / 'sub'}: cannot be written (Not a directory)"),
        (tmp_path / "nowhere", "cannot be written (File exists)"),
        ("/proc/nope", "--tensorboard /proc/nope: cannot be written"),
        ("", "'': expected a folder (the current one is '.')"),
    ):
        ran = marginctl(*ARGUMENTS, "--out", tmp_path / "runs", "--tensorboard", folder)
        assert ran.status == 2
        assert message in ran.err
        assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


@needs_tensorboard
def test_training_continues_when_events_can_no_longer_be_written(marginctl, tmp_path, monkeypatch):
    """The disk is full from the second epoch of the first of two trials."""
    from torch.utils.tensorboard import SummaryWriter

    board, out = tmp_path / "board", tmp_path / "runs"
    arguments = (*ARGUMENTS, "--epochs", "3", "--out", out, "--tensorboard", board)
    flush, calls = SummaryWriter.flush, []

    def full(self):
        calls.append(self.log_dir)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(self)

    monkeypatch.setattr(SummaryWriter, "flush", full)
    ran = marginctl(*arguments)
    assert ran.status == 0
    assert [len(lines_in(run)) for run in runs_in(out)] == [3, 3]
    assert [line for line in ran.err.splitlines() if "tensorboard" in line] == [
        f"{calls[0]}: cannot be written (No space left on device): training continues without "
        "--tensorboard; run the same command again to write the missing events"
    ]
    monkeypatch.undo()
    assert marginctl(*arguments).status == 0
    for run in runs_in(out):
        points = read(board / run.relative_to(out)).Scalars("lr")
        assert [point.step for point in points] == [1, 2, 3]
