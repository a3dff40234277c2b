"""The table of `calibrate`: a row for each method, a column for each metric."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from marginctl.reports.tables.table import Cell, Report, Table, group_by_text, table_of_texts

Document = Mapping[str, Any]

HEADINGS = {
    "accuracy": "accuracy %",
    "ece": "ECE %",
    "mce": "MCE %",
    "adaptive_ece": "adaptive ECE %",
    "classwise_ece": "classwise ECE %",
    "nll": "NLL",
    "brier": "Brier",
}
NOT_PERCENT = ("nll", "brier")
HIGHER_IS_BETTER = "accuracy"
BEFORE = "none"  # the row of the outputs as they are


def calibrate_report(document: Document) -> Report:
    """Return what `calibrate` prints, from the document of `calibrate --json`."""
    return Report([_table(document)], _records(document), document, sources=[document["input"]])


def title_of(document: Document) -> str:
    """Return what was fitted and measured on which samples, in a line."""
    split = document["split"]
    calibration = f" of {split['calibration']}" if split["calibration"] else ""
    return (
        f"{document['input']}: {document['n']} samples of {document['classes']} classes, "
        f"{document['values']}; fitted on {split['fitted_on']}{calibration}, measured on "
        f"{split['measured_on']}"
    )


def _table(document: Document) -> Table:
    """Return means over the splits with their spread, and the intervals of the first one."""
    rows = list(_rows(document))
    best = {}
    for key in HEADINGS:
        known = [values[key] for _, values in rows if values[key] is not None]
        best[key] = (max if key == HIGHER_IS_BETTER else min)(known, default=None)
    return table_of_texts(
        f"{document['bins']} bins {document['convention']}. {_splits(document)}",
        ["method", *HEADINGS.values()],
        [
            [name, *(Cell(_mean_std(k, values), best=values[k] == best[k]) for k in HEADINGS)]
            for name, values in rows
        ],
        key="calibrate",
        title=title_of(document),
        notes=(*_notes(document), *document["notes"]),
        details=_intervals(document, rows),
    )


def _records(document: Document) -> list[dict[str, Any]]:
    """Return a line for each method, part and metric; fractions, and the NLL in nats."""
    records = []
    for method in document["methods"]:
        for part, key in itertools.product(("before", "after"), HEADINGS):
            values = method[part]
            low, high = values["interval"].get(key, (None, None))
            records.append(
                {
                    "method": method["method"],
                    "part": part,
                    "metric": key,
                    "mean": values[key],
                    "std": values["std"][key],
                    "splits": document["split"]["repeats"],
                    "first": values["first"][key],
                    "low": low,
                    "high": high,
                    "reason": values["reasons"].get(key),
                }
            )
    return records


def _rows(document: Document) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield the numbers before, and after each method."""
    methods = document["methods"]
    yield BEFORE, methods[0]["before"]
    for method in methods:
        if method["method"] != BEFORE:
            yield method["method"], method["after"]


def _number(key: str, value: float) -> str:
    if key in NOT_PERCENT:
        return f"{value:.4f}"
    return f"{100 * value:.{3 if key == 'classwise_ece' else 2}f}"  # a mean over many classes


def _mean_std(key: str, values: Mapping[str, Any]) -> str:
    if values[key] is None:
        return "-"
    std = values["std"][key]
    return _number(key, values[key]) + ("" if std is None else f" ± {_number(key, std)}")


def _splits(document: Document) -> str:
    repeats = document["split"]["repeats"]
    if document["split"]["calibration"]:
        return "Measured on all samples of INPUT."
    if repeats == 1:
        return "One random stratified split."
    return (
        f"Mean ± standard deviation over {repeats} random stratified splits, which share their "
        "samples: not a standard error."
    )


def _intervals(
    document: Document, rows: Iterable[tuple[str, Mapping[str, Any]]]
) -> tuple[Table, ...]:
    n_bootstrap = document["bootstrap"]["n_bootstrap"]
    if not n_bootstrap:
        return ()
    lines = [
        [
            name,
            *(
                " to ".join(_number(k, v) for v in values["interval"].get(k, ())) or "-"
                for k in HEADINGS
            ),
        ]
        for name, values in rows
    ]
    of = "of the first split" if document["split"]["repeats"] > 1 else "of the samples"
    caption = (
        f"95 % bootstrap intervals {of}, {n_bootstrap} bootstrap samples; resampling adds noise, "
        "so the intervals of calibration errors are biased upwards"
    )
    return (table_of_texts(caption, ["method", *HEADINGS.values()], lines),)


def _notes(document: Document) -> Iterable[str]:
    """Yield temperatures, failed fits, changed predictions, and what is missing."""
    for method in document["methods"]:
        name, fits = method["method"], method["fits"]
        temperatures = [fit["temperature"] for fit in fits if "temperature" in fit]
        if temperatures:
            spread = f", {min(temperatures):.4f} to {max(temperatures):.4f} over the splits"
            yield f"{name}: T = {temperatures[0]:.4f}{spread if len(temperatures) > 1 else ''}"
        if not method["converged"]:
            count = sum(not fit["converged"] for fit in fits)
            yield f"{name}: not converged in {count} of {len(fits)} splits: {method['note']}"
        elif method["note"]:
            yield f"{name}: {method['note']}"
        if method["after"]["changed"]:
            yield f"{name}: changes {100 * method['after']['changed']:.2f} % of the predictions"
    missing = (
        (name, f"no {', '.join(headings)}: {reason}")
        for name, values in _rows(document)
        for reason, headings in group_by_text(
            (HEADINGS[key].removesuffix(" %"), reason) for key, reason in values["reasons"].items()
        ).items()
    )
    yield from (f"{', '.join(names)}: {line}" for line, names in group_by_text(missing).items())
    yield from (f"{s['method']}: skipped: {s['reason']}" for s in document["skipped"])
