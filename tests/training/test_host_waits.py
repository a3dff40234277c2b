"""A training step never waits for a GPU, and the end of an epoch does so a few times."""

import contextlib

import numpy as np
import pytest
import torch
from PIL import Image

from marginctl.data.loading import workers
from marginctl.experiments.run_trial import TrialRunner
from marginctl.objectives.presets import PRESETS
from marginctl.utils.precision import DeviceConfig
from tests.data.helpers import load_on_disk
from tests.host_waits import HostWaits
from tests.training.factories import images, trainer

AUGMENTATIONS = ("none", "flip", "random-crop", "random-crop-flip", "reflect-crop-flip")
STREAMED = ("none", "flip", "random-crop-flip", "random-resized-crop-flip", "imagenet")
PRECISIONS = ("fp32", "bf16", "fp16")


def gpu_like(monkeypatch, objective, precision="fp32", **changes):
    """Return a trainer on the CPU that works as on a GPU, after its first step."""
    monkeypatch.setattr("marginctl.objectives.module.check_targets", lambda *_: None)
    config = DeviceConfig(torch.device("cpu"), precision, channels_last=True)
    changes = {"model": "mlp:width=4", "of": images(n=40, classes=6, pixels=16)} | changes
    made = trainer(objective, device_config=config, **changes)
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


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("fast", [False, True])
def test_no_optimizer_waits(monkeypatch, optimizer, precision, fast):
    train = {"gpu_fast_path": fast}
    made = gpu_like(monkeypatch, "soft", precision, optim={"optimizer": optimizer}, train=train)
    steps = made.steps()
    next(steps)
    waits = HostWaits()
    if optimizer != "sgd" and not fast and precision != "fp16":
        for state in made.optimizer.state.values():
            waits.put_on_host(state["step"])
    with waits:
        next(steps)
    assert not waits.counts, waits.counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return 40 colour images of two classes on disk."""
    root = tmp_path_factory.mktemp("streamed")
    pixels = np.random.default_rng(0).integers(0, 256, size=(40, 24, 20, 3), dtype=np.uint8)
    for i, image in enumerate(pixels):
        path = root / "photos" / ("val" if i < 8 else "train") / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return load_on_disk("folder:photos", root, 16)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("sampling", ["random", "class-balanced"])
def test_a_step_on_any_batches_waits_for_nothing(
    monkeypatch, folder, streamed, precision, sampling
):
    # the processes that decode are no part of the host's loop
    monkeypatch.setattr(workers, "worker_count", lambda: 1)
    changes = {"of": folder} if streamed else {}
    source = {"name": "folder:photos", "load": "stream"} if streamed else {}
    for augment in STREAMED if streamed else AUGMENTATIONS:
        for parts in (1, 3):
            train = {"grad_accum_steps": parts, "sampling": sampling}
            data = {**source, "augment": augment}
            made = gpu_like(monkeypatch, "adacos", precision, data=data, train=train, **changes)
            steps = made.steps()
            next(steps)
            with HostWaits() as waits:
                next(steps)
            assert not waits.counts, (augment, parts, waits.counts)


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
