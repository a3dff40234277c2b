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
    safe = ([printable(c) if isinstance(c, str) else c for c in row] for row in rows)
    return csv_text(safe).rstrip("\n")


def render_json(report: Report, width: int | None = None) -> str:
    """Return the document of a report; NaN is refused."""
    return json.dumps(report.document, indent=1, allow_nan=False)
