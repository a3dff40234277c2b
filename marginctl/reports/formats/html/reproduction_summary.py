"""The reproduction summary of a page: verdicts by published table, and the largest differences."""

from collections.abc import Iterable
from dataclasses import dataclass

from marginctl.reports.tables.table import Table
from marginctl.results.verdict import TableVerdicts, Verdict

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
