"""A report as one HTML page: the reproduction summary, the tables, the runs behind each cell.

Every text of a recipe, a file or a run is escaped. Figures are images with `data:` addresses, in
which no script runs. The page's content security policy allows no other address, and no style or
script but the page's own, by their digests.
"""

import base64
import contextlib
import functools
import hashlib
import itertools
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from marginctl.errors import RequestError
from marginctl.papers import papers
from marginctl.reports.build import CVReport, PublishedReport, RunsReport, TrainingReport
from marginctl.reports.figures.critical_difference import draw_ranks
from marginctl.reports.figures.draw import draw_figures
from marginctl.reports.formats.html.run_details import run_groups, runs_key
from marginctl.reports.tables.claims_table import claims_table
from marginctl.reports.tables.published_table import SYMBOLS
from marginctl.reports.tables.table import Report, Table, group_by_text
from marginctl.results.collect import Collected
from marginctl.results.verdict import TableVerdicts, Verdict
from marginctl.runs.run_dir import versions

_HERE = Path(__file__).parent
_BREAKS = re.compile(r"(?<=[:;,(+=/_])(?!$)|(?<=[a-z])(?=[A-Z])")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")

RANKS_CAPTION = "Average ranks; a bar joins methods without a significant difference (Nemenyi)"
MAX_DIFFERENCES = 3  # named for a table

MEANINGS = {
    Verdict.reproduced: "the 95 % interval of the difference lies within the table's margin",
    Verdict.inconclusive: "the interval exceeds the margin and contains 0, or there is none",
    Verdict.differs: "the interval exceeds the margin and does not contain 0",
    Verdict.not_comparable: "our runs train with other settings, or on less data",
    Verdict.missing: "no finished run",
    Verdict.not_available: "the paper's text available to us does not give the number",
}


@dataclass(frozen=True)
class Picture:
    """A figure as SVG text, with its caption."""

    caption: str
    svg: str


@dataclass(frozen=True)
class PageTable:
    """A table of a page: a published one with its cells' verdicts; `anchor` is set by the page.

    A table is `folded` if its runs are compared with a published table on the same page.
    """

    table: Table
    reproduction: TableVerdicts | None = None
    figures: tuple[Picture, ...] = ()
    anchor: str = ""
    folded: bool = False

    @property
    def heading(self) -> tuple[str, str]:
        """The title as a short heading and the rest, such as a whole protocol."""
        head, _, rest = (self.table.title or self.table.key).partition(": ")
        return head, rest

    def remarks(self) -> list[tuple[str, str]]:
        """Return (cells, remark) for each remark of the cells."""
        remarks = (
            (f"{row.label}, {column}", cell.remark)
            for row in self.table.rows
            for column, cell in zip(self.table.columns, row.cells, strict=True)
            if cell is not None and cell.remark and self.reproduction is None
        )
        return [("; ".join(names), remark) for remark, names in group_by_text(remarks).items()]


@dataclass(frozen=True)
class Section:
    """The tables of a paper, or those of no paper."""

    title: str
    tables: tuple[PageTable, ...]
    source: str = ""


@dataclass(frozen=True)
class Page:
    """What a page shows: `newest` is the date of the newest run, empty without runs."""

    title: str
    sections: tuple[Section, ...]
    newest: str = ""
    sources: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Segment:
    """A part of a bar: the number of cells with a verdict; left and width in percent of the bar."""

    verdict: Verdict
    count: int
    left: float
    width: float


@dataclass(frozen=True)
class SummaryLine:
    """The bar of a published table, and (anchor, text) of the cells that differ most."""

    anchor: str
    title: str
    segments: tuple[Segment, ...]
    differences: tuple[tuple[str, str], ...]


def render(report: Report, width: int | None = None) -> str:
    """Return the HTML page of a report, which needs no other file; `width` is not used."""
    sections: Iterable[Section] = [Section("Tables", tuple(map(PageTable, report.tables)))]
    newest = ""
    if isinstance(report, RunsReport):
        sections = _sections(report)
        results: list[CVReport | TrainingReport] = [*report.cross_validation, *report.training]
        newest = max((run.started for r in results for run in r.runs.runs.values()), default="")
    return render_page(
        Page(
            report.title,
            tuple(section for section in sections if section.tables),
            newest[:10],
            tuple(report.sources),
            tuple(report.problems),
            versions(),
        )
    )


def _sections(report: RunsReport) -> list[Section]:
    by_paper: dict[str | None, list[PageTable]] = {paper.name: [] for paper in papers()}
    other: list[PageTable] = []
    for result in report.published:
        by_paper[result.compared.table.paper].append(
            PageTable(result.table, result.compared, _pictures(result))
        )
    published = {(one.compared.table.paper, one.compared.table.number) for one in report.published}
    results: list[CVReport | TrainingReport] = [*report.cross_validation, *report.training]
    for one in results:
        folded = (one.runs.paper, one.runs.table) in published
        page_table = PageTable(one.table, figures=_pictures(one), folded=folded)
        by_paper.get(one.runs.paper, other).append(page_table)
    sections = []
    for paper in papers():
        tables = by_paper[paper.name]
        if tables and paper.claims:
            tables.append(PageTable(claims_table(paper)))
        sections.append(Section(paper.title, tuple(tables), paper.source))
    return [*sections, Section("Your experiments", tuple(other))]


def _pictures(result: CVReport | TrainingReport | PublishedReport) -> tuple[Picture, ...]:
    """Return the figures of a table; of a cross-validation its ranks, where it has enough cells."""
    written: dict[Path, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        draw = functools.partial(draw_figures, directory=Path(folder), suffix="svg")
        if isinstance(result, PublishedReport):
            written, _ = draw(Collected(), kinds=["published"], published=[result.compared])
        elif isinstance(result, CVReport):
            if result.answers:
                collected = Collected(cv_runs=[result.runs])
                written, _ = draw(collected, kinds=["comparison"], metric=result.grid.metric)
            path = Path(folder) / "ranks.svg"
            with contextlib.suppress(RequestError):
                draw_ranks(result.comparisons, path)
                written[path] = RANKS_CAPTION
        else:
            collected = Collected(training_runs=[result.runs])
            written, _ = draw(collected, kinds=[], metric=result.metric)
        return tuple(Picture(caption, path.read_text("utf-8")) for path, caption in written.items())


def render_page(page: Page) -> str:
    """Return the page as HTML: the same for the same runs, whatever the order of the sources.

    What UTF-8 cannot encode is shown as U+FFFD.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE, encoding="utf-8"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": _breakable, "image": _image}
    style, script = ((_HERE / name).read_text("utf-8") for name in ("page.css", "page.js"))
    counter = itertools.count(1)
    sections = [
        replace(s, tables=tuple(replace(t, anchor=f"t{next(counter)}") for t in s.tables))
        for s in page.sections
    ]
    tables = [one for section in sections for one in section.tables]
    # runs are described below our own tables; published tables link to them
    ordered = sorted(tables, key=lambda one: one.reproduction is not None)
    groups, numbers = run_groups((one.anchor, one.table) for one in ordered)
    published = [(one, one.reproduction) for one in tables if one.reproduction is not None]
    text = environment.get_template("report.html.j2").render(
        page=page,
        sources=sorted(page.sources),
        problems=sorted(page.problems),
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        sections=sections,
        answers=[one for one in tables if one.table.answers],
        total=segments(verdicts for _, verdicts in published),
        lines=[summary_line(one.anchor, one.table, verdicts) for one, verdicts in published],
        groups=groups,
        block_number=lambda runs: numbers[runs_key(runs)],
        verdicts={str(verdict): verdict for verdict in Verdict},
        symbols=SYMBOLS,
        meanings=MEANINGS,
    )
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def segments(tables: Iterable[TableVerdicts]) -> tuple[Segment, ...]:
    """Return the bar of some tables' verdicts."""
    verdicts = [cell.verdict for table in tables for cell in table.cells.values()]
    bar, left = [], 0.0
    for verdict in Verdict:
        if count := verdicts.count(verdict):
            width = 100 * count / len(verdicts)
            bar.append(Segment(verdict, count, left, width))
            left += width
    return tuple(bar)


def summary_line(anchor: str, table: Table, reproduction: TableVerdicts) -> SummaryLine:
    """Return the line of a table; differences in the table's own unit come first."""
    unit = reproduction.table.quantity.unit
    differing = [c for c in reproduction.cells.values() if c.verdict is Verdict.differs]
    differing.sort(key=lambda c: (c.quantity.unit != unit, -abs(c.difference or 0.0)))
    rows = [row.label for row in table.rows]
    differences = []
    for one in differing[:MAX_DIFFERENCES]:
        i, j = rows.index(one.row), table.columns.index(one.column)
        cell = table.rows[i].cells[j]
        numbers = "" if cell is None else f": ours {cell.text}, published {cell.below}"
        text = f"{one.row}, {one.column}: {one.difference:+.{one.quantity.decimals}f}{numbers}"
        differences.append((f"{anchor}-{i}-{j}", text.replace("-", "−")))
    return SummaryLine(anchor, table.title, segments([reproduction]), tuple(differences))


def _policy(style: str, script: str) -> str:
    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src 'sha256-{digest(style)}'; script-src 'sha256-{digest(script)}'"
    )


def _breakable(text: str) -> Markup:
    """Return a name that may be broken after punctuation and between words."""
    return Markup("<wbr>").join(escape(piece) for piece in _BREAKS.split(text))


def _image(svg: str) -> str:
    """Return the `data:` address of a figure."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
