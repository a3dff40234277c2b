"""The page of what a report shows."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from marginctl.errors import RequestError
from marginctl.papers import papers
from marginctl.reports.build import Assembled, OfTable, OfTrained
from marginctl.reports.figures.critical_difference import draw
from marginctl.reports.figures.draw import draw_figures
from marginctl.reports.formats.html.page import Comparison, PaperSection, Picture, Report, page
from marginctl.results.collect import Collected
from marginctl.runs.run_dir import versions


def page_of(assembled: Assembled, stores: Iterable[Path]) -> str:
    """The HTML page, whole in itself; the same runs give the same page.

    Args:
        assembled: what the report shows.
        stores: the run stores, as they were named.
    """
    own = [(t.table.paper, t.shown) for t in assembled.tables]
    own += [(t.trained.paper, t.shown) for t in assembled.trained]
    sections, known = [], {paper.name for paper in papers()}
    for paper in papers():
        compared = tuple(
            Comparison(p.shown, p.judged)
            for p in assembled.papers
            if p.judged.table.paper == paper.name
        )
        sheets = tuple(sheet for of, sheet in own if of == paper.name)
        if compared or sheets:
            sections.append(PaperSection(paper.title, paper.source, compared, sheets, paper.claims))
    runs = [run for t in assembled.tables for run in t.table.runs.values()]
    runs += [run for t in assembled.trained for run in t.trained.runs.values()]
    newest = max((run.started for run in runs), default="")
    return page(
        Report(
            title="marginctl report",
            made=f"runs up to {newest[:10]}" if newest else "no runs",
            stores=tuple(map(str, stores)),
            problems=tuple(assembled.problems),
            papers=tuple(sections),
            sheets=tuple(sheet for of, sheet in own if of not in known),
            figures={
                **{t.shown.key: _ranks(t) for t in assembled.tables},
                **{t.shown.key: _figures(t) for t in assembled.trained},
            },
            environment=versions(),
        )
    )


def _ranks(own: OfTable) -> tuple[Picture, ...]:
    """The critical-difference diagram, where there are methods and data sets enough for one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ranks.svg"
        try:
            draw(own.compared, path)
        except RequestError:
            return ()
        said = "Average ranks over the data sets; a bar joins those that Nemenyi's test cannot part"
        return (Picture(said, path.read_text("utf-8")),)


def _figures(own: OfTrained) -> tuple[Picture, ...]:
    """Every kind of figure that the runs allow."""
    with tempfile.TemporaryDirectory() as folder:
        written, _ = draw_figures(Collected(trained=[own.trained]), Path(folder), [], "svg")
        return tuple(Picture(caption, path.read_text("utf-8")) for path, caption in written.items())
