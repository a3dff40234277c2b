"""Prints tables on stdout, or writes them into a file."""

import contextlib
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from marginctl.errors import RequestError
from marginctl.reports.formats.latex import latex
from marginctl.reports.formats.markdown import markdown
from marginctl.reports.formats.terminal import print_table
from marginctl.reports.tables.table import Table
from marginctl.results.load_run import MARKS
from marginctl.runs.atomic_io import check_writable, write_output


def print_tables(table_format: str, tables: Iterable[Table]) -> None:
    """Print tables as `table`, `markdown` or `latex`, a blank line between two."""
    for i, table in enumerate(tables):
        if i:
            print()
        if table_format == "latex":
            print(latex(table))
        elif table_format == "markdown":
            print((f"**{table.title}**\n\n" if table.title else "") + markdown(table))
        else:
            if table.title:
                print(table.title + "\n")
            print_table(table)


def check_output(path: Path) -> None:
    """Finds out before the work whether `--output` can be written, and is no file of a run.

    Raises:
        RequestError: it is a folder, a file of a run, or in a folder that cannot be written.
    """
    try:
        check_writable(path)
    except RequestError as error:
        raise RequestError(*(f"--output {line}" for line in error.lines)) from None
    if any((path.parent / mark).exists() for mark in MARKS):
        raise RequestError(
            f"--output {path}: lies in the folder of a run, whose files it may end: name another"
        )


@contextlib.contextmanager
def to_file(path: Path | None) -> Iterator[list[str]]:
    """What is printed inside goes into a file, whole or not at all; with None, on stdout.

    Yields:
        A list that has a line about the file in the end, and nothing with None.

    Raises:
        StorageError: it cannot be written.
    """
    wrote: list[str] = []
    if path is None:
        yield wrote
        return
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        yield wrote
    write_output(path, text.getvalue())
    wrote.append(f"wrote {path}")
