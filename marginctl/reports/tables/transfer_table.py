"""Tables of `transfer`: a row for each source model and method, a column for each data set."""

from collections.abc import Mapping, Sequence
from typing import Any

from marginctl.experiments.records import PROBE_OBJECTIVE, EpochMetrics, TransferResult
from marginctl.metrics.accuracy import wilson_interval
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.reports.tables.table import (
    Report,
    Table,
    flat_record,
    mean_std,
    mean_std_json,
    table_of_texts,
)
from marginctl.utils.text import count_noun

Group = list[TransferResult]
# source model, its objective, the method with the grid's settings, the new classifier
Row = tuple[str, str, str, str]


def transfer_report(
    records: Sequence[TransferResult], recipe: ImageRecipe, failed: Sequence[str]
) -> Report:
    """Return what `transfer` prints; `failed` has a line for each trial without a result."""
    groups: dict[Row, dict[str, Group]] = {}
    for record in records:
        groups.setdefault(_row(record), {}).setdefault(record.data, []).append(record)
    cells = [
        {
            "source_model": row[0],
            "objective": row[1],
            "method": group[0].method,
            "setting": group[0].setting,
            "classifier": row[3],
            "data": data,
            "n": len(_finite(group)),
            "top1": mean_std_json(_accuracies(group)),
            "diverged": len(group) - len(_finite(group)),
            "trials": [_trial(record) for record in group],
        }
        for row, by_data in groups.items()
        for data, group in by_data.items()
    ]
    document = {
        "schema": 1,
        "command": "transfer",
        "recipe": recipe.model_dump(exclude={"about", "source_models"}),
        "cells": cells,
        "failed": list(failed),
    }
    lines = [flat_record({k: v for k, v in cell.items() if k != "trials"}) for cell in cells]
    return Report([_table(groups)], lines, document)


def _row(record: TransferResult) -> Row:
    settings = {k: v for k, v in record.setting.items() if k not in ("data.name", "method")}
    method = record.method + "".join(
        f", {key.rpartition('.')[2]}={value}" for key, value in settings.items()
    )
    source = record.source_model
    return source.row, source.objective, method, record.objective


def _table(groups: Mapping[Row, Mapping[str, Group]]) -> Table:
    datasets = list(dict.fromkeys(data for by_data in groups.values() for data in by_data))
    headings = ["source model", "trained with", "method", "classifier"]
    if all(row[3] == PROBE_OBJECTIVE for row in groups):
        headings.pop()
    rows = [
        [
            *row[: len(headings)],
            *(_text(by_data.get(data, [])) for data in datasets),
            str(max(len(_finite(group)) for group in by_data.values())),
        ]
        for row, by_data in groups.items()
    ]
    notes: dict[str, None] = {}
    for row, by_data in groups.items():
        for data, group in by_data.items():
            lines = [note for record in group if record.probe for note in record.probe.notes]
            if diverged := len(group) - len(_finite(group)):
                lines.append(f"diverged: {diverged} of {count_noun(len(group), 'run')}")
            notes |= dict.fromkeys(f"{row[0]}, {row[2]} on {data}: {line}" for line in lines)
    return table_of_texts(
        "Top-1 in percent on the test set, of fine-tuning after the last epoch: mean ± standard "
        "deviation over n networks or seeds; of a single one its 95 % Wilson interval.",
        [*headings, *datasets, "n"],
        rows,
        notes=list(notes),
        text_columns=len(headings) - 1,
    )


def _finite(group: Group) -> Group:
    return [record for record in group if not record.diverged]


def _accuracies(group: Group) -> list[float]:
    return [record.last.top1 for record in _finite(group) if record.last]


def _text(group: Group) -> str:
    finite = _finite(group)
    text = mean_std(_accuracies(group))
    if len(finite) != 1:
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
