"""The page of what a report shows."""

import tempfile
from dataclasses import replace
from pathlib import Path

from marginctl.errors import RequestError
from marginctl.papers import papers
from marginctl.reports.build import CVResult, RunsReport, TrainingResult
from marginctl.reports.figures.critical_difference import draw
from marginctl.reports.figures.draw import draw_figures
from marginctl.reports.formats.html.page import Comparison, PaperSection, Picture, Report, page
from marginctl.reports.tables.table import Report as TextReport
from marginctl.results.collect import Collected
from marginctl.runs.run_dir import versions


def render(report: TextReport, width: int | None = None) -> str:
    """Return the page of a report, whole in itself; the same runs give the same page."""
    base = Report(
        title=report.title,
        made="",
        stores=tuple(report.sources),
        problems=tuple(report.problems),
        sheets=tuple(report.tables),
        environment=versions(),
    )
    return page(_of_runs(report, base) if isinstance(report, RunsReport) else base)


def _of_runs(report: RunsReport, base: Report) -> Report:
    results: list[CVResult | TrainingResult] = [*report.cross_validation, *report.training]
    sections, known = [], {paper.name for paper in papers()}
    for paper in papers():
        compared = tuple(
            Comparison(p.table, p.judged)
            for p in report.published
            if p.judged.table.paper == paper.name
        )
        tables = tuple(r.table for r in results if r.runs.paper == paper.name)
        if compared or tables:
            sections.append(PaperSection(paper.title, paper.source, compared, tables, paper.claims))
    runs = [run for r in results for run in r.runs.runs.values()]
    newest = max((run.started for run in runs), default="")
    return replace(
        base,
        made=f"runs up to {newest[:10]}" if newest else "no runs",
        papers=tuple(sections),
        sheets=tuple(r.table for r in results if r.runs.paper not in known),
        figures={
            **{r.table.key: _ranks(r) for r in report.cross_validation},
            **{r.table.key: _figures(r) for r in report.training},
        },
    )


def _ranks(own: CVResult) -> tuple[Picture, ...]:
    """The critical-difference diagram, where there are methods and data sets enough for one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ranks.svg"
        try:
            draw(own.comparisons, path)
        except RequestError:
            return ()
        said = "Average ranks over the data sets; a bar joins those that Nemenyi's test cannot part"
        return (Picture(said, path.read_text("utf-8")),)


def _figures(own: TrainingResult) -> tuple[Picture, ...]:
    """Every kind of figure that the runs allow."""
    with tempfile.TemporaryDirectory() as folder:
        written, _ = draw_figures(Collected(trained=[own.runs]), Path(folder), [], "svg")
        return tuple(Picture(caption, path.read_text("utf-8")) for path, caption in written.items())
