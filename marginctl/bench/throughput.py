"""Benchmark `throughput`: training speed on CIFAR-100, and two rows of Large Margin's Table 2."""

import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import torch
from pydantic import Field
from torch.utils.flop_counter import FlopCounterMode

from marginctl.bench.timing import Context, Count, Result, Settings, Skipped, full_range, timed
from marginctl.data.images.in_memory import InMemoryImages
from marginctl.experiments.execution import run_trials
from marginctl.experiments.request import Request
from marginctl.experiments.run_trial import CheckpointPolicy
from marginctl.experiments.training_session import Session, prepare_train
from marginctl.experiments.training_trial import Trial
from marginctl.models.factory import check_image_shape
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parsing import parse_preset
from marginctl.recipe.train import TrainRecipe
from marginctl.training.trainer import Trainer
from marginctl.utils.device import usable_cores
from marginctl.utils.precision import DeviceConfig, device_config_for
from marginctl.utils.text import count_noun

OBJECTIVES = [parse_preset("soft", bias=True), parse_preset("lm-softmax", bias=True)]
PART_STEPS = 10  # steps of the part of an epoch that is timed first, and of its warm-up
EVALUATION_BATCH, PART_TESTS = 1000, 2000  # as in training; test images that are timed
TIMING_FRACTION = 1 / 4  # of the minutes; the rest is for the table
SAFETY = 1.1  # a training run also writes records and checkpoints


class ThroughputSettings(Settings):
    rounds: Count = 3  # whole epochs that are timed, at most
    recipe: str = "large-margin/table2"
    models: list[str] = Field(default=["layer13", "resnet18"])
    subset_size: Annotated[int, Field(ge=100)] | None = None  # training images; None: 50,000
    epochs: Count = 50
    seeds: Annotated[int, Field(ge=1, le=100)] = 3
    minutes: Annotated[float, Field(ge=0)] = 10.0


SETTINGS = ThroughputSettings
SUITE = None  # on an accelerator only
QUICK = {"rounds": 1, "subset_size": 2000, "epochs": 1, "seeds": 1, "minutes": 1.0}


def run(settings: ThroughputSettings, context: Context) -> Result:
    """Time epochs of the models, and train softmax and lm-softmax as Table 2 does.

    A quarter of the minutes is for timing: whole epochs where they fit, else a part of one. No
    network of the table is started that would not finish in time; the same command resumes.
    """
    began = time.monotonic()
    subset = settings.subset_size
    options = {
        "objectives": ("objectives", list(OBJECTIVES)),
        "train.epochs": ("epochs", settings.epochs),
        "seeds": ("seeds", list(range(settings.seeds))),
        "data.subset_size": ("subset_size", subset),
    }
    request = Request(
        settings.recipe, options, data_dir=context.data_dir, out=context.out, device=context.device
    )
    session = prepare_train(request)
    (images,) = session.images.values()
    assert isinstance(images, InMemoryImages)
    for name in settings.models:
        check_image_shape(ModelSpec.parse(name), images.channels, images.image_size)
    device_config = device_config_for(context.device, session.recipe.train.precision)
    table_model = str(session.recipe.model)
    models = list(dict.fromkeys([*settings.models, table_model]))
    budget = TIMING_FRACTION * 60 * settings.minutes / len(models)
    result = Result("throughput", settings.model_dump(), context.device)
    result.notes.append(
        f"precision: {device_config.precision}; {len(images.train_y)} images per epoch"
    )
    timings = {}
    opened = time.monotonic() - began
    for model in models:
        recipe = TrainRecipe.model_validate(session.recipe.model_dump() | {"model": model})
        timings[model] = time_training(recipe, images, device_config, settings.rounds, budget)
        add_measurements(result, model, timings[model], len(images.train_y), device_config)
        context.report(f"{model}: {timings[model].epoch:.2f} s per epoch")
    evaluations = -(-settings.epochs // session.recipe.train.evaluate_every)
    timing = timings[table_model]
    needed = SAFETY * (settings.epochs * timing.epoch + evaluations * timing.evaluation)
    first_end = time.monotonic() - began + needed
    trainer = _TableTrainer(session, context, needed, began + 60 * settings.minutes)
    trainer.run()
    result.failed = trainer.failed
    table = f"Table {session.recipe.table} of {session.recipe.paper}"
    done = f"{table}: {trainer.done} of {count_noun(len(session.trials), 'network')} trained"
    if trainer.skipped:
        hint = "run the same command again for the others"
        if first_end > 60 * settings.minutes:  # with more minutes more is timed, too
            enough = max(first_end, (opened + needed) / (1 - TIMING_FRACTION)) / 60
            hint = f"--set minutes={int(enough) + 1} is enough for the next one"
        done += f"; {hint}"
    result.notes.append(f"{done}; see marginctl report {context.out}")
    return result


class _TableTrainer:
    """Trains the trials that finish in time; it is their listener."""

    def __init__(self, session: Session, context: Context, seconds: float, deadline: float) -> None:
        self._session, self._report = session, context.report
        self.message = self.note = context.report
        self._seconds, self._deadline = seconds, deadline
        self.done, self.skipped = 0, 0
        self.failed: list[str] = []

    def run(self) -> None:
        pending = set(self._session.unfinished())
        for trial in self._session.trials:
            started = time.monotonic()
            if trial in pending and started + self._seconds > self._deadline:
                self.skipped += 1
                continue
            session = replace(self._session, trials=[trial])
            outcome = run_trials(session, self, CheckpointPolicy(), self._on_done)
            self.done += len(outcome.results)
            self.failed += outcome.failed
            self._seconds = max(self._seconds, time.monotonic() - started)

    def _on_done(self, trial: Trial, record: Any) -> None:
        self._report(f"{trial}: finished")

    def step(self, trial: Trial, step: int, total: int, candidate: str | None = None) -> None:
        """Report nothing: epochs are short here."""

    def epoch(self, trial: Trial, line: Any) -> None:
        self._report(f"{trial}: epoch {line['epoch']}")


@dataclass(frozen=True)
class TrainingTime:
    epochs: Sequence[float]  # seconds of whole epochs; empty where only a part was timed
    estimate: float  # seconds per epoch, scaled from `PART_STEPS` steps
    evaluation: float  # seconds of an evaluation of all test images
    flops: float  # floating-point operations of an image's training step, 2 per multiply-add

    @property
    def epoch(self) -> float:
        """Seconds per epoch: the median of whole epochs, else the estimate."""
        return statistics.median(self.epochs) if self.epochs else self.estimate


def time_training(
    recipe: TrainRecipe,
    images: InMemoryImages,
    device_config: DeviceConfig,
    max_epochs: int,
    seconds: float,
) -> TrainingTime:
    """Time a few steps, and then as many whole epochs as fit into the time."""
    began = time.monotonic()
    spec, device = OBJECTIVES[0].spec, str(device_config.device)
    few = images.select(slice(PART_STEPS * recipe.train.batch_size))
    few = replace(few, test=images.test.select(slice(PART_TESTS)))
    part = Trainer(recipe, spec, few, 0, device_config)
    flops = flops_per_image(part)
    train_epoch(part)  # warm-up
    fraction = len(few.train_y) / len(images.train_y)
    estimate = timed(lambda: train_epoch(part), device) / fraction
    tested = len(few.test_y) / len(images.test_y)
    evaluation = timed(lambda: evaluate(part), device) / tested
    count = int(min(max_epochs, max(0.0, seconds - (time.monotonic() - began)) / estimate))
    epochs = []
    if count:
        trainer = Trainer(recipe, spec, images, 0, device_config)
        epochs = [timed(lambda: train_epoch(trainer), device) for _ in range(count)]
    return TrainingTime(epochs, estimate, evaluation, flops)


def train_epoch(trainer: Trainer) -> None:
    """Train the first epoch of the schedule."""
    trainer.step = 0
    trainer.run_epoch(lambda: None)


@torch.no_grad()
def evaluate(trainer: Trainer) -> None:
    """Compute logits and similarities of the test images, and copy them to the host."""
    trainer.model.eval()
    trainer.objective.eval()
    for x, _ in trainer.batches.test_batches(EVALUATION_BATCH):
        features = trainer.features(x)
        trainer.objective.logits(features).cpu()
        trainer.objective.similarities(features).cpu()


def flops_per_image(trainer: Trainer) -> float:
    """Return the floating-point operations of a training step per image, 2 per multiply-add."""
    trainer.model.eval()  # the same number, and no running statistic changes
    x, _ = next(iter(trainer.batches.test_batches(2)))
    with FlopCounterMode(display=False) as counter:
        trainer.features(x).sum().backward()  # type: ignore[no-untyped-call]
    trainer.optimizer.zero_grad(set_to_none=True)
    return float(counter.get_total_flops()) / len(x)


def add_measurements(
    result: Result, model: str, timing: TrainingTime, images: int, device_config: DeviceConfig
) -> None:
    """Add a model's seconds, images per second and model FLOPs utilization to a result."""
    epochs = timing.epochs or [timing.estimate]
    label = (
        f"epoch, {model}" if timing.epochs else f"epoch (scaled from {PART_STEPS} steps), {model}"
    )
    rates = [images / seconds for seconds in epochs]
    add = partial(result.add, spread=full_range)
    add(label, epochs, "s")
    add(f"training, {model}", rates, "images/s")
    add(f"evaluation, {model}", [timing.evaluation], "s")
    add(f"FLOPs per image, {model}", [timing.flops / 1e9], "GFLOP")
    measured = f"model FLOPs utilization, {model}"
    peak, reason = peak_flops(device_name(device_config), device_config.precision)
    if peak is None:
        result.skipped.append(Skipped(measured, reason))
    else:
        used = [100 * timing.flops * rate / peak for rate in rates]
        add(measured, used, "%", "peak")


def device_name(device_config: DeviceConfig) -> str:
    """Return the name of a GPU, or the kind of the device with the number of cores."""
    if device_config.device.type == "cuda":
        return torch.cuda.get_device_name(device_config.device)
    return f"{device_config.device.type}, {usable_cores()} cores"


# Dense bf16 products with float32 sums, in TFLOP/s, from the vendors' data sheets. V100 and T4
# have no bf16 and are left out.
PEAK_TFLOPS = {
    "H200": 989.0,
    "H100": 989.0,
    "H100 PCIE": 756.0,
    "H100 NVL": 835.0,
    "A100": 312.0,
    "A100 PCIE": 312.0,
    "L40S": 362.0,
    "L4": 121.0,
    "A10": 125.0,
    "RTX 4090": 165.0,
    "RTX 3090": 71.0,
}
# words of a name that do not change the peak: the vendor, the memory, the usual socket
_IGNORED = re.compile(r"NVIDIA|GEFORCE|SXM\d?|HBM\d\w?|\d+GB")


def peak_flops(gpu: str, precision: str = "bf16") -> tuple[float | None, str]:
    """Return the published dense bf16 peak of a GPU in FLOP/s, or None with the reason.

    Args:
        gpu: as the driver names it, such as `NVIDIA A100-SXM4-80GB`. Another word in the name
            makes it another GPU: `RTX 3090 Ti` is none of those listed.
    """
    words = [w for w in re.split(r"[\s-]+", gpu.upper()) if not _IGNORED.fullmatch(w)]
    if "MIG" in words:
        return None, f"{gpu}: is a slice of a GPU, and the published peak is that of a whole one"
    if "LAPTOP" in words or "MAX" in words:
        return None, f"{gpu}: the peak of a laptop GPU depends on its power limit"
    peak = PEAK_TFLOPS.get(" ".join(words))
    if peak is None:
        return None, f"{gpu}: no published peak is listed"
    if precision != "bf16":
        return None, f"{precision}: the listed peaks are those of bf16"
    return 1e12 * peak, ""
