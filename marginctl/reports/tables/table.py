"""A table for a reader, whatever it is of and however it is printed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marginctl.results.load_run import Run


@dataclass(frozen=True)
class Entry:
    """A cell.

    Attributes:
        text: `93.54 ± 0.21`.
        best: whether it is the best of those that it compares with.
        marks: a character for each note that is explained below the table.
        below: what stands under it, such as the published value.
        below_marks: the same as `marks`, of `below`.
        verdict: on a published number.
        remark: a sentence on this cell alone.
        runs: behind it.
    """

    text: str
    best: bool = False
    marks: str = ""
    below: str = ""
    below_marks: str = ""
    verdict: str | None = None
    remark: str | None = None
    runs: tuple["Run", ...] = ()


@dataclass(frozen=True)
class Row:
    """A row; a foot, such as the average, is set apart."""

    label: str
    entries: tuple[Entry | None, ...]
    foot: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table with its title, caption and notes.

    Attributes:
        key: a name that no other sheet of the report has, for links and files.
        title: a line above it.
        caption: what its numbers are.
        corner: the heading of the labels.
        columns: the other headings.
        rows: in order; each has an entry, or None, for each column.
        notes: lines below it: marks, tests, conclusions.
        codes: whether headings are objectives, which are set as code.
        lists: further tables below it, each with a caption and rows of text, the first the heading.
    """

    key: str
    title: str
    caption: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    codes: bool = True
    lists: tuple[tuple[str, Sequence[Sequence[str]]], ...] = field(default=())
