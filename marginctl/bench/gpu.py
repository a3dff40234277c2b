"""Benchmark `gpu`: a GPU's results against the CPU's, then its speed, within some minutes."""

import time
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from marginctl.bench import throughput
from marginctl.bench.timing import Context, Count, Result, Settings, Skipped, full_range, timed
from marginctl.bench.train import noise_images
from marginctl.crossval.stack import Stack, build_stacks
from marginctl.crossval.stacked_trainer import train_stack
from marginctl.data.paths import default_data_dir
from marginctl.data.tabular.uci import load_uci
from marginctl.errors import RequestError
from marginctl.objectives.parsing import parse_preset
from marginctl.objectives.presets import PRESETS
from marginctl.recipe.train import TrainRecipe
from marginctl.recipe.uci_cv import Protocol
from marginctl.training.trainer import Trainer
from marginctl.utils.precision import device_config_for

STEPS, BATCH_SIZE = 5, 32  # of the trainings that are compared with the CPU's
TOLERANCE = 1.0  # percent of a tensor's largest weight
TIMING_FRACTION = 1 / 4  # of the minutes, for whole epochs
# the columns of ArcGrad's Table I
TABLE1 = [parse_preset(name) for name in ("soft", "center", "m-soft", "adacos")]
TABLE1 += [parse_preset("arcgrad", scale=scale) for scale in (30, 5)]
TABLE1 += [parse_preset("arcface", margin=0.1, scale=20)]


class GpuSettings(Settings):
    rounds: Count = 3  # whole epochs that are timed, at most
    minutes: Annotated[float, Field(gt=0)] = 8.0
    presets: list[str] = Field(default=list(PRESETS))
    models: list[str] = Field(default=["layer13", "resnet18"])
    images: Annotated[int, Field(ge=100)] = 50_000  # per epoch, of noise
    datasets: list[str] = Field(default=["iris", "banknote-authentication"])
    epochs: Count = 100  # of the stacked networks
    repeats: Count = 10  # of 10 folds


SETTINGS = GpuSettings
SUITE = None  # on a GPU only
QUICK = {"rounds": 1, "minutes": 2.0, "images": 5000, "epochs": 5}


def run(settings: GpuSettings, context: Context) -> Result:
    """Compare every preset with the CPU, then time epochs, Table I and rows of Table 2."""
    check_gpu(context.device)
    deadline = time.monotonic() + 60 * settings.minutes
    result = Result("gpu", settings.model_dump(), context.device)
    differences = [_difference(preset, context.device) for preset in settings.presets]
    result.add("difference from the CPU", differences, "%", "CPU", spread=full_range)
    result.failed += [
        f"{preset}: after {STEPS} steps a weight differs by {difference:.2g} % from the CPU's"
        for preset, difference in zip(settings.presets, differences, strict=True)
        if not difference <= TOLERANCE
    ]
    context.report(f"{len(differences)} presets: {max(differences):.2g} % from the CPU at most")
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


def _recipe(model: str, precision: str, batch_size: int) -> TrainRecipe:
    return TrainRecipe.model_validate(
        {
            "task": "train",
            "data": {"augment": "random-crop-flip"},
            "model": model,
            "optim": {"lr": 0.01},
            "train": {"precision": precision, "batch_size": batch_size},
        }
    )


def _difference(preset: str, device: str) -> float:
    """Return the largest difference of a weight from the CPU's, in percent of the largest one."""
    images, spec = noise_images(STEPS * BATCH_SIZE), parse_preset(preset).spec
    weights = []
    for place in (device, "cpu"):
        recipe = _recipe("mlp:width=16", "fp32", BATCH_SIZE)
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
    images = replace(images, test_x=images.train_x[:10_000], test_y=images.train_y[:10_000])
    seconds = TIMING_FRACTION * 60 * settings.minutes / len(settings.models)
    for model in settings.models:
        recipe = _recipe(model, "auto", 128)
        timing = throughput.time_training(recipe, images, device_config, settings.rounds, seconds)
        throughput.add_measurements(result, model, timing, settings.images, device_config)
        context.report(f"{model}: {timing.epoch:.2f} s per epoch")


def _time_stacks(result: Result, settings: GpuSettings, context: Context) -> None:
    """Train the networks of Table I's columns in stacks, after a first epoch that is not timed."""
    protocol = Protocol(hidden=[64, 64], epochs=settings.epochs, repeats=settings.repeats)
    for name in settings.datasets:
        try:
            dataset = load_uci(name, context.data_dir or default_data_dir())
        except RequestError as error:
            result.skipped.append(Skipped(f"Table I, {name}", error.lines[0]))
            continue
        seconds = []
        for epochs in (1, settings.epochs):
            shortened = protocol.model_copy(update={"epochs": epochs})
            stacks = [
                stack
                for column in TABLE1
                for stack in build_stacks(dataset, column, shortened, seed=0)
            ]
            seconds.append(timed(lambda s=stacks: _train(s, context.device), context.device))  # type: ignore[misc]
        result.add(f"Table I, {name}", seconds[1:], "s", spread=full_range)
        context.report(f"Table I, {name}: {seconds[1]:.1f} s")


def _train(stacks: list[Stack], device: str) -> None:
    for stack in stacks:
        train_stack(stack, device)
