"""Angles between features and class weights, and the pull on them: ArcGrad's Fig. 1."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from marginctl.errors import RequestError
from marginctl.metrics.reliability import softmax
from marginctl.objectives.parsing import ObjectiveName
from marginctl.objectives.theory import arcgrad_gap
from marginctl.reports.figures.style import COLORS, styled
from marginctl.utils.seed import generator

if TYPE_CHECKING:
    from marginctl.experiments.uci_cv_session import Session
    from marginctl.experiments.uci_cv_trial import Trial

Array = NDArray[np.float64]


@styled()
def angles(session: "Session") -> Any:
    """Rows of panels for the objectives, columns for the settings; the first network of each.

    Every row of the data set has a point at the angle to its own class (blue) and one at that to
    every other class (orange), at a radius that is drawn at random; a line shows the way and the
    size of the gradient with respect to the angle, s (1 - p_y) and -s p_j, as a share of the
    largest.
    """
    from matplotlib.figure import Figure

    settings = list(dict.fromkeys(str(t.setting) for t in session.trials))
    columns = list(dict.fromkeys(str(t.objective) for t in session.trials))
    shape = (len(columns), len(settings))
    figure = Figure(figsize=(3.4 * shape[1], 3.0 * shape[0]), layout="constrained")
    panels = figure.subplots(*shape, squeeze=False, subplot_kw={"projection": "polar"})
    for trial in session.trials:
        i, j = columns.index(str(trial.objective)), settings.index(str(trial.setting))
        scale = fixed_scale(trial.objective)
        theta = class_angles(trial, session.networks_of(trial))
        _panel(panels[i, j], theta, trial.dataset.y, scale)
        gap = math.degrees(arcgrad_gap(scale, trial.dataset.num_classes))
        panels[i, j].set_title(
            f"{trial.objective}, {trial.setting}\ntheoretical gap {gap:.1f} degrees", fontsize=9
        )
    return figure


def fixed_scale(objective: ObjectiveName) -> float:
    """The scale of an objective on the angle.

    Raises:
        RequestError: it is on another similarity, or its scale moves.
    """
    spec = objective.spec
    value = dict(spec.scale.options).get("value")
    if spec.similarity.kind != "angle" or not isinstance(value, float):
        raise RequestError(
            f"--figure: {objective} is not on the angle with a fixed scale: expected "
            "objectives such as arcgrad:scale=40"
        )
    return value


def class_angles(trial: "Trial", networks: Path) -> Array:
    """(n, C): angles in radians of every row's feature to the class weights of network 0."""
    with np.load(networks) as stored:
        own = {name: stored[name][0].astype(np.float64) for name in stored.files}
    x = (trial.dataset.x - own["input_shift"]) * own["input_factor"]
    layers = len(trial.protocol.hidden)
    for i in range(layers):
        x = x @ own[f"weight{i}"] + own[f"bias{i}"]
        if i < layers - 1 or not trial.protocol.linear_last_hidden:
            x = np.maximum(x, 0)
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    weight = own["class_weight"]
    weight = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    cosines = x / np.where(lengths == 0, 1, lengths) @ weight.T
    return np.asarray(np.arccos(np.clip(cosines, -1, 1)))


def _panel(axes: Any, theta: Array, y: NDArray[np.int64], scale: float) -> None:
    p = softmax(-scale * theta)
    own = np.eye(theta.shape[1], dtype=bool)[y]
    gradient = scale * (own - p)  # of the loss, with respect to each angle
    radius = generator(0, "figure", "radius").uniform(1, 3, theta.shape)
    longest = max(float(np.abs(gradient).max()), 1e-12)
    for kind, color in ((own, COLORS[2]), (~own, COLORS[1])):
        at, r, pull = theta[kind], radius[kind], -gradient[kind] / longest
        axes.plot(
            np.stack([at, at + 0.35 * pull]), np.stack([r, r]), color=color, lw=0.5, alpha=0.5
        )
        axes.plot(at, r, ".", color=color, markersize=2.5)
    axes.set_thetamin(0)
    axes.set_thetamax(180)
    axes.set_rmax(3.3)
    axes.set_rticks([])
