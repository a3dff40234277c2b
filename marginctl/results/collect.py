"""Collecting the runs below runs folders into tables, with a message for each run skipped."""

import gc
import itertools
import json
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marginctl.crossval.search_space import row_name
from marginctl.errors import RequestError
from marginctl.experiments.records import SourceModel
from marginctl.papers import published_means
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.recipe.transfer import TransferRecipe
from marginctl.recipe.uci_cv import BASELINES, UciCvRecipe
from marginctl.results.cv_cells import Grid
from marginctl.results.load_run import Run, load_run
from marginctl.runs.run_dir import digest
from marginctl.runs.safe_read import CANDIDATES, RUN_FILES, CorruptFileError
from marginctl.utils.text import printable

__all__ = ["CVRuns", "Collected", "Run", "TrainingRuns", "collect", "load_runs", "run_folders"]

CellSeed = tuple[str, str, int]  # row, objective and seed


@dataclass
class CVRuns:
    """The runs of one cross-validation recipe under one protocol, which make one table."""

    task = "uci-cv"

    recipe: str
    # the published table that the recipe reproduces
    paper: str | None
    table: str | None
    protocol: dict[str, Any]  # without the keys of the grid, which make the rows
    # the values that the recipe tries, by these keys
    grid: dict[str, list[Any]] = field(default_factory=dict)
    # what is tuned inside the training rows, None without tuning
    tune: dict[str, Any] | None = None
    runs: dict[CellSeed, Run] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """Return the protocol by dotted keys, and what is tuned."""
        return {f"protocol.{k}": v for k, v in self.protocol.items()} | {"tune": self.tune}

    def cv_grid(self, metric: str) -> Grid:
        """Return the cells, rows and columns in the recipe's order and others after them."""
        results = [run.cv_result for run in self.runs.values()]
        recipe = next(iter(self.runs.values())).recipe
        assert isinstance(recipe, UciCvRecipe)
        published = published_means(self.paper, self.table)
        is_all = isinstance(recipe.datasets, str)
        rows = [dataset for dataset, _ in published] if is_all else recipe.datasets
        columns = [*map(str, recipe.objectives), *(objective for _, objective in published)]
        datasets = _in_order({r.dataset for r in results}, rows)
        methods = {r.objective for r in results}
        objectives = _in_order(methods - {*BASELINES}, columns)
        names = {row for row, _, _ in self.runs}
        values = itertools.product(*self.grid.values()) if self.grid else ()
        every = [dict(zip(self.grid, one, strict=True)) for one in values]
        settings = {
            name: (dataset, setting)
            for dataset in datasets
            for setting in every
            if (name := row_name(dataset, setting)) in names
        }
        grid = Grid(
            [*settings, *(name for name in datasets if name in names)],
            objectives,
            {} if self.grid else published,
            settings=settings,
            row_of={run.result.trial: row for (row, _, _), run in self.runs.items()},
            baselines=[name for name in BASELINES if name in methods],
            metric=metric,
        )
        grid.add_all(results)
        return grid


def _in_order(names: set[str], order: Iterable[str]) -> list[str]:
    known = [name for name in dict.fromkeys(order) if name in names]
    return known + sorted(names - set(known))


@dataclass
class TrainingRuns:
    """The runs of one image recipe with the same settings, which make one table."""

    task = "train"

    recipe: str
    # the published table that the recipe reproduces
    paper: str | None
    table: str | None
    training: dict[str, Any]  # the sections of the recipe without the keys that make the rows
    # of runs with a baseline: the network that they began with
    source_model: SourceModel | None = None
    runs: dict[CellSeed, Run] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return a digest of the settings; a source model is known by its weights."""
        weights = self.source_model.weights_sha256 if self.source_model else None
        return digest([self.training, weights])

    @property
    def settings(self) -> dict[str, Any]:
        """Return the training by dotted keys, and the weights of a source model."""
        flat = {f"{s}.{k}": v for s, values in self.training.items() for k, v in values.items()}
        source = self.source_model
        return flat | ({} if source is None else {"source_model": source.weights_sha256})

    def in_order(self) -> list[Run]:
        """Return the runs by setting, then by objective as in the recipe, then by seed."""
        listed = [o for run in self.runs.values() for o in map(str, run.recipe.objectives)]
        places = {objective: i for i, objective in enumerate(dict.fromkeys(listed))}

        def key(run: Run) -> tuple[Any, ...]:
            result = run.training_result
            settings = sorted(result.setting.items())
            numbers = [float(v) for _, v in settings if isinstance(v, int | float)]
            texts = json.dumps([(k, isinstance(v, str), v) for k, v in settings], default=str)
            place = places.get(result.objective, len(places))
            return numbers, texts, result.row, place, result.seed

        return sorted(self.runs.values(), key=key)


@dataclass
class Collected:
    """The runs of some runs folders, and a message for each run that is skipped."""

    cv_runs: list[CVRuns] = field(default_factory=list)
    training_runs: list[TrainingRuns] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def tables(self) -> list[CVRuns | TrainingRuns]:
        return [*self.cv_runs, *self.training_runs]

    @property
    def runs(self) -> list[Run]:
        return [run for table in self.tables for run in table.runs.values()]


def collect(folders: Iterable[Path]) -> Collected:
    """Load every run directory below some folders, in an order that does not depend on the disk.

    Raises:
        RequestError: a folder does not exist.
    """
    problems: list[str] = []
    grouping = _Grouping(problems)
    gc.disable()  # records have no cycles, and there are many objects to search
    try:
        for run in load_runs(folders, problems):
            grouping.add(run)
    finally:
        gc.enable()
    collected = Collected(
        sorted(grouping.tables.values(), key=lambda t: (t.recipe, digest([t.protocol, t.grid]))),
        sorted(grouping.trained.values(), key=lambda t: (t.recipe, t.key)),
        problems,
    )
    for table in collected.tables:
        _keep_newest_data(table.runs, problems)
    return collected


def load_runs(folders: Iterable[Path], problems: list[str]) -> Iterator[Run]:
    """Yield every finished run below some folders; `problems` gets a message for the others."""
    for folder in run_folders(folders, problems):
        try:
            yield load_run(folder)
        except CorruptFileError as error:
            problems.append(printable(f"{folder}: {error}: skipped"))


class _Grouping:
    """Groups runs into tables; `problems` gets a message for each run that is skipped."""

    def __init__(self, problems: list[str]) -> None:
        self.tables: dict[str, CVRuns] = {}
        self.trained: dict[str, TrainingRuns] = {}
        self._by_trial: dict[str, Run] = {}
        # by the identity of the recipe, which thousands of runs share; the reference keeps it alive
        self._groups: dict[tuple[Any, ...], tuple[Any, CVRuns | TrainingRuns]] = {}
        self._problems = problems

    def add(self, run: Run) -> None:
        """Add a run to its table; of two runs of one cell the later one stays."""
        other = self._by_trial.setdefault(run.result.trial, run)
        if other is not run:  # a copy in another folder
            if _measurements(other) != _measurements(run):
                self._skip(run, f"the same trial as {other.path} with other numbers")
            return
        group, row = self._group_and_row(run)
        cell = (row, run.result.objective, run.result.seed)
        earlier = group.runs.get(cell)
        if earlier is None or earlier.started < run.started:
            group.runs[cell] = run
        if earlier is not None:  # the same cell with other numerics
            self._skip(min(run, earlier, key=lambda r: r.started), "a later run has that cell")

    def _skip(self, run: Run, reason: str) -> None:
        self._problems.append(printable(f"{run.path}: {reason}: skipped"))

    def _group_and_row(self, run: Run) -> tuple[CVRuns | TrainingRuns, str]:
        recipe = run.recipe
        if isinstance(recipe, UciCvRecipe):
            key: tuple[Any, ...] = (id(recipe), run.recipe_name)
            if key not in self._groups:
                self._groups[key] = recipe, self._table(run.recipe_name, recipe)
            keys = () if run.result.objective in BASELINES else recipe.grid  # as `CVTrial.row`
            setting = {name: getattr(recipe.protocol, name) for name in keys}
            return self._groups[key][1], row_name(run.cv_result.dataset, setting)
        result = run.training_result
        # another path may lead to the same network, and the same path to a retrained one
        source = result.source_model if result.baseline is not None else None
        weights = source.weights_sha256 if source else None
        key = (id(recipe), run.recipe_name, weights, *result.setting)
        if key not in self._groups:
            group = self._training(run.recipe_name, recipe, result.setting, source)
            self._groups[key] = recipe, group
        return self._groups[key][1], result.row

    def _table(self, name: str, recipe: UciCvRecipe) -> CVRuns:
        document = recipe.model_dump(mode="json", include={"protocol", "tune"})
        grid, tune = recipe.grid, document["tune"]
        protocol = {k: v for k, v in document["protocol"].items() if k not in grid}
        table = CVRuns(name, recipe.paper, recipe.table, protocol, grid, tune)
        return self.tables.setdefault(digest([name, protocol, tune, grid]), table)

    def _training(
        self, name: str, recipe: ImageRecipe, setting: Collection[str], source: SourceModel | None
    ) -> TrainingRuns:
        sections = recipe.model_dump(mode="json", include={"data", "optim", "train"})
        training = {
            section: {k: v for k, v in values.items() if f"{section}.{k}" not in setting}
            for section, values in sections.items()
        }
        training["data"].pop("name", None)
        if isinstance(recipe, TransferRecipe) and recipe.compares_heads(setting):
            training["train"].pop("precision", None)  # a probe has its own
        group = TrainingRuns(name, recipe.paper, recipe.table, training, source)
        return self.trained.setdefault(digest([name, group.key]), group)


def _measurements(run: Run) -> Any:
    """Return what two runs of one trial have in common, wherever they ran."""
    varying = {"timing", "versions", "source_model", "scale_from"}
    return run.result.model_dump(exclude=varying)


def _keep_newest_data(runs: dict[CellSeed, Run], problems: list[str]) -> None:
    """Keep in each row the runs on the data of its latest run, if the data has changed."""
    newest: dict[str, Run] = {}
    for (row, _, _), run in runs.items():
        if row not in newest or newest[row].started < run.started:
            newest[row] = run
    for cell, run in list(runs.items()):
        if run.info.data != newest[cell[0]].info.data:
            later = f"a later run has other data of '{cell[0]}', or reads it otherwise"
            problems.append(printable(f"{run.path}: {later}: skipped"))
            del runs[cell]


def run_folders(folders: Iterable[Path], problems: list[str]) -> list[str]:
    """Return the run directories below some folders, sorted.

    Symbolic links are not followed: one may lead back.

    `problems` gets a message for each folder that cannot be read.

    Raises:
        RequestError: a folder does not exist.
    """
    folders = list(folders)
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    if missing:
        raise RequestError(*(f"{path}: no such runs folder" for path in missing))
    paths = {path for folder in folders for path in _below(str(folder), problems)}
    return sorted(paths, key=lambda path: path.split(os.sep))


def _below(root: str, problems: list[str]) -> Iterator[str]:
    pending = [root]
    while pending:  # no recursion: folders may be nested more deeply than Python calls
        folder = pending.pop()
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError as error:
            reason = error.strerror or error
            problems.append(printable(f"{folder}: cannot be read: {reason}: skipped"))
            continue
        is_run = any(entry.name in RUN_FILES for entry in entries)
        if is_run:
            yield folder
        pending += [
            entry.path
            for entry in entries
            if entry.name not in RUN_FILES
            and not (is_run and entry.name == CANDIDATES)
            and entry.is_dir(follow_symlinks=False)
        ]
