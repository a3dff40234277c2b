"""A sheet for a terminal: as wide as it is, or as wide as the table in a file."""

import re

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from marginctl.reports.formats.text_table import stdout_console
from marginctl.reports.tables.table import Entry, Sheet

LABEL_WIDTH = 21
HEADING_WIDTH = 16


def print_sheet(sheet: Sheet) -> None:
    """Prints it on stdout."""
    console = stdout_console()
    console.print(rich_table(sheet, console.width), soft_wrap=not console.is_terminal)


def rich_table(sheet: Sheet, width: int) -> RenderableType:
    """The table for a terminal of this width; columns that do not fit go into further tables."""
    if not sheet.rows:
        return Group(*(Text(line) for line in sheet.notes))
    entries = [e for row in sheet.rows if not row.foot for e in row.entries if e]
    cell_width = max((len(line) for e in entries for line in (_first(e), _second(e))), default=1)
    widest = max(len(line) for column in sheet.columns for line in heading(column).split("\n"))
    a_column = max(cell_width, widest) + 1
    fitting = max(1, (width - LABEL_WIDTH - 1) // a_column)
    number = -(-len(sheet.columns) // fitting)
    at_once = -(-len(sheet.columns) // number)  # tables of nearly equal width
    blocks: list[RenderableType] = []
    for first in range(0, len(sheet.columns), at_once):
        last = min(first + at_once, len(sheet.columns))
        blocks += [Text("")] * bool(first) + [_block(sheet, range(first, last))]
    blocks += [Text(line) for line in (sheet.caption, *sheet.notes)]
    for caption, rows in sheet.lists:
        table = plain_table()
        for title in rows[0]:
            table.add_column(Text(heading(title)))
        for row in rows[1:]:
            table.add_row(*map(Text, row))
        blocks += [Text(""), Text(caption), table]
    return Group(*blocks)


def plain_table() -> Table:
    """A table with one line below its heading."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)


def heading(objective: str) -> str:
    """An objective over short lines: options and parts below the name."""
    name, colon, options = objective.partition(":")
    lines = [name + colon] if colon else [""]
    for piece in re.findall(r"[^;,(+=]*[;,(+=)]*", options if colon else objective):
        if len(lines[-1] + piece) > HEADING_WIDTH or (colon and len(lines) == 1):
            lines.append("")
        lines[-1] += piece
    return "\n".join(line for line in lines if line)


def _block(sheet: Sheet, columns: range) -> Table:
    table = plain_table()
    table.add_column(sheet.corner, width=LABEL_WIDTH)
    for i in columns:
        table.add_column(Text(heading(sheet.columns[i]), justify="right"), justify="right")
    feet = False
    for row in sheet.rows:
        if row.foot and not feet:
            table.add_section()
        feet = row.foot
        if row.foot or any(row.entries[i] for i in range(len(sheet.columns))):
            label = Text(_wrapped(row.label), style="bold" if row.foot else "")
            table.add_row(label, *(_text(row.entries[i]) for i in columns))
    return table


def _wrapped(label: str) -> str:
    """The label over lines that break after a hyphen or a blank."""
    lines = [""]
    for part in re.findall(r"[^ -]*[ -]?", label):
        if len((lines[-1] + part).rstrip()) > LABEL_WIDTH:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def _compact(text: str) -> str:
    return text.replace(" ± ", "±")


def _first(entry: Entry) -> str:
    return f"{entry.marks} {_compact(entry.text)}".strip()


def _second(entry: Entry) -> str:
    return f"{entry.below_marks} {_compact(entry.below)}".strip()


def _text(entry: Entry | None) -> Text:
    if entry is None:
        return Text("")
    number, plus_minus, std = _compact(entry.text).partition("±")
    text = Text(f"{entry.marks} " if entry.marks else "", style="yellow")
    text.append(number, style="bold" if entry.best else "default")
    text.append(plus_minus + std, style="default")
    if entry.below:
        text.append(f"\n{entry.below_marks} " if entry.below_marks else "\n", style="yellow")
        text.append(_compact(entry.below), style="dim")
    return text
