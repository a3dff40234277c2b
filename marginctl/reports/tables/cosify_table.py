"""Networks before and after `cosify` side by side, as Table 10 of the temperature paper."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from marginctl.metrics.registry import (
    KAPPA,
    MEASURES,
    PAIRS,
    SCORES,
    SHOTS,
    Measure,
    detection_of,
    lists_of,
    sides_of,
    verification_of,
)
from marginctl.recipe import ImageRecipe
from marginctl.reports.formats.text_table import print_table
from marginctl.reports.tables.train_table import BEFORE, before_of, rows_of, spread
from marginctl.reports.tables.train_table import as_json as cells_as_json


def as_json(
    records: Sequence[Mapping[str, Any]], recipe: ImageRecipe, failed: Iterable[str]
) -> dict[str, Any]:
    """The document of `cosify --json`.

    Args:
        records: results.
        recipe: that made them.
        failed: a line for each trial without a network.
    """
    document = cells_as_json(rows_of(records), recipe, failed)
    first = _first_of_each(records)
    before = [{"data": r["data"], "start": r["start"], **r["before"]} for r in first]
    return document | {"command": "cosify", "before": before}


def print_as(table_format: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Prints results on stdout as `table`, `markdown` or `csv`, a row `before` first."""
    measures = _measures(records)
    names = ["data, model", "objective", "n", "top-1 %", "kappa*", *(m.label for m in measures)]
    befores = dict(found for r in records if (found := before_of(r)) is not None)
    rows = [_before(label, before, measures) for label, before in befores.items()]
    rows += [_after(*at, group, measures) for at, group in _groups(records).items()]
    said = [
        "Of the test images, after the last epoch: mean ± standard deviation over n seeds. "
        "kappa*: the least-squares scale, the mean over the images. AP-in: average precision, "
        "what is right, or no foreign image, being the positive class."
    ]
    said += [
        f"before, {label}: not measured: {before['reason']}"
        for label, before in befores.items()
        if before["reason"] is not None
    ]
    print_table(table_format, names, rows, range(2, len(names)), said)


def _measures(records: Sequence[Mapping[str, Any]]) -> list[Measure]:
    """Of classes by their training images, of pairs, and the average precisions of every side."""
    shots = [MEASURES[name] for name in SHOTS]
    verified = [
        replace(verification_of(of)[f"{PAIRS}{of} accuracy"], label=f"{of} accuracy %")
        for of in lists_of(records)
    ]
    befores = [{"evaluation": record["before"]} for record in records]
    detected = [
        detection_of(side)[f"{side} aupr_in {score}"]
        for side in sides_of([*records, *befores])
        for score in SCORES
    ]
    of_tail = [one for one in shots if any(one.of(record) is not None for record in records)]
    return [*of_tail, *verified, *detected]


def _groups(
    records: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["row"], record["objective"]), []).append(record)
    return groups


def _first_of_each(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A result of each image set: the network before is the same for all of them."""
    return list({record["data"]: record for record in reversed(records)}.values())[::-1]


def _before(label: str, before: Mapping[str, Any], measures: Sequence[Measure]) -> list[str]:
    found = [m.of({"evaluation": before}) for m in measures]
    return [
        *(label, BEFORE, "-" if before["reason"] else "1"),
        "-" if before["top1"] is None else f"{before['top1']:.2f}",
        "-" if before["kappa"] is None else f"{before['kappa']:.2f}",
        *("-" if v is None else f"{v:.{m.places}f}" for m, v in zip(measures, found, strict=True)),
    ]


def _after(
    row: str, objective: str, group: Sequence[Mapping[str, Any]], measures: Sequence[Measure]
) -> list[str]:
    whole = [record for record in group if not record["diverged"]]
    kappas = [v for r in whole if (v := KAPPA.of(r)) is not None]
    return [
        *(row, objective, str(len(whole))),
        spread([r["last"]["top1"] for r in whole]),
        spread(kappas),
        *(spread([v for r in whole if (v := m.of(r)) is not None], m.places) for m in measures),
    ]
