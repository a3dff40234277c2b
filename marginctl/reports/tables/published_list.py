"""What `report --list` prints: every published table and claim that we hold."""

from collections.abc import Sequence
from typing import Any

from marginctl.papers import Paper, PublishedTable
from marginctl.reports.formats.markdown import markdown_rows
from marginctl.reports.formats.text_table import print_csv, print_rows, shown
from marginctl.results.collect import Run
from marginctl.results.match_published import filled

_TABLES = ["paper", "table", "caption", "unit", "available", "not_available", "recipes"]
_CLAIMS = ["paper", "claim", "statement", "recipes", "test"]


def documents(
    papers: Sequence[Paper], number: str | None = None, runs: Sequence[Run] | None = None
) -> list[dict[str, Any]]:
    """A JSON document of each paper: its tables, without their cells, and its claims.

    Args:
        papers: from `papers`.
        number: only tables of this number, and no claims; None for all.
        runs: finished runs, whose comparable ones fill cells; None where no store was named.
    """
    return [
        {
            "paper": paper.name,
            "title": paper.title,
            "source": paper.source,
            "tables": [
                _table(table, runs)
                for table in paper.tables.values()
                if number in (None, table.number)
            ],
            "claims": [
                {
                    "claim": claim.id,
                    "statement": claim.statement,
                    "recipes": list(claim.recipes),
                    "test": claim.test,
                }
                for claim in paper.claims
                if number is None
            ],
        }
        for paper in papers
    ]


def _table(table: PublishedTable, runs: Sequence[Run] | None) -> dict[str, Any]:
    document = {
        "table": table.number,
        "caption": table.caption,
        "metric": table.quantity.metric,
        "unit": table.quantity.unit,
        "direction": table.quantity.direction,
        "delta": table.quantity.delta,
        "n": table.n,
        "available": table.available,
        "not_available": table.not_available,
        "absent": table.absent,
        "recipes": list(table.recipes),
    }
    return document if runs is None else {**document, "filled": len(filled(table, runs))}


def print_as(list_format: str, papers: Sequence[dict[str, Any]]) -> None:
    """Prints `documents` on stdout as `table`, `markdown` or `csv`."""
    tables = [_line(paper, t) for paper in papers for t in paper["tables"]]
    claims = [_line(paper, c) for paper in papers for c in paper["claims"]]
    counted = any("filled" in line for line in tables)
    blocks = [(tables, _TABLES + ["filled"] * counted), (claims, _CLAIMS)]
    if list_format == "csv":
        _print_csv([*tables, *claims], list(dict.fromkeys([*blocks[0][1], *_CLAIMS])))
        return
    for i, (lines, columns) in enumerate((lines, columns) for lines, columns in blocks if lines):
        if i:
            print()
        if list_format == "markdown":
            _print_markdown(lines, columns)
        else:
            print_rows(lines, columns)


def _line(paper: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A table or a claim as a line; a table without rows has its reason where numbers would be."""
    line = {"paper": paper["paper"], **own, "recipes": ", ".join(own["recipes"])}
    if own.get("absent"):
        line |= {"available": 0, "not_available": f"all: {own['absent']}"}
    return line


def _print_csv(lines: list[dict[str, Any]], columns: list[str]) -> None:
    print_csv([columns, *([shown(line.get(column)) for column in columns] for line in lines)])


def _print_markdown(lines: list[dict[str, Any]], columns: list[str]) -> None:
    rows = [[shown(line[c]) for c in columns] for line in lines]
    heads = [column.replace("_", " ") for column in columns]
    print(markdown_rows([heads, *rows], ["---"] * len(columns)))
