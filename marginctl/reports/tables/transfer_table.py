"""Tables of `transfer`: a row for each data set and source model, a column for each classifier."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from marginctl.experiments.records import EpochMetrics, TransferResult
from marginctl.metrics.accuracy import wilson_interval
from marginctl.metrics.registry import METRICS, Metric, metrics_in
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.reports.answer_text import answer_lines
from marginctl.reports.tables import training_table
from marginctl.reports.tables.table import (
    DIRECTIONS,
    Cell,
    Report,
    Table,
    directions_note,
    flat_record,
    table_of_texts,
)
from marginctl.results.answers import Answer, seed_answers
from marginctl.results.compare import Comparison, compare_seeds, seeds_document
from marginctl.utils.text import count_noun

Group = list[TransferResult]


class Place(NamedTuple):
    """The place of a cell: data set and source model, and the new classifier."""

    row: str
    head: str


def transfer_report(
    records: Sequence[TransferResult],
    recipe: ImageRecipe,
    failed: Sequence[str],
    metric: Metric = METRICS["top1"],
) -> Report:
    """Return what `transfer` prints; `failed` has a line for each trial without a result.

    The classifiers are tested and ranked by the metric.
    """
    groups: dict[Place, Group] = {}
    for record in records:
        groups.setdefault(Place(record.source_row, record.head), []).append(record)
    metrics = metrics_in(records)
    cells = [
        {
            "source_model": group[0].source_model.row,
            "objective": group[0].source_model.objective,
            "method": group[0].method,
            "setting": group[0].setting,
            "head": place.head,
            "classifier": group[0].objective,
            "data": group[0].data,
            "n": len(_finite(group)),
            "top1": training_table.mean_std_json(METRICS["top1"].values(_finite(group))),
            "metrics": {
                name: training_table.mean_std_json(m.values(_finite(group)))
                for name, m in metrics.items()
                if name != "top1"
            },
            "diverged": len(group) - len(_finite(group)),
            "trials": [_trial(record) for record in group],
        }
        for place, group in groups.items()
    ]
    compared, answers = compare_heads(groups, metric)
    document = {
        "schema": 1,
        "command": "transfer",
        "recipe": recipe.model_dump(exclude={"about", "source_models"}),
        "cells": cells,
        "tests": [seeds_document(c, place.head) for place, c in compared],
        "answers": [answer.as_json() for answer in answers.values()],
        "failed": list(failed),
    }
    lines = [flat_record({k: v for k, v in cell.items() if k != "trials"}) for cell in cells]
    table = _table(groups, metric, compared)
    if recipe.paper is None:
        texts = [t for a, answer in answers.items() for t in answer_lines([answer], a.head)]
        table = replace(table, answers=tuple(texts))
    return Report([table], lines, document)


def compare_heads(
    groups: Mapping[Place, Group], metric: Metric = METRICS["top1"]
) -> tuple[list[tuple[Place, Comparison]], dict[Place, Answer]]:
    """Compare the heads of each source model with the first, a probe if there is one.

    Networks of one seed are paired: those of the source model, and those of the transfer.

    Returns:
        the comparisons that have a test, and the answer of each row; with the place of the head
        that the others are compared with.
    """
    results = []
    for (row, head), group in groups.items():
        ordered = sorted(group, key=lambda r: (r.source_model.seed or 0, r.seed))
        results += [
            (row, record.model_copy(update={"row": row, "objective": head, "seed": i}))
            for i, record in enumerate(ordered)
        ]
    compared, answers = [], {}
    for row in dict.fromkeys(place.row for place in groups):
        mine = [record for r, record in results if r == row]
        first = next((r.objective for r in mine if r.objective == "probe"), mine[0].objective)
        comparisons = compare_seeds(mine, first, metric.name)
        place = Place(row, first)
        compared += [(place, c) for c in comparisons if c.test.p is not None]
        if answered := seed_answers(mine, comparisons, first, metric):
            (answers[place],) = answered
    return compared, answers


def _table(
    groups: Mapping[Place, Group], metric: Metric, compared: Sequence[tuple[Place, Comparison]]
) -> Table:
    rows = list(dict.fromkeys(place.row for place in groups))
    heads = list(dict.fromkeys(place.head for place in groups))
    marks = {(c.row, c.objective): DIRECTIONS[c.direction] for _, c in compared}
    shown = []
    for row in rows:
        means = {
            place.head: round(statistics.fmean(values), metric.decimals)
            for place, group in groups.items()
            if place.row == row and (values := metric.values(_finite(group)))
        }
        best = metric.best(means.values())
        cells = [
            Cell(
                _text(groups[Place(row, head)], metric),
                best=len(heads) > 1 and means.get(head) == best,
                footnotes=marks.get((row, head), ""),
            )
            if (row, head) in groups
            else None
            for head in heads
        ]
        n = max(len(_finite(group)) for place, group in groups.items() if place.row == row)
        shown.append([row, *cells, str(n)])
    single = "; of a single one its 95 % Wilson interval" if metric.name == "top1" else ""
    return table_of_texts(
        f"Test {metric.long_heading}: mean ± standard deviation over n networks or "
        f"seeds{single}. A column is a new classifier, a row a data set and a source model.",
        ["data: source model", *heads, "n"],
        shown,
        key="transfer",
        notes=_notes(groups, compared),
    )


def _notes(
    groups: Mapping[Place, Group], compared: Sequence[tuple[Place, Comparison]]
) -> list[str]:
    notes: dict[str, None] = {}
    if compared:
        tests = training_table.names_of_tests(c for _, c in compared)
        notes[directions_note(compared[0][0].head, tests, "classifiers")] = None
    for place, comparison in compared:
        notes[training_table.comparison_text(comparison, place.head)] = None
    for place, group in groups.items():
        lines = [note for record in group if record.probe for note in record.probe.notes]
        if diverged := len(group) - len(_finite(group)):
            lines.append(f"diverged: {diverged} of {count_noun(len(group), 'run')}")
        chosen = dict.fromkeys(r.chosen for r in group if r.chosen)
        lines += [f"chosen on the validation part: {text}" for text in chosen]
        notes |= dict.fromkeys(f"{place.row}, {place.head}: {line}" for line in lines)
    return list(notes)


def _finite(group: Group) -> Group:
    return [record for record in group if not record.diverged]


def _text(group: Group, metric: Metric) -> str:
    finite = _finite(group)
    text = training_table.mean_std(metric.values(finite), metric.decimals)
    if len(finite) != 1 or metric.name != "top1":
        return text
    assert finite[0].last is not None
    low, high = _interval(finite[0].last)
    return f"{text} ({low:.2f} to {high:.2f})"


def _interval(last: EpochMetrics) -> list[float]:
    """Return the Wilson interval of the accuracy in percent; top-1 times n is the exact count."""
    return [100 * end for end in wilson_interval(round(last.top1 * last.n / 100), last.n)]


def _trial(record: TransferResult) -> dict[str, Any]:
    keys = {"trial", "seed", "source_model", "probe", "diverged", "collapsed", "timing"}
    trial = record.model_dump(include=keys, exclude_unset=True)
    if record.diverged or record.last is None:
        return trial | {"top1": None, "interval": None, "n": None, "per_class": None}
    return trial | {
        "top1": record.last.top1,
        "interval": _interval(record.last),
        "n": record.last.n,
        "per_class": (record.evaluation or {}).get("per_class"),
    }
