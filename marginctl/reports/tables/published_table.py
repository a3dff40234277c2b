"""Published tables: with our numbers and a verdict on each cell, and the list of all of them."""

from collections.abc import Sequence
from typing import Any

from marginctl.papers import Paper, Quantity
from marginctl.reports.tables.table import (
    Cell,
    Report,
    Table,
    format_mean_std,
    group_by_text,
    table_of_texts,
)
from marginctl.results.collect import Run
from marginctl.results.compare import attributes
from marginctl.results.match_published import filled_cells
from marginctl.results.verdict import CellVerdict, TableVerdicts, Verdict

SYMBOLS = {
    Verdict.reproduced: "✓",
    Verdict.inconclusive: "~",
    Verdict.differs: "≠",
    Verdict.not_comparable: "∦",
    Verdict.missing: "·",
    Verdict.not_available: "?",
}


def published_table(compared: TableVerdicts, *, key: str) -> Table:
    """Return a published table with our numbers above its own, and a verdict on each."""
    table = compared.table
    cells = {place: _cell(cell) for place, cell in compared.cells.items()}
    unit = f" in {table.quantity.unit}" if table.quantity.unit != "none" else ""
    return table_of_texts(
        f"{table.quantity.metric.capitalize()}{unit}: ours, mean ± standard deviation; published "
        "values below ours.",
        ["", *table.columns],
        [[row, *(cells.get((row, column)) for column in table.columns)] for row in table.rows],
        key=key,
        title=f"{table.paper}, table {table.number}: {table.caption}",
        notes=verdict_notes(compared),
        details=_differences(compared),
    )


def _cell(compared: CellVerdict) -> Cell:
    published, decimals = compared.published, compared.quantity.decimals
    return Cell(
        format_mean_std(compared.mean, compared.std, decimals),
        best=compared.best,
        footnotes=SYMBOLS[compared.verdict],
        below=format_mean_std(published.mean, published.std, decimals) if published else "",
        verdict=compared.verdict,
        remark=verdict_text(compared),
        runs=compared.runs,
    )


def verdict_text(compared: CellVerdict) -> str:
    """Return the verdict on a cell as a sentence: the difference, its interval, the reason."""
    parts = [str(compared.verdict)]
    if compared.difference is not None:
        places = compared.quantity.decimals
        interval = f" (95 % interval {_interval(compared)})" if compared.interval else ""
        parts.append(f"difference {compared.difference:+.{places}f}{interval}, n = {compared.n}")
    return "; ".join([*parts, *([compared.reason] if compared.reason else [])])


def _interval(compared: CellVerdict) -> str:
    """Return the interval of the difference, `-` where there is none."""
    places = compared.quantity.decimals
    return " to ".join(f"{end:+.{places}f}" for end in compared.interval or ()) or "-"


def _differences(compared: TableVerdicts) -> tuple[Table, ...]:
    """Return a table of the cells that have a number of ours, unless there is none."""
    rows = [
        [
            cell.row,
            cell.column,
            _cell(cell).text,
            str(cell.n),
            _cell(cell).below,
            f"{cell.difference:+.{cell.quantity.decimals}f}",
            _interval(cell),
            str(cell.verdict),
        ]
        for cell in compared.cells.values()
        if cell.difference is not None
    ]
    headings = ["row", "column", "ours", "n", "published", "difference", "95 % interval", "verdict"]
    caption = "Difference (ours - published)"
    return (table_of_texts(caption, headings, rows, text_columns=1),) if rows else ()


def verdict_notes(compared: TableVerdicts) -> list[str]:
    """Return how many cells have each verdict, what it means, and why cells are not comparable."""
    counts = ", ".join(f"{n} {SYMBOLS[v]} {v}" for v, n in compared.counts().items())
    deltas = sorted(
        {c.quantity.delta for c in compared.cells.values() if c.quantity.delta is not None}
    )
    margin = " or ".join(f"±{d:g}" for d in deltas) if deltas else "a margin (none is set)"
    reasons = group_by_text(
        (f"{cell.row} / {cell.column}", cell.reason)
        for cell in compared.cells.values()
        if cell.verdict is Verdict.not_comparable and cell.reason
    )
    return [
        f"verdicts: {counts}",
        "reproduced: the 95 % interval of the difference (Welch's, approximate) lies within "
        + margin,
        *(
            f"{SYMBOLS[Verdict.not_comparable]}  not comparable: {reason}: {', '.join(cells)}"
            for reason, cells in reasons.items()
        ),
    ]


def list_report(
    papers: Sequence[Paper],
    number: str | None = None,
    runs: Sequence[Run] | None = None,
    problems: Sequence[str] = (),
) -> Report:
    """Return what `report --list` prints: the published tables of papers, or those of a number.

    With `runs` they have how many of their cells the comparable ones fill.
    """
    documents: list[dict[str, Any]] = [
        {
            "paper": paper.name,
            "title": paper.title,
            "source": paper.source,
            "tables": [
                {
                    "table": table.number,
                    "caption": table.caption,
                    **quantity_json(table.quantity),
                    **attributes(table, "n", "available", "not_available", "absent"),
                    "recipes": list(table.recipes),
                    **({} if runs is None else {"filled": len(filled_cells(table, runs))}),
                }
                for table in paper.tables.values()
                if number in (None, table.number)
            ],
        }
        for paper in papers
    ]
    columns = ["paper", "table", "caption", "unit", "available", "not_available", "recipes"]
    columns += [] if runs is None else ["filled"]
    records = []
    for paper in documents:
        for one in paper["tables"]:
            line = {**one, "paper": paper["paper"], "recipes": ", ".join(one["recipes"])}
            if one["absent"]:  # a table without rows has its reason in their place
                line |= {"available": 0, "not_available": f"all: {one['absent']}"}
            records.append({column: line[column] for column in columns})
    table = table_of_texts(
        "",
        [column.replace("_", " ") for column in columns],
        [[str(v) for v in record.values()] for record in records],
        text_columns=len(columns) - 1,
    )
    document = {"schema": 1, "command": "report", "papers": documents, "problems": list(problems)}
    return Report([table] if records else [], records, document)


def quantity_json(quantity: Quantity) -> dict[str, Any]:
    """Return what a published number measures."""
    return attributes(quantity, "metric", "unit", "direction", "delta")
