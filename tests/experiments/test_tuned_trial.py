"""Validation and tuning of a trial: what chooses, what is measured, and what is resumed."""

from dataclasses import replace

import numpy as np
import pytest

from marginctl.data.images.subsets import split_indices
from marginctl.errors import RequestError
from marginctl.experiments.checks import check_images
from marginctl.experiments.run_trial import (
    CheckpointPolicy,
    SignalHandler,
    StoppedRunError,
    TrialContext,
)
from marginctl.experiments.training_trial import Trial
from marginctl.experiments.tuned_trial import RUNGS, run_trial
from marginctl.objectives.parsing import parse
from marginctl.runs.run_dir import RunDir
from marginctl.training.trainer import Trainer
from marginctl.utils.distributed import World
from tests.training.factories import CPU, images, recipe


class Callback:
    """Records messages; raises a signal after a number of steps."""

    def __init__(self, stop_after=None, signals=None):
        self.messages, self.steps = [], 0
        self._stop_after, self._signals = stop_after, signals

    def message(self, text):
        self.messages.append(text)

    note = message

    def step(self, trial, step, total, candidate=None):
        self.steps += 1
        if self.steps == self._stop_after:
            self._signals.received = 2

    def epoch(self, trial, line):
        pass


def train(folder, part, stop_after=None, **changes):
    """Train a trial on some images in a folder; return its result and the callback."""
    changed = recipe(**changes)
    trial = Trial({}, changed, parse("arcface"), 0, part.digest)
    run_dir = RunDir(folder / trial.id)
    run_dir.path.mkdir(parents=True, exist_ok=True)
    info = {"trial": trial.id, **trial.identity, "recipe": {"name": "r", **changed.model_dump()}}
    run_dir.start(info)
    signals = SignalHandler()
    callback = Callback(stop_after, signals)
    context = TrialContext(CPU, CheckpointPolicy(), signals, callback, World())
    return run_trial(trial, part, run_dir, context), callback


def without_timing(result):
    return result.model_dump(exclude={"timing"})


VALIDATED = {"data": {"val_fraction": 0.3}, "train": {"epochs": 4}}
TUNED = {"tune": {"rates": [0.003, 0.03, 0.3]}, "train": {"epochs": 2}}


def test_split_indices_is_stratified_and_of_the_seed():
    labels = np.repeat([0, 1, 2], [40, 20, 2])
    fit, validation = split_indices(labels, 0.25, 0)
    assert sorted([*fit, *validation]) == list(range(62))
    assert len(validation) == round(0.25 * 62)
    assert np.bincount(labels[validation], minlength=3)[:2] == pytest.approx([10, 5], abs=1)
    assert set(labels[fit]) == {0, 1, 2}
    assert set(validation) != set(split_indices(labels, 0.25, 1)[1])


def test_the_test_part_is_measured_once_with_the_best_epoch(tmp_path, monkeypatch):
    data, sizes = images(n=90), []
    predict = Trainer.predict

    def counted(self, *args, **kwargs):
        predictions = predict(self, *args, **kwargs)
        sizes.append(len(predictions.labels))
        return predictions

    monkeypatch.setattr(Trainer, "predict", counted)
    result, _ = train(tmp_path, data, **VALIDATED)
    assert sizes == [27, 27, 27, 27, 21]  # of 90 images 27 are the validation part
    lines = (tmp_path / result.trial / "metrics.jsonl").read_text()
    assert '"test"' not in lines
    assert result.last == result.best
    assert result.last.epoch == result.validation.epoch
    assert result.validation.n == 27


@pytest.mark.parametrize("changes", [VALIDATED, TUNED])
def test_test_labels_have_no_influence_on_choices(tmp_path, changes):
    data = images(n=90)
    shuffled = replace(data, test=replace(data.test, y=data.test_y[::-1].copy()))
    first, _ = train(tmp_path / "a", data, **changes)
    second, _ = train(tmp_path / "b", shuffled, **changes)
    assert first.weights_sha256 == second.weights_sha256
    assert (first.chosen, first.validation) == (second.chosen, second.validation)
    assert first.last.top1 != second.last.top1  # the labels did change


@pytest.mark.parametrize("changes", [VALIDATED, TUNED])
@pytest.mark.parametrize("stop_after", [3, 17, 29])
def test_resuming_is_bit_identical(tmp_path, changes, stop_after):
    data = images(n=90)
    expected, callback = train(tmp_path / "whole", data, **changes)
    with pytest.raises(StoppedRunError):
        train(tmp_path / "resumed", data, stop_after=stop_after, **changes)
    result, resumed = train(tmp_path / "resumed", data, **changes)
    assert without_timing(result) == without_timing(expected)
    assert resumed.steps == callback.steps - stop_after


def test_a_result_that_was_lost_is_written_again(tmp_path):
    data = images(n=90)
    expected, _ = train(tmp_path, data, **VALIDATED)
    (tmp_path / expected.trial / "result.json").unlink()
    result, callback = train(tmp_path, data, **VALIDATED)
    assert without_timing(result) == without_timing(expected)
    assert callback.steps == 0


def test_patience_stops_and_the_best_epoch_is_measured(tmp_path):
    changes = {"data": {"val_fraction": 0.3}, "optim": {"lr": 1e-9}}
    result, _ = train(tmp_path, images(n=90), **changes, train={"epochs": 9, "patience": 2})
    assert result.epochs < 9
    assert result.last.epoch == result.epochs - 2


def test_patience_needs_a_validation_part():
    with pytest.raises(RequestError, match=r"train.patience = 2 without a validation part"):
        check_images(recipe(train={"patience": 2}), images())


def test_all_candidates_cost_six_trainings_at_most():
    first, second = RUNGS
    for epochs in range(1, 40):
        costs = [n * share for n, share in (rung.budget(epochs) for rung in RUNGS)]
        assert 12 * costs[0] + first.keep * costs[1] + epochs <= 6 * epochs
        assert costs[0] <= costs[1]
    assert second.keep == 1


def test_a_candidate_that_diverged_is_not_chosen(tmp_path):
    changes = {"tune": {"rates": [1e-3, 1e6]}, "train": {"epochs": 1}, "optim": {"lr": 1e-3}}
    result, _ = train(tmp_path, images(n=90), **changes)
    assert result.candidates == 2
    assert result.chosen.endswith("lr=0.001")
    assert result.objective == "arcface"


def test_finished_candidates_are_not_trained_again(tmp_path):
    data = images(n=90)
    expected, _ = train(tmp_path, data, **TUNED)
    folder = tmp_path / expected.trial
    assert len(list((folder / "tune").iterdir())) == 8  # two rounds of 4, no checkpoint
    (folder / "result.json").unlink()
    result, callback = train(tmp_path, data, **TUNED)
    assert callback.steps == 0
    assert without_timing(result) == without_timing(expected)
    (folder / "tune" / "1-01.json").write_text("{")
    (folder / "result.json").unlink()
    result, callback = train(tmp_path, data, **TUNED)
    assert callback.steps > 0
    assert without_timing(result) == without_timing(expected)
