"""marginctl report."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from marginctl.cli import common_options
from marginctl.cli.common_options import RUNS, argument, flag, option, refuse
from marginctl.errors import RequestError
from marginctl.reports.figures.registry import FIGURES

if TYPE_CHECKING:
    from marginctl.reports.tables.table import Report


def command(
    runs: Annotated[
        list[Path] | None,
        argument("RUNS", f"Runs folders, or folders inside them (default: {RUNS})."),
    ] = None,
    paper: Annotated[str | None, option("NAME", "Only this paper's tables.")] = None,
    table_number: Annotated[
        str | None, option("NUMBER", "Only this table.", name="--table")
    ] = None,
    list_: Annotated[
        bool,
        flag(
            "--list", "List the published tables; with RUNS, how many of their cells the runs fill."
        ),
    ] = False,
    claims: Annotated[
        bool, flag("--claims", "List the papers' claims with place, verdict and evidence.")
    ] = False,
    baseline: common_options.Baseline = None,
    metric: common_options.Metric = "accuracy",
    explain: Annotated[
        str | None, option("ROW/OBJECTIVE", "Show the runs and tests behind this cell.")
    ] = None,
    figure: Annotated[
        Path | None,
        option("FILE", "Plot the average ranks of the only table (critical-difference diagram)."),
    ] = None,
    figures: Annotated[
        Path | None, option("FOLDER", "Folder for the figures of training runs.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        option("KIND", f"Figure type (default: all): {', '.join(FIGURES.builtin)}; repeatable."),
    ] = None,
    figure_format: Annotated[
        Literal["png", "svg", "pdf"] | None,
        typer.Option("--figure-format", help="Figure format (default: png)."),
    ] = None,
    report_format: common_options.ReportFormat = "table",
    output: Annotated[Path | None, option("FILE", "Output file (default: -, stdout).")] = None,
    diff: Annotated[
        bool, flag("--diff", "Compare two runs folders cell by cell: report --diff A B.")
    ] = False,
) -> None:
    """Print the tables of finished runs, with tests. Read-only.

    Unfinished, failed and corrupt runs are named on stderr and skipped.
    """
    from marginctl.console.progress import log_lines, phase
    from marginctl.metrics.registry import check_metric
    from marginctl.objectives.parsing import parse
    from marginctl.papers import check_paper, papers, published_table
    from marginctl.reports.build import build_report
    from marginctl.reports.explain import explain as explain_cell
    from marginctl.reports.figures.style import check_path
    from marginctl.reports.formats.registry import FORMATS
    from marginctl.reports.tables.claims_table import claims_report
    from marginctl.reports.tables.diff_table import diff_report
    from marginctl.reports.tables.published_table import list_report
    from marginctl.results.collect import collect
    from marginctl.results.diff import compare_folders
    from marginctl.runs.atomic_io import check_outputs

    conflicting: dict[str, object] = {
        "--baseline": baseline,
        "--explain": explain,
        "--figure": figure,
        "--figures": figures,
        "--kind": kind,
        "--figure-format": figure_format,
    }
    is_page = FORMATS[report_format].is_page
    if is_page and output is None:
        raise RequestError(f"--format {report_format}: a page is a file: add --output report.html")
    if str(output) == "-":
        output = None
    if figure is not None:
        check_path("--figure", figure)
    check_outputs({"--output": output, "--figure": figure}, folders={"--figures": figures})
    check_metric(metric)
    if paper is not None:
        check_paper(paper)
    if claims:
        conflicting |= {"RUNS": runs, "--table": table_number, "--list": list_, "--diff": diff}
        refuse(conflicting, "cannot be combined with --claims: remove one of them")
        selected = [p for p in papers() if paper in (None, p.name)]
        _print(claims_report(selected), report_format, output)
        return
    if list_:
        refuse(conflicting | {"--diff": diff}, "cannot be combined with --list: remove one of them")
        selected = [p for p in papers() if paper in (None, p.name)]
        if paper is not None and table_number is not None:
            published_table(paper, table_number)
        if table_number is not None and not any(table_number in p.tables for p in selected):
            known = ", ".join(dict.fromkeys(t for p in selected for t in p.tables))
            raise RequestError(f"unknown table '{table_number}': expected one of {known}")
        collected = collect(runs or [])
        log_lines(collected.problems)
        filling = collected.runs if runs else None
        listed = list_report(selected, table_number, filling, collected.problems)
        _print(listed, report_format, output)
        return
    if diff:
        conflicting |= {"--paper": paper, "--table": table_number}
        refuse(conflicting, "cannot be combined with --diff: remove one of them")
        if len(runs or []) != 2:
            raise RequestError(
                f"--diff: {len(runs or [])} runs folders: expected two, as in report --diff A B"
            )
        differences = compare_folders(*runs or [])
        log_lines(differences.problems)
        _print(diff_report(differences), report_format, output)
        return
    if not runs and not RUNS.is_dir():
        raise RequestError(
            f"RUNS is missing, and there is no folder {RUNS}: expected runs folders, or "
            "folders inside them; --list shows the published tables without them"
        )
    runs = runs or [RUNS]
    if figures is None and (kind or figure_format):
        raise RequestError("--kind, --figure-format: need --figures FOLDER")
    for name in kind or []:
        FIGURES.find(name)
    if explain and report_format not in ("table", "json"):
        raise RequestError(f"--explain: expected --format table or json, not {report_format}")
    with phase("reading runs"):
        collected = collect(runs)
        report = build_report(
            collected,
            paper=paper,
            number=table_number,
            baseline=parse(baseline) if baseline else None,
            metric=metric,
            sources=list(map(str, runs)),
        )
    log_lines(collected.problems)
    shown = explain_cell(_canonical(explain), report) if explain else report
    with phase("writing the page") if is_page else contextlib.nullcontext():
        _print(shown, report_format, output)
    if figure:
        from marginctl.reports.figures.critical_difference import draw_ranks

        results = report.cross_validation
        if len(results) != 1:
            recipes = ", ".join(result.runs.recipe for result in results) or "none"
            raise RequestError(
                f"--figure: {len(results)} tables ({recipes}): expected one: name its folder as "
                "RUNS"
            )
        draw_ranks(results[0].comparisons, figure)
        log_lines([f"wrote {figure}"])
    if figures:
        from marginctl.reports.figures.draw import draw_figures

        drawn = replace(
            collected,
            cv_runs=[result.runs for result in report.cross_validation],
            training_runs=[result.runs for result in report.training],
        )
        compared = [result.compared for result in report.published]
        with phase("drawing figures"):
            written, skipped = draw_figures(
                drawn, figures, kind or [], figure_format or "png", metric, compared
            )
        log_lines([f"wrote {path}: {caption}" for path, caption in written.items()])
        if kind or not written:
            log_lines([f"figure omitted: {line}" for line in skipped])
        elif skipped:
            log_lines(["figures that these runs do not allow are omitted: --kind NAME says why"])
    if not explain and not report.tables:
        log_lines(["no finished runs found"])
    if output is None and report_format == "table":
        common_options.print_next_step("report --format html --output report.html", *runs)


def _canonical(cell: str) -> str:
    """Return a cell with its objective by the canonical name; an unknown one stays."""
    from marginctl.objectives.parsing import parse

    row, slash, objective = cell.rpartition("/")
    with contextlib.suppress(RequestError):
        objective = str(parse(objective))
    return row + slash + objective


def _print(shown: "Report | list[str]", report_format: str, output: Path | None) -> None:
    """Print a report, or the lines of --explain."""
    from marginctl.console.progress import log_lines
    from marginctl.reports.formats.output import print_lines, print_report, to_file

    with to_file(output) as messages:
        if not isinstance(shown, list):
            print_report(shown, report_format)
        elif report_format == "json":
            common_options.print_json({"schema": 1, "command": "report", "explain": shown})
        else:
            print_lines(shown)
    log_lines(messages)
