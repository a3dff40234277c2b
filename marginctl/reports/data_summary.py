"""Lines that tell what was read from a user's data, before the work starts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from marginctl.data.images.content import is_refused
from marginctl.utils.text import count_noun, join_names, shorten

if TYPE_CHECKING:
    from marginctl.calibration.outputs import Outputs
    from marginctl.data.images.summary import ImageSummary
    from marginctl.data.tabular.dataset import TableSummary


def outputs_lines(outputs: "Outputs") -> Iterator[str]:
    """Yield the size and the form of a classifier's outputs, and each remark."""
    rows = count_noun(len(outputs.labels), "row")
    yield f"{outputs.name}: {rows} of {outputs.kind}, {outputs.num_classes} classes"
    yield from (f"{outputs.name}: {remark}" for remark in outputs.remarks)


def table_lines(summary: "TableSummary") -> Iterator[str]:
    """Yield the size of a table, its classes, its columns by type, and each remark."""
    rows = count_noun(summary.rows, "row")
    yield f"{summary.name} ({summary.form}): {rows}, {summary.rows_used} used"
    if summary.classes:
        classes = [f"{shorten(name)} ({count})" for name, count in summary.classes.items()]
        yield f"  {len(classes)} classes: {join_names(classes, 20)}"
    for kind in ("numeric", "categorical", "boolean"):
        columns = [column for column in summary.columns if column.used and column.type == kind]
        names = [
            f"{c.name} ({len(c.categories)})" if kind == "categorical" else c.name for c in columns
        ]
        counted = ", with their numbers of categories" if kind == "categorical" else ""
        if names:
            yield f"  {count_noun(len(names), f'{kind} column')}{counted}: {join_names(names)}"
    unused = [f"{c.name} ({c.type})" for c in summary.columns if not c.used]
    if unused:
        yield f"  {count_noun(len(unused), 'column')} not used: {join_names(unused)}"
    yield from (f"  {remark}" for remark in summary.remarks)


def image_lines(summary: "ImageSummary", image_size: int | None = None) -> Iterator[str]:
    """Yield the parts of a folder or list of images, its sizes, what is not read, and remarks.

    Args:
        image_size: height and width at which a network gets them, if it is known.
    """
    for name, part in summary.parts.items():
        classes = [f"{shorten(label)} ({count})" for label, count in part.classes.items()]
        noun = "class" if len(classes) == 1 else "classes"
        inside = f" in {len(classes)} {noun}: {join_names(classes, 20)}" if classes else ""
        yield f"{name}: {count_noun(part.images, 'image')}{inside}"
    if summary.sizes:
        low, median, high = ("{} x {}".format(*size) for size in summary.sizes.values())
        sizes = low if low == high else f"{low} to {high} (median {median})"
        yield f"sizes: {sizes}" + (f", used at {image_size} x {image_size}" if image_size else "")
        yield "modes: " + ", ".join(f"{mode} ({n})" for mode, n in summary.modes.items())
    for s in summary.skipped:
        verb = "refused" if is_refused(s.reason) else "not read"
        yield f"{verb}: {s.count} ({s.reason}): {s.listed}"
    yield from summary.remarks
