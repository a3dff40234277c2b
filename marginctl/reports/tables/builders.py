"""Sheets of what a report holds of its own: cross-validation and training."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from marginctl.reports.tables import footnotes as notes
from marginctl.reports.tables.metric_tables import metric_tables
from marginctl.reports.tables.published_table import said_of
from marginctl.reports.tables.table import Cell as TableCell
from marginctl.reports.tables.table import Row, Table
from marginctl.reports.tables.train_table import Cell as Trained
from marginctl.reports.tables.train_table import spread
from marginctl.results.collect import Run
from marginctl.results.compare_folds import Comparisons
from marginctl.results.compare_seeds import SeedComparison
from marginctl.results.cv_cells import Cell, Grid
from marginctl.results.verdict import Judged, JudgedTable

Place = tuple[str, str]


def of_grid(
    grid: Grid,
    made: Comparisons | None,
    *,
    key: str = "table",
    title: str = "",
    runs: Mapping[Place, tuple[Run, ...]] | None = None,
    verdicts: Mapping[Place, Judged] | None = None,
    more: Sequence[str] = (),
) -> Table:
    """A cross-validation table.

    Args:
        grid: its cells.
        made: the tests.
        key, title: of the sheet.
        runs: of each cell.
        verdicts: on the published cells.
        more: notes that stand last.
    """
    runs, verdicts = runs or {}, verdicts or {}
    rows = []
    for dataset in grid.datasets:
        cells = [grid.cells.get((dataset, o)) for o in grid.objectives]
        best = max((round(c.mean, 2) for c in cells if c), default=None)
        if any(cells):
            entries = (
                _of_cell(c, best, made, runs, verdicts) if c is not None else None for c in cells
            )
            rows.append(Row(dataset, tuple(entries)))
    below = [*notes.legend(grid, made), *notes.conclusions(grid, made), *notes.skipped(grid)]
    return Table(
        key=key,
        title=title,
        caption=notes.caption(grid) if grid.cells else "",
        label_heading="data set",
        columns=grid.objectives,
        rows=(*rows, *_feet(grid)),
        notes=(*below, *more),
    )


def verdicts_of(
    judged: JudgedTable | None, runs: Mapping[Place, tuple[Run, ...]]
) -> dict[Place, Judged]:
    """The judged cells that these very runs gave, by data set and objective."""
    found = {}
    for place, cell in judged.cells.items() if judged else ():
        where = judged.table.selections[place] if judged else {}
        own = (str(where.get("dataset")), str(where.get("objective")))
        if cell.runs and {r.path for r in cell.runs} <= {r.path for r in runs.get(own, ())}:
            found[own] = cell
    return found


def _of_cell(
    cell: Cell,
    best: float | None,
    made: Comparisons | None,
    runs: Mapping[Place, tuple[Run, ...]],
    verdicts: Mapping[Place, Judged],
) -> TableCell:
    place = (cell.dataset, cell.objective)
    verdict = verdicts.get(place)
    return TableCell(
        f"{cell.mean:.2f} ± {cell.std:.2f}",
        best=round(cell.mean, 2) == best,
        footnotes=notes.marks(cell, made),
        below=f"{cell.paper.mean:.2f} ± {cell.paper.std:.2f}" if cell.paper else "",
        verdict=verdict.verdict if verdict else None,
        remark="; ".join(filter(None, [cell.note, said_of(verdict) if verdict else None])) or None,
        runs=runs.get(place, ()),
    )


def _feet(grid: Grid) -> Iterable[Row]:
    """Average and wins, over the rows that are whole, and the paper's where it has the same."""
    if len(grid.datasets) < 2:
        return
    complete, rows = len(grid.complete_rows()), len(grid.datasets)
    of_how_many = "" if complete == rows else f" ({complete} of {rows})"
    alike = len(grid.complete_rows(True)) == complete
    for name, of in (("average", grid.averages), ("wins", grid.wins)):
        ours, paper = of(), of(published=True)
        if ours is None:
            continue
        theirs = paper if paper and alike else [None] * len(ours)
        yield Row(
            name + of_how_many,
            tuple(
                TableCell(_number(a, name), below="" if b is None else _number(b, name))
                for a, b in zip(ours, theirs, strict=True)
            ),
            foot=True,
        )


def _number(value: float, row: str) -> str:
    return f"{value:.2f}" if row == "average" else f"{value:.4g}"


def of_trained(
    cells: Sequence[Trained],
    compared: Sequence[SeedComparison],
    baseline: str,
    *,
    key: str,
    title: str,
    runs: Mapping[Place, tuple[Run, ...]],
) -> Table:
    """Networks trained on images: a row for data, model and setting, a column an objective."""
    columns = tuple(dict.fromkeys(cell.objective for cell in cells))
    by_place = {(cell.row, cell.objective): cell for cell in cells}
    tests = {(c.row, c.objective): c for c in compared if c.measure == "top1"}
    rows = []
    for label in dict.fromkeys(cell.row for cell in cells):
        own = [by_place.get((label, o)) for o in columns]
        best = max((round(statistics.fmean(c.last), 2) for c in own if c and c.last), default=None)
        entries = [
            None
            if c is None
            else _of_trained(c, best, tests.get((label, c.objective)), runs, alone=len(own) == 1)
            for c in own
        ]
        rows.append(Row(label, tuple(entries)))
    counts = sorted({len(cell.last) for cell in cells})
    n = "-".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else "0"
    caption = f"mean ± standard deviation over n = {n} seeds; best of a row in bold"
    if any(cell.best for cell in cells):
        caption = f"Test top-1 in percent after the last epoch: {caption}; below it the best epoch "
        caption += "of each seed, which the test images chose."
    else:
        caption = f"Test top-1 in percent: {caption}."
    return Table(
        key,
        title,
        caption,
        "data, model",
        columns,
        tuple(rows),
        _seed_notes(cells, compared, baseline),
        details=tuple(metric_tables(cells, compared, baseline)),
    )


def _of_trained(
    cell: Trained,
    best: float | None,
    test: SeedComparison | None,
    runs: Mapping[Place, tuple[Run, ...]],
    *,
    alone: bool,
) -> TableCell:
    mean = round(statistics.fmean(cell.last), 2) if cell.last else None
    return TableCell(
        spread(cell.last),
        best=mean is not None and mean == best and not alone,
        footnotes=(notes.DIVERGED if cell.diverged else "")
        + (notes.COLLAPSED if cell.collapsed else "")
        + notes.DIRECTIONS[test.direction if test else 0],
        below=spread(cell.best) if cell.best else "",
        runs=runs.get((cell.row, cell.objective), ()),
    )


def _seed_notes(
    cells: Sequence[Trained], compared: Sequence[SeedComparison], baseline: str
) -> tuple[str, ...]:
    lines = []
    if any(c.p_holm is not None for c in compared):
        lines.append(
            f"{notes.BETTER} {notes.WORSE}  better or worse than {baseline}: paired t-test over "
            "the seeds, p < 0.05 after Holm's correction over the methods of a row"
        )
    lines += [c.said(baseline) for c in compared if c.measure == "top1"]
    diverged = [f"{c.objective} on {c.row} {c.diverged}" for c in cells if c.diverged]
    if diverged:
        lines.append(f"{notes.DIVERGED}  diverged, and in no number: {'; '.join(diverged)}")
    collapsed = [
        f"{c.objective} on {c.row} {c.collapsed}/{len(c.last)}" for c in cells if c.collapsed
    ]
    if collapsed:
        lines.append(f"{notes.COLLAPSED}  one class predicted: {'; '.join(collapsed)}")
    lines += [f"{c.objective} on {c.row}: {c.scale_note}" for c in cells if c.scale_note]
    for label, before in dict(cell.before for cell in cells if cell.before is not None).items():
        if before["top1"] is None:
            lines.append(f"{label} before: not measured: {before['reason']}")
        else:
            low, high = before["interval"]
            lines.append(
                f"{label} before, with its own classifier: top-1 {before['top1']:.2f} % (95 %: "
                f"{low:.2f} to {high:.2f}, Wilson, n = {before['n']})"
            )
    return tuple(lines)
