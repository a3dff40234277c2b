"""The table that every command prints, independent of what it holds and of its format."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marginctl.results.load_run import Run


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: the number as shown, such as `93.54 ± 0.21`.
        best: whether it is the best of the cells that it compares with.
        footnotes: one character for each footnote, explained below the table.
        below: a second line, such as the published value.
        below_footnotes: the footnotes of the second line.
        verdict: the verdict on the published value.
        remark: a sentence about this cell alone.
        runs: the runs behind the number.
    """

    text: str
    best: bool = False
    footnotes: str = ""
    below: str = ""
    below_footnotes: str = ""
    verdict: str | None = None
    remark: str | None = None
    runs: tuple["Run", ...] = ()


@dataclass(frozen=True)
class Row:
    """A row of a table; a foot row, such as the average, is set apart."""

    label: str
    cells: tuple[Cell | None, ...]
    foot: bool = False


@dataclass(frozen=True)
class Table:
    """A table with its title, caption and notes.

    Attributes:
        key: a name that no other table of the report has, for links and files.
        title: a line above the table.
        caption: what the numbers are.
        label_heading: the heading of the row labels.
        columns: the other headings.
        rows: in order; each has a cell, or None, for each column.
        notes: lines below the table: footnotes, tests, conclusions.
        code_headings: whether the headings are objectives, which are set as code.
        details: further tables below this one.
        text_columns: how many leading columns hold text; the others hold numbers.
    """

    key: str
    title: str
    caption: str
    label_heading: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    code_headings: bool = True
    details: tuple["Table", ...] = ()
    text_columns: int = 0


def table_of_texts(
    caption: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    key: str = "",
    notes: Sequence[str] = (),
    text_columns: int = 0,
) -> Table:
    """Return a table of texts, whose first column labels the rows.

    Args:
        caption: what the table holds.
        headings: of all columns.
        rows: as many texts each.
        key, notes, text_columns: as those of `Table`; the label is not counted.
    """
    return Table(
        key=key,
        title="",
        caption=caption,
        label_heading=headings[0],
        columns=tuple(headings[1:]),
        rows=tuple(Row(label, tuple(map(Cell, texts))) for label, *texts in rows),
        notes=tuple(notes),
        code_headings=False,
        text_columns=text_columns,
    )
