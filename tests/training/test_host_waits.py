"""A training step never waits for a GPU, and the end of an epoch does so a few times."""

import pytest
import torch

from marginctl.objectives.presets import PRESETS
from marginctl.training import optimizer
from marginctl.utils.precision import DeviceConfig
from tests.host_waits import HostWaits
from tests.training.factories import images, trainer

AUGMENTATIONS = ("none", "flip", "random-crop", "random-crop-flip")
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


def test_a_wait_is_counted_with_its_line():
    x = torch.arange(3.0)
    with HostWaits() as waits:
        _ = x[x > 1], x.sum().item(), torch.tensor(1), x.tolist()
        _ = x.cpu().sum().item()  # one wait: the sum is on the CPU
    assert sum(waits.counts.values()) == 5
