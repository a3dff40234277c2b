"""marginctl report."""

import enum
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import options
from marginctl.cli.options import ReportFormat, print_json
from marginctl.errors import RequestError
from marginctl.reports.figures.registry import FIGURES


class FigureFormat(enum.StrEnum):
    png = "png"
    svg = "svg"


def command(
    store: Annotated[
        list[Path] | None,
        typer.Argument(metavar="STORE", help="Run stores, or folders in them."),
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
            "--figures", metavar="DIR", help="Folder for the figures of the runs of train."
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help=f"Figure type (default: all): {', '.join(FIGURES)}; repeatable.",
        ),
    ] = None,
    figure_format: Annotated[
        FigureFormat | None,
        typer.Option("--figure-format", help="Figure format (default: png)."),
    ] = None,
    report_format: Annotated[
        ReportFormat,
        typer.Option(
            "--format", metavar="FORMAT", help="table, markdown, latex, csv, json or html (a page)."
        ),
    ] = ReportFormat.table,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write it there instead of on stdout."),
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Compare two stores cell by cell: report --diff A B.")
    ] = False,
) -> None:
    """Print the tables of finished runs, with tests. Trains nothing.

    Reads stores in any state: unfinished, failed and damaged runs are named on stderr and left out.
    """
    from marginctl.console.progress import log_lines
    from marginctl.papers import check_paper
    from marginctl.reports.build import assemble
    from marginctl.reports.explain import explain as explained
    from marginctl.reports.figures.critical_difference import draw
    from marginctl.reports.figures.style import check_kinds
    from marginctl.reports.formats.csv_json import as_json, csv_rows
    from marginctl.reports.formats.output import check_output, print_tables, to_file
    from marginctl.reports.formats.text_table import print_csv, print_lines
    from marginctl.results.collect import collect

    others: dict[str, object] = {
        "--baseline": baseline,
        "--explain": explain,
        "--figure": figure,
        "--figures": figures,
        "--kind": kind or None,
        "--figure-format": figure_format,
    }
    if list_:
        others |= {"--output": output, "--diff": diff or None}
        _refuse_beside("--list", others)
        _refuse_format("--list", report_format)
        _list(store, paper, table_number, report_format)
        return
    others |= {"--paper": paper, "--table": table_number}
    if diff:
        _refuse_beside("--diff", others)
        _diff(store or [], report_format, output)
        return
    if not store:
        raise RequestError(
            "STORE is missing: expected run stores, or folders in them; the published tables alone "
            "are shown by --list"
        )
    if figures is None and (kind or figure_format):
        raise RequestError("--kind, --figure-format: say what --figures draws: add --figures DIR")
    check_kinds(kind or [])
    if report_format is ReportFormat.html and output is None:
        raise RequestError("--format html: a page is a file: add --output report.html")
    if paper is not None:
        check_paper(paper)
    if explain and report_format not in (ReportFormat.table, ReportFormat.json):
        raise RequestError(f"--explain: is text or json: not --format {report_format}")
    if output is not None:
        check_output(output)
    collected = collect(store)
    assembled = assemble(collected, paper=paper, number=table_number, baseline=baseline)
    log_lines(collected.problems)
    if figure:
        if len(assembled.tables) != 1:
            found = ", ".join(t.table.recipe for t in assembled.tables) or "none"
            raise RequestError(
                f"--figure: {len(assembled.tables)} tables ({found}): expected one: name its "
                "folder as STORE"
            )
        draw(assembled.tables[0].compared, figure)
        log_lines([f"wrote {figure}"])
    if figures:
        from marginctl.reports.figures.draw import draw_figures

        shown = replace(
            collected,
            tables=[t.table for t in assembled.tables],
            trained=[t.trained for t in assembled.trained],
        )
        written, skipped = draw_figures(shown, figures, kind or [], figure_format or "png")
        log_lines(
            [
                *(f"wrote {path}" for path in written),
                *(f"figure omitted: {line}" for line in skipped),
            ]
        )
    if explain:
        lines = explained(explain, assembled)
        with to_file(output) as wrote:
            if report_format is ReportFormat.json:
                print_json({"schema": 1, "command": "report", "explain": lines})
            else:
                print_lines(lines)
        log_lines(wrote)
        return
    with to_file(output) as wrote:
        if report_format is ReportFormat.html:
            from marginctl.reports.formats.html.assemble import page_of

            print(page_of(assembled, store))
        elif report_format is ReportFormat.json:
            print_json(as_json(assembled))
        elif report_format is ReportFormat.csv:
            print_csv(csv_rows(assembled))
        else:
            print_tables(report_format, assembled.shown_tables)
    log_lines(wrote)
    if not assembled.shown_tables:
        log_lines(["no finished runs found"])


def _refuse_beside(option: str, others: dict[str, object]) -> None:
    beside = [other for other, value in others.items() if value is not None]
    if beside:
        raise RequestError(f"{beside[0]}: not beside {option}: leave one of them out")


def _refuse_format(option: str, report_format: ReportFormat) -> None:
    if report_format in (ReportFormat.latex, ReportFormat.html):
        raise RequestError(
            f"--format {report_format}: not of {option}: expected table, markdown, csv or json"
        )


def _diff(stores: list[Path], report_format: ReportFormat, output: Path | None) -> None:
    """Prints what differs between two stores."""
    from marginctl.console.progress import log_lines
    from marginctl.reports.formats.output import check_output, to_file
    from marginctl.reports.tables.diff_table import print_diff
    from marginctl.results.diff import compare_stores

    if len(stores) != 2:
        raise RequestError(f"--diff: {len(stores)} stores: expected two: report --diff A B")
    _refuse_format("--diff", report_format)
    if output is not None:
        check_output(output)
    found = compare_stores(*stores)
    log_lines(found.problems)
    with to_file(output) as wrote:
        if report_format is ReportFormat.json:
            print_json(found.as_json())
        else:
            print_diff(found, report_format)
    log_lines(wrote)


def _list(
    store: list[Path] | None,
    paper: str | None,
    number: str | None,
    report_format: ReportFormat,
) -> None:
    """Prints what we hold of the papers, and what the runs of stores fill of it."""
    from marginctl.console.progress import log_lines
    from marginctl.papers import check_paper, papers, published_table
    from marginctl.reports.tables.published_list import documents, print_as
    from marginctl.results.collect import collect
    from marginctl.results.match_published import runs_of

    if paper is not None:
        check_paper(paper)
    asked = [p for p in papers() if paper in (None, p.name)]
    if paper is not None and number is not None:
        published_table(paper, number)
    if number is not None and not any(number in p.tables for p in asked):
        known = ", ".join(dict.fromkeys(t for p in asked for t in p.tables))
        raise RequestError(f"unknown table '{number}': expected one of {known}")
    collected = collect(store or [])
    log_lines(collected.problems)
    found = documents(asked, number, runs_of(collected) if store else None)
    if report_format is ReportFormat.json:
        print_json(
            {"schema": 1, "command": "report", "papers": found, "problems": collected.problems}
        )
    else:
        print_as(report_format, found)
