"""The runs behind the cells of a page: each written once, what many share written once for all."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from marginctl.reports.formats.html import run_facts
from marginctl.reports.formats.html.contents import Part, Placed
from marginctl.results.collect import Run

T = TypeVar("T")
Key = tuple[str, ...]  # the folders of some runs, in order


@dataclass(frozen=True)
class Fact:
    """A line of a block: its name and a text for each run, or one text for all."""

    name: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """The runs of one cell.

    Attributes:
        number: of the block; the cell's link leads to it.
        title: row and objective.
        back: the anchor of the first cell that leads here.
        heads: a heading for each run that is described here: its seed.
        results, settings, origin: their facts, less those that the whole group shares.
        environments: of each run, the number of its environment; one where they share it; none
            where the group does.
        elsewhere: (number, title) of the blocks that describe further runs of this cell.
    """

    number: int
    title: str
    back: str
    heads: tuple[str, ...]
    results: tuple[Fact, ...]
    settings: tuple[Fact, ...]
    origin: tuple[Fact, ...]
    environments: tuple[int, ...]
    elsewhere: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Group:
    """The runs of one table, with what they all share."""

    table: Placed
    runs: int
    folder: str
    settings: run_facts.Facts
    results: run_facts.Facts
    environment: int | None
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Book:
    """All runs of a page.

    Attributes:
        groups: a group for each table that leads to runs that none before it did; our own tables
            come before the published ones.
        environments: those that occur, numbered from 1.
        numbers: of the block of some runs.
    """

    groups: tuple[Group, ...]
    environments: tuple[run_facts.Facts, ...]
    numbers: Mapping[Key, int]

    def number(self, runs: Sequence[Run]) -> int:
        """The number of the block that the cell of these runs leads to."""
        return self.numbers[key_of(runs)]


@dataclass
class _Cell:
    number: int
    back: str
    runs: tuple[Run, ...]
    table: Placed

    @property
    def title(self) -> str:
        records = [run.record for run in self.runs]
        rows = dict.fromkeys(str(r.get("row", r.get("dataset"))) for r in records)
        objectives = dict.fromkeys(str(r["objective"]) for r in records)
        return " · ".join(
            ", ".join(names) if len(names) < 4 else f"{len(names)} {kind}"
            for names, kind in ((list(rows), "rows"), (list(objectives), "objectives"))
        )


def key_of(runs: Iterable[Run]) -> Key:
    """What tells one set of runs from another, in whatever order."""
    return tuple(sorted(str(run.path) for run in runs))


def book(made: Iterable[Part]) -> Book:
    """Gathers the runs of all cells of a page, in its order."""
    tables = [table for part in made for table in part.tables]
    cells: dict[Key, _Cell] = {}
    for table in sorted(tables, key=lambda t: t.judged is not None):
        for i, row in enumerate(table.sheet.rows):
            for j, entry in enumerate(row.cells):
                if entry is not None and entry.runs:
                    key = key_of(entry.runs)
                    if key not in cells:
                        back = table.cell(i, j)
                        cells[key] = _Cell(len(cells) + 1, back, _in_order(entry.runs), table)
    home: dict[str, _Cell] = {}
    for cell in sorted(cells.values(), key=lambda c: (len(c.runs), c.number)):
        for run in cell.runs:
            home.setdefault(str(run.path), cell)
    environments: dict[tuple[tuple[str, str], ...], int] = {}
    grouped: dict[str, list[_Cell]] = {}
    for cell in cells.values():
        grouped.setdefault(cell.table.anchor, []).append(cell)
    groups = tuple(_group(own, home, environments) for own in grouped.values())
    return Book(
        groups,
        tuple(dict(items) for items in environments),
        {key: cell.number for key, cell in cells.items()},
    )


def _in_order(runs: Iterable[Run]) -> tuple[Run, ...]:
    return tuple(sorted(runs, key=lambda r: (r.record["seed"], str(r.path))))


def _group(
    cells: list[_Cell],
    home: Mapping[str, _Cell],
    environments: dict[tuple[tuple[str, str], ...], int],
) -> Group:
    own = {c.number: tuple(r for r in c.runs if home[str(r.path)] is c) for c in cells}
    runs = [run for some in own.values() for run in some]
    number_of = {}
    for run in runs:
        known = tuple(run_facts.environment(run).items())
        number_of[str(run.path)] = environments.setdefault(known, len(environments) + 1)
    folders = [str(run.path.parent) for run in runs]
    alike = len(set(folders)) == 1 and len(runs) > 1
    settings = {str(run.path): run_facts.settings(run) for run in runs}
    results = {str(run.path): run_facts.results(run) for run in runs}
    shared = [_shared(list(kind.values())) for kind in (settings, results)]
    together = set(number_of.values())
    blocks = []
    for cell in cells:
        here = own[cell.number]
        paths = [str(run.path) for run in here]
        others = {home[str(r.path)].number: home[str(r.path)] for r in cell.runs if r not in here}
        found = [number_of[path] for path in paths]
        blocks.append(
            Block(
                cell.number,
                cell.title,
                cell.back,
                tuple(f"seed {run.record['seed']}" for run in here),
                _facts([results[path] for path in paths], shared[1]),
                _facts([settings[path] for path in paths], shared[0]),
                _facts([_origin(run, alike) for run in here], {}),
                () if len(together) == 1 else tuple(_once(found)),
                tuple((other.number, other.title) for other in others.values()),
            )
        )
    return Group(
        table=cells[0].table,
        runs=len(runs),
        folder=folders[0] + os.sep if alike else "",
        settings=shared[0],
        results=shared[1],
        environment=together.pop() if len(together) == 1 else None,
        blocks=tuple(blocks),
    )


def _origin(run: Run, alike: bool) -> run_facts.Facts:
    return {
        "folder": run.path.name if alike else str(run.path),
        "started": run.started,
        "data digest": str(run.about["data"]),
    }


def _shared(of_runs: Sequence[run_facts.Facts]) -> run_facts.Facts:
    """What all of some runs, two or more, say alike."""
    if len(of_runs) < 2:
        return {}
    found = set(of_runs[0].items()).intersection(*(f.items() for f in of_runs[1:]))
    return {name: text for name, text in of_runs[0].items() if (name, text) in found}


def _facts(of_runs: Sequence[run_facts.Facts], shared: run_facts.Facts) -> tuple[Fact, ...]:
    """A line for each fact that is not shared, one text where these runs agree."""
    names = dict.fromkeys(name for own in of_runs for name in own if name not in shared)
    return tuple(Fact(n, tuple(_once([own.get(n, "none") for own in of_runs]))) for n in names)


def _once(values: list[T]) -> list[T]:
    return values[:1] if len(set(values)) == 1 else values
