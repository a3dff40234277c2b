"""The difference of two run stores as a terminal table, Markdown and CSV."""

import statistics
from collections.abc import Iterable, Mapping

from marginctl.reports.formats.markdown import markdown_rows
from marginctl.reports.formats.text_table import print_csv, print_rows
from marginctl.results.diff import Diff, DiffCell

COLUMNS = ("recipe", "row", "objective", "seeds", "n", "A", "B", "B - A", "95 %", "same", "note")
SHOWN_SEEDS = 5


def rows_of_diff(cells: Iterable[DiffCell]) -> list[Mapping[str, str]]:
    """The cells as text, by `COLUMNS`."""
    rows: list[Mapping[str, str]] = []
    for cell in cells:
        difference = cell.difference
        shown = None if cell.low is None else f"{cell.low:+.2f} to {cell.high:+.2f}"
        seeds = [str(seed) for seed in cell.seeds[:SHOWN_SEEDS]]
        more = len(cell.seeds) - len(seeds)
        values = (
            *(cell.recipe, cell.row, cell.objective),
            " ".join(seeds) + (f" and {more} more" if more else ""),
            _count(cell),
            *(_mean(cell.a), _mean(cell.b)),
            "-" if difference is None else f"{difference:+.4f}",
            shown or "-",
            {True: "yes", False: "no", None: "-"}[cell.identical],
            cell.note or "",
        )
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def _count(cell: DiffCell) -> str:
    counts = dict.fromkeys(len(numbers) for numbers in (cell.a, cell.b) if numbers is not None)
    return " | ".join(map(str, counts))


def _mean(numbers: tuple[float, ...] | None) -> str:
    return f"{statistics.fmean(numbers):.4f}" if numbers else "-"


def print_diff(diff: Diff, table_format: str) -> None:
    """Prints it on stdout as `table`, `markdown` or `csv`."""
    if table_format == "csv":
        every = rows_of_diff([*diff.cells, *diff.only_a, *diff.only_b])
        print_csv([COLUMNS, *(row.values() for row in every)])
        return
    for heading, cells in (
        ("", diff.cells),
        ("Only in A:", diff.only_a),
        ("Only in B:", diff.only_b),
    ):
        if not cells:
            continue
        if heading:
            print(f"\n{heading}\n")
        if table_format == "markdown":
            lines = [list(row.values()) for row in rows_of_diff(cells)]
            print(markdown_rows([COLUMNS, *lines], ["---"] * len(COLUMNS)))
        else:
            print_rows(rows_of_diff(cells), COLUMNS)
    same = sum(bool(cell.identical) for cell in diff.cells)
    print(
        f"\n{len(diff.cells)} cells in both, {same} identical to the last bit. Accuracy in "
        "percent, the mean over n folds or seeds; the interval is of paired differences, "
        "approximate for folds."
    )
    for line in diff.protocols:
        print(f"other protocol: {line}")
