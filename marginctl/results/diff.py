"""Differences between two runs folders, cell by cell."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from marginctl.experiments.records import CVResult
from marginctl.results.collect import Collected, Run, collect
from marginctl.results.compare import attributes
from marginctl.results.statistics import Interval, mean_and_std, mean_interval
from marginctl.runs.run_dir import digest
from marginctl.utils.text import format_setting, printable

Key = tuple[str, str, str, str]  # task, digest of the training settings, row, objective
Runs = Mapping[int, Run]  # of a cell, by seed


@dataclass(frozen=True)
class DiffCell:
    """One cell of both folders over the seeds that both have, or of one folder."""

    task: str
    recipe: str
    row: str  # of a cross-validation a data set
    objective: str
    seeds: tuple[int, ...]  # that are compared, or that only the one folder has
    # the numbers of each folder in percent, one for each fold or seed; None without runs
    a: tuple[float, ...] | None
    b: tuple[float, ...] | None
    # whether all measurements are bit-identical; None for a single folder
    identical: bool | None = None
    # the 95 % interval of the mean difference over folds or seeds, None if there is none
    interval: Interval | None = None
    note: str | None = None  # the other differences between the runs

    @property
    def difference(self) -> float | None:
        """Return the mean of B minus the mean of A, in percentage points."""
        return statistics.fmean(self.b) - statistics.fmean(self.a) if self.a and self.b else None

    def as_json(self) -> dict[str, Any]:
        return {
            **attributes(self, "task", "recipe", "row", "objective"),
            "seeds": list(self.seeds),
            "a": _as_json(self.a),
            "b": _as_json(self.b),
            "difference": self.difference,
            **attributes(self, "interval", "identical", "note"),
        }


@dataclass
class Diff:
    """The differences between two runs folders; `protocols` of recipes of one name, a line each."""

    protocols: list[str]
    problems: list[str]
    cells: list[DiffCell] = field(default_factory=list)
    only_a: list[DiffCell] = field(default_factory=list)
    only_b: list[DiffCell] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the document of `report --diff --format json`."""
        parts = {"cells": self.cells, "only_a": self.only_a, "only_b": self.only_b}
        diff: dict[str, Any] = {k: [cell.as_json() for cell in part] for k, part in parts.items()}
        diff["protocols"] = self.protocols
        return {"schema": 1, "command": "report", "diff": diff, "problems": self.problems}


def compare_folders(a: Path, b: Path) -> Diff:
    """Compare two runs folders; cells match by task, training settings, row, objective and seed.

    The recipe's name does not matter: the same training under another name is the same cell.

    Raises:
        RequestError: a folder does not exist.
    """
    collected = collect([a]), collect([b])
    cells_a, cells_b = map(_cells, collected)
    problems = [problem for one in collected for problem in one.problems]
    diff = Diff(_protocol_differences(*collected), problems)
    recipes = {key: _recipe(runs) for key, runs in (*cells_b.items(), *cells_a.items())}
    for key in sorted(recipes, key=lambda k: (recipes[k], k)):
        in_a, in_b = cells_a.get(key, {}), cells_b.get(key, {})
        for cells, seeds in (
            (diff.cells, in_a.keys() & in_b.keys()),
            (diff.only_a, in_a.keys() - in_b.keys()),
            (diff.only_b, in_b.keys() - in_a.keys()),
        ):
            if seeds:
                sides = ({s: side[s] for s in sorted(seeds & side.keys())} for side in (in_a, in_b))
                cells.append(_diff_cell(key, *sides))
    return diff


def _cells(collected: Collected) -> dict[Key, dict[int, Run]]:
    """Return the runs of each cell. A trial is in one of them, whatever recipes it belongs to."""
    cells: dict[Key, dict[int, Run]] = {}
    for table in collected.tables:
        settings = digest(table.settings)
        for (row, objective, seed), run in table.runs.items():
            cells.setdefault((table.task, settings, row, objective), {})[seed] = run
    return cells


def _diff_cell(key: Key, a: Runs, b: Runs) -> DiffCell:
    """Return the cell of the runs of the same seeds; one folder may have none."""
    task, _, row, objective = key
    ours, theirs = (_numbers(runs) if runs else None for runs in (a, b))
    cell = DiffCell(task, _recipe(a or b), row, objective, tuple(a or b), ours, theirs)
    if cell.a is None or cell.b is None:
        return cell
    identical = [_measurements(r) for r in a.values()] == [_measurements(r) for r in b.values()]
    interval = None
    if len(cell.a) == len(cell.b) and not identical:  # paired by fold, or by seed
        differences = [y - x for x, y in zip(cell.a, cell.b, strict=True)]
        interval = mean_interval(differences)
    return replace(cell, identical=identical, interval=interval, note=_note(a, b))


def _recipe(runs: Runs) -> str:
    return next(iter(runs.values())).recipe_name


def _numbers(runs: Runs) -> tuple[float, ...]:
    """Return fold accuracies, or test accuracies after the last epoch; none if it diverged."""
    numbers: list[float] = []
    for result in (run.result for run in runs.values()):
        if isinstance(result, CVResult):
            numbers += [accuracy for repeat in result.accuracies for accuracy in repeat]
        elif result.last is not None and not result.diverged:
            numbers.append(result.last.top1)
    return tuple(numbers)


def _measurements(run: Run) -> Any:
    """Return what a run measured on its test data, and whether it diverged."""
    keys = {"accuracies", "tested", "diverged", "collapsed", "last", "best"}
    return run.result.model_dump(include=keys)


def _note(a: Runs, b: Runs) -> str | None:
    """Return the other differences: data, numerics, device, versions and the recipe's name."""

    def values(runs: Runs) -> dict[str, str]:
        by_run = [
            {key: getattr(run.info, key, None) for key in ("data", "numerics", "device")}
            | {name: run.result.versions.get(name) for name in ("marginctl", "torch", "numpy")}
            for run in runs.values()
        ]
        joined = {key: "/".join(sorted({str(one[key]) for one in by_run})) for key in by_run[0]}
        return joined | {"recipe": _recipe(runs)}

    ours, theirs = values(a), values(b)
    notes = [
        "other data" if key == "data" else f"{key} {ours[key]} | {theirs[key]}"
        for key in ours
        if ours[key] != theirs[key]
    ]
    return "; ".join(notes) or None


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
    for table in collected.tables:
        by_recipe.setdefault((table.task, table.recipe), []).append(table.settings)
    return by_recipe


def _as_json(numbers: Sequence[float] | None) -> dict[str, Any] | None:
    return None if numbers is None else mean_and_std(numbers)._asdict() | {"n": len(numbers)}
