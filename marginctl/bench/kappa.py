"""Benchmark `kappa`: the cost of the least-squares scale, as in Temperature's Table 11."""

from typing import Any

import torch
from pydantic import Field

from marginctl.bench.timing import Context, Count, Result, Settings, interleave
from marginctl.models.factory import create_backbone
from marginctl.models.registry import ModelSpec
from marginctl.objectives.least_squares import best_candidates, reconstruction_errors
from marginctl.objectives.module import Objective
from marginctl.objectives.parsing import parse_preset
from marginctl.papers import published_table
from marginctl.recipe.fields import Section
from marginctl.utils.precision import DeviceConfig, device_config_for

PAPER, TABLE = "temperature", "11"
PUBLISHED_COLUMNS = {"training step": "whole mini-batch", "errors": "error", "argmin": "argmin"}
SEARCH_CALLS = 5  # per round, whose mean is taken: one is too short for the clock


class Shape(Section):
    name: str  # the data set with these shapes, as the paper's table names it
    model: str
    image_size: Count
    classes: Count
    batch_size: Count
    # images of the step that is timed on a CPU, where a full batch takes minutes
    cpu_batch_size: Count


def _shape(*values: str | int) -> dict[str, Any]:
    return dict(zip(Shape.model_fields, values, strict=True))


class KappaSettings(Settings):
    rounds: Count = 6
    # Batch sizes and class counts of Table 8 and its data sets. ResNet-18 for CIFAR is ours.
    shapes: list[Shape] = Field(
        default=[
            _shape("Cifar10", "resnet18", 32, 10, 128, 128),
            _shape("Food101", "torchvision/resnet50", 224, 101, 256, 8),
            _shape("ImageNet", "torchvision/resnet50", 224, 1000, 256, 8),
        ],
        validate_default=True,
    )


SETTINGS = KappaSettings
SUITE = {"rounds": 3}
QUICK = {"rounds": 1, "shapes": [_shape("Cifar10", "resnet18", 32, 10, 128, 8)]}


def run(settings: KappaSettings, context: Context) -> Result:
    """Time a training step with cosine-ls, and its search for kappa* in two parts.

    On a CPU the step of a large network has few images, and the step of a full batch is scaled
    from it.
    """
    device_config = device_config_for(context.device, "auto")
    result = Result("kappa", settings.model_dump(), context.device)
    result.notes.append(
        f"precision: {device_config.precision}; published: Table {TABLE}, on the paper's GPU"
    )
    table = published_table(PAPER, TABLE)
    steps = {shape.name: _Step(shape, device_config) for shape in settings.shapes}
    sides = {
        f"{part}, {name}": call for name, step in steps.items() for part, call in step.parts.items()
    }
    seconds = interleave(sides, settings.rounds, device=context.device, report=context.report)
    for name, step in steps.items():
        shape = step.shape
        train = [1000 * s for s in seconds[f"training step, {name}"]]
        errors, argmin = (
            [1000 * s / SEARCH_CALLS for s in seconds[f"{part}, {name}"]]
            for part in ("errors", "argmin")
        )
        full_batch = [t * shape.batch_size / step.images for t in train]
        share = [100 * (e + a) / t for e, a, t in zip(errors, argmin, full_batch, strict=True)]
        if step.images < shape.batch_size:
            result.add(f"training step of {step.images} images, {name}", train, "ms")
            per_image = [t / step.images for t in train]
            result.add(f"training step per image, {name}", per_image, "ms")
        measured = {"training step": full_batch, "errors": errors, "argmin": argmin}
        for part, values in measured.items():
            cell = table.cells.get((name, PUBLISHED_COLUMNS[part]))
            published = None if cell is None else cell.mean
            result.add(f"{part}, {name}", values, "ms", published=published)
        result.add(f"search for kappa*, {name}", share, "%", "training step")
    return result


class _Step:
    """A training step with cosine-ls and SGD, and the features of a mini-batch for the search."""

    def __init__(self, shape: Shape, device_config: DeviceConfig) -> None:
        torch.manual_seed(0)
        self.shape, self._device_config, device = shape, device_config, device_config.device
        self.images = shape.cpu_batch_size if device.type == "cpu" else shape.batch_size
        self._model = create_backbone(ModelSpec.parse(shape.model), 3, shape.image_size).to(device)
        features = self._model.feature_dim
        self._x = torch.randn(self.images, 3, shape.image_size, shape.image_size, device=device)
        self._model.to(memory_format=device_config.memory_format)
        self._x = self._x.contiguous(memory_format=device_config.memory_format)
        self._y = torch.randint(shape.classes, (self.images,), device=device)
        self._objective = Objective(parse_preset("cosine-ls").spec, shape.classes, features).to(
            device
        )
        parameters = [*self._model.parameters(), *self._objective.parameters()]
        self._optimizer = torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=5e-4)
        self._features = torch.randn(shape.batch_size, features, device=device)
        self._weight = self._objective.weight.detach()
        self._cosines = self._objective.similarities(self._features).detach()
        self._errors = self._compute_errors()
        self.parts = {
            "training step": self._train,
            "errors": lambda: [self._compute_errors() for _ in range(SEARCH_CALLS)],
            "argmin": lambda: [best_candidates(self._errors) for _ in range(SEARCH_CALLS)],
        }

    def _train(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        with self._device_config.autocast():
            features = self._model(self._x)
        torch.autograd.backward(self._objective(features.float(), self._y))
        self._optimizer.step()

    def _compute_errors(self) -> Any:
        return reconstruction_errors(self._cosines, self._features, self._weight)
