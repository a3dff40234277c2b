"""Figures of a uci-cv recipe with a grid: accuracy along it, or the angles of its networks."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from marginctl.crossval.preprocessing import expand
from marginctl.errors import RequestError
from marginctl.metrics.scoring_rules import softmax
from marginctl.objectives.parsing import ParsedObjective
from marginctl.objectives.theory import arcgrad_gap
from marginctl.recipe.load import find_recipe, load_recipe
from marginctl.recipe.uci_cv import UciCvRecipe
from marginctl.reports.figures.style import COLORS, check_path, line_style, save, styled
from marginctl.reports.figures.sweeps import DODGE, move_aside
from marginctl.reports.tables.table import number_range
from marginctl.results.cv_cells import Grid
from marginctl.runs.run_dir import NETWORKS
from marginctl.utils.seed import generator

if TYPE_CHECKING:
    from marginctl.experiments.uci_cv_session import UciCvSession
    from marginctl.experiments.uci_cv_trial import CVTrial

PANEL = (5.0, 3.6)  # inches
ANGLE_PANEL = (3.4, 2.4)  # inches

Array = NDArray[np.float64]


def check_figure(path: Path, recipe: str, overrides: Iterable[str]) -> list[str]:
    """Return what the trials of a recipe have to keep for `--figure`.

    Raises:
        RequestError: a bad path, or a recipe whose grid has not one key.
    """
    check_path("--figure", path)
    loaded = load_recipe(find_recipe(recipe), UciCvRecipe, overrides)
    if len(loaded.grid) != 1:
        raise RequestError(
            f"--figure: the recipe's grid has {len(loaded.grid)} keys: expected one, along which "
            "it is drawn, such as grid: {hidden: [[10], [10, 10]]} (report --figure draws ranks)"
        )
    if loaded.figure == "accuracy":
        return []
    if loaded.protocol.batch_norm != "none" or "batch_norm" in loaded.grid:
        raise RequestError("--figure: angles of networks with batch normalisation are not drawn")
    if len(loaded.dataset_names) > 1 or len(loaded.seeds) > 1:
        raise RequestError("--figure: angles are drawn for one data set and one seed")
    return [NETWORKS]


def check_objectives(session: "UciCvSession") -> None:
    """Check before training that the objectives have the angles that the recipe's figure shows."""
    for objective in session.recipe.objectives if session.recipe.figure == "angles" else ():
        fixed_scale(objective)


@styled()
def draw(session: "UciCvSession", grid: Grid, path: Path) -> None:
    """Write the figure of a recipe whose grid has one key.

    Raises:
        RequestError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    if session.recipe.figure == "angles":
        _draw_all_angles(figure, session)
    else:
        _draw_accuracy(figure, grid)
    save(figure, path)


def _draw_accuracy(figure: Any, grid: Grid) -> None:
    """Draw a panel per data set: accuracy along the grid, a line per objective."""
    figure.set_label("Mean and standard deviation of the test accuracy over the folds")
    datasets = list(dict.fromkeys(dataset for dataset, _ in grid.settings.values()))
    figure.set_size_inches(PANEL[0] * len(datasets), PANEL[1])
    panels = figure.subplots(1, len(datasets), squeeze=False)[0]
    for axes, dataset in zip(panels, datasets, strict=True):
        rows = {row: setting for row, (name, setting) in grid.settings.items() if name == dataset}
        key, ticks = _ticks([next(iter(s.items())) for s in rows.values()])
        for i, objective in enumerate(grid.objectives):
            cells = [grid.cells[row, objective] for row in rows]
            means, stds = [cell.mean for cell in cells], [cell.std for cell in cells]
            style = line_style(i, len(means))
            drawn = axes.errorbar(ticks, means, stds, label=objective, elinewidth=0.8, **style)
            move_aside(axes, drawn.get_children(), DODGE * (i - (len(grid.objectives) - 1) / 2))
        n = number_range(grid.cells[row, o].n for row in rows for o in grid.objectives)
        axes.set_title(f"{dataset}, n = {n} folds")
        axes.set_xlabel(key)
        axes.set_ylabel("accuracy (%)")
    panels[-1].legend()


def _ticks(settings: list[tuple[str, Any]]) -> tuple[str, list[Any]]:
    """Return the axis label and the positions of the settings: numbers where they are numbers."""
    key, values = settings[0][0], [value for _, value in settings]
    if key == "hidden":
        return "hidden layers", [len(value) for value in values]
    return key, values if all(isinstance(v, int | float) for v in values) else [*map(str, values)]


def _draw_all_angles(figure: Any, session: "UciCvSession") -> None:
    """Draw ArcGrad's Fig. 1 of the first network of each objective (rows) and setting (columns).

    Each sample has a point at its angle to the target's class weight (blue) and one at the angle to
    every other class weight (orange), at a random radius; a line shows direction and size of the
    gradient with respect to the angle, s (1 - p_y) and -s p_j, relative to the largest.
    """
    settings = list(dict.fromkeys(str(trial.setting) for trial in session.trials))
    objectives = list(dict.fromkeys(str(trial.objective) for trial in session.trials))
    shape = (len(objectives), len(settings))
    figure.set_size_inches(ANGLE_PANEL[0] * shape[1], ANGLE_PANEL[1] * shape[0])
    panels = figure.subplots(*shape, squeeze=False, subplot_kw={"projection": "polar"})
    for trial in session.trials:
        panel = panels[objectives.index(str(trial.objective)), settings.index(str(trial.setting))]
        assert isinstance(trial.objective, ParsedObjective)
        scale = fixed_scale(trial.objective)
        theta = class_angles(trial, session.run_dir(trial).path / NETWORKS)
        _draw_angles(panel, theta, trial.dataset.y, scale)
        gap = math.degrees(arcgrad_gap(scale, trial.dataset.num_classes))
        panel.set_title(
            f"{trial.objective}, {trial.setting}\ntheoretical gap {gap:.1f} degrees", fontsize=9
        )
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=2,
        markerscale=4,
        frameon=False,
        title="angle of a sample's feature to",
    )


def fixed_scale(objective: ParsedObjective) -> float:
    """Return the scale of an objective on the angle.

    Raises:
        RequestError: another similarity, or a scale that changes.
    """
    spec = objective.spec
    value = dict(spec.scale.options).get("value")
    if spec.similarity.kind != "angle" or not isinstance(value, float):
        raise RequestError(
            f"--figure: {objective} is not on the angle with a fixed scale: expected "
            "objectives such as arcgrad:scale=40"
        )
    return value


def class_angles(trial: "CVTrial", networks: Path) -> Array:
    """Return (n, C) angles in radians of the features to the class weights of network 0."""
    with np.load(networks) as stored:
        arrays = {name: stored[name][0].astype(np.float64) for name in stored.files}
    x = (expand(trial.dataset) - arrays["input_shift"]) * arrays["input_factor"]
    x = np.where(np.isnan(x), arrays.get("input_fill", 0), x)
    layers = len(trial.protocol.hidden)
    for i in range(layers):
        x = x @ arrays[f"weight{i}"] + arrays[f"bias{i}"]
        if i < layers - 1 or not trial.protocol.linear_last_hidden:
            x = np.maximum(x, 0)
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    weight = arrays["class_weight"]
    weight = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    cosines = x / np.where(lengths == 0, 1, lengths) @ weight.T
    return np.asarray(np.arccos(np.clip(cosines, -1, 1)))


def _draw_angles(axes: Any, theta: Array, y: NDArray[np.int64], scale: float) -> None:
    p = softmax(-scale * theta)
    is_target = np.eye(theta.shape[1], dtype=bool)[y]
    gradient = scale * (is_target - p)  # of the loss, with respect to each angle
    radius = generator(0, "figure", "radius").uniform(1, 3, theta.shape)
    longest = max(float(np.abs(gradient).max()), 1e-12)
    kinds = {"target's class weight": (is_target, COLORS[2]), "others": (~is_target, COLORS[1])}
    for label, (mask, color) in kinds.items():
        angle, r, pull = theta[mask], radius[mask], -gradient[mask] / longest
        axes.plot(
            np.stack([angle, angle + 0.35 * pull]), np.stack([r, r]), color=color, lw=0.5, alpha=0.5
        )
        axes.plot(angle, r, ".", color=color, markersize=2.5, label=label)
    axes.set_thetamin(0)
    axes.set_thetamax(180)
    axes.set_rmax(3.3)
    axes.set_rticks([])
