"""The figures that are redrawn by hand: an objective's logit, loss and gradient along one axis."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from marginctl.errors import RequestError
from marginctl.objectives.functional import ObjectiveFunction
from marginctl.objectives.parsing import parse
from marginctl.objectives.schedules import Schedule
from marginctl.objectives.spec import Spec
from marginctl.objectives.theory import arcgrad_gap
from marginctl.reports.figures.style import check_path, legend_text, line, save, styled

POINTS = 721
MOST_CLASSES = 2000  # the figure holds weights for all of them
FEATURE_NORM = 10.0  # of features on an angle's axis, for scales that look at it
DISTANCE = 4.0  # between the means of a Gaussian similarity


@dataclass(frozen=True)
class Axis:
    """A line through feature space, along which the target's class gains or loses."""

    title: str  # what is held, above the row
    label: str
    positions: NDArray[np.float64]
    place: Callable[[Tensor, int], tuple[Tensor, Tensor]]  # positions, C -> features, weights
    first: str  # the quantity of the first panel
    gradient: str
    ticks: Sequence[float] | None = None


def _angles(theta: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Features at angle theta (degrees) to class 0, orthogonal to all others."""
    weights = torch.eye(classes, classes + 1, dtype=theta.dtype)
    features = torch.zeros(len(theta), classes + 1, dtype=theta.dtype)
    radians = theta.detach() * (math.pi / 180)
    features[:, 0], features[:, -1] = radians.cos(), radians.sin()
    return features * FEATURE_NORM, weights


def _probabilities(p: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Logits whose plain softmax gives p to class 0 and the same to all others."""
    features = torch.zeros(len(p), classes, dtype=p.dtype)
    features[:, 0] = (p / (1 - p)).log() + math.log(classes - 1)
    return features, torch.eye(classes, dtype=p.dtype)


def _others(q: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Three classes: q and 1 - q are the softmax over the two that are not the target."""
    zeros = torch.zeros_like(q)
    return torch.stack([zeros, q.log(), (1 - q).log()], 1), torch.eye(3, dtype=q.dtype)


def _distances(distance: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Features on the way from the mean of class 0 to that of class 1."""
    weights = torch.zeros(classes, classes, dtype=distance.dtype)
    weights[1:, 1:] = torch.eye(classes - 1, dtype=distance.dtype) * DISTANCE
    features = torch.zeros(len(distance), classes, dtype=distance.dtype)
    features[:, 1] = distance
    return features, weights


AXES: Mapping[str, Axis] = {
    "angle": Axis(
        "{classes} classes; features of norm 10, orthogonal to all weights but their own",
        "angle to the own class weight (degrees)",
        np.linspace(0.25, 179.75, POINTS),
        _angles,
        "target's logit in training",
        "d loss / d angle (per radian)",
        (0, 45, 90, 135, 180),
    ),
    "probability": Axis(
        "{classes} classes; the other logits are alike",
        "probability of the target by the plain softmax, p",
        np.linspace(0.001, 0.999, POINTS),
        _probabilities,
        "target's logit in training",
        "- d loss / d target's similarity",
    ),
    "others": Axis(
        "3 classes: two that are not the target, of probabilities q and 1 - q; its logit is 0",
        "q",
        np.linspace(0.001, 0.999, POINTS),
        _others,
        "strength x divergence",
        "d loss / d logit of q",
    ),
    "distance": Axis(
        "{classes} means at distance 4 from the own, features between it and another",
        "distance to the own mean",
        np.linspace(0.0, DISTANCE, POINTS),
        _distances,
        "target's logit in training",
        "d loss / d distance",
    ),
}


def axis_of(spec: Spec) -> str:
    """The name of the axis on which an objective shows what it does."""
    if spec.similarity.kind == "linear" and any(
        r.kind == "non-target-uniformity" for r in spec.regularizers
    ):
        return "others"
    own = {"linear": "probability", "gaussian": "distance"}
    return own.get(spec.similarity.kind, "angle")


def curves(written: str, classes: int) -> dict[str, NDArray[np.float64]]:
    """What the three panels show along the objective's axis: `first`, `loss` and `gradient`.

    All come from the objective itself, in float64. `first` is the target's logit with margin, or
    the regularisers' part of the loss where they are the axis. A schedule stands at its beginning.
    """
    spec = parse(written).spec
    name = axis_of(spec)
    axis = AXES[name]
    positions = torch.as_tensor(axis.positions)
    features, weights = axis.place(positions, classes)
    function = ObjectiveFunction(spec, len(weights))
    targets = torch.zeros(len(features), dtype=torch.long)
    state = function.init_state(weights)
    bias = torch.zeros(len(weights), dtype=weights.dtype) if function.has_bias else None
    leaf = features.clone().requires_grad_()
    loss, _ = function(leaf, weights, targets, None, state, bias=bias, training=False)
    (slope,) = torch.autograd.grad(loss.sum(), leaf)
    if name == "angle":  # along the circle of the features
        radians = positions * (math.pi / 180)
        along = slope[:, -1] * radians.cos() - slope[:, 0] * radians.sin()
        gradient = along * FEATURE_NORM
    elif name == "probability":
        gradient = -slope[:, 0]
    else:
        gradient = slope[:, 1]
    if name == "others":
        plain = ObjectiveFunction(replace(spec, regularizers=()), len(weights))
        start = plain.init_state(weights)
        without, _ = plain(features, weights, targets, None, start, bias=bias, training=False)
        first = loss.detach() - without
    else:
        first = function.training_logits(features, weights, targets, state, bias)[:, 0]
    return {
        "position": axis.positions,
        "first": first.numpy(),
        "loss": loss.detach().numpy(),
        "gradient": gradient.numpy(),
    }


@styled()
def draw(names: Sequence[str], classes: int, path: Path) -> None:
    """Writes a figure with a row of three panels for each axis that the objectives need.

    Raises:
        RequestError: an unknown objective, more than `MOST_CLASSES` classes, or a file that cannot
            be written.
    """
    check_path("--plot", path)
    if classes > MOST_CLASSES:
        raise RequestError(f"--classes {classes}: expected at most {MOST_CLASSES} with --plot")
    rows: dict[str, list[str]] = {}
    for name in dict.fromkeys(str(parse(n)) for n in names):
        rows.setdefault(axis_of(parse(name).spec), []).append(name)
    labels = {name: _legend(name, classes) for written in rows.values() for name in written}
    heights = [
        max(3.9, 0.14 * sum(1.5 + labels[name].count("\n") for name in written))
        for written in rows.values()
    ]
    figure = Figure(figsize=(16, sum(heights)), layout="constrained")
    panels = figure.subplots(len(rows), 3, squeeze=False, height_ratios=heights)
    for row, (axis, written) in zip(panels, rows.items(), strict=True):
        _row(row, AXES[axis], written, classes, labels)
    save(figure, path)


def _gap(spec: Spec, classes: int) -> float | None:
    """ArcGrad's eq. 19 in degrees; None for an objective without a fixed scale on the angle."""
    value = dict(spec.scale.options).get("value")
    if spec.similarity.kind != "angle" or not isinstance(value, float) or value <= 0:
        return None
    return math.degrees(arcgrad_gap(value, classes))


def _legend(name: str, classes: int) -> str:
    """What the legend says of an objective, in lines of a few words."""
    spec = parse(name).spec
    if (gap := _gap(spec, classes)) is not None:
        name += f" (eq. 19: gap {gap:.1f} degrees)"
    if any(isinstance(o, Schedule) for _, made in spec.parts for _, o in made.options):
        name += " (as it starts)"
    return legend_text(name)


def _row(
    panels: NDArray[np.object_],
    axis: Axis,
    written: Sequence[str],
    classes: int,
    labels: Mapping[str, str],
) -> None:
    quantities = {"first": axis.first, "loss": "loss", "gradient": axis.gradient}
    for i, name in enumerate(written):
        found = curves(name, classes)
        style = line(i)  # what coincides shows by its dashes
        for panel, quantity in zip(panels, quantities, strict=True):
            panel.plot(found["position"], found[quantity], label=labels[name], **style)
        gap = _gap(parse(name).spec, classes)
        if gap is not None and gap <= 90:
            panels[2].axvline(90 - gap, linestyle=":", color=style["color"], linewidth=1)
    for panel, quantity in zip(panels, quantities.values(), strict=True):
        _label(panel, axis, quantity)
    panels[1].set_title(axis.title.format(classes=classes), fontsize=9)
    panels[2].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)


def _label(panel: Axes, axis: Axis, quantity: str) -> None:
    panel.set_xlabel(axis.label)
    panel.set_ylabel(quantity)
    panel.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    if axis.ticks is not None:
        panel.set_xticks(axis.ticks)
