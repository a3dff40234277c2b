"""What an objective costs, against cross-entropy on a linear layer and another library."""

import importlib.util
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from marginctl.objectives import create
from marginctl.objectives.parsing import parse
from marginctl.objectives.schedules import Schedule
from marginctl.runs.run_dir import versions
from marginctl.utils.device import synchronize, usable_cores

SIZES = ((128, 10, 512), (256, 1000, 512), (256, 1000, 2048), (512, 10000, 512))
OTHER = "pytorch-metric-learning"
WARM_UP = 3
NETWORKS = (("ResNet-18", 128, 32, 10), ("ResNet-50", 32, 224, 1000))  # batch, pixels, classes


def _other(written: str, num_classes: int, feature_dim: int) -> nn.Module | None:
    """The same loss of pytorch-metric-learning, if it has it and is installed."""
    name = parse(written)
    if name.preset is None or not importlib.util.find_spec("pytorch_metric_learning"):
        return None
    from pytorch_metric_learning import losses

    options = name.options
    theirs = {"annealing": 0.0, "gradient": "exact", "beyond": "linear"}
    if any(options.get(key, value) != value for key, value in theirs.items()):
        return None  # which it has not
    if any(isinstance(value, Schedule) for value in options.values()) or options.get("scale") == 0:
        return None
    shape = (num_classes, feature_dim)
    makers: dict[str, Callable[[], nn.Module]] = {
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
    make = makers.get(name.preset)
    return None if make is None else make()


def _step(
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    modules: Sequence[nn.Module],
    x: torch.Tensor,
    y: torch.Tensor,
) -> float:
    """Seconds of a forward and a backward pass, the gradient of the features included."""
    x.grad = None
    for module in modules:
        module.zero_grad()
    synchronize(x.device)
    started = time.perf_counter()
    torch.autograd.backward(loss(x, y))
    synchronize(x.device)
    return time.perf_counter() - started


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Median, and the range in which the middle half lies."""
    quarters = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {"median": statistics.median(values), "low": quarters[0], "high": quarters[2]}


def _measured(
    written: str, size: tuple[int, int, int], pairs: int, device: torch.device
) -> dict[str, Any]:
    rows, classes, length = size
    torch.manual_seed(0)
    x = torch.randn(rows, length, device=device, requires_grad=True)
    y = torch.randint(classes, (rows,), device=device)
    linear, entropy = nn.Linear(length, classes).to(device), nn.CrossEntropyLoss()
    sides: dict[str, tuple[Callable[..., torch.Tensor], list[nn.Module]]] = {
        "cross-entropy": (lambda f, t: entropy(linear(f), t), [linear])
    }
    ours = create(written, classes, length).to(device)
    sides["marginctl"] = (ours, [ours])
    other = _other(written, classes, length)
    if other is not None:
        other = other.to(device)
        sides[OTHER] = (other, [other])
    for loss, modules in sides.values():
        for _ in range(WARM_UP):
            _step(loss, modules, x, y)
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(pairs):
        for side, (loss, modules) in sides.items():
            times[side].append(_step(loss, modules, x, y))
    base = times.pop("cross-entropy")
    ratios = {
        side: _spread([t / b for t, b in zip(of_side, base, strict=True)])
        for side, of_side in times.items()
    }
    return {
        "size": list(size),
        "objective": written,
        "cross_entropy_seconds": statistics.median(base),
        "ratios": ratios,
    }


def _backbone(name: str) -> nn.Module:
    """torchvision's ResNet without its classifier; the CIFAR one with a 3x3 stem and no pooling."""
    from torchvision import models

    network: nn.Module
    if name == "ResNet-50":
        network = models.resnet50()
    else:
        network = models.resnet18()
        network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        network.maxpool = nn.Identity()
    network.fc = nn.Identity()
    return network


def _share(
    name: str, batch: int, side: int, classes: int, rounds: int, device: torch.device
) -> dict[str, Any]:
    """The least-squares scale's share of a whole training step of a network."""
    torch.manual_seed(0)
    network = _backbone(name).to(device)
    images = torch.randn(batch, 3, side, side, device=device)
    labels = torch.randint(classes, (batch,), device=device)
    length = network(images[:2]).shape[1]
    objective = create("cosine-ls", classes, length).to(device)
    steps, searches = [], []
    for _ in range(rounds + 1):
        steps.append(
            _step(lambda f, t: objective(network(f), t), [network, objective], images, labels)
        )
        features = torch.randn(batch, length, device=device)
        synchronize(features.device)
        started = time.perf_counter()
        objective.optimal_scale(features)
        synchronize(features.device)
        searches.append(time.perf_counter() - started)
    steps, searches = steps[1:], searches[1:]  # the first round warms up
    return {
        "network": name,
        "images": [batch, 3, side, side],
        "classes": classes,
        "step_seconds": statistics.median(steps),
        "search_seconds": statistics.median(searches),
        "share": _spread([s / t for s, t in zip(searches, steps, strict=True)]),
    }


def run(
    names: Iterable[str],
    *,
    sizes: Sequence[tuple[int, int, int]],
    pairs: int,
    networks: bool,
    device: torch.device,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Times each objective with its linear layer at each size.

    Args:
        names: objectives.
        sizes: (N, C, d) each.
        pairs: how often each is timed, right after cross-entropy on a linear layer.
        networks: whether the share of `cosine-ls` in the steps of two networks is measured too.
        say: hears of each measurement.

    Returns:
        A JSON document: ratios to cross-entropy, median and the middle half.

    Raises:
        RequestError: an unknown objective.
    """
    names = [str(parse(name)) for name in names]
    rows: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for size in sizes:
        for name in names:
            try:
                rows.append(_measured(name, size, pairs, device))
            except (RuntimeError, MemoryError) as error:  # for lack of memory, as a rule
                reason = " ".join(str(error).split())[:200]
                failed.append({"size": list(size), "objective": name, "reason": reason})
                say(f"N, C, d = {', '.join(map(str, size))}: {name}: left out: {reason}")
                continue
            of_ours = rows[-1]["ratios"]["marginctl"]["median"]
            say(f"N, C, d = {', '.join(map(str, size))}: {name}: {of_ours:.2f}")
    shares = []
    if networks:
        for shape in NETWORKS:
            shares.append(_share(*shape, rounds=3, device=device))
            say(f"{shape[0]}: a step takes {shares[-1]['step_seconds']:.2f} s")
    return {
        "schema": 1,
        "command": "bench objectives",
        "pairs": pairs,
        "rows": rows,
        "left_out": failed,
        "least_squares": shares,
        "machine": {
            "cores": usable_cores(),
            "architecture": platform.machine(),
            "device": str(device),
        },
        "versions": versions(),
    }
