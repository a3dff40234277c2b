"""Networks on other images as a table: a row a start, a column a data set."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marginctl.experiments.transfer_record import SOFT
from marginctl.metrics.accuracy import wilson_interval
from marginctl.recipe import ImageRecipe
from marginctl.reports.formats.text_table import print_table
from marginctl.reports.tables.train_table import spread

Group = list[Mapping[str, Any]]
# Whose network, what it was trained with, the method with the grid's settings, the classifier.
Row = tuple[str, str, str, str]


def as_json(
    records: Sequence[Mapping[str, Any]], recipe: ImageRecipe, failed: Iterable[str]
) -> dict[str, Any]:
    """The document of `transfer --json`.

    Args:
        records: results.
        recipe: that made them.
        failed: a line for each trial without a result.
    """
    return {
        "schema": 1,
        "command": "transfer",
        "recipe": recipe.model_dump(exclude={"about", "source_model"}),
        "cells": [
            {
                "start": row[0],
                "objective": row[1],
                "method": group[0]["method"],
                "setting": group[0]["setting"],
                "classifier": row[3],
                "data": data,
                "n": len(whole),
                "top1": _mean(whole),
                "diverged": len(group) - len(whole),
                "trials": [_trial(record) for record in group],
            }
            for row, by_data in _groups(records).items()
            for data, group in by_data.items()
            for whole in [_whole(group)]
        ],
        "failed": list(failed),
    }


def print_as(table_format: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Prints results on stdout as `table`, `markdown` or `csv`."""
    groups = _groups(records)
    sets = list(dict.fromkeys(data for by_data in groups.values() for data in by_data))
    heads = ["start", "trained with", "method", "classifier"]
    if all(row[3] == SOFT for row in groups):
        del heads[3]
    names = [*heads, *sets, "n", "note"]
    rows = [
        [
            *row[: len(heads)],
            *(_entry(by_data.get(data, [])) for data in sets),
            str(max(len(_whole(group)) for group in by_data.values())),
            "; ".join(dict.fromkeys(note for group in by_data.values() for note in _notes(group))),
        ]
        for row, by_data in groups.items()
    ]
    below = (
        "Top-1 in percent of the test images, of fine-tuning after the last epoch: mean ± standard "
        "deviation over n networks or seeds; of a single one its 95 % interval (Wilson)."
    )
    print_table(table_format, names, rows, range(len(heads), len(names) - 1), [below])


def _groups(records: Sequence[Mapping[str, Any]]) -> dict[Row, dict[str, Group]]:
    groups: dict[Row, dict[str, Group]] = {}
    for record in records:
        start = record["start"]
        others = {k: v for k, v in record["setting"].items() if k not in ("data.name", "method")}
        method = record["method"] + "".join(
            f", {key.rpartition('.')[2]}={value}" for key, value in others.items()
        )
        row = (start["row"], start["objective"], method, record["objective"])
        groups.setdefault(row, {}).setdefault(record["data"], []).append(record)
    return groups


def _whole(group: Group) -> Group:
    return [record for record in group if not record["diverged"]]


def _mean(group: Group) -> dict[str, Any]:
    values = [record["last"]["top1"] for record in group]
    n = len(values)
    mean = sum(values) / n if n else None
    std = statistics.stdev(values) if n > 1 else None
    return {"mean": mean, "std": std, "seeds": values}


def _entry(group: Group) -> str:
    whole = _whole(group)
    said = spread([record["last"]["top1"] for record in whole])
    if len(whole) != 1:
        return said
    low, high = _interval(whole[0])
    return f"{said} ({low:.2f} to {high:.2f})"


def _interval(record: Mapping[str, Any]) -> list[float]:
    """Wilson's, in percent: of the count, which top-1 in full precision gives exactly."""
    n = record["last"]["n"]
    return [100 * end for end in wilson_interval(round(record["last"]["top1"] * n / 100), n)]


def _notes(group: Group) -> list[str]:
    found = [note for record in group if record["probe"] for note in record["probe"]["notes"]]
    diverged = len(group) - len(_whole(group))
    return found + [f"{diverged} diverged"] * bool(diverged)


def _trial(record: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("trial", "seed", "start", "probe", "diverged", "collapsed", "timing")
    own = {key: record[key] for key in keys}
    if record["diverged"]:
        return own | {"top1": None, "interval": None, "n": None, "per_class": None}
    return own | {
        "top1": record["last"]["top1"],
        "interval": _interval(record),
        "n": record["last"]["n"],
        "per_class": record["evaluation"].get("per_class"),
    }
