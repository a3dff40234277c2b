"""Benchmark `objectives`: the cost of an objective against cross-entropy on a linear layer."""

import importlib.util
import math
from collections.abc import Callable
from functools import partial
from typing import Annotated

import torch
from pydantic import Field
from torch import nn

from marginctl.bench import timing
from marginctl.objectives.module import Objective
from marginctl.objectives.parsing import ParsedObjective, available, parse_preset
from marginctl.objectives.schedules import Schedule

OURS, REFERENCE = "marginctl", "cross-entropy"
OTHER_LIBRARY = "pytorch-metric-learning"
WARM_UP = 3

Shape = Annotated[list[timing.Count], Field(min_length=3, max_length=3)]


class ObjectivesSettings(timing.Settings):
    rounds: timing.Count = 15
    objectives: list[ParsedObjective] = Field(
        default_factory=lambda: [parse_preset(name) for name in available()]
    )
    shapes: list[Shape] = Field(  # N, C, d
        default=[[128, 10, 512], [256, 1000, 512], [256, 1000, 2048], [512, 10000, 512]]
    )


SETTINGS = ObjectivesSettings
SUITE = {"rounds": 9, "shapes": [[256, 1000, 512]]}
QUICK = {"rounds": 3, "shapes": [[128, 10, 512]]}


def run(settings: ObjectivesSettings, context: timing.Context) -> timing.Result:
    """Time a forward and a backward pass of each objective with its linear layer."""
    result = timing.Result("objectives", settings.model_dump(), context.device)
    result.notes.append("in brackets: batch size, classes, feature dimension")
    for shape in settings.shapes:
        for objective in settings.objectives:
            label = f"{objective} ({', '.join(map(str, shape))})"
            try:
                seconds = _time_sides(objective, shape, settings.rounds, context.device)
            except (RuntimeError, MemoryError) as error:  # usually out of memory
                reason = " ".join(str(error).split())[:200]
                result.skipped.append(timing.Skipped(label, reason))
                context.report(f"{label}: skipped: {reason}")
                continue
            times = timing.ratios(seconds, OURS, REFERENCE)
            add = partial(result.add, spread=timing.middle_half)
            ours = add(label, times, "x", REFERENCE)
            if OTHER_LIBRARY in seconds:
                times = timing.ratios(seconds, OTHER_LIBRARY, REFERENCE)
                add(f"{OTHER_LIBRARY}, {label}", times, "x", REFERENCE)
            milliseconds = [1000 * s for s in seconds[REFERENCE]]
            add(f"{REFERENCE}, timed with {label}", milliseconds, "ms")
            context.report(f"{label}: {ours.median:.2f}x")
    if not importlib.util.find_spec(OTHER_LIBRARY.replace("-", "_")):
        reason = f"{OTHER_LIBRARY} is not installed: pip install {OTHER_LIBRARY}"
        result.skipped.append(timing.Skipped(OTHER_LIBRARY, reason))
    return result


def _time_sides(
    objective: ParsedObjective, shape: list[int], rounds: int, device: str
) -> dict[str, list[float]]:
    rows, classes, features = shape
    torch.manual_seed(0)
    x = torch.randn(rows, features, device=device, requires_grad=True)
    y = torch.randint(classes, (rows,), device=device)
    linear, entropy = nn.Linear(features, classes).to(device), nn.CrossEntropyLoss()
    modules: dict[str, nn.Module] = {
        REFERENCE: linear,
        OURS: Objective(objective.spec, classes, features).to(device),
    }
    other = other_library(objective, classes, features)
    if other is not None:
        modules[OTHER_LIBRARY] = other.to(device)

    def step(side: str) -> None:
        loss = entropy(linear(x), y) if side == REFERENCE else modules[side](x, y)
        torch.autograd.backward(loss)

    def clear_gradients(side: str) -> None:
        x.grad = None
        modules[side].zero_grad()

    sides: dict[str, Callable[[], None]] = {side: lambda side=side: step(side) for side in modules}  # type: ignore[misc]
    return timing.interleave(sides, rounds, device=device, warm_up=WARM_UP, prepare=clear_gradients)


def other_library(
    objective: ParsedObjective, num_classes: int, feature_dim: int
) -> nn.Module | None:
    """Return the same loss of pytorch-metric-learning, if it is installed and has the loss."""
    if objective.preset is None or not importlib.util.find_spec(OTHER_LIBRARY.replace("-", "_")):
        return None
    from pytorch_metric_learning import losses

    options = objective.options
    supported = {"annealing": 0.0, "gradient": "exact", "beyond": "linear"}
    if any(options.get(key, value) != value for key, value in supported.items()):
        return None
    if any(isinstance(value, Schedule) for value in options.values()) or options.get("scale") == 0:
        return None
    shape = (num_classes, feature_dim)
    factories: dict[str, Callable[[], nn.Module]] = {
        "cosine": lambda: losses.NormalizedSoftmaxLoss(*shape, temperature=1 / options["scale"]),
        "cosface": lambda: losses.CosFaceLoss(
            *shape, margin=options["margin"], scale=options["scale"]
        ),
        "arcface": lambda: losses.ArcFaceLoss(
            *shape, margin=math.degrees(options["margin"]), scale=options["scale"]
        ),
        "sphereface": lambda: losses.SphereFaceLoss(*shape, margin=options["margin"], scale=1),
        "l-softmax": lambda: losses.LargeMarginSoftmaxLoss(
            *shape, margin=options["margin"], scale=1
        ),
    }
    factory = factories.get(objective.preset)
    return None if factory is None else factory()
