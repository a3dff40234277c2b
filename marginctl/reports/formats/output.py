"""Printing on stdout, and writing into a file."""

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from marginctl.reports.formats.registry import FORMATS
from marginctl.reports.formats.terminal import FILE_WIDTH, rich_table
from marginctl.reports.tables.table import Report, table_of_texts
from marginctl.runs.atomic_io import write_output
from marginctl.utils.text import printable


class _File(io.StringIO):
    """Text on its way into a file, which is never folded."""


def stdout_width() -> int | None:
    """Return the width of a terminal, or COLUMNS for a pipe; None where text is not folded."""
    if isinstance(sys.stdout, _File):
        return None
    if sys.stdout.isatty():
        return Console().width
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) else None


def stdout_console() -> Console:
    """Return stdout for text, with its width and, on a terminal, its colors."""
    terminal = None if sys.stdout.isatty() else False
    return Console(highlight=False, force_terminal=terminal, width=stdout_width() or FILE_WIDTH)


def print_report(report: Report, format_name: str) -> None:
    """Print a report on stdout.

    Raises:
        RequestError: no such format, or its renderer cannot be imported.
    """
    text = FORMATS.find(format_name).load()(report, stdout_width())
    if text:
        print(text)


@contextlib.contextmanager
def to_file(path: Path | None) -> Iterator[list[str]]:
    """Redirect what is printed inside into a file, atomically; None leaves it on stdout.

    Yields:
        A list that names the file in the end, and is empty with None.

    Raises:
        StorageError: the file cannot be written.
    """
    messages: list[str] = []
    if path is None:
        yield messages
        return
    text = _File()
    with contextlib.redirect_stdout(text):
        yield messages
    write_output(path, text.getvalue())
    messages.append(f"wrote {path}")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout; control characters are escaped."""
    print("\n".join(map(printable, lines)))


def print_sentences(sentences: Iterable[str]) -> None:
    """Print sentences on stdout: folded between words at its width, a line each without one."""
    console = stdout_console()
    for sentence in sentences:
        console.print(Text(printable(sentence)), soft_wrap=stdout_width() is None)


def print_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows of text on stdout: folded at its width, as wide as they are without one."""
    texts = [[value_text(row[column]) for column in columns] for row in rows]
    console = stdout_console()
    table = table_of_texts("", columns, texts, text_columns=len(columns) - 1)
    console.print(rich_table(table, console.width), soft_wrap=stdout_width() is None)


def value_text(value: Any) -> str:
    """Return a value as a recipe writes it; nothing for None."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def print_objective(description: Mapping[str, Any], *, first: bool) -> None:
    source = f" ({description['source']})" if description["source"] else ""
    print(f"{'' if first else chr(10)}{description['name']}: {description['title']}{source}")
    lines = [("loss of a sample", description["formula"]), *description["parts"].items()]
    lines.append(("with two classes", description["two_classes"]))
    lines += [(f"with {description['classes']} classes", line) for line in description["theory"]]
    for label, text in lines:
        if text:
            print(f"  {label}: {text}")
    if description["options"]:
        print()
        print_rows(description["options"], ["name", "default", "value", "expected", "help"])
