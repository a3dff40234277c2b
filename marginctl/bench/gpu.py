"""Benchmark `gpu`: a GPU's results against the CPU's, then its speed, within some minutes."""

import math
import time
from dataclasses import replace
from functools import partial
from typing import Annotated

from pydantic import Field

from marginctl.bench import throughput
from marginctl.bench.timing import Context, Count, Result, Settings, Skipped, full_range, timed
from marginctl.bench.train import noise_images, noise_recipe
from marginctl.bench.uci_cv import load_datasets
from marginctl.crossval.stack import Stack, build_stacks
from marginctl.crossval.stacked_trainer import train_stack
from marginctl.errors import RequestError
from marginctl.objectives.parsing import parse_preset
from marginctl.objectives.presets import PRESETS
from marginctl.recipe.uci_cv import Protocol
from marginctl.training.trainer import Trainer
from marginctl.utils.precision import device_config_for

STEPS, BATCH_SIZE = 8, 32  # of the trainings that are compared; the last batch is a half one
TOLERANCE = 1.0  # percent of a tensor's largest weight
TIMING_FRACTION = 1 / 4  # of the minutes, for whole epochs
OPTIONS = ("gpu_fast_path", "cuda_graphs")  # of `train`, off by default
# the columns of ArcGrad's Table I
TABLE1 = [parse_preset(name) for name in ("soft", "center", "m-soft", "adacos")]
TABLE1 += [parse_preset("arcgrad", scale=scale) for scale in (30, 5)]
TABLE1 += [parse_preset("arcface", margin=0.1, scale=20)]


class GpuSettings(Settings):
    rounds: Count = 3  # whole epochs that are timed, at most
    minutes: Annotated[float, Field(gt=0)] = 8.0
    presets: list[str] = Field(default=list(PRESETS))
    models: list[str] = Field(default=["layer13", "resnet18", "mlp"])
    images: Annotated[int, Field(ge=100)] = 50_000  # per epoch, of noise
    datasets: list[str] = Field(default=["iris", "banknote-authentication"])
    epochs: Count = 100  # of the stacked networks
    repeats: Count = 10  # of 10 folds


SETTINGS = GpuSettings
SUITE = None  # on a GPU only
QUICK = {"rounds": 1, "minutes": 2.0, "images": 5000, "epochs": 5}


def run(settings: GpuSettings, context: Context) -> Result:
    """Compare every preset and option with the CPU; time epochs, Table I and rows of Table 2."""
    check_gpu(context.device)
    deadline = time.monotonic() + 60 * settings.minutes
    result = Result("gpu", settings.model_dump(), context.device)
    for option in (None, *OPTIONS):
        _compare(result, settings, context, option)
    _time_epochs(result, settings, context)
    _time_stacks(result, settings, context)
    left = (deadline - time.monotonic()) / 60
    try:
        if left <= 0:
            raise RequestError("the minutes are over")
        table = throughput.run(throughput.ThroughputSettings(models=[], minutes=left), context)
    except RequestError as error:
        result.skipped.append(Skipped("rows of Large Margin's Table 2", error.lines[0]))
    else:
        result.measurements += table.measurements
        result.notes += table.notes
        result.failed += table.failed
    return result


def check_gpu(device: str) -> None:
    """Raise RequestError for another device than a GPU of CUDA."""
    if not device.startswith("cuda"):
        raise RequestError(
            f"bench gpu: the device is {device}: it measures a GPU: run it on a machine with CUDA"
        )


def _compare(result: Result, settings: GpuSettings, context: Context, option: str | None) -> None:
    """Compare the presets' weights after some steps with the CPU's, trained without the option."""
    label = "difference from the CPU" + (f" with {option}" if option else "")
    differences = [_difference(preset, context.device, option) for preset in settings.presets]
    finite = [difference for difference in differences if math.isfinite(difference)]
    if finite:
        result.add(label, finite, "%", "CPU", spread=full_range)
    result.failed += [
        f"{preset}: after {STEPS} steps a weight has a {label} of {difference:.2g} %"
        for preset, difference in zip(settings.presets, differences, strict=True)
        if not difference <= TOLERANCE
    ]
    context.report(f"{len(differences)} presets: {label}: {max(differences):.2g} % at most")


def _difference(preset: str, device: str, option: str | None) -> float:
    """Return the largest difference of a weight from the CPU's, in percent of the largest one."""
    images = noise_images(STEPS * BATCH_SIZE - BATCH_SIZE // 2)
    spec = parse_preset(preset).spec
    weights = []
    for place, used in ((device, option), ("cpu", None)):
        train = {"precision": "fp32", "batch_size": BATCH_SIZE, **({used: True} if used else {})}
        recipe = noise_recipe("mlp:width=16", **train)
        trainer = Trainer(recipe, spec, images, 0, device_config_for(place, "fp32"))
        trainer.run_epoch(lambda: None)
        modules = (trainer.model, trainer.objective)
        weights.append([p.detach().cpu() for module in modules for p in module.parameters()])
    return max(
        100 * float((ours - theirs).abs().max() / theirs.abs().max())
        for ours, theirs in zip(*weights, strict=True)
    )


def _time_epochs(result: Result, settings: GpuSettings, context: Context) -> None:
    device_config = device_config_for(context.device, "auto")
    result.notes.append(f"precision: {device_config.precision}; {settings.images} images of noise")
    images = noise_images(settings.images)
    images = replace(images, test=images.train.select(slice(10_000)))
    trainings = len(settings.models) * (1 + len(OPTIONS))
    seconds = TIMING_FRACTION * 60 * settings.minutes / trainings
    for model in settings.models:
        plain, *timings = (
            throughput.time_training(
                noise_recipe(model, precision="auto", batch_size=128, **chosen),
                images,
                device_config,
                settings.rounds,
                seconds,
            )
            for chosen in ({}, *({option: True} for option in OPTIONS))
        )
        throughput.add_measurements(result, model, plain, settings.images, device_config)
        context.report(f"{model}: {plain.epoch:.2f} s per epoch")
        for option, timing in zip(OPTIONS, timings, strict=True):
            ratio = timing.epoch / plain.epoch
            result.add(f"epoch with {option}, {model}", [ratio], "x", "without")
            context.report(f"{model}: {ratio:.2f} of that with {option}")


def _time_stacks(result: Result, settings: GpuSettings, context: Context) -> None:
    """Train the networks of Table I's columns in stacks, after a first epoch that is not timed."""
    protocol = Protocol(hidden=[64, 64], epochs=settings.epochs, repeats=settings.repeats)
    for dataset in load_datasets(settings.datasets, context, result, "Table I, {}"):
        seconds = []
        for epochs in (1, settings.epochs):
            shortened = protocol.model_copy(update={"epochs": epochs})
            stacks = [
                stack
                for column in TABLE1
                for stack in build_stacks(dataset, column, shortened, seed=0)
            ]
            seconds.append(timed(partial(_train, stacks, context.device), context.device))
        result.add(f"Table I, {dataset.name}", seconds[1:], "s", spread=full_range)
        context.report(f"Table I, {dataset.name}: {seconds[1]:.1f} s")


def _train(stacks: list[Stack], device: str) -> None:
    for stack in stacks:
        train_stack(stack, device)
