"""Lists of things as a plain table."""

import csv
import io
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text

from marginctl.reports.formats.markdown import markdown_rows
from marginctl.reports.formats.terminal import stdout_console
from marginctl.utils.text import printable


def shown(value: Any) -> str:
    """A value as a recipe would write it; nothing for None."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines on stdout, no name in which a terminal would obey."""
    print("\n".join(map(printable, lines)))


def _safe(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


def print_csv(rows: Iterable[Iterable[Any]]) -> None:
    """Prints rows on stdout, the first the heading."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([map(_safe, row) for row in rows])
    print(text.getvalue(), end="")


def print_table(
    table_format: str,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Container[int],
    below: Iterable[str],
) -> None:
    """Prints a table on stdout: wrapped on a terminal, as wide as it is in a file.

    Args:
        table_format: `table`, `markdown` or `csv`.
        names: of the columns.
        rows: as many texts each.
        numbers: which columns are aligned to the right.
        below: sentences under a `table`.
    """
    if table_format == "csv":
        print_csv([names, *rows])
        return
    if table_format == "markdown":
        aligned = ["---:" if i in numbers else "---" for i in range(len(names))]
        print(markdown_rows([names, *rows], aligned))
        return
    console = stdout_console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, name in enumerate(names):  # Text: a folder's name is no markup
        justify: Literal["left", "right"] = "right" if i in numbers else "left"
        table.add_column(Text(name), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(text)) for text in row))
    console.print(table, soft_wrap=not console.is_terminal)
    print_sentences(below)


def print_sentences(sentences: Iterable[str]) -> None:
    """Prints sentences on stdout: wrapped between words on a terminal, a line each in a file."""
    console = stdout_console()
    for sentence in sentences:
        console.print(Text(printable(sentence)), soft_wrap=not console.is_terminal)


def print_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Prints rows on stdout: wrapped on a terminal, as wide as they are in a file."""
    console = stdout_console()
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(shown(row[c]))) for c in columns))
    console.print(table, soft_wrap=not console.is_terminal)


def print_finding(topic: str, state: str, said: str, advice: str | None) -> None:
    """Prints one of doctor's findings on stdout, and below it what to do."""
    console = stdout_console()
    marks = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("PROBLEM", "bold red")}
    mark, style = marks[state]
    head = Text.assemble((f"{mark:8}", style), (f"{topic:13}", "bold"))
    for text in [said, *([f"-> {advice}"] if advice else [])]:
        for line in Text(printable(text)).wrap(console, max(20, console.width - len(head))):
            console.print(head + line, soft_wrap=True)
            head = Text(" " * len(head))


def print_objective(found: Mapping[str, Any], *, first: bool) -> None:
    """Prints what `described` says of an objective."""
    source = f" ({found['source']})" if found["source"] else ""
    print(f"{'' if first else chr(10)}{found['name']}: {found['title']}{source}")
    if found["formula"]:
        print(f"  loss of a sample: {found['formula']}")
    for role, text in found["parts"].items():
        print(f"  {role}: {text}")
    if found["two_classes"]:
        print(f"  with two classes: {found['two_classes']}")
    for line in found["theory"]:
        print(f"  with {found['classes']} classes: {line}")
    if found["options"]:
        print()
        print_rows(found["options"], ["name", "default", "value", "expected", "help"])
