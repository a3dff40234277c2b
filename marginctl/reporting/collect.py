"""Reads run stores in any state: what is done, what is not, and what is damaged, by name."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marginctl.crossval.record import is_result as is_tested
from marginctl.crossval.record import is_run as is_crossval
from marginctl.errors import RequestError
from marginctl.objectives.names import parse
from marginctl.papers import table as published
from marginctl.reporting.cells import Collector
from marginctl.runs.store import DAMAGED, FOREIGN, digest, parse_result, parse_run
from marginctl.training.record import is_result as is_trained
from marginctl.training.record import is_run as is_training


@dataclass(frozen=True)
class Run:
    """A finished trial: its folder, what run.json says of it, and its result."""

    path: Path
    about: dict[str, Any]
    record: dict[str, Any]

    @property
    def started(self) -> str:
        return str(self.about["timing"]["started"])


@dataclass
class Table:
    """The runs of one recipe under one protocol, which make one table."""

    recipe: str
    paper: str | None
    table: str | None
    protocol: dict[str, Any]
    runs: dict[tuple[str, str, int], Run] = field(default_factory=dict)

    def collector(self) -> Collector:
        """Rows and columns in the recipe's order; what it does not name comes after."""
        runs = list(self.runs.values())
        first = runs[0].about["recipe"]
        known = list(published(self.paper, self.table))
        asked = first["datasets"]
        rows = list(dict.fromkeys([d for d, _ in known])) if asked == "all" else list(asked)
        columns = [*first["objectives"], *dict.fromkeys(o for _, o in known)]
        records = [run.record for run in runs]
        datasets = _in_order({r["dataset"] for r in records}, rows)
        objectives = _in_order({r["objective"] for r in records}, columns)
        collector = Collector(
            datasets, objectives, seeds=1, published=published(self.paper, self.table)
        )
        for record in records:
            collector.add(record)
        return collector


def _in_order(there: set[str], order: Iterable[str]) -> list[str]:
    known = [name for name in dict.fromkeys(order) if name in there]
    return known + sorted(there - set(known))


@dataclass
class Trained:
    """Runs of `train` of one recipe's name and one way to train, which make one table."""

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


def collect(stores: Iterable[Path]) -> Collected:
    """Reads every trial folder below `stores`, in an order that does not depend on the disk.

    Raises:
        RequestError: a store that is not there.
    """
    absent = [str(store) for store in stores if not store.is_dir()]
    if absent:
        raise RequestError(
            *(f"no run store at {a}: expected a folder such as runs" for a in absent)
        )
    collected = Collected()
    tables: dict[str, Table] = {}
    trained: dict[str, Trained] = {}
    seen: set[str] = set()
    for folder in sorted(
        {f for store in stores for f in _trial_folders(store, collected.problems)}
    ):
        run = _read(folder, collected.problems)
        if run is None or run.record["trial"] in seen:
            continue
        seen.add(run.record["trial"])
        recipe = run.about["recipe"]
        if run.about.get("task") == "train":
            _add_trained(run, trained, collected.problems)
            continue
        key = digest([recipe["name"], recipe["protocol"], recipe.get("tuning")])
        table = tables.setdefault(
            key, Table(recipe["name"], recipe["paper"], recipe["table"], recipe["protocol"])
        )
        place = (run.record["dataset"], run.record["objective"], run.record["seed"])
        twin = table.runs.get(place)
        if twin is None or twin.started < run.started:
            table.runs[place] = run
        if twin is not None:  # the same cell from other numerics
            older = min(run, twin, key=lambda r: r.started)
            collected.problems.append(f"{older.path}: a later run has that cell: left out")
    for table in tables.values():
        _keep_newest_data(table, collected.problems)
    collected.trained = sorted(trained.values(), key=lambda t: (t.recipe, digest(t.training)))
    collected.tables = sorted(tables.values(), key=lambda t: (t.recipe, digest(t.protocol)))
    return collected


def _add_trained(run: Run, trained: dict[str, Trained], problems: list[str]) -> None:
    """Puts a run of `train` into its table; of two of one network the later one stays."""
    recipe, setting = run.about["recipe"], run.record["setting"]
    training = {}
    for section in ("data", "optim", "train"):
        own = {k: v for k, v in recipe[section].items() if f"{section}.{k}" not in setting}
        training[section] = own
    training["data"].pop("name", None)
    key = digest([recipe["name"], training])
    table = trained.setdefault(
        key, Trained(recipe["name"], recipe["paper"], recipe["table"], training)
    )
    place = (run.record["row"], run.record["objective"], run.record["seed"])
    twin = table.runs.get(place)
    if twin is not None:
        older = min(run, twin, key=lambda r: r.started)
        problems.append(f"{older.path}: a later run has that cell: left out")
    if twin is None or twin.started < run.started:
        table.runs[place] = run


def _keep_newest_data(table: Table, problems: list[str]) -> None:
    """A row holds one data set: of two contents under one name the one of the latest run stays."""
    newest: dict[str, Run] = {}
    for (dataset, _, _), run in table.runs.items():
        if dataset not in newest or newest[dataset].started < run.started:
            newest[dataset] = run
    for place, run in list(table.runs.items()):
        if run.about["data"] != newest[place[0]].about["data"]:
            problems.append(f"{run.path}: '{place[0]}' held other data then: left out")
            del table.runs[place]


def _trial_folders(store: Path, problems: list[str]) -> Iterable[Path]:
    def unreadable(error: OSError) -> None:
        problems.append(f"{error.filename}: cannot be read: {error.strerror}: left out")

    for folder, _, files in os.walk(store, onerror=unreadable):
        if "run.json" in files or "result.json" in files:
            yield Path(folder)


def _read(folder: Path, problems: list[str]) -> Run | None:
    try:
        about = parse_run((folder / "run.json").read_text("utf-8"), (is_crossval, is_training))
    except (OSError, UnicodeDecodeError):
        about = None
    if about is None:
        problems.append(f"{folder}: run.json is missing or damaged: left out")
        return None
    try:
        text = (folder / "result.json").read_text("utf-8")
    except FileNotFoundError:
        failed = (folder / "error.txt").exists()
        state = "failed, see error.txt" if failed else "not finished"
        problems.append(f"{folder}: {state}: left out")
        return None
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{folder}: result.json cannot be read ({error}): left out")
        return None
    record = parse_result(text)
    if record is None:
        problems.append(f"{folder}: result.json is {DAMAGED}: left out")
        return None
    extensions = about.get("extensions")
    if extensions and not _known(str(about.get("objective"))):
        needs = ", ".join(map(str, extensions))
        problems.append(f"{folder}: needs {needs}, which is not installed: left out")
        return None
    is_result = is_trained if about.get("task") == "train" else is_tested
    if not is_result(record) or record["trial"] != about["trial"]:
        problems.append(f"{folder}: result.json is {FOREIGN}: left out")
        return None
    return Run(folder, about, record)


def _known(objective: str) -> bool:
    try:
        parse(objective)
    except RequestError:
        return False
    return True
