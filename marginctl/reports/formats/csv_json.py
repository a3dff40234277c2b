"""Reports as data: CSV and JSON, with the numbers in full."""

import json
from typing import Any

from marginctl.reports.tables.table import Report
from marginctl.runs.atomic_io import csv_text
from marginctl.utils.text import printable


def render_csv(report: Report, width: int | None = None) -> str:
    """Return the records, a line each below a heading; a missing value is empty."""
    heading = list(dict.fromkeys(key for record in report.records for key in record))
    rows: list[list[Any]] = [heading]
    rows += [[record.get(key) for key in heading] for record in report.records]
    return csv_text([_safe(cell) for cell in row] for row in rows).rstrip("\n")


def render_json(report: Report, width: int | None = None) -> str:
    """Return the document of a report; NaN is refused."""
    return json.dumps(report.document, indent=1, allow_nan=False)


def _safe(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value
