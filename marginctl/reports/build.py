"""What a report shows of some stores: their tables, the tests, and the published tables."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marginctl.metrics.registry import MEASURES, detection_of, lists_of, sides_of, verification_of
from marginctl.papers import papers as all_papers
from marginctl.papers import published_means, published_table
from marginctl.recipe import TrainRecipe
from marginctl.reports.tables import builders
from marginctl.reports.tables.cv_table import title
from marginctl.reports.tables.published_table import of_judged, verdict_notes
from marginctl.reports.tables.table import Table
from marginctl.reports.tables.train_table import Cell, rows_of
from marginctl.results import collect
from marginctl.results.collect import Collected, Run, Trained
from marginctl.results.compare_folds import Comparisons, baselines, compare
from marginctl.results.compare_seeds import SeedComparison, compare_seeds
from marginctl.results.cv_cells import Collector
from marginctl.results.match_published import runs_of
from marginctl.results.verdict import Judged, JudgedTable, judge


@dataclass(frozen=True)
class OfTable:
    """A cross-validation table with its tests.

    Attributes:
        verdicts: on the published cells that its runs fill, by row and objective.
    """

    table: collect.Table
    collector: Collector
    compared: Comparisons
    verdicts: Mapping[builders.Place, Judged]
    shown: Table


@dataclass(frozen=True)
class OfTrained:
    """A table of networks trained on images, with its tests."""

    trained: Trained
    cells: Sequence[Cell]
    baseline: str
    compared: Sequence[SeedComparison]
    shown: Table


@dataclass(frozen=True)
class OfPaper:
    """A published table that some runs were made for, judged."""

    judged: JudgedTable
    shown: Table


@dataclass(frozen=True)
class Assembled:
    """All of a report, in the order in which it is shown."""

    tables: Sequence[OfTable]
    trained: Sequence[OfTrained]
    papers: Sequence[OfPaper]
    problems: Sequence[str]

    @property
    def shown_tables(self) -> list[Table]:
        """Of cross-validation the tables have the published values in them; others stand apart."""
        apart = [p.shown for p in self.papers if not is_of_folds(p.judged)]
        return [t.shown for t in self.tables] + apart + [t.shown for t in self.trained]


def assemble(
    collected: Collected,
    *,
    paper: str | None,
    number: str | None,
    baseline: str | None,
) -> Assembled:
    """Makes the tables and the tests.

    Args:
        collected: the runs.
        paper, number: only what belongs to this paper, and to its table of this number.
        baseline: an objective, as asked for.

    Raises:
        RequestError: the baseline is in no table; no such table of the paper.
    """
    if paper is not None and number is not None:
        published_table(paper, number)
    runs = runs_of(collected)
    judged = [
        made
        for of in all_papers()
        for published in of.tables.values()
        if paper in (None, of.name) and number in (None, published.number) and published.recipes
        if (made := judge(published, runs)).shown
    ]
    tables = [t for t in collected.tables if paper in (None, t.paper) and number in (None, t.table)]
    trained = [
        t for t in collected.trained if paper in (None, t.paper) and number in (None, t.table)
    ]
    cells = [rows_of(run.record for run in _in_order(t)) for t in trained]
    collectors = [t.collector() for t in tables]
    methods = [c.grid.objectives for c in collectors]
    methods += [tuple(dict.fromkeys(c.objective for c in of_table)) for of_table in cells]
    chosen = baselines(methods, baseline)
    keys = _keys([t.recipe for t in tables] + [t.recipe for t in trained])
    return Assembled(
        [
            _of_table(t, c, name, judged, key)
            for t, c, name, key in zip(tables, collectors, chosen, keys, strict=False)
        ],
        [
            _of_trained(t, of_table, name, key)
            for t, of_table, name, key in zip(
                trained, cells, chosen[len(tables) :], keys[len(tables) :], strict=True
            )
        ],
        [OfPaper(j, of_judged(j, key=f"{j.table.paper}-{j.table.number}")) for j in judged],
        collected.problems,
    )


def _of_table(
    own: collect.Table,
    collector: Collector,
    baseline: str,
    judged: Iterable[JudgedTable],
    key: str,
) -> OfTable:
    compared = compare(collector.grid, collector.records, baseline)
    of_paper = next(
        (j for j in judged if (j.table.paper, j.table.number) == (own.paper, own.table)), None
    )
    runs = _by_place((row, objective, run) for (row, objective, _), run in own.runs.items())
    verdicts = builders.verdicts_of(of_paper, runs)
    shown = builders.of_grid(
        collector.grid,
        compared,
        key=key,
        title=title(own.recipe, own.paper, own.table, _protocol_of(own)),
        runs=runs,
        verdicts=verdicts,
        more=verdict_notes(of_paper) if of_paper and verdicts else (),
    )
    return OfTable(own, collector, compared, verdicts, shown)


def _of_trained(own: Trained, cells: Sequence[Cell], baseline: str, key: str) -> OfTrained:
    runs = list(own.runs.values())
    records = [run.record for run in _in_order(own)]
    measures = [*MEASURES, *(name for side in sides_of(records) for name in detection_of(side))]
    measures += [name for pairs in lists_of(records) for name in verification_of(pairs)]
    compared = [c for measure in measures for c in compare_seeds(records, baseline, measure)]
    settings = {
        key: value
        for name, defaults in _DEFAULTS.items()
        for key, value in own.training[name].items()
        if value != defaults.get(key)
    }
    # in words: its digest says nothing to a reader
    start = f", start={runs[0].record['start']['from']}" if "start" in own.training else ""
    shown = builders.of_trained(
        *(cells, compared, baseline),
        key=key,
        title=title(own.recipe, own.paper, own.table, settings) + start,
        runs=_by_place((run.record["row"], run.record["objective"], run) for run in runs),
    )
    return OfTrained(own, cells, baseline, compared, shown)


def _protocol_of(own: collect.Table) -> dict[str, Any]:
    """The protocol, without what every network chooses for itself where it is tuned."""
    tuning = next(iter(own.runs.values())).about["recipe"].get("tuning")
    if not tuning:
        return own.protocol
    chosen = [*tuning["protocol"], *(["options"] if tuning["options"] else [])]
    return {k: v for k, v in own.protocol.items() if k not in chosen} | {"tuned": "+".join(chosen)}


_DEFAULTS = TrainRecipe(task="train").model_dump(include={"data", "optim", "train"})


def _in_order(own: Trained) -> list[Run]:
    """Rows by their settings, objectives as the recipe has them, the seeds of each."""
    runs = list(own.runs.values())
    listed = [o for run in runs for o in run.about["recipe"]["objectives"]]
    place = {objective: i for i, objective in enumerate(dict.fromkeys(listed))}

    def key(run: Run) -> tuple[Any, ...]:
        record = run.record
        settings = [(k, isinstance(v, str), v) for k, v in sorted(record["setting"].items())]
        where = place.get(record["objective"], len(place))
        return json.dumps(settings, default=str), record["row"], where, record["seed"]

    numbers_first = sorted(runs, key=key)
    return sorted(numbers_first, key=lambda run: _numbers(run.record["setting"]))


def _numbers(setting: Mapping[str, Any]) -> list[float]:
    return [float(v) for _, v in sorted(setting.items()) if isinstance(v, int | float)]


def _by_place(placed: Iterable[tuple[str, str, Run]]) -> dict[tuple[str, str], tuple[Run, ...]]:
    found: dict[tuple[str, str], tuple[Run, ...]] = {}
    for row, objective, run in placed:
        found[row, objective] = (*found.get((row, objective), ()), run)
    return found


def _keys(recipes: Iterable[str]) -> list[str]:
    """A name for each table, unique by its number where a recipe has several."""
    seen: dict[str, int] = {}
    keys = []
    for recipe in recipes:
        seen[recipe] = seen.get(recipe, 0) + 1
        keys.append(recipe.replace("/", "-") + (f"-{seen[recipe]}" if seen[recipe] > 1 else ""))
    return keys


def is_of_folds(judged: JudgedTable) -> bool:
    """Whether it is of cross-validation, whose own table has the published values beside ours."""
    return bool(published_means(judged.table.paper, judged.table.number))
