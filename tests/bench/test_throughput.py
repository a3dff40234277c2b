"""Timing by steps, on a clock that the test moves."""

import pytest
import torch

from marginctl.bench import throughput as module
from marginctl.bench.throughput import pace
from tests.training.made import CPU


class Clock:
    def __init__(self):
        self.now = 0.0

    def read(self):
        return self.now

    perf_counter = monotonic = read


class Slow:
    """Stands for a trainer of 50 images a step, 20 of them in the last one, and 3,500 tests."""

    sizes = (50,) * 9 + (20,)

    def __init__(self, clock, image, tested):
        self.clock, self.image, self.per_test = clock, image, tested
        self.step, self.epochs = 0, 0
        self.model = self.objective = self.batches = self

    def run_epoch(self, after_step):
        for size in self.sizes[self.step :]:
            self.clock.now += self.image * size
            self.step += 1
            after_step()
        self.epochs += 1

    test = range(3500)

    def test_batches(self, size):
        for start in range(0, 3500, size):
            count = min(size, 3500 - start)
            yield torch.zeros(count, 1), torch.zeros(count)

    def features(self, x):
        self.clock.now += self.per_test * len(x)
        return x

    logits = similarities = staticmethod(lambda features: features)

    def eval(self):
        pass


@pytest.fixture
def timed(monkeypatch):
    def run(seconds, image, tested=0.001, epochs=3):
        clock = Clock()
        monkeypatch.setattr(module, "time", clock)
        trainer = Slow(clock, image, tested)
        return pace(trainer, CPU, epochs, seconds), clock.now, trainer

    return run


def test_whole_epochs_where_there_is_time(timed):
    found, gone, _ = timed(60, image=0.01)
    assert found.epochs == pytest.approx([4.7] * 3)
    assert (found.whole, found.steps, found.tested) == (3, 30, 3500)
    assert found.evaluation == pytest.approx(3.5)
    assert gone < 60


def test_fewer_epochs_where_there_is_less_time(timed):
    """Warm steps, the tests and few steps take 4.7 + 3.5 + 4.7 s: there are 12.1 left."""
    found, gone, _ = timed(25, image=0.01)
    assert found.epochs == pytest.approx([4.7] * 2)
    assert (found.whole, found.steps) == (2, 20)
    assert gone < 25


def test_a_part_of_an_epoch_where_one_takes_too_long(timed):
    """470 s an epoch, 50 a step: a step warms up, and the last part ends with the time."""
    found, gone, trainer = timed(400, image=1.0)
    assert found.epochs == pytest.approx([470.0])
    assert (found.whole, found.steps, trainer.epochs) == (0, 4, 0)
    assert 400 < gone < 450


def test_the_least_is_timed_however_little_time_there_is(timed):
    """One step to warm up, two steps, and two batches of the tests, scaled."""
    found, gone, trainer = timed(0, image=1.0, tested=0.1)
    assert found.epochs == pytest.approx([470.0])
    assert (found.whole, found.steps, found.tested) == (0, 2, 2000)
    assert found.evaluation == pytest.approx(350.0)
    assert gone == pytest.approx(50 + 200 + 100)
    assert trainer.epochs == 0
