"""How fast a network trains and is evaluated: whole epochs where there is time, else a part."""

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from marginctl.training.trainer import Trainer
from marginctl.utils.device import synchronize
from marginctl.utils.precision import DeviceConfig

WARM = 10  # steps before those that are timed
FEW = 10  # steps that say whether whole epochs can be timed
LEAST = 2  # steps or batches that are timed, however slow they are
TESTED = 1000  # images of a test batch at most, as in training


@dataclass(frozen=True)
class Pace:
    """What an epoch and an evaluation take.

    Attributes:
        epochs: seconds of each, one alone where it is scaled from a part.
        whole: how many epochs were timed as a whole; 0 where a part stands for one.
        steps: that were timed.
        evaluation: seconds, over all test images.
        tested: test images of these seconds; fewer than there are: the seconds are scaled.
    """

    epochs: list[float]
    whole: int
    steps: int
    evaluation: float
    tested: int

    @property
    def epoch(self) -> float:
        """Seconds of an epoch: the median."""
        return statistics.median(self.epochs)


class _EnoughError(Exception):
    """The steps that were wanted are done."""


def pace(trainer: Trainer, device_config: DeviceConfig, epochs: int, seconds: float) -> Pace:
    """Times training and one evaluation within a time, but for the least that says anything.

    Args:
        trainer: what is trained; it begins anew with every epoch.
        device_config: device and precision.
        epochs: that are timed at most.
        seconds: for all of it; whatever is beyond them is scaled from a part.
    """
    began = time.monotonic()

    def gone() -> float:
        return time.monotonic() - began

    _part(trainer, device_config, lambda steps: steps >= WARM or gone() > seconds / 10)
    evaluation, tested = _evaluated(trainer, device_config, lambda: gone() > seconds / 4)
    steps, taken = _part(
        trainer,
        device_config,
        lambda steps: steps >= LEAST and (steps >= FEW or gone() > seconds / 2),
    )
    whole = int(min(epochs, max(0.0, seconds - gone()) / taken))
    if whole:
        return Pace(
            [_epoch(trainer, device_config) for _ in range(whole)],
            *(whole, whole * len(trainer.sizes), evaluation, tested),
        )
    if gone() < seconds:
        steps, taken = _part(
            trainer, device_config, lambda steps: steps >= LEAST and gone() > seconds
        )
    return Pace([taken], 0, steps, evaluation, tested)


def _epoch(trainer: Trainer, device_config: DeviceConfig) -> float:
    """Seconds of a whole epoch, in which nothing waits for the device."""
    synchronize(device_config.device)
    started = time.perf_counter()
    trainer.step = 0
    trainer.run_epoch(lambda: None)
    synchronize(device_config.device)
    return time.perf_counter() - started


def _part(
    trainer: Trainer, device_config: DeviceConfig, enough: Callable[[int], bool]
) -> tuple[int, float]:
    """Trains until there are enough steps, or the epoch ends: steps, and seconds of an epoch.

    The device is waited for after every step, so that these seconds are rather too many.
    """

    def after_step() -> None:
        synchronize(device_config.device)
        if enough(trainer.step):
            raise _EnoughError

    synchronize(device_config.device)
    started = time.perf_counter()
    trainer.step = 0
    with contextlib.suppress(_EnoughError):
        trainer.run_epoch(after_step)
    steps = trainer.step
    share = sum(trainer.sizes[:steps]) / sum(trainer.sizes)
    return steps, (time.perf_counter() - started) / share


@torch.no_grad()
def _evaluated(
    trainer: Trainer, device_config: DeviceConfig, late: Callable[[], bool]
) -> tuple[float, int]:
    """Seconds of an evaluation of all test images, and of how many it was made."""
    trainer.model.eval()
    trainer.objective.eval()
    images, batches = 0, 0
    synchronize(device_config.device)
    started = time.perf_counter()
    for x, y in trainer.batches.test_batches(TESTED):
        features = trainer.features(x)
        for part in (trainer.objective.logits(features), trainer.objective.similarities(features)):
            part.cpu()
        images, batches = images + len(y), batches + 1
        if batches >= LEAST and late():
            break
    synchronize(device_config.device)
    return (time.perf_counter() - started) * len(trainer.batches.test) / images, images
