"""A training step never waits for a GPU, and the end of an epoch does so a few times."""

import contextlib

import pytest
import torch

from marginctl.experiments.run_trial import TrialRunner
from marginctl.objectives.presets import PRESETS
from marginctl.training import optimizer
from marginctl.utils.precision import DeviceConfig
from tests.host_waits import HostWaits
from tests.training.factories import images, trainer

AUGMENTATIONS = ("none", "flip", "random-crop", "random-crop-flip", "reflect-crop-flip")
PRECISIONS = ("fp32", "bf16", "fp16")


def gpu_like(monkeypatch, objective, precision="fp32", **changes):
    """Return a trainer on the CPU that works as on a GPU, after its first step."""
    monkeypatch.setattr(optimizer, "FUSED_DEVICES", {"cpu"})
    monkeypatch.setattr("marginctl.objectives.module.check_targets", lambda *_: None)
    config = DeviceConfig(torch.device("cpu"), precision, channels_last=True)
    changes = {"model": "mlp:width=4"} | changes
    made = trainer(
        objective, of=images(n=40, classes=6, pixels=16), device_config=config, **changes
    )
    made._check_interval = 10**6
    next(made.steps())
    return made


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("objective", PRESETS)
def test_a_step_waits_for_nothing(monkeypatch, objective, precision):
    for parts in (1, 3):
        made = gpu_like(monkeypatch, objective, precision, train={"grad_accum_steps": parts})
        steps = made.steps()
        next(steps)
        with HostWaits() as waits:
            next(steps)
        assert not waits.counts, waits.counts


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_optimizer_waits(monkeypatch, optimizer, precision):
    made = gpu_like(monkeypatch, "soft", precision, optim={"optimizer": optimizer})
    steps = made.steps()
    next(steps)
    with HostWaits() as waits:
        next(steps)
    assert not waits.counts, waits.counts


@pytest.mark.parametrize("augment", AUGMENTATIONS)
@pytest.mark.parametrize("sampling", ["random", "class-balanced"])
def test_batches_are_made_without_waits(monkeypatch, augment, sampling):
    changes = {"data": {"augment": augment}, "train": {"sampling": sampling}}
    batches = gpu_like(monkeypatch, "soft", **changes).batches.train_batches(1, 8)
    with HostWaits() as waits:
        next(batches)
    # once an epoch: the order, and the random numbers of all batches
    assert sum(waits.counts.values()) == (1 if augment == "none" else 2), waits.counts
    with HostWaits() as waits:
        next(batches)
    assert not waits.counts, waits.counts


def test_the_end_of_an_epoch_waits_a_few_times(monkeypatch, tmp_path, marginctl):
    """The evaluation, its records, the checks and the best checkpoint, of every preset."""
    monkeypatch.setattr(optimizer, "FUSED_DEVICES", {"cpu"})
    monkeypatch.setattr("marginctl.objectives.module.check_targets", lambda *_: None)
    monkeypatch.setattr(TrialRunner, "_score", lambda self, record: (record["epoch"], 0.0))
    epochs, real = [], TrialRunner._train_epoch

    def train_epoch(self, diagnostics):
        self._trainer._check_interval = 10**6
        # the first epoch makes what is made once, the last one writes all checkpoints
        watch = HostWaits() if self._trainer.epoch == 1 else contextlib.nullcontext()
        with watch:
            real(self, diagnostics)
        if isinstance(watch, HostWaits):
            epochs.append(watch.counts)

    monkeypatch.setattr(TrialRunner, "_train_epoch", train_epoch)
    line = ["train", "--data", "digits", "--model", "mlp:width=4", "--device", "cpu", "--no-tune"]
    line += ["--epochs", "3", "--set", "data.subset_size=60", "--set", "data.augment=flip"]
    objectives = [word for name in PRESETS for word in ("--objective", name)]
    assert marginctl(*line, *objectives, "--out", tmp_path).status == 0
    assert len(epochs) == len(PRESETS)
    for counts in epochs:
        ends = {line: n for line, n in counts.items() if not line.startswith("data/loading/")}
        # a GPU also waits for features that a least-squares scale takes there and back
        assert 5 <= sum(ends.values()) <= 6, counts


def test_a_wait_is_counted_with_its_line():
    x = torch.arange(3.0)
    with HostWaits() as waits:
        _ = x[x > 1], x.sum().item(), torch.tensor(1), x.tolist()
        _ = x.cpu().sum().item()  # one wait: the sum is on the CPU
    assert sum(waits.counts.values()) == 5
