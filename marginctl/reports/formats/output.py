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


def stdout_console() -> Console:
    """Return stdout for text: as wide as a terminal, or as COLUMNS says; unlimited in a file."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    columns = "" if isinstance(sys.stdout, io.StringIO) else os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) else FILE_WIDTH
    return Console(highlight=False, force_terminal=False, width=width)


def print_report(report: Report, format_name: str) -> None:
    """Print a report on stdout.

    Raises:
        RequestError: no such format, or its renderer cannot be imported.
    """
    console = stdout_console()
    width = None if console.width == FILE_WIDTH else console.width
    text = FORMATS.find(format_name).load()(report, width)
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
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        yield messages
    write_output(path, text.getvalue())
    messages.append(f"wrote {path}")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout; control characters are escaped."""
    print("\n".join(map(printable, lines)))


def print_sentences(sentences: Iterable[str]) -> None:
    """Print sentences on stdout: wrapped between words on a terminal, a line each in a file."""
    console = stdout_console()
    for sentence in sentences:
        console.print(Text(printable(sentence)), soft_wrap=console.width == FILE_WIDTH)


def print_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows of text on stdout: folded on a terminal, as wide as they are in a file."""
    texts = [[value_text(row[column]) for column in columns] for row in rows]
    console = stdout_console()
    table = table_of_texts("", columns, texts, text_columns=len(columns) - 1)
    console.print(rich_table(table, console.width), soft_wrap=console.width == FILE_WIDTH)


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
