"""Tables as text: fitted to the width of a terminal, or as wide as the table in a file."""

import io
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from marginctl.reports.tables.table import Cell, Report, Table
from marginctl.utils.text import printable

FILE_WIDTH = 10_000  # where nothing is folded
LABEL_WIDTH = 21
HEADING_WIDTH = 16
NUMBER_WIDTH = 7  # of a metric's name above its numbers


def render(report: Report, width: int | None = None) -> str:
    """Return the tables of a report, each below its title; colored if stdout is a terminal."""
    file = io.StringIO()
    color = width is not None and sys.stdout.isatty()
    wide = FILE_WIDTH if width is None else width
    console = Console(file=file, highlight=False, force_terminal=color, width=wide)
    for i, table in enumerate(report.tables):
        if i:
            console.print()
        if table.title:
            console.print(Text(printable(table.title) + "\n"), soft_wrap=width is None)
        console.print(rich_table(table, console.width), soft_wrap=width is None)
    return file.getvalue().rstrip("\n")


def rich_table(table: Table, width: int) -> RenderableType:
    """Return the table for a terminal of this width, with its notes and detail tables."""
    notes = [Text(printable(line)) for line in table.notes]
    if not table.rows:
        return Group(*notes)
    answers = [Text(printable(line)) for line in table.answers]
    blocks = [*_blocks(table, width), *notes]
    if table.caption:
        blocks.insert(-len(notes) or len(blocks), Text(table.caption))
    for detail in table.details:
        blocks += [Text(""), Text(detail.caption), *_blocks(detail, width)]
    return Group(*answers, *([Text("")] if answers else []), *blocks)


def plain_table() -> RichTable:
    """Return an empty table with one line below its heading."""
    return RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)


def heading(objective: str) -> str:
    """Return an objective over short lines: options and parts below the name."""
    name, colon, options = objective.partition(":")
    lines = [name + colon] if colon else [""]
    for piece in re.findall(r"[^;,(+=]*[;,(+=)]*", options if colon else objective):
        if len(lines[-1] + piece) > HEADING_WIDTH or (colon and len(lines) == 1):
            lines.append("")
        lines[-1] += piece
    return "\n".join(line for line in lines if line)


def _blocks(table: Table, width: int) -> Iterator[RenderableType]:
    """Yield the table; columns of numbers that do not fit go into further tables below it."""
    if table.text_columns:  # the columns hold names and notes, which fold
        yield from _list(table, width)
        return
    label_widths = (_label_width(table, FILE_WIDTH), _label_width(table, width))
    for label, wrap in itertools.product(label_widths, (False, True)):
        headings = [_heading(table, column, wrap=wrap) for column in table.columns]
        widths = []
        for i, text in enumerate(headings):  # a foot row may be wider
            cells = [_text(row.cells[i]).plain for row in table.rows if not row.foot]
            widths.append(max(cell_len(s) for one in (text, *cells) for s in one.split("\n")))
        if label + sum(w + 2 for w in widths) <= width:
            yield _block(table, range(len(widths)), headings, label)
            return
    fitting = (width - label) // (max(widths) + 2)
    if fitting < 1:
        yield from _paragraphs(table, width)
        return
    number = -(-len(table.columns) // fitting)
    at_once = -(-len(table.columns) // number)  # tables of nearly equal width
    for first in range(0, len(table.columns), at_once):
        last = min(first + at_once, len(table.columns))
        shown = f"column {last}" if last == first + 1 else f"columns {first + 1} to {last}"
        yield Text(f"{shown} of {len(table.columns)}:", style="dim")
        yield _block(table, range(first, last), headings, label)


def _label_width(table: Table, width: int) -> int:
    """Return the width of the labels, folded unless for a file.

    A part that cannot be divided may take half of the table.
    """
    labels = [printable(label) for label in (table.label_heading, *(r.label for r in table.rows))]
    limit = FILE_WIDTH if width == FILE_WIDTH else LABEL_WIDTH
    folded = [line for label in labels for line in _wrapped(label, limit).split("\n")]
    return min(max(map(cell_len, folded)), max(LABEL_WIDTH, width // 2))


def _heading(table: Table, column: str, *, wrap: bool) -> str:
    if table.code_headings:
        return heading(column)
    return textwrap.fill(column, NUMBER_WIDTH, break_long_words=False) if wrap else column


def _list(table: Table, width: int) -> Iterator[RenderableType]:
    """Yield a table of texts, which fold between words, or paragraphs where words do not fit."""
    columns = [
        [Text(table.label_heading), *(Text(printable(row.label)) for row in table.rows)],
        *(
            [Text(column), *(_text(row.cells[i]) for row in table.rows)]
            for i, column in enumerate(table.columns)
        ),
    ]
    # by column: the narrowest widths, those at which no cell folds, and those at which none does
    widths, unfolded, full = [], [], []
    for i, (title, *cells) in enumerate(columns):
        is_number = i > table.text_columns
        widths.append(max(_longest([title]), _longest(cells, by_line=is_number)))
        unfolded.append(max(widths[-1], _longest(cells, by_line=True)))
        full.append(max(unfolded[-1], _longest([title], by_line=True)))
    gaps = len(columns) - 1
    gap = 3 if sum(full) + 3 * gaps <= width else 2  # blanks between columns
    fits = sum(widths) + gap * gaps <= width
    if table.sentences or not fits:
        yield from _paragraphs(table, width)
        return
    for wanted in (unfolded, full):
        spare = width - sum(widths) - gap * gaps
        missing = [w - have for w, have in zip(wanted, widths, strict=True)]
        share = min(1.0, spare / max(1, sum(missing)))
        widths = [have + int(share * more) for have, more in zip(widths, missing, strict=True)]
    shown = plain_table()
    shown.padding = (0, gap - 1, 0, 0)  # and rich's blank between columns
    for i, ((title, *_), column) in enumerate(zip(columns, widths, strict=True)):
        justify: Literal["left", "right"] = "left" if i <= table.text_columns else "right"
        shown.add_column(title, justify=justify, width=column)
    for row in zip(*(cells for _, *cells in columns), strict=True):
        shown.add_row(*row)
    yield shown


def _longest(texts: Sequence[Text], *, by_line: bool = False) -> int:
    """Return the width of the longest word of some texts, or of the longest line."""
    lines = [line for text in texts for line in text.plain.split("\n")]
    return max(
        (cell_len(p) for line in lines for p in ([line] if by_line else line.split())), default=0
    )


def _paragraphs(table: Table, width: int) -> Iterator[RenderableType]:
    """Yield a paragraph for each row, with a line for each column."""
    if not table.sentences:
        yield Text(f"One paragraph a row, as the table is wider than {width} columns:", style="dim")
    for i, row in enumerate(table.rows):
        if i:
            yield Text("")
        yield Text(printable(row.label), style="bold")
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell and cell.text:
                line = Text(f"{' '.join(column.split())}: ", style="dim").append_text(_text(cell))
                yield Padding(line, (0, 0, 0, 2), expand=False)
    yield Text("")


def _block(table: Table, columns: range, headings: Sequence[str], label_width: int) -> RichTable:
    block = plain_table()
    block.add_column(table.label_heading, width=label_width, overflow="fold")
    for i in columns:
        block.add_column(Text(headings[i], justify="right"), justify="right")
    foot = False
    for row in table.rows:
        if row.foot and not foot:
            block.add_section()
        foot = row.foot
        if row.foot or any(row.cells) or not row.cells:
            folded = _wrapped(printable(row.label), label_width)
            label = Text(folded, style="bold" if row.foot else "")
            block.add_row(label, *(_text(row.cells[i]) for i in columns))
    return block


def _wrapped(label: str, width: int) -> str:
    """Return the label over lines that break after a blank; long words after a hyphen or slash."""
    lines = [""]
    for word in re.findall(r"[^ ]* ?", label):
        is_long = cell_len(word.rstrip()) > width
        for part in re.findall(r"[^/-]*[/-]?", word) if is_long else [word]:
            if cell_len((lines[-1] + part).rstrip()) > width:
                lines.append("")
            lines[-1] += part
    return "\n".join(line.rstrip() for line in lines if line)


def _compact(text: str) -> str:
    return printable(text.replace(" ± ", "±"))


def _text(cell: Cell | None) -> Text:
    if cell is None:
        return Text("")
    number, plus_minus, std = _compact(cell.text).partition("±")
    text = Text(f"{cell.footnotes} " if cell.footnotes else "", style="yellow")
    text.append(number, style="bold" if cell.best else "default")
    text.append(plus_minus + std, style="default")
    if cell.below:
        text.append(f"\n{cell.below_footnotes} " if cell.below_footnotes else "\n", style="yellow")
        text.append(_compact(cell.below), style="dim")
    return text
