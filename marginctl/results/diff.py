"""Two run stores side by side, cell by cell: what changed, and by how much."""

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

# The task, the way of training, the row or data set, and the objective.
Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class DiffCell:
    """One cell in both stores, over the seeds that both have; or in one of them.

    Attributes:
        task, recipe, row, objective: what it is of; row is a data set of a cross-validation.
        seeds: that are compared, or that the one store has.
        a, b: the numbers in percent, one a fold or seed, of each store; None where it has no run.
        identical: whether all that was measured is equal to the last bit; None where one is alone.
        low, high: 95 % interval of the mean difference, fold by fold or seed by seed; None where
            there is none.
        note: what else differs between the runs.
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
        """The mean of B less that of A, in points."""
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
    """What two stores have in common and what not.

    Attributes:
        cells: in both, in order.
        only_a, only_b: in one of them.
        protocols: a line for each setting in which recipes of one name differ.
        problems: a line for each run that is left out.
    """

    cells: list[DiffCell] = field(default_factory=list)
    only_a: list[DiffCell] = field(default_factory=list)
    only_b: list[DiffCell] = field(default_factory=list)
    protocols: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The document of `report --diff --format json`."""
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
    runs: dict[int, Run] = field(default_factory=dict)  # by the seed


def compare_stores(a: Path, b: Path) -> Diff:
    """Compares two run stores; cells match by task, way of training, row, objective and seed.

    The recipe's name is no part of it: the same training under another name is the same cell.

    Raises:
        RequestError: a store that is not there.
    """
    collected = collect([a]), collect([b])
    ours, theirs = (_cells_of(one) for one in collected)
    diff = Diff(
        protocols=_protocols(*collected), problems=[p for one in collected for p in one.problems]
    )
    named = {key: cell.recipe for key, cell in (*theirs.items(), *ours.items())}
    for key in sorted(named, key=lambda k: (named[k], k)):
        one, other = ours.get(key), theirs.get(key)
        seeds = sorted(one.runs.keys() & other.runs.keys()) if one and other else []
        if one and other and seeds:
            diff.cells.append(_compared(key, one, other, seeds))
        for alone, of, rest in ((one, diff.only_a, other), (other, diff.only_b, one)):
            left = sorted(alone.runs.keys() - (rest.runs.keys() if rest else ())) if alone else []
            if alone and left:
                numbers = _numbers(alone, left)
                first = alone is one
                of.append(
                    DiffCell(
                        *(key[0], alone.recipe, key[2], key[3], tuple(left)),
                        *(numbers if first else None, None if first else numbers, None),
                    )
                )
    return diff


def _cells_of(collected: Collected) -> dict[Key, _Cell]:
    """The cells of a store. A trial stands in one of them, whatever recipes it belongs to."""
    found: dict[Key, _Cell] = {}
    for table in collected.tables:
        for (row, objective, seed), run in table.runs.items():
            way = digest([table.protocol, table.tuning])
            key = ("uci-cv", way, row, objective)
            found.setdefault(key, _Cell(table.recipe)).runs[seed] = run
    for trained in collected.trained:
        way = trained.key
        for (row, objective, seed), run in trained.runs.items():
            key = ("train", way, row, objective)
            found.setdefault(key, _Cell(trained.recipe)).runs[seed] = run
    return found


def _compared(key: Key, a: _Cell, b: _Cell, seeds: Sequence[int]) -> DiffCell:
    ours, theirs = _numbers(a, seeds), _numbers(b, seeds)
    identical = all(_measured(a.runs[s]) == _measured(b.runs[s]) for s in seeds)
    low = high = None
    if len(ours) == len(theirs) and not identical:  # paired by fold, or by seed
        differences = [b - a for a, b in zip(ours, theirs, strict=True)]
        low, high = mean_interval(differences) or (None, None)
    return DiffCell(
        *(key[0], a.recipe, key[2], key[3], tuple(seeds), ours, theirs, identical, low, high),
        note=_note(a, b, seeds),
    )


def _numbers(cell: _Cell, seeds: Iterable[int]) -> tuple[float, ...]:
    """Fold accuracies, or test accuracies after the last epoch; a diverged network has none."""
    found: list[float] = []
    for result in (cell.runs[seed].result for seed in seeds):
        if isinstance(result, CVResult):
            found += [accuracy for repeat in result.accuracies for accuracy in repeat]
        elif result.last is not None and not result.diverged:
            found.append(result.last.top1)
    return tuple(found)


def _measured(run: Run) -> Any:
    """What a run measured on its test data, and whether it diverged."""
    keys = {"accuracies", "tested", "diverged", "collapsed", "last", "best"}
    return run.result.model_dump(include=keys)


def _note(a: _Cell, b: _Cell, seeds: Sequence[int]) -> str | None:
    """What else is not the same: data, numerics, versions, and the recipe's name."""

    def of(cell: _Cell, key: str) -> str:
        found = {str(getattr(cell.runs[s].info, key)) for s in seeds}
        return "/".join(sorted(found))

    def version(cell: _Cell, package: str) -> str:
        found = {str(cell.runs[s].result.versions.get(package)) for s in seeds}
        return "/".join(sorted(found))

    said = [] if of(a, "data") == of(b, "data") else ["other data"]
    pairs = {key: (of(a, key), of(b, key)) for key in ("numerics", "device")}
    pairs |= {p: (version(a, p), version(b, p)) for p in ("marginctl", "torch", "numpy")}
    pairs["recipe"] = (a.recipe, b.recipe)
    said += [f"{key} {ours} | {theirs}" for key, (ours, theirs) in pairs.items() if ours != theirs]
    return "; ".join(said) or None


def _protocols(a: Collected, b: Collected) -> list[str]:
    """How recipes of one name train in another way: a line a setting that no way shares."""
    ours, theirs = _ways(a), _ways(b)
    lines = []
    for name in sorted(ours.keys() & theirs.keys()):
        if any(way in theirs[name] for way in ours[name]):
            continue
        keys = dict.fromkeys(k for way in ours[name] + theirs[name] for k in way)
        for key in keys:
            one, other = (
                sorted({printable(format_setting(way.get(key))) for way in ways[name]})
                for ways in (ours, theirs)
            )
            if one != other:
                lines.append(
                    f"{name[1]}: {key} = {' or '.join(one)} in A, {' or '.join(other)} in B"
                )
    return lines


def _ways(collected: Collected) -> dict[tuple[str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for table in collected.tables:
        found.setdefault(("uci-cv", table.recipe), []).append(
            {f"protocol.{k}": v for k, v in table.protocol.items()} | {"tuning": table.tuning}
        )
    for trained in collected.trained:
        flat = {f"{s}.{k}": v for s, values in trained.training.items() for k, v in values.items()}
        if trained.source_model is not None:
            flat["source_model"] = trained.source_model.weights_sha256
        found.setdefault(("train", trained.recipe), []).append(flat)
    return found


def _as_json(numbers: tuple[float, ...] | None) -> dict[str, Any] | None:
    if numbers is None:
        return None
    return {
        "mean": statistics.fmean(numbers) if numbers else None,
        "std": statistics.stdev(numbers) if len(numbers) > 1 else None,
        "n": len(numbers),
    }
