"""Lines that tell what was read from a user's data, before the work starts."""

from collections.abc import Iterator

from marginctl.calibration.read_outputs import OutputsSummary
from marginctl.utils.text import count_noun


def outputs_lines(name: str, summary: OutputsSummary) -> Iterator[str]:
    """Yield the size and the form of a classifier's outputs, and each remark."""
    rows = count_noun(summary.rows, "row")
    yield f"{name}: {rows} of {summary.form}, {summary.classes} classes"
    yield from (f"{name}: {remark}" for remark in summary.remarks)
