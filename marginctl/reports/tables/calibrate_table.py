"""Post-hoc calibration as tables: a row a method, a column a metric."""

from collections.abc import Iterable, Mapping
from typing import Any

from marginctl.reports.formats.output import print_tables
from marginctl.reports.formats.text_table import print_csv
from marginctl.reports.tables.table import Cell, Row, Table, table_of_texts

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
PLAIN = ("nll", "brier")  # the others are shares, shown in percent
LARGER_IS_BETTER = "accuracy"
BEFORE = "none"


def print_as(table_format: str, document: Document) -> None:
    """Prints the document of `calibrate --json` as `table`, `markdown` or `csv`."""
    if table_format == "csv":
        print_csv(csv_rows(document))
        return
    print_tables(table_format, [table_of(document)])


def table_of(document: Document) -> Table:
    """Means over the splits with their spread, and the intervals of the first one."""
    rows = list(_rows(document))
    best = {name: _best(name, [r for _, r in rows]) for name in HEADINGS}
    caption = f"{document['bins']} bins {document['convention']}. {_spread(document)}"
    return Table(
        key="calibrate",
        title=title_of(document),
        caption=caption,
        label_heading="method",
        columns=tuple(HEADINGS.values()),
        rows=tuple(
            Row(
                name,
                tuple(Cell(_shown(key, values), best=values[key] == best[key]) for key in HEADINGS),
            )
            for name, values in rows
        ),
        notes=tuple(_notes(document)),
        code_headings=False,
        details=_intervals(document, rows),
    )


def csv_rows(document: Document) -> list[list[Any]]:
    """A row for each method, part and metric; shares, and the NLL in nats, not rounded."""
    names = ["method", "part", "metric", "mean", "std", "splits", "first", "low", "high", "reason"]
    lines: list[list[Any]] = [names]
    for method in document["methods"]:
        for part in ("before", "after"):
            values = method[part]
            for key in HEADINGS:
                low, high = values["interval"].get(key, (None, None))
                lines.append(
                    [
                        *(method["method"], part, key, values[key], values["std"][key]),
                        *(document["split"]["repeats"], values["first"][key], low, high),
                        values["reasons"].get(key),
                    ]
                )
    return lines


def _rows(document: Document) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Before, and after each method."""
    methods = document["methods"]
    yield BEFORE, methods[0]["before"]
    for method in methods:
        if method["method"] != BEFORE:
            yield method["method"], method["after"]


def _best(key: str, values: Iterable[Mapping[str, Any]]) -> float | None:
    found = [v[key] for v in values if v[key] is not None]
    choose = max if key == LARGER_IS_BETTER else min
    return choose(found, default=None)


def _number(key: str, value: float) -> str:
    if key in PLAIN:
        return f"{value:.4f}"
    return f"{100 * value:.{3 if key == 'classwise_ece' else 2}f}"  # a mean over many classes


def _shown(key: str, values: Mapping[str, Any]) -> str:
    if values[key] is None:
        return "-"
    std = values["std"][key]
    return _number(key, values[key]) + ("" if std is None else f" ± {_number(key, std)}")


def title_of(document: Document) -> str:
    """What was fitted and measured on what, in a line."""
    split = document["split"]
    return (
        f"{document['input']}: {document['n']} samples of {document['classes']} classes, "
        f"{document['values']}; fitted on {split['fitted_on']}"
        + (f" of {split['calibration']}" if split["calibration"] else "")
        + f", measured on {split['measured_on']}"
    )


def _spread(document: Document) -> str:
    repeats = document["split"]["repeats"]
    if document["split"]["calibration"]:
        return "Measured on all samples of INPUT."
    if repeats == 1:
        return "One random stratified split."
    return (
        f"Mean ± standard deviation over {repeats} random stratified splits, which share their "
        "samples: no error of the mean."
    )


def _intervals(
    document: Document, rows: Iterable[tuple[str, Mapping[str, Any]]]
) -> tuple[Table, ...]:
    draws = document["bootstrap"]["draws"]
    if not draws:
        return ()
    lines = []
    for name, values in rows:
        ends = [values["interval"].get(key) for key in HEADINGS]
        lines.append(
            [
                name,
                *(
                    f"{_number(key, end[0])} to {_number(key, end[1])}" if end else "-"
                    for key, end in zip(HEADINGS, ends, strict=True)
                ),
            ]
        )
    of = "of the first split" if document["split"]["repeats"] > 1 else "of the samples"
    caption = (
        f"95 % bootstrap intervals {of}, {draws} draws; a draw adds noise to the errors of "
        "calibration, so that theirs lie somewhat high"
    )
    return (table_of_texts(caption, ["method", *HEADINGS.values()], lines),)


def _absent(document: Document) -> Iterable[str]:
    """Why numbers are missing, a line for all methods that lack the same for the same reason."""
    lines: dict[str, list[str]] = {}
    for name, values in _rows(document):
        reasons: dict[str, list[str]] = {}
        for key, why in values["reasons"].items():
            reasons.setdefault(why, []).append(HEADINGS[key].removesuffix(" %"))
        for why, keys in reasons.items():
            lines.setdefault(f"no {', '.join(keys)}: {why}", []).append(name)
    yield from (f"{', '.join(names)}: {line}" for line, names in lines.items())


def _notes(document: Document) -> Iterable[str]:
    """Temperatures, fits that did not converge, predictions that change, and what is missing."""
    for method in document["methods"]:
        name, fits = method["method"], method["fits"]
        heat = [fit["temperature"] for fit in fits if "temperature" in fit]
        if heat:
            span = f", {min(heat):.4f} to {max(heat):.4f} over the splits" if len(heat) > 1 else ""
            yield f"{name}: T = {heat[0]:.4f}{span}"
        if not method["converged"]:
            count = sum(not fit["converged"] for fit in fits)
            yield f"{name}: not converged in {count} of {len(fits)} splits: {method['note']}"
        elif method["note"]:
            yield f"{name}: {method['note']}"
        if method["after"]["changed"]:
            yield f"{name}: other predictions for {100 * method['after']['changed']:.2f} %"
    yield from _absent(document)
    yield from (f"{s['method']}: left out: {s['reason']}" for s in document["skipped"])
    yield from document["notes"]
