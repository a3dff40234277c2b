"""A sheet as GitHub's Markdown."""

import re
from collections.abc import Sequence

from marginctl.reports.tables.table import Entry, Row, Sheet
from marginctl.utils.text import printable


def markdown(sheet: Sheet) -> str:
    """The table, its caption, and the notes as a list; the notes alone where it has no row."""
    if not sheet.rows:
        return "\n".join(sheet.notes)
    code = "`" if sheet.codes else ""
    heads = [f"{code}{column}{code}" if code else escaped(column) for column in sheet.columns]
    lines = [
        f"| {sheet.corner} | " + " | ".join(heads) + " |",
        "|---|" + "---:|" * len(sheet.columns),
        *(_row(row) for row in sheet.rows),
    ]
    notes = [f"- {line}" for line in sheet.notes]
    for caption, rows in sheet.lists:
        notes += ["", caption + ":", "", markdown_rows(rows, ["---"] * len(rows[0]))]
    caption = sheet.caption.replace("below ours", "in brackets").replace(
        "below it the best", "in brackets the best"
    )
    return "\n".join([*lines, "", caption, "", *notes]).rstrip()


def markdown_rows(rows: Sequence[Sequence[str]], align: Sequence[str]) -> str:
    """Rows of text as a table, the first the heading; `align` has `---` or `---:` a column."""
    heading, *others = ([escaped(text) for text in row] for row in rows)
    first, *rest = ("| " + " | ".join(line) + " |" for line in (heading, *others))
    return "\n".join([first, "|" + "|".join(align) + "|", *rest])


def escaped(text: str) -> str:
    """Text in a Markdown table: a data set's or a folder's name is no markup."""
    return re.sub(r"([|\\`*_<>\[\]])", r"\\\1", printable(" ".join(text.split())))


def _row(row: Row) -> str:
    return f"| {escaped(row.label)} | " + " | ".join(map(_cell, row.entries)) + " |"


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    number, plus_minus, std = entry.text.partition(" ± ")
    text = (f"**{number}**" if entry.best else number) + plus_minus + std
    text += f" <sup>{entry.marks}</sup>" if entry.marks else ""
    if not entry.below or entry.text == entry.below == "-":
        return text
    return f"{text} ({entry.below_marks + ' ' if entry.below_marks else ''}{entry.below})"
