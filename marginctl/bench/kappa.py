"""`marginctl bench kappa`: what the least-squares scale costs in a training step (Table 11)."""

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from marginctl.bench.train import median_interval
from marginctl.models.backbone import create_backbone
from marginctl.models.registry import parse_model
from marginctl.objectives.least_squares import least, reconstruction_errors
from marginctl.objectives.module import Objective
from marginctl.objectives.parsing import parse
from marginctl.papers import published_table
from marginctl.runs.run_dir import versions
from marginctl.utils.device import synchronize, usable_cores
from marginctl.utils.precision import DeviceConfig, device_config_for

PAPER, TABLE = "temperature", "11"
COLUMNS = {"step": "whole mini-batch", "errors": "error", "argmin": "argmin"}
CALLS = 5  # of a search in a round, whose mean counts: one is too short for the clock


@dataclass(frozen=True)
class Shape:
    """What is timed.

    Attributes:
        name: the data set whose shapes these are, as the paper's table names it where it does.
        model: the backbone.
        batch: images of a mini-batch.
        few: images of the step that is timed on a CPU, where a whole batch takes minutes.
    """

    name: str
    model: str
    pixels: int
    classes: int
    batch: int
    few: int


# Batches and class counts of Table 8 and its data sets. That CIFAR's network is ResNet-18 is ours.
SHAPES = (
    Shape("Cifar10", "resnet18", 32, 10, 128, 128),
    Shape("Food101", "torchvision/resnet50", 224, 101, 256, 8),
    Shape("ImageNet", "torchvision/resnet50", 224, 1000, 256, 8),
)


class _Side:
    """One shape: a network with cosine-ls and SGD, and a mini-batch of features for the search."""

    def __init__(self, shape: Shape, device_config: DeviceConfig) -> None:
        torch.manual_seed(0)
        self.shape, self._device_config = shape, device_config
        self.images = shape.few if device_config.device.type == "cpu" else shape.batch
        name, options = parse_model(shape.model)
        self._model = create_backbone(name, options, 3, shape.pixels).to(device_config.device)
        self.length = self._model.feature_dim
        self._x = torch.randn(
            self.images, 3, shape.pixels, shape.pixels, device=device_config.device
        )
        if device_config.channels_last:
            self._model.to(memory_format=torch.channels_last)
            self._x = self._x.contiguous(memory_format=torch.channels_last)
        self._y = torch.randint(shape.classes, (self.images,), device=device_config.device)
        self._objective = Objective(parse("cosine-ls").spec, shape.classes, self.length)
        self._objective.to(device_config.device)
        parameters = [*self._model.parameters(), *self._objective.parameters()]
        self._optimizer = torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=5e-4)
        self._features = torch.randn(shape.batch, self.length, device=device_config.device)
        self._weight = self._objective.weight.detach()
        self._cosines = self._objective.similarities(self._features).detach()
        self._errors = self.errors()

    def step(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        with self._device_config.autocast():
            features = self._model(self._x)
        torch.autograd.backward(self._objective(features.float(), self._y))
        self._optimizer.step()

    def errors(self) -> Any:
        return reconstruction_errors(self._cosines, self._features, self._weight)

    def argmin(self) -> None:
        least(self._errors)


def run(
    *,
    shapes: Sequence[Shape] | None = None,
    rounds: int,
    device: str,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Times a training step with cosine-ls, and its search for kappa* in two parts.

    Every round times each shape once, one after the other. On a CPU the step of a large network is
    that of a few images; its share is then told by the image.

    Args:
        shapes: None for `SHAPES`.
        rounds: that count, after one that does not.
        device: a torch device.
        say: hears of each round.

    Returns:
        A JSON document: milliseconds, medians with 95 % intervals, and the published ones beside.
    """
    device_config = device_config_for(device, "auto")
    sides = [_Side(shape, device_config) for shape in (SHAPES if shapes is None else shapes)]
    times: list[dict[str, list[float]]] = [{kind: [] for kind in COLUMNS} for _ in sides]
    for number in range(rounds + 1):
        for side, own in zip(sides, times, strict=True):
            for kind, calls in (("step", 1), ("errors", CALLS), ("argmin", CALLS)):
                milliseconds = _timed(getattr(side, kind), calls, device)
                if number:  # the first round warms up
                    own[kind].append(milliseconds)
        if number:
            say(f"round {number} of {rounds}: " + ", ".join(map(_said, sides, times)))
    return {
        "schema": 1,
        "command": "bench kappa",
        "device": device,
        "precision": device_config.precision,
        "rounds": rounds,
        "paper": {"paper": PAPER, "table": TABLE, "unit": "ms"},
        "rows": [_row(side, own) for side, own in zip(sides, times, strict=True)],
        "machine": {"cores": usable_cores(), "architecture": platform.machine()},
        "versions": versions(),
    }


def _timed(what: Callable[[], object], calls: int, device: str) -> float:
    """Milliseconds of a call, the mean of several."""
    synchronize(device)
    started = time.perf_counter()
    for _ in range(calls):
        what()
    synchronize(device)
    return 1000 * (time.perf_counter() - started) / calls


def _said(side: _Side, own: dict[str, list[float]]) -> str:
    return f"{side.shape.name} {own['step'][-1]:.0f} ms, search {own['errors'][-1]:.1f} ms"


def _row(side: _Side, own: dict[str, list[float]]) -> dict[str, Any]:
    shape = side.shape
    whole = [t * shape.batch / side.images for t in own["step"]]
    searches = [a + b for a, b in zip(own["errors"], own["argmin"], strict=True)]
    return {
        "name": shape.name,
        "model": shape.model,
        "batch": shape.batch,
        "classes": shape.classes,
        "length": side.length,
        "step_images": side.images,
        "step_ms": median_interval(own["step"]),
        "step_ms_an_image": statistics.median(own["step"]) / side.images,
        "errors_ms": median_interval(own["errors"]),
        "argmin_ms": median_interval(own["argmin"]),
        "search_percent": median_interval(
            [100 * s / t for s, t in zip(searches, whole, strict=True)]
        ),
        "paper": _published(shape.name),
    }


def _published(name: str) -> dict[str, float] | None:
    """The paper's milliseconds; None where its table has no such row."""
    table = published_table(PAPER, TABLE)
    if name not in table.rows:
        return None
    cells = {kind: table.cells[name, column] for kind, column in COLUMNS.items()}
    return {kind: cell.mean for kind, cell in cells.items() if cell is not None}
