"""Reads run stores in any state: what is done, what is not, and what is damaged, by name."""

import contextlib
import gc
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marginctl.crossval.search_space import row_name
from marginctl.errors import RequestError
from marginctl.papers import published_means
from marginctl.results.cv_cells import Collector
from marginctl.results.load_run import MARKS, Run, read_run
from marginctl.runs.run_dir import digest
from marginctl.runs.safe_read import CorruptFileError
from marginctl.utils.text import printable

__all__ = ["Collected", "Run", "Table", "Trained", "collect", "trial_folders"]


@dataclass
class Table:
    """The runs of one recipe under one protocol, which make one table.

    Attributes:
        protocol: without the keys of a grid, which tell the rows apart.
        grid: the values that a recipe tries, by these keys.
        runs: by row, objective and seed.
    """

    recipe: str
    paper: str | None
    table: str | None
    protocol: dict[str, Any]
    grid: dict[str, list[Any]] = field(default_factory=dict)
    runs: dict[tuple[str, str, int], Run] = field(default_factory=dict)

    def collector(self) -> Collector:
        """Rows and columns in the recipe's order; what it does not name comes after."""
        runs = list(self.runs.values())
        first = runs[0].about["recipe"]
        known = list(published_means(self.paper, self.table))
        asked = first["datasets"]
        rows = list(dict.fromkeys([d for d, _ in known])) if asked == "all" else list(asked)
        columns = [*first["objectives"], *dict.fromkeys(o for _, o in known)]
        records = [run.record for run in runs]
        datasets = _in_order({r["dataset"] for r in records}, rows)
        objectives = _in_order({r["objective"] for r in records}, columns)
        settings = {
            row_name(dataset, changed): (dataset, changed)
            for dataset in datasets
            for changed in (_changes(self.grid) if self.grid else ())
        }
        there = {row for row, _, _ in self.runs}
        settings = {row: setting for row, setting in settings.items() if row in there}
        collector = Collector(
            list(settings) or datasets,
            objectives,
            seeds=1,
            published={} if self.grid else published_means(self.paper, self.table),
            settings=settings,
            row_of={run.record["trial"]: row for (row, _, _), run in self.runs.items()},
        )
        collector.add_all(records)
        return collector


def _changes(grid: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Every setting of a grid, in its order."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _in_order(there: set[str], order: Iterable[str]) -> list[str]:
    known = [name for name in dict.fromkeys(order) if name in there]
    return known + sorted(there - set(known))


@dataclass
class Trained:
    """Runs of training of one recipe's name and one way to train, which make one table.

    Attributes:
        training: the sections of the recipe without what tells the rows apart; of networks that go
            on from another one, `start` with its digest.
        runs: by row, objective and seed.
    """

    recipe: str
    paper: str | None
    table: str | None
    training: dict[str, Any]
    runs: dict[tuple[str, str, int], Run] = field(default_factory=dict)


@dataclass
class Collected:
    """What some stores hold."""

    tables: list[Table] = field(default_factory=list)
    trained: list[Trained] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # a line each, naming the folder


def collect(stores: Iterable[Path], read: Callable[[str], Run] = read_run) -> Collected:
    """Reads every trial folder below `stores`, in an order that does not depend on the disk.

    Args:
        stores: run stores, or folders in them.
        read: gives the run in a folder, as `read_run`.

    Raises:
        RequestError: a store that is not there.
    """
    collected = Collected()
    gathered = _Gathered(collected.problems)
    with _without_garbage_collection():
        for folder in trial_folders(stores, collected.problems):
            try:
                gathered.take(read(folder))
            except CorruptFileError as error:
                collected.problems.append(printable(f"{folder}: {error}: skipped"))
    for runs in [made.runs for made in gathered.tables.values()] + [
        made.runs for made in gathered.trained.values()
    ]:
        _keep_newest_data(runs, collected.problems)
    collected.trained = sorted(
        gathered.trained.values(), key=lambda t: (t.recipe, digest(t.training))
    )
    collected.tables = sorted(
        gathered.tables.values(), key=lambda t: (t.recipe, digest([t.protocol, t.grid]))
    )
    return collected


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Records have no cycles: to look for some among all these objects takes its time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class _Gathered:
    """Runs as they come, each put into its table.

    Args:
        problems: takes a line for each run that is left out.
    """

    def __init__(self, problems: list[str]) -> None:
        self.tables: dict[str, Table] = {}
        self.trained: dict[str, Trained] = {}
        self._seen: dict[str, Run] = {}
        # by the recipe's identity, which thousands of runs share; kept, so that it stays one
        self._known: dict[tuple[Any, ...], tuple[dict[str, Any], Table | Trained]] = {}
        self._problems = problems

    def take(self, run: Run) -> None:
        """Puts a run into its table; of two runs of one cell the later one stays."""
        twin = self._seen.setdefault(run.record["trial"], run)
        if twin is not run:  # a copy, from another store
            if _numbers_of(twin) != _numbers_of(run):
                self._leave_out(run, f"the same trial as {twin.path}, with other numbers")
            return
        made = self._table_of(run)
        row = _tested_row(run) if run.of_folds else run.record["row"]
        place = (row, run.record["objective"], run.record["seed"])
        other = made.runs.get(place)
        if other is None or other.started < run.started:
            made.runs[place] = run
        if other is not None:  # the same cell from other numerics
            self._leave_out(min(run, other, key=lambda r: r.started), "a later run has that cell")

    def _leave_out(self, run: Run, why: str) -> None:
        self._problems.append(printable(f"{run.path}: {why}: skipped"))

    def _table_of(self, run: Run) -> Table | Trained:
        recipe, setting = run.about["recipe"], run.record.get("setting") or {}
        # what a start names may be trained anew: it is known by its weights
        start = run.record["start"]["weights_sha256"] if run.task == "cosify" else None
        key = (id(recipe), run.task, start, *setting)
        if key not in self._known:
            made = self._tested(recipe) if run.of_folds else self._trained(recipe, setting, start)
            self._known[key] = (recipe, made)
        return self._known[key][1]

    def _tested(self, recipe: dict[str, Any]) -> Table:
        grid = recipe.get("grid") or {}
        protocol = {k: v for k, v in recipe["protocol"].items() if k not in grid}
        key = digest([recipe["name"], protocol, recipe.get("tuning"), grid])
        named = (recipe["name"], recipe["paper"], recipe["table"])
        return self.tables.setdefault(key, Table(*named, protocol, grid))

    def _trained(
        self, recipe: dict[str, Any], setting: Iterable[str], start: str | None
    ) -> Trained:
        way: dict[str, Any] = {}
        for section in ("data", "optim", "train"):
            own = {k: v for k, v in recipe[section].items() if f"{section}.{k}" not in setting}
            way[section] = own
        way["data"].pop("name", None)
        if start is not None:
            way["start"] = {"weights_sha256": start}
        key = digest([recipe["name"], way])
        named = (recipe["name"], recipe["paper"], recipe["table"])
        return self.trained.setdefault(key, Trained(*named, way))


def _tested_row(run: Run) -> str:
    """The row of a cross-validation: its data set, and its setting where there is a grid."""
    recipe = run.about["recipe"]
    grid = recipe.get("grid") or {}
    return row_name(str(run.record["dataset"]), {key: recipe["protocol"][key] for key in grid})


def _numbers_of(run: Run) -> Any:
    """What two computations of one trial have in common: not where its start or scale is from."""
    others = ("timing", "versions", "start", "scale_from")
    return {k: v for k, v in run.record.items() if k not in others}


def _keep_newest_data(runs: dict[tuple[str, str, int], Run], problems: list[str]) -> None:
    """A row holds one data set: of two contents under one name the one of the latest run stays."""
    newest: dict[str, Run] = {}
    for (row, _, _), run in runs.items():
        if row not in newest or newest[row].started < run.started:
            newest[row] = run
    for place, run in list(runs.items()):
        if run.about["data"] != newest[place[0]].about["data"]:
            problems.append(printable(f"{run.path}: '{place[0]}' held other data then: skipped"))
            del runs[place]


def trial_folders(stores: Iterable[Path], problems: list[str]) -> list[str]:
    """The folders below stores that hold a trial, or what is left of one, in order.

    Links to folders are not followed: one may lead back.

    Args:
        stores: run stores, or folders in them.
        problems: takes a line for each folder that cannot be read.

    Raises:
        RequestError: a store that is not there.
    """
    stores = list(stores)
    absent = [str(store) for store in stores if not store.is_dir()]
    if absent:
        raise RequestError(
            *(f"no run store at {a}: expected a folder such as runs" for a in absent)
        )
    found = {folder for store in stores for folder in _below(str(store), problems)}
    return sorted(found, key=lambda folder: folder.split(os.sep))


def _below(store: str, problems: list[str]) -> Iterator[str]:
    left = [store]
    while left:  # no recursion: folders may be nested deeper than Python calls may be
        folder = left.pop()
        try:
            with os.scandir(folder) as entries:
                there = list(entries)
        except OSError as error:
            problems.append(
                printable(f"{folder}: cannot be read: {error.strerror or error}: skipped")
            )
            continue
        if any(entry.name in MARKS for entry in there):
            yield folder
        left += [e.path for e in there if e.name not in MARKS and e.is_dir(follow_symlinks=False)]
