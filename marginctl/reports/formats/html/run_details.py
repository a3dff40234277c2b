"""The runs behind the cells of a page: what run.json and result.json record, as short texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marginctl.reports.tables.table import Table
from marginctl.results.collect import Run
from marginctl.results.match_published import leaves

Facts = dict[str, str]  # by dotted keys
RunsKey = tuple[str, ...]  # the sorted folders of a cell's runs

MAX_ENTRIES = 12  # longer lists are summarized
# keys that repeat the recipe or the heading of a run
_HEADING = {"schema", "trial", "task", "dataset", "data", "setting", "model", "objective", "seed"}
_NO_RESULTS = {*_HEADING, "sha256", "row", "versions"}
_NO_ENVIRONMENT = {*_HEADING, "recipe", "protocol", "tune", "augment", "optim", "train"}


@dataclass(frozen=True)
class RunBlock:
    """The runs of one cell, in the order of their seeds."""

    number: int  # of the block, for links
    title: str  # row and objective
    cell: str  # the anchor of the first cell that links here
    seeds: tuple[str, ...]
    # that not all runs of the table share: by name, a text for each run or one for all
    facts: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class RunGroup:
    """The runs of one table, with the facts that all of them share."""

    anchor: str
    table: Table
    count: int
    shared: Facts
    blocks: tuple[RunBlock, ...]


def runs_key(runs: Iterable[Run]) -> RunsKey:
    """Return a key of a set of runs, independent of their order."""
    return tuple(sorted(str(run.path) for run in runs))


def run_groups(tables: Iterable[tuple[str, Table]]) -> tuple[list[RunGroup], dict[RunsKey, int]]:
    """Return the runs of all cells, and the number of the block that a cell links to.

    Tables come with their anchors. A set of runs is described below the first table that has it.
    """
    numbers: dict[RunsKey, int] = {}
    groups = []
    for anchor, table in tables:
        cells: dict[str, list[Run]] = {}
        for i, row in enumerate(table.rows):
            for j, cell in enumerate(row.cells):
                if cell is not None and cell.runs and runs_key(cell.runs) not in numbers:
                    numbers[runs_key(cell.runs)] = len(numbers) + 1
                    key = lambda run: (run.result.seed, str(run.path))  # noqa: E731
                    cells[f"{anchor}-{i}-{j}"] = sorted(cell.runs, key=key)
        if cells:
            groups.append(_group(anchor, table, cells, numbers))
    return groups, numbers


def _group(
    anchor: str, table: Table, cells: Mapping[str, Sequence[Run]], numbers: Mapping[RunsKey, int]
) -> RunGroup:
    facts = {str(run.path): run_facts(run) for runs in cells.values() for run in runs}
    shared: Facts = {}
    if len(facts) > 1:
        first, *others = facts.values()
        common = set(first.items()).intersection(*(other.items() for other in others))
        shared = {name: text for name, text in first.items() if (name, text) in common}
    blocks = []
    for cell, runs in cells.items():
        by_run = [facts[str(run.path)] for run in runs]
        lines: dict[str, list[str]] = {}
        for name in dict.fromkeys(name for one in by_run for name in one if name not in shared):
            texts = [one.get(name, "none") for one in by_run]
            lines[name] = texts[:1] if len(set(texts)) == 1 else texts
        seeds = tuple(f"seed {run.result.seed}" for run in runs)
        blocks.append(RunBlock(numbers[runs_key(runs)], _title(runs), cell, seeds, lines))
    return RunGroup(anchor, table, len(facts), shared, tuple(blocks))


def _title(runs: Sequence[Run]) -> str:
    records = [run.result.document() for run in runs]
    rows = list(dict.fromkeys(str(r.get("row", r.get("dataset"))) for r in records))
    objectives = list(dict.fromkeys(str(r["objective"]) for r in records))
    return " · ".join(
        ", ".join(names) if len(names) < 4 else f"{len(names)} {kind}"
        for names, kind in ((rows, "rows"), (objectives, "objectives"))
    )


def run_facts(run: Run) -> Facts:
    """Return the results, the resolved recipe, the environment and the folder of a run."""
    results = {k: v for k, v in run.result.document().items() if k not in _NO_RESULTS}
    for key in ("diverged", "collapsed"):  # of a cross-validation: which of its networks
        if isinstance(results.get(key), list):
            results[key] = f"{len(results[key])} networks"
    environment = {k: v for k, v in run.info.document().items() if k not in _NO_ENVIRONMENT}
    environment["timing"] = {k: v for k, v in run.info.timing.document().items() if k != "started"}
    return {
        **dict(_flat(results)),
        **dict(_flat(run.info.recipe, "recipe.")),
        **dict(_flat(environment, "run.")),
        "folder": str(run.path),
        "started": run.started,
        "data digest": run.info.data,
    }


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", fact_text(inner)


def fact_text(value: Any) -> str:
    """Return a value with at most six digits; a long list as its mean, spread and range."""
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if not isinstance(value, list | tuple):
        return str(value)
    flat = list(leaves(value))
    is_plain = not any(isinstance(leaf, dict) for leaf in flat)
    if is_plain and len(flat) <= MAX_ENTRIES:
        return ", ".join(map(fact_text, flat))
    if is_plain and all(leaf == flat[0] for leaf in flat):
        return f"{len(flat)} times {fact_text(flat[0])}"
    if not all(isinstance(leaf, float) for leaf in flat):  # the mean of counts is not informative
        return f"{len(value)} entries (see the file)"
    values = np.array(flat)
    spread = f"{values.mean():.6g} ± {values.std(ddof=1):.6g}"
    return f"{len(flat)} numbers: {spread}, from {min(flat):.6g} to {max(flat):.6g}"
