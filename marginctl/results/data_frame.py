"""The results of runs as a pandas DataFrame."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from marginctl.experiments.records import CVResult
from marginctl.metrics.registry import metrics_in
from marginctl.results.collect import Run, load_runs

COLUMNS = ("recipe", "row", "objective", "seed", "repeat", "fold", "metric", "value", "run")


def load_results(*folders: str | Path) -> pd.DataFrame:
    """Return all finished runs below some folders, a row for each metric of a network.

    Columns: `recipe`; `row` of its table, for a cross-validation the data set; `objective`; `seed`;
    `repeat` and `fold` of a cross-validation, else missing; `metric`, by the names of JSON;
    `value`, accuracies in percent; `run`, the run directory. A run that cannot be read gives a
    warning.

    Raises:
        RequestError: a folder does not exist.
    """
    problems: list[str] = []
    rows = [row for run in load_runs(map(Path, folders), problems) for row in _rows(run)]
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"repeat": "Int64", "fold": "Int64", "value": "float64"})


def _rows(run: Run) -> Iterator[tuple[Any, ...]]:
    result = run.result
    if isinstance(result, CVResult):
        key = (run.recipe_name, result.dataset, result.objective, result.seed)
        metrics: dict[str, Sequence[Sequence[float | None]]]
        metrics = {"accuracy": result.accuracies, **result.metrics}
        for name, values in metrics.items():
            for repeat, folds in enumerate(values):
                for fold, value in enumerate(folds):
                    yield (*key, repeat, fold, name, value, str(run.path))
    else:
        key = (run.recipe_name, result.row, result.objective, result.seed)
        for name, metric in metrics_in([result]).items():
            yield (*key, None, None, name, metric.value(result), str(run.path))
