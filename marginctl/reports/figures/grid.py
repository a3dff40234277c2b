"""What a grid of settings shows: accuracy along it, or the angles of the networks at each."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marginctl import recipe as recipes
from marginctl.errors import RequestError
from marginctl.objectives.parsing import parse
from marginctl.reports.figures.network_angles import angles, fixed_scale
from marginctl.reports.figures.style import check_path, line, save, styled
from marginctl.results.cv_cells import Grid
from marginctl.runs.run_dir import NETWORKS

if TYPE_CHECKING:
    from marginctl.experiments.uci_cv_session import Session

PANEL = (5.0, 3.6)  # inches


def check(
    path: Path, recipe: str, overrides: Iterable[str], objectives: Sequence[str] | None
) -> list[str]:
    """Refuses what cannot be drawn, before anything is trained.

    Args:
        objectives: in place of the recipe's.

    Returns:
        What the trials must keep for the figure.

    Raises:
        RequestError: a bad path, a recipe whose grid is not along one key, or angles of an
            objective that has none.
    """
    check_path("--figure", path)
    asked = recipes.load(recipes.find(recipe), overrides)
    if len(asked.grid) != 1:
        raise RequestError(
            f"--figure: the recipe's grid has {len(asked.grid)} keys: expected one, along which it "
            "is drawn, such as grid: {hidden: [[10], [10, 10]]} (report --figure draws ranks)"
        )
    if asked.figure == "accuracy":
        return []
    if asked.protocol.batch_norm != "none" or "batch_norm" in asked.grid:
        raise RequestError("--figure: angles of networks with batch normalisation are not drawn")
    if len(asked.dataset_names) > 1 or len(asked.seeds) > 1:
        raise RequestError("--figure: angles are drawn for one data set and one seed")
    for objective in objectives or asked.objectives:
        fixed_scale(parse(objective))
    return [NETWORKS]


@styled()
def draw(session: "Session", grid: Grid, path: Path) -> None:
    """Draws the figure of a recipe with a grid along one key.

    Raises:
        RequestError: the file cannot be written.
    """
    figure = angles(session) if session.recipe.figure == "angles" else _accuracy(grid)
    save(figure, path)


def _accuracy(grid: Grid) -> Any:
    """A panel for each data set: accuracy along the grid, a line for each objective."""
    from matplotlib.figure import Figure

    datasets = list(dict.fromkeys(dataset for dataset, _ in grid.settings.values()))
    figure = Figure(figsize=(PANEL[0] * len(datasets), PANEL[1]), layout="constrained")
    every = figure.subplots(1, len(datasets), squeeze=False)[0]
    for axes, dataset in zip(every, datasets, strict=True):
        rows = {row: s for row, (of, s) in grid.settings.items() if of == dataset}
        key, ticks = _ticks([next(iter(s.items())) for s in rows.values()])
        for i, objective in enumerate(grid.objectives):
            means = [grid.cells[row, objective].mean for row in rows]
            axes.plot(ticks, means, label=objective, **line(i, len(means)))
        n = sorted({grid.cells[row, o].n for row in rows for o in grid.objectives})
        shown = " to ".join(map(str, dict.fromkeys((n[0], n[-1]))))
        axes.set_title(f"{dataset}, n = {shown} folds")
        axes.set_xlabel(key)
        axes.set_ylabel("accuracy (%)")
    every[-1].legend()
    return figure


def _ticks(settings: list[tuple[str, Any]]) -> tuple[str, list[Any]]:
    """A name for the axis, and the settings' places on it: numbers where they are numbers."""
    key, values = settings[0][0], [value for _, value in settings]
    if key == "hidden":
        return "hidden layers", [len(value) for value in values]
    return key, values if all(isinstance(v, int | float) for v in values) else [*map(str, values)]
