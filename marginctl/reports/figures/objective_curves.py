"""Curves of objectives: target logit, loss and gradient along one axis of feature space."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from marginctl.errors import RequestError
from marginctl.objectives.functional import ObjectiveFunction
from marginctl.objectives.parsing import ParsedObjective
from marginctl.objectives.parts import ObjectiveSpec
from marginctl.objectives.schedules import Schedule
from marginctl.objectives.theory import arcgrad_gap
from marginctl.reports.figures.style import check_path, legend_text, line_style, save, styled
from marginctl.runs.atomic_io import check_outputs

POINTS = 721
MAX_CLASSES = 2000  # the weights of all classes are in memory
FEATURE_NORM = 10.0  # on the angle axis, for scales that depend on it
DISTANCE = 4.0  # between the means of a Gaussian similarity


@dataclass(frozen=True)
class Axis:
    """A line through feature space along which an objective is drawn."""

    title: str  # what is fixed, above the row of panels
    label: str  # of the horizontal axes
    positions: NDArray[np.float64]
    features_and_weights: Callable[[Tensor, int], tuple[Tensor, Tensor]]  # from positions and C
    # labels of the first panel, the target's logit or the regularizers' part of the loss, and of
    # the last
    logit: str
    gradient: str
    ticks: Sequence[float] | None = None  # of the horizontal axes, None for matplotlib's choice


def _angles(theta: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return features at angle theta (degrees) to class 0, orthogonal to all others."""
    weights = torch.eye(classes, classes + 1, dtype=theta.dtype)
    features = torch.zeros(len(theta), classes + 1, dtype=theta.dtype)
    radians = theta.detach() * (math.pi / 180)
    features[:, 0], features[:, -1] = radians.cos(), radians.sin()
    return features * FEATURE_NORM, weights


def _probabilities(p: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return logits whose plain softmax is p for class 0 and equal for all others."""
    features = torch.zeros(len(p), classes, dtype=p.dtype)
    features[:, 0] = (p / (1 - p)).log() + math.log(classes - 1)
    return features, torch.eye(classes, dtype=p.dtype)


def _non_targets(q: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return three classes: q and 1 - q are the softmax over the two non-target classes."""
    zeros = torch.zeros_like(q)
    return torch.stack([zeros, q.log(), (1 - q).log()], 1), torch.eye(3, dtype=q.dtype)


def _distances(distance: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return features between the means of class 0 and class 1."""
    weights = torch.zeros(classes, classes, dtype=distance.dtype)
    weights[1:, 1:] = torch.eye(classes - 1, dtype=distance.dtype) * DISTANCE
    features = torch.zeros(len(distance), classes, dtype=distance.dtype)
    features[:, 1] = distance
    return features, weights


AXES: Mapping[str, Axis] = {
    "angle": Axis(
        "{classes} classes; features of norm 10, orthogonal to all other class weights",
        "angle to the target's class weight (degrees)",
        np.linspace(0.25, 179.75, POINTS),
        _angles,
        "target's training logit",
        "d loss / d angle (per radian)",
        (0, 45, 90, 135, 180),
    ),
    "probability": Axis(
        "{classes} classes; equal non-target logits",
        "probability p of the target (plain softmax)",
        np.linspace(0.001, 0.999, POINTS),
        _probabilities,
        "target's training logit",
        "- d loss / d target similarity",
    ),
    "non-targets": Axis(
        "3 classes: two non-target classes of probabilities q and 1 - q; target logit 0",
        "q",
        np.linspace(0.001, 0.999, POINTS),
        _non_targets,
        "strength x divergence",
        "d loss / d logit of q",
    ),
    "distance": Axis(
        "{classes} class means at distance 4; features between the target's and another",
        "distance to the target's mean",
        np.linspace(0.0, DISTANCE, POINTS),
        _distances,
        "target's training logit",
        "d loss / d distance",
    ),
}


def axis_name(spec: ObjectiveSpec) -> str:
    """Return the name of the axis in `AXES` on which an objective is drawn."""
    if spec.similarity.kind == "linear" and any(
        r.kind == "non-target-uniformity" for r in spec.regularizers
    ):
        return "non-targets"
    names = {"linear": "probability", "gaussian": "distance"}
    return names.get(spec.similarity.kind, "angle")


def compute_curves(objective: ParsedObjective, classes: int) -> dict[str, NDArray[np.float64]]:
    """Return `position`, `logit`, `loss` and `gradient` along the objective's axis.

    All are computed by the objective itself, in float64. `logit` is the target's logit with margin,
    or the regularizers' part of the loss on the axis of non-target classes. A schedule has its
    first value.
    """
    spec = objective.spec
    name = axis_name(spec)
    axis = AXES[name]
    positions = torch.as_tensor(axis.positions)
    features, weights = axis.features_and_weights(positions, classes)
    function = ObjectiveFunction(spec, len(weights))
    targets = torch.zeros(len(features), dtype=torch.long)
    state = function.init_state(weights)
    bias = torch.zeros(len(weights), dtype=weights.dtype) if function.has_bias else None
    leaf = features.clone().requires_grad_()
    loss, _ = function(leaf, weights, targets, None, state, bias=bias, training=False)
    (feature_gradient,) = torch.autograd.grad(loss.sum(), leaf)
    if name == "angle":  # along the circle of the features
        radians = positions * (math.pi / 180)
        tangent = feature_gradient[:, -1] * radians.cos() - feature_gradient[:, 0] * radians.sin()
        gradient = tangent * FEATURE_NORM
    elif name == "probability":
        gradient = -feature_gradient[:, 0]
    else:
        gradient = feature_gradient[:, 1]
    if name == "non-targets":
        plain = ObjectiveFunction(replace(spec, regularizers=()), len(weights))
        plain_state = plain.init_state(weights)
        plain_loss, _ = plain(
            features, weights, targets, None, plain_state, bias=bias, training=False
        )
        logit = loss.detach() - plain_loss
    else:
        logit = function.training_logits(features, weights, targets, state, bias)[:, 0]
    return {
        "position": axis.positions,
        "logit": logit.numpy(),
        "loss": loss.detach().numpy(),
        "gradient": gradient.numpy(),
    }


def check_plot(path: Path, classes: int) -> None:
    """Check before anything is printed that a figure can be drawn."""
    check_path("--plot", path)
    check_outputs({"--plot": path})
    if classes > MAX_CLASSES:
        raise RequestError(f"--classes {classes}: expected at most {MAX_CLASSES} with --plot")


@styled()
def draw(objectives: Sequence[ParsedObjective], classes: int, path: Path) -> None:
    """Write a figure with a row of three panels for each axis that the objectives need."""
    labels = {objective: _legend(objective, classes) for objective in objectives}
    by_axis: dict[str, list[ParsedObjective]] = {}
    for objective in labels:
        by_axis.setdefault(axis_name(objective.spec), []).append(objective)
    heights = [
        max(3.9, 0.14 * sum(1.5 + labels[member].count("\n") for member in members))
        for members in by_axis.values()
    ]
    figure = Figure(figsize=(16, sum(heights)), layout="constrained")
    panels = figure.subplots(len(by_axis), 3, squeeze=False, height_ratios=heights)
    for row, (axis, members) in zip(panels, by_axis.items(), strict=True):
        _draw_row(row, AXES[axis], members, classes, labels)
    save(figure, path)


def _gap(spec: ObjectiveSpec, classes: int) -> float | None:
    """Return ArcGrad's eq. 19 in degrees; None without a fixed scale on the angle."""
    value = dict(spec.scale.options).get("value")
    if spec.similarity.kind != "angle" or not isinstance(value, float) or value <= 0:
        return None
    return math.degrees(arcgrad_gap(value, classes))


def _legend(objective: ParsedObjective, classes: int) -> str:
    """Return the legend text of an objective, in short lines."""
    name, spec = str(objective), objective.spec
    if (gap := _gap(spec, classes)) is not None:
        name += f" (eq. 19: gap {gap:.1f} degrees)"
    if any(isinstance(value, Schedule) for _, part in spec.parts for _, value in part.options):
        name += " (first value)"
    return legend_text(name)


def _draw_row(
    panels: NDArray[np.object_],
    axis: Axis,
    objectives: Sequence[ParsedObjective],
    classes: int,
    labels: Mapping[ParsedObjective, str],
) -> None:
    quantities = {"logit": axis.logit, "loss": "loss", "gradient": axis.gradient}
    for i, objective in enumerate(objectives):
        curves = compute_curves(objective, classes)
        style = line_style(i)  # coinciding lines differ by their dashes
        for panel, quantity in zip(panels, quantities, strict=True):
            panel.plot(curves["position"], curves[quantity], label=labels[objective], **style)
        gap = _gap(objective.spec, classes)
        if gap is not None and gap <= 90:
            panels[2].axvline(90 - gap, linestyle=":", color=style["color"], linewidth=1)
    for panel, quantity in zip(panels, quantities.values(), strict=True):
        panel.set(xlabel=axis.label, ylabel=quantity)
        panel.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        if axis.ticks is not None:
            panel.set_xticks(axis.ticks)
    panels[1].set_title(axis.title.format(classes=classes), fontsize=9)
    panels[2].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
