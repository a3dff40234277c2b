"""The tables of `report --diff`: the cells of two runs folders side by side."""

import statistics
from collections.abc import Sequence
from typing import Any

from marginctl.reports.tables.table import Report, Table, table_of_texts
from marginctl.results.diff import Diff, DiffCell

COLUMNS = (
    "recipe",
    "row",
    "objective",
    "seeds",
    "note",
    "n",
    "A",
    "B",
    "B - A",
    "95 % interval",
    "identical",
)
SHOWN_SEEDS = 5


def diff_report(diff: Diff) -> Report:
    identical = sum(bool(cell.identical) for cell in diff.cells)
    notes = [
        f"{len(diff.cells)} cells in both, {identical} bit-identical. Accuracy in percent, the "
        "mean over n folds or seeds; the interval is of paired differences, approximate for folds.",
        *(f"different protocol: {line}" for line in diff.protocols),
    ]
    tables = [
        _table(caption, cells)
        for caption, cells in (("Only in A", diff.only_a), ("Only in B", diff.only_b))
        if cells
    ]
    records = [_record(cell) for cell in (*diff.cells, *diff.only_a, *diff.only_b)]
    return Report([_table("", diff.cells, notes), *tables], records, diff.as_json())


def _table(title: str, cells: Sequence[DiffCell], notes: Sequence[str] = ()) -> Table:
    return table_of_texts(
        "",
        COLUMNS,
        [list(_record(cell).values()) for cell in cells],
        title=title,
        notes=notes,
        text_columns=4,
    )


def _record(cell: DiffCell) -> dict[str, Any]:
    seeds = [str(seed) for seed in cell.seeds[:SHOWN_SEEDS]]
    more = len(cell.seeds) - len(seeds)
    counts = dict.fromkeys(len(numbers) for numbers in (cell.a, cell.b) if numbers is not None)
    values = (
        cell.recipe,
        cell.row,
        cell.objective,
        " ".join(seeds) + (f" and {more} more" if more else ""),
        cell.note or "",
        " | ".join(map(str, counts)),
        _mean(cell.a),
        _mean(cell.b),
        "-" if cell.difference is None else f"{cell.difference:+.4f}",
        "{:+.2f} to {:+.2f}".format(*cell.interval) if cell.interval else "-",
        {True: "yes", False: "no", None: "-"}[cell.identical],
    )
    return dict(zip(COLUMNS, values, strict=True))


def _mean(numbers: Sequence[float] | None) -> str:
    return f"{statistics.fmean(numbers):.4f}" if numbers else "-"
