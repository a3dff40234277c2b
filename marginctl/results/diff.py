"""Differences between two runs folders, cell by cell."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marginctl.experiments.records import CVResult
from marginctl.results.collect import Collected, Run, collect
from marginctl.results.statistics import mean_interval
from marginctl.runs.run_dir import digest
from marginctl.utils.text import format_setting, printable

# The task, a digest of the training settings, the row and the objective.
Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class DiffCell:
    """One cell of both folders over the seeds that both have, or of one folder.

    Attributes:
        task, recipe, row, objective: the cell; the row of a cross-validation is a data set.
        seeds: that are compared, or that only the one folder has.
        a, b: the numbers of each folder in percent, one for each fold or seed; None without runs.
        identical: whether all measurements are bit-identical; None for a single folder.
        low, high: the 95 % interval of the mean difference over folds or seeds, None if there is
            none.
        note: the other differences between the runs.
    """

    task: str
    recipe: str
    row: str
    objective: str
    seeds: tuple[int, ...]
    a: tuple[float, ...] | None
    b: tuple[float, ...] | None
    identical: bool | None
    low: float | None = None
    high: float | None = None
    note: str | None = None

    @property
    def difference(self) -> float | None:
        """Return the mean of B minus the mean of A, in percentage points."""
        return statistics.fmean(self.b) - statistics.fmean(self.a) if self.a and self.b else None

    def as_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "recipe": self.recipe,
            "row": self.row,
            "objective": self.objective,
            "seeds": list(self.seeds),
            "a": _as_json(self.a),
            "b": _as_json(self.b),
            "difference": self.difference,
            "interval": None if self.low is None else [self.low, self.high],
            "identical": self.identical,
            "note": self.note,
        }


@dataclass
class Diff:
    """The differences between two runs folders.

    Attributes:
        cells: of both folders, in order.
        only_a, only_b: of one folder.
        protocols: a line for each setting in which recipes of one name differ.
        problems: a line for each skipped run.
    """

    cells: list[DiffCell] = field(default_factory=list)
    only_a: list[DiffCell] = field(default_factory=list)
    only_b: list[DiffCell] = field(default_factory=list)
    protocols: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the document of `report --diff --format json`."""
        return {
            "schema": 1,
            "command": "report",
            "diff": {
                "cells": [cell.as_json() for cell in self.cells],
                "only_a": [cell.as_json() for cell in self.only_a],
                "only_b": [cell.as_json() for cell in self.only_b],
                "protocols": self.protocols,
            },
            "problems": self.problems,
        }


@dataclass
class _Cell:
    recipe: str
    runs: dict[int, Run] = field(default_factory=dict)  # by seed


def compare_folders(a: Path, b: Path) -> Diff:
    """Compare two runs folders; cells match by task, training settings, row, objective and seed.

    The recipe's name does not matter: the same training under another name is the same cell.

    Raises:
        RequestError: a folder does not exist.
    """
    collected = collect([a]), collect([b])
    cells_a, cells_b = map(_cells, collected)
    problems = [problem for one in collected for problem in one.problems]
    diff = Diff(protocols=_protocol_differences(*collected), problems=problems)
    recipes = {key: cell.recipe for key, cell in (*cells_b.items(), *cells_a.items())}
    for key in sorted(recipes, key=lambda k: (recipes[k], k)):
        one = cells_a.get(key, _Cell(recipes[key]))
        other = cells_b.get(key, _Cell(recipes[key]))
        if seeds := sorted(one.runs.keys() & other.runs.keys()):
            diff.cells.append(_compare_cells(key, one, other, seeds))
        if seeds := sorted(one.runs.keys() - other.runs.keys()):
            diff.only_a.append(_single_cell(key, one, seeds, a=_numbers(one, seeds)))
        if seeds := sorted(other.runs.keys() - one.runs.keys()):
            diff.only_b.append(_single_cell(key, other, seeds, b=_numbers(other, seeds)))
    return diff


def _single_cell(
    key: Key,
    cell: _Cell,
    seeds: Sequence[int],
    a: tuple[float, ...] | None = None,
    b: tuple[float, ...] | None = None,
) -> DiffCell:
    task, _, row, objective = key
    return DiffCell(task, cell.recipe, row, objective, tuple(seeds), a, b, None)


def _cells(collected: Collected) -> dict[Key, _Cell]:
    """Return the cells of a folder. A trial is in one of them, whatever recipes it belongs to."""
    cells: dict[Key, _Cell] = {}
    for table in collected.cv_runs:
        settings = digest([table.protocol, table.tuning])
        for (row, objective, seed), run in table.runs.items():
            key = ("uci-cv", settings, row, objective)
            cells.setdefault(key, _Cell(table.recipe)).runs[seed] = run
    for trained in collected.training_runs:
        for (row, objective, seed), run in trained.runs.items():
            key = ("train", trained.key, row, objective)
            cells.setdefault(key, _Cell(trained.recipe)).runs[seed] = run
    return cells


def _compare_cells(key: Key, a: _Cell, b: _Cell, seeds: Sequence[int]) -> DiffCell:
    task, _, row, objective = key
    numbers_a, numbers_b = _numbers(a, seeds), _numbers(b, seeds)
    identical = all(_measurements(a.runs[s]) == _measurements(b.runs[s]) for s in seeds)
    low = high = None
    if len(numbers_a) == len(numbers_b) and not identical:  # paired by fold, or by seed
        differences = [y - x for x, y in zip(numbers_a, numbers_b, strict=True)]
        low, high = mean_interval(differences) or (None, None)
    return DiffCell(
        task,
        a.recipe,
        row,
        objective,
        tuple(seeds),
        numbers_a,
        numbers_b,
        identical,
        low,
        high,
        _note(a, b, seeds),
    )


def _numbers(cell: _Cell, seeds: Iterable[int]) -> tuple[float, ...]:
    """Return fold accuracies, or test accuracies after the last epoch; none if it diverged."""
    numbers: list[float] = []
    for result in (cell.runs[seed].result for seed in seeds):
        if isinstance(result, CVResult):
            numbers += [accuracy for repeat in result.accuracies for accuracy in repeat]
        elif result.last is not None and not result.diverged:
            numbers.append(result.last.top1)
    return tuple(numbers)


def _measurements(run: Run) -> Any:
    """Return what a run measured on its test data, and whether it diverged."""
    keys = {"accuracies", "tested", "diverged", "collapsed", "last", "best"}
    return run.result.model_dump(include=keys)


def _note(a: _Cell, b: _Cell, seeds: Sequence[int]) -> str | None:
    """Return the other differences: data, numerics, device, versions and the recipe's name."""
    notes = [] if _values(a, seeds, "data") == _values(b, seeds, "data") else ["other data"]
    pairs = {k: (_values(a, seeds, k), _values(b, seeds, k)) for k in ("numerics", "device")}
    for package in ("marginctl", "torch", "numpy"):
        pairs[package] = _versions(a, seeds, package), _versions(b, seeds, package)
    pairs["recipe"] = (a.recipe, b.recipe)
    notes += [f"{key} {one} | {other}" for key, (one, other) in pairs.items() if one != other]
    return "; ".join(notes) or None


def _values(cell: _Cell, seeds: Iterable[int], key: str) -> str:
    return "/".join(sorted({str(getattr(cell.runs[s].info, key, None)) for s in seeds}))


def _versions(cell: _Cell, seeds: Iterable[int], package: str) -> str:
    return "/".join(sorted({str(cell.runs[s].result.versions.get(package)) for s in seeds}))


def _protocol_differences(a: Collected, b: Collected) -> list[str]:
    """Return a line for each setting that differs between recipes of one name in A and in B."""
    settings_a, settings_b = _settings(a), _settings(b)
    lines = []
    for name in sorted(settings_a.keys() & settings_b.keys()):
        one, other = settings_a[name], settings_b[name]
        if any(settings in other for settings in one):
            continue
        for key in dict.fromkeys(key for settings in one + other for key in settings):
            values_a, values_b = (
                sorted({printable(format_setting(s.get(key))) for s in side})
                for side in (one, other)
            )
            if values_a != values_b:
                lines.append(
                    f"{name[1]}: {key} = {' or '.join(values_a)} in A, {' or '.join(values_b)} in B"
                )
    return lines


def _settings(collected: Collected) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the settings of each recipe by task and name."""
    by_recipe: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for table in collected.cv_runs:
        by_recipe.setdefault(("uci-cv", table.recipe), []).append(
            {f"protocol.{k}": v for k, v in table.protocol.items()} | {"tuning": table.tuning}
        )
    for trained in collected.training_runs:
        flat = {f"{s}.{k}": v for s, values in trained.training.items() for k, v in values.items()}
        if trained.source_model is not None:
            flat["source_model"] = trained.source_model.weights_sha256
        by_recipe.setdefault(("train", trained.recipe), []).append(flat)
    return by_recipe


def _as_json(numbers: tuple[float, ...] | None) -> dict[str, Any] | None:
    if numbers is None:
        return None
    return {
        "mean": statistics.fmean(numbers) if numbers else None,
        "std": statistics.stdev(numbers) if len(numbers) > 1 else None,
        "n": len(numbers),
    }
