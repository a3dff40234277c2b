"""marginctl report."""

import enum
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import options
from marginctl.cli.options import ReportFormat, print_json
from marginctl.errors import RequestError
from marginctl.reporting.figures import KINDS


class FigureFormat(enum.StrEnum):
    png = "png"
    svg = "svg"


def command(
    store: Annotated[
        list[Path] | None,
        typer.Argument(metavar="STORE...", help="Run stores, or folders in them."),
    ] = None,
    paper: Annotated[
        str | None, typer.Option("--paper", metavar="NAME", help="Only this paper's tables.")
    ] = None,
    table_number: Annotated[
        str | None, typer.Option("--table", metavar="NUMBER", help="Only this table.")
    ] = None,
    list_: Annotated[
        bool,
        typer.Option(
            "--list", help="List the published tables; with STORE, how many cells its runs fill."
        ),
    ] = False,
    baseline: options.Baseline = None,
    power: options.Power = None,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain", metavar="DATASET/OBJECTIVE", help="Where that cell's number comes from."
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            "--figure",
            metavar="FILE",
            help="Draw the average ranks of the one table (critical-difference diagram).",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures", metavar="DIR", help="Draw the runs of train: a file a table and kind."
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help=f"Which of --figures, else all: {', '.join(KINDS)}; repeatable.",
        ),
    ] = None,
    figure_format: Annotated[
        FigureFormat | None,
        typer.Option("--figure-format", help="Of --figures; png where not given."),
    ] = None,
    report_format: Annotated[
        ReportFormat, typer.Option("--format", help="How the tables are printed.")
    ] = ReportFormat.table,
) -> None:
    """Print the tables of finished runs, with tests. Trains nothing.

    Reads stores in any state: unfinished, failed and damaged runs are named on stderr and left out.
    """
    from marginctl.papers import check_paper
    from marginctl.reporting import table
    from marginctl.reporting.collect import collect
    from marginctl.reporting.compare import baselines, compare, positive_points
    from marginctl.reporting.explain import explain as explained
    from marginctl.reporting.figures.rank import draw
    from marginctl.reporting.figures.style import check_kinds
    from marginctl.reporting.progress import say
    from marginctl.reporting.train_table import print_as, rows_of

    if list_:
        others: dict[str, object] = {
            "--baseline": baseline,
            "--power": power,
            "--explain": explain,
            "--figure": figure,
            "--figures": figures,
            "--kind": kind or None,
            "--figure-format": figure_format,
        }
        _list(store, paper, table_number, report_format, others)
        return
    if not store:
        raise RequestError(
            "STORE is missing: expected run stores, or folders in them; the published tables alone "
            "are shown by --list"
        )
    if figures is None and (kind or figure_format):
        raise RequestError("--kind, --figure-format: say what --figures draws: add --figures DIR")
    check_kinds(kind or [])
    visible = positive_points(power)
    if paper is not None:
        check_paper(paper)
    collected = collect(store)
    tables = [
        t for t in collected.tables if paper in (None, t.paper) and table_number in (None, t.table)
    ]
    collectors = [t.collector() for t in tables]
    compared = [
        compare(c.grid, c.records, name, visible)
        for c, name in zip(
            collectors, baselines([c.grid.objectives for c in collectors], baseline), strict=True
        )
    ]
    say(collected.problems)
    trained = [
        t for t in collected.trained if paper in (None, t.paper) and table_number in (None, t.table)
    ]
    if figure:
        if len(tables) != 1:
            found = ", ".join(t.recipe for t in tables) or "none"
            raise RequestError(
                f"--figure: {len(tables)} tables ({found}): expected one: name its folder as STORE"
            )
        draw(compared[0], figure)
        say([f"wrote {figure}"])
    if figures:
        from marginctl.reporting.figures.draw import draw_all

        shown = replace(collected, tables=tables, trained=trained)
        written, skipped = draw_all(shown, figures, kind or [], figure_format or "png")
        say([*(f"wrote {path}" for path in written), *(f"not drawn: {line}" for line in skipped)])
    if explain:
        lines = explained(explain, tables, compared)
        if report_format is ReportFormat.json:
            print_json({"schema": 1, "command": "report", "explain": lines})
        else:
            print("\n".join(lines))
        return
    if report_format is ReportFormat.json:
        documents = [
            {"recipe": t.recipe, "paper": t.paper, "table": t.table}
            | table.as_json(c.grid, t.protocol, made)
            for t, c, made in zip(tables, collectors, compared, strict=True)
        ]
        print_json(
            {
                "schema": 1,
                "command": "report",
                "tables": documents,
                "trained": [
                    {
                        "recipe": t.recipe,
                        "paper": t.paper,
                        "table": t.table,
                        **t.training,
                        "cells": [c.as_json() for c in rows_of(r.record for r in t.runs.values())],
                    }
                    for t in trained
                ],
                "problems": collected.problems,
            }
        )
        return
    for i, (t, c, made) in enumerate(zip(tables, collectors, compared, strict=True)):
        if report_format is not ReportFormat.csv:
            print(("\n" if i else "") + table.title(t.recipe, t.paper, t.table, t.protocol) + "\n")
        table.print_as(report_format, c.grid, made)
    for i, of_recipe in enumerate(trained):
        if report_format is not ReportFormat.csv:
            flat = {k: v for section in of_recipe.training.values() for k, v in section.items()}
            heading = table.title(of_recipe.recipe, of_recipe.paper, of_recipe.table, flat)
            print(("\n" if i or tables else "") + heading + "\n")
        print_as(report_format, rows_of(run.record for run in of_recipe.runs.values()))
    if not tables and not trained:
        say(["no finished runs found"])


def _list(
    store: list[Path] | None,
    paper: str | None,
    number: str | None,
    report_format: ReportFormat,
    others: dict[str, object],
) -> None:
    """Prints what we hold of the papers, and what the runs of stores fill of it."""
    from marginctl.papers import check_paper, papers, published_table
    from marginctl.reporting.collect import collect
    from marginctl.reporting.paper_list import documents, print_as
    from marginctl.reporting.progress import say
    from marginctl.reporting.published import runs_of

    beside = [option for option, value in others.items() if value is not None]
    if beside:
        raise RequestError(f"{beside[0]}: not beside --list: leave one of them out")
    if paper is not None:
        check_paper(paper)
    asked = [p for p in papers() if paper in (None, p.name)]
    if paper is not None and number is not None:
        published_table(paper, number)
    if number is not None and not any(number in p.tables for p in asked):
        known = ", ".join(dict.fromkeys(t for p in asked for t in p.tables))
        raise RequestError(f"unknown table '{number}': expected one of {known}")
    collected = collect(store or [])
    say(collected.problems)
    found = documents(asked, number, runs_of(collected) if store else None)
    if report_format is ReportFormat.json:
        print_json(
            {"schema": 1, "command": "report", "papers": found, "problems": collected.problems}
        )
    else:
        print_as(report_format, found)
