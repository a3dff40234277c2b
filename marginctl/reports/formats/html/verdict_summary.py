"""What holds and what does not: the verdicts of a page, counted, with the largest differences."""

from collections.abc import Iterable
from dataclasses import dataclass

from marginctl.reports.formats.html.contents import Part, Placed
from marginctl.results.verdict import Judged, JudgedTable, Verdict

LARGEST = 3  # differences that are named for a table
LEAST = 5.0  # percent of a bar that a segment has to have for its symbol

MEANING = {
    Verdict.reproduced: "the 95 % interval of the difference lies within the table's range",
    Verdict.inconclusive: "the interval reaches out of the range and holds 0, or there is none",
    Verdict.differs: "the interval does not hold 0, and reaches out of the range",
    Verdict.not_comparable: "our runs train in another way, or on less",
    Verdict.missing: "no finished run",
    Verdict.not_available: "the text of the paper that we have lacks the number",
}


@dataclass(frozen=True)
class Segment:
    """A part of a bar: how many cells have a verdict; left and width in percent of the bar."""

    verdict: Verdict
    count: int
    left: float
    width: float

    @property
    def middle(self) -> float:
        return self.left + self.width / 2

    @property
    def has_room(self) -> bool:
        """Whether a symbol fits into it."""
        return self.width >= LEAST


@dataclass(frozen=True)
class Line:
    """A published table in a line.

    Attributes:
        anchor, title: of the table.
        cells: how many.
        segments: by verdict.
        largest: (anchor, text) of the cells that differ most.
    """

    anchor: str
    title: str
    cells: int
    segments: tuple[Segment, ...]
    largest: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class OfPaper:
    """A paper's tables that runs were made for, and the titles of the others."""

    title: str
    lines: tuple[Line, ...]
    without: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """The published tables of a page that runs were made for, and all by paper."""

    tables: int
    cells: int
    segments: tuple[Segment, ...]
    papers: tuple[OfPaper, ...]


def summarise(made: Iterable[Part]) -> Summary:
    """Counts the verdicts by paper and by table."""
    papers, with_runs = [], []
    for part in made:
        if part.paper is None or not part.paper.comparisons:
            continue
        judged = [(t, t.judged) for t in part.tables if t.judged is not None]
        with_runs += [table for _, table in judged]
        papers.append(
            OfPaper(
                part.paper.title,
                tuple(_line(placed, table) for placed, table in judged),
                tuple(c.sheet.title for c in part.paper.comparisons if not c.judged.shown),
            )
        )
    whole = _segments(with_runs)
    return Summary(len(with_runs), sum(s.count for s in whole), whole, tuple(papers))


def _line(placed: Placed, judged: JudgedTable) -> Line:
    segments = _segments([judged])
    return Line(
        placed.anchor,
        placed.sheet.title,
        sum(segment.count for segment in segments),
        segments,
        tuple(_largest(placed, judged)),
    )


def _segments(tables: Iterable[JudgedTable]) -> tuple[Segment, ...]:
    counts: dict[Verdict, int] = dict.fromkeys(Verdict, 0)
    for table in tables:
        for verdict, count in table.counts().items():
            counts[verdict] += count
    whole, made, left = sum(counts.values()), [], 0.0
    for verdict, count in counts.items():
        if count:
            width = 100 * count / whole
            made.append(Segment(verdict, count, left, width))
            left += width
    return tuple(made)


def _largest(placed: Placed, judged: JudgedTable) -> Iterable[tuple[str, str]]:
    """The cells that differ most; those in the table's own unit first."""
    base = judged.table.quantity.unit
    differing = [c for c in judged.cells.values() if c.verdict is Verdict.differs]
    differing.sort(key=lambda c: (c.quantity.unit != base, -abs(c.difference or 0.0)))
    rows = [row.label for row in placed.sheet.rows]
    for cell in differing[:LARGEST]:
        place = (rows.index(cell.row), placed.sheet.columns.index(cell.column))
        entry = placed.sheet.rows[place[0]].cells[place[1]]
        text = f"{cell.row}, {cell.column}: {difference(cell)}"
        if entry is not None:
            text += f": ours {entry.text}, published {entry.below}"
        yield placed.cell(*place), text


def difference(cell: Judged) -> str:
    """Ours less the published number, with its interval: `+0.44 [-0.10, +0.98]`."""
    if cell.difference is None:
        return ""
    places = cell.quantity.decimals
    text = f"{cell.difference:+.{places}f}"
    if cell.low is not None and cell.high is not None:
        text += f" [{cell.low:+.{places}f}, {cell.high:+.{places}f}]"
    return text.replace("-", "−")
