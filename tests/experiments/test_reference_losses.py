"""Diagnostics in a trial: groups by reference losses, the same after a stop, and in the files."""

import json
import signal

import pytest
import torch
from torch.nn import functional

from marginctl.experiments.records import TrainingResult
from marginctl.experiments.reference_losses import reference_losses
from marginctl.experiments.request import Request
from marginctl.experiments.run_trial import (
    CheckpointPolicy,
    SignalHandler,
    StoppedRunError,
    TrialContext,
    TrialRunner,
)
from marginctl.experiments.training_session import prepare_train
from marginctl.models.factory import create_backbone
from marginctl.models.registry import ModelSpec
from marginctl.runs.run_dir import RunDir
from marginctl.training.checkpoint import weights_digest
from marginctl.training.diagnostics import DifficultyGroups
from marginctl.utils.distributed import World
from marginctl.utils.precision import device_config_for

RECIPE = """\
task: train
data: {name: digits, subset_size: 200, augment: random-crop}
model: "mnist-cnn:feature_dim=8"
objectives: ["gradient-decay:beta=warm-up(end=1)"]
optim: {optimizer: adam, lr: 0.01}
train: {epochs: 3, batch_size: 50, evaluate_every: 2, precision: fp32}
"""
WATCHED = (
    "train.reference_run=REFERENCE",
    "train.difficulty_groups=4",
    "train.gradient_norm_samples=30",
)


class Callback:
    """Records nothing, and requests a stop after a step."""

    def __init__(self, signals=None, after=None):
        self.signals, self.after = signals, after

    def message(self, text):
        pass

    note = message

    def step(self, trial, step, total):
        if step == self.after:
            self.signals.received = signal.SIGINT

    def epoch(self, trial, line):
        pass


def session(folder, *overrides):
    path = folder / "r.yaml"
    path.write_text(RECIPE)
    return prepare_train(Request(str(path), {}, overrides, out=folder / "runs", device="cpu"))


def trained(opened, name, callback=None, signals=None):
    """Run the only trial in a folder of its own; return its result and metrics without times."""
    (trial,) = opened.trials
    folder = RunDir(opened.folder / name)
    assert folder.try_lock()
    folder.start({"trial": trial.id})
    device_config = device_config_for("cpu", "fp32")
    context = TrialContext(
        device_config,
        CheckpointPolicy(),
        signals or SignalHandler(),
        callback or Callback(),
        World(),
    )
    record = TrialRunner(trial, opened.images[trial.data], folder, context).run()
    lines = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    return record, [{k: v for k, v in line.items() if k != "timing"} for line in lines]


@pytest.fixture(scope="module")
def reference(tmp_path_factory, request):
    """The folder of a finished trial."""
    from marginctl.cli import run

    folder = tmp_path_factory.mktemp("watched")
    (folder / "r.yaml").write_text(RECIPE)
    more = ("--objective", "soft", "--epochs", "1", "--quiet", "--device", "cpu")
    assert run(["train", str(folder / "r.yaml"), "--out", str(folder / "runs"), *more]) == 0
    (result,) = (folder / "runs").rglob("result.json")
    assert TrainingResult.model_validate(json.loads(result.read_text()))
    return result.parent


@pytest.fixture(scope="module")
def whole(reference, tmp_path_factory):
    overrides = [text.replace("REFERENCE", str(reference)) for text in WATCHED]
    opened = session(tmp_path_factory.mktemp("whole"), *overrides)
    return overrides, *trained(opened, "whole")


def test_evaluated_epochs_have_the_records(whole):
    *_, lines = whole
    assert ["sample_difficulty" in line for line in lines] == [False, True, True]
    assert ["input_gradient_norm" in line for line in lines] == [False, True, True]
    for line in lines[1:]:
        own = line["sample_difficulty"]
        assert (own["n"], own["seed"]) == (200, 0)
        assert [own["groups"][n]["n"] for n in own["groups"]] == [50] * 4
        assert sum(g["gradient_share"] for g in own["groups"].values()) == pytest.approx(1)
        assert sum(own["confidence_histogram"]["counts"]) == 200
        assert line["input_gradient_norm"]["n"] == 30
        assert 0 < line["input_gradient_norm"]["mean"] < line["input_gradient_norm"]["max"]


def test_groups_are_by_the_loss_of_the_reference(whole, reference, tmp_path):
    """Of its last checkpoint in plain torch, in evaluation mode."""
    opened = session(tmp_path, *whole[0])
    (trial,), (data,) = opened.trials, opened.images.values()
    (path,) = (reference / "checkpoints").glob("step-*.pt")
    state = torch.load(path, weights_only=True)
    model = create_backbone(ModelSpec.parse("mnist-cnn:feature_dim=8"), 1, 8)
    model.load_state_dict(state["model"])
    (mean,), (std,) = state["normalization"]
    x = (torch.as_tensor(data.train.x).permute(0, 3, 1, 2).float() / 255 - mean) / std
    with torch.no_grad():
        logits = model.eval()(x).double() @ state["objective"]["weight"].double().T
    losses = functional.cross_entropy(logits, torch.as_tensor(data.train_y), reduction="none")
    computed = reference_losses(trial.reference, data, torch.device("cpu"))
    found = DifficultyGroups(computed, 4)
    means = [losses[rows].mean() for rows in found.groups]
    highest = [losses[rows].max() for rows in found.groups]
    assert means == sorted(means)
    for high, rows in zip(highest, found.groups[1:], strict=False):
        assert high <= losses[rows].min() + 1e-4


def test_watching_changes_no_weight(whole, tmp_path):
    _, record, _ = whole
    plain, lines = trained(session(tmp_path), "plain")
    assert plain.weights_sha256 == record.weights_sha256
    assert plain.trial != record.trial
    assert not any("sample_difficulty" in line or "input_gradient_norm" in line for line in lines)


@pytest.mark.parametrize("after", [5, 9])
def test_stopped_and_resumed_the_records_are_the_same_to_the_bit(whole, tmp_path, after):
    overrides, record, lines = whole
    opened, signals = session(tmp_path, *overrides), SignalHandler()
    with pytest.raises(StoppedRunError):
        trained(opened, "stopped", Callback(signals, after), signals)
    again, found = trained(opened, "stopped")
    assert found == lines
    assert again.weights_sha256 == record.weights_sha256


def test_a_reference_with_other_weights_than_its_result_says_is_refused(whole, tmp_path):
    from dataclasses import replace

    from marginctl.errors import RequestError

    overrides, *_ = whole
    opened = session(tmp_path, *overrides)
    (trial,) = opened.trials
    wrong = replace(trial, reference=replace(trial.reference, weights=weights_digest({})))
    with pytest.raises(RequestError, match="has other weights than its result"):
        trained(replace(opened, trials=[wrong]), "wrong")
