"""The formats that reports are printed in: one entry each, plug-ins included."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from marginctl.reports.tables.table import Report
from marginctl.runs.atomic_io import csv_text
from marginctl.utils.registry import Registry, import_object
from marginctl.utils.text import printable


@dataclass(frozen=True)
class Format:
    title: str  # what it is, for the help
    # the import path of `f(report: Report, width: int | None) -> str`; `width` is that of a
    # terminal, or COLUMNS for a pipe; None where text is not folded
    render: str
    is_page: bool = False  # whether it is a file to open in a browser, not text to print

    def load(self) -> Callable[[Report, int | None], str]:
        """Return the renderer.

        Raises:
            RequestError: it cannot be imported.
        """
        renderer: Callable[[Report, int | None], str] = import_object(
            self.render, f"format '{self.title}'"
        )
        return renderer


_HERE = "marginctl.reports.formats"
FORMATS = Registry(
    "format",
    Format,
    {
        "table": Format("text for a terminal", f"{_HERE}.terminal:render"),
        "markdown": Format("GitHub's Markdown", f"{_HERE}.markdown:render"),
        "latex": Format("LaTeX with booktabs", f"{_HERE}.latex:render"),
        "csv": Format("CSV, numbers in full", f"{_HERE}.registry:render_csv"),
        "json": Format("JSON, numbers in full", f"{_HERE}.registry:render_json"),
        "html": Format("a page", f"{_HERE}.html.page:render", is_page=True),
    },
)


def render_csv(report: Report, width: int | None = None) -> str:
    """Return the records, a line each below a heading; a missing value is empty."""
    heading = list(dict.fromkeys(key for record in report.records for key in record))
    rows: list[list[Any]] = [heading]
    rows += [[record.get(key) for key in heading] for record in report.records]
    safe = ([printable(c) if isinstance(c, str) else c for c in row] for row in rows)
    return csv_text(safe).rstrip("\n")


def render_json(report: Report, width: int | None = None) -> str:
    """Return the document of a report; NaN is refused."""
    return json.dumps(report.document, indent=1, allow_nan=False)
