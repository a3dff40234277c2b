"""What an HTML report holds, and where each table of it stands."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from marginctl.papers import Claim
from marginctl.reports.tables.table import Row, Table
from marginctl.results.verdict import JudgedTable


@dataclass(frozen=True)
class Picture:
    """A figure: what it shows, and its SVG text."""

    caption: str
    image: str


@dataclass(frozen=True)
class Comparison:
    """A published table with ours.

    Attributes:
        sheet: from `judged_sheet.of_judged`; rows and columns are labelled as in the paper.
        judged: the same table, with differences and verdicts.
    """

    sheet: Table
    judged: JudgedTable


@dataclass(frozen=True)
class PaperSection:
    """A paper: its published tables with ours, our own tables for it, and its claims.

    A published table that no run was made for is named in the summary and shown nowhere.
    """

    title: str
    source: str
    comparisons: tuple[Comparison, ...] = ()
    sheets: tuple[Table, ...] = ()
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Report:
    """What a page shows.

    Attributes:
        title: of the page.
        made: when, as text: the page of the same runs is the same page.
        stores: the run stores, in any order.
        problems: a line for each run that was left out.
        papers: in order.
        sheets: tables that belong to no paper.
        figures: by the key of the sheet that they stand below.
        environment: of the program that made the page: name -> version.
    """

    title: str
    made: str
    stores: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    papers: tuple[PaperSection, ...] = ()
    sheets: tuple[Table, ...] = ()
    figures: Mapping[str, tuple[Picture, ...]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Placed:
    """A table with its anchor in the page; `judged` where it is a published one."""

    anchor: str
    sheet: Table
    judged: JudgedTable | None = None

    @property
    def heading(self) -> tuple[str, str]:
        """The title as a short heading and the rest, which may list a whole protocol."""
        head, _, rest = (self.sheet.title or self.sheet.key).partition(": ")
        return head, rest

    def lines(self, foot: bool) -> list[tuple[int, Row]]:
        """The rows of its body, or of its foot, with their places from 0."""
        return [(i, row) for i, row in enumerate(self.sheet.rows) if row.foot == foot]

    def cell(self, row: int, column: int) -> str:
        """The anchor of a cell, by its place from 0."""
        return f"{self.anchor}-{row}-{column}"


@dataclass(frozen=True)
class Part:
    """A paper of the page with its tables; without `paper`, the tables of none."""

    anchor: str
    paper: PaperSection | None
    tables: tuple[Placed, ...]


def parts(report: Report) -> list[Part]:
    """The tables of a report in the order of the page, with anchors that depend on it alone."""
    numbers = itertools.count(1)

    def placed(*tables: tuple[Table, JudgedTable | None]) -> tuple[Placed, ...]:
        return tuple(Placed(f"t{next(numbers)}", sheet, judged) for sheet, judged in tables)

    made = [
        Part(f"p{i}", paper, placed(*_of_paper(paper))) for i, paper in enumerate(report.papers, 1)
    ]
    if report.sheets:
        made.append(Part("p0", None, placed(*((sheet, None) for sheet in report.sheets))))
    return made


def _of_paper(paper: PaperSection) -> Iterator[tuple[Table, JudgedTable | None]]:
    yield from ((c.sheet, c.judged) for c in paper.comparisons if c.judged.shown)
    yield from ((sheet, None) for sheet in paper.sheets)
