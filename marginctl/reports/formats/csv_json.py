"""Reports as data: CSV and JSON, with the numbers in full."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from marginctl.reports.tables.table import Report
from marginctl.utils.text import printable


def render_csv(report: Report, width: int | None = None) -> str:
    """Return the records of a report, a line each below a heading."""
    return csv_text(report.records)


def render_json(report: Report, width: int | None = None) -> str:
    return json_text(report.document)


def csv_text(records: Iterable[Mapping[str, Any]]) -> str:
    """Return records as CSV; a missing value is empty, control characters are escaped."""
    lines = list(records)
    heading = list(dict.fromkeys(key for line in lines for key in line))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_safe, heading))
    writer.writerows([_safe(line.get(key)) for key in heading] for line in lines)
    return text.getvalue().rstrip("\n")


def json_text(document: Any) -> str:
    """Return one strict JSON document; NaN is refused."""
    return json.dumps(document, indent=1, allow_nan=False)


def _safe(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value
