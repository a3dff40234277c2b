"""Tables as GitHub's Markdown."""

import re
from collections.abc import Iterable

from marginctl.reports.tables.table import Cell, Report, Table
from marginctl.utils.text import printable


def render(report: Report, width: int | None = None) -> str:
    """Return the tables of a report, each below its title."""
    titled = (f"**{table.title}**\n\n" if table.title else "" for table in report.tables)
    texts = zip(titled, map(markdown, report.tables), strict=True)
    return "\n\n".join(title + text for title, text in texts)


def markdown(table: Table) -> str:
    """Return the table, its caption, and the notes as a list; without rows, the notes alone."""
    if not table.rows:
        return "\n".join(table.notes)
    caption = table.caption.replace("below ours", "in brackets").replace(
        "below it the best", "in brackets the best"
    )
    lines = [line for answer in table.answers for line in (escaped(answer), "")]
    lines += [*_lines(table), "", caption, "", *(f"- {note}" for note in table.notes)]
    for detail in table.details:
        lines += ["", detail.caption + ":", "", *_lines(detail)]
    return "\n".join(lines).rstrip()


def escaped(text: str) -> str:
    """Return text without Markdown markup, as a data set's or a folder's name must be."""
    return re.sub(r"([|\\`*_<>\[\]])", r"\\\1", printable(" ".join(text.split())))


def _lines(table: Table) -> Iterable[str]:
    """Yield the heading, the alignment and the rows."""
    columns = [f"`{c}`" if table.code_headings else escaped(c) for c in table.columns]
    yield f"| {table.label_heading} | " + " | ".join(columns) + " |"
    text = table.text_columns
    yield "|---|" + "---|" * text + "---:|" * (len(columns) - text)
    for row in table.rows:
        yield f"| {escaped(row.label)} | " + " | ".join(map(_cell, row.cells)) + " |"


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    number, plus_minus, std = escaped(cell.text).partition(" ± ")
    text = (f"**{number}**" if cell.best else number) + plus_minus + std
    text += f" <sup>{cell.footnotes}</sup>" if cell.footnotes else ""
    if not cell.below or cell.text == cell.below == "-":
        return text
    return f"{text} ({cell.below_footnotes + ' ' if cell.below_footnotes else ''}{cell.below})"
