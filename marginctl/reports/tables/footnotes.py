"""What stands below a cross-validation table: marks, tests, conclusions."""

from collections.abc import Iterable

from marginctl.results import compare_folds
from marginctl.results.compare_folds import Comparisons
from marginctl.results.cv_cells import Cell, Grid

# One character a note in the table, explained below it.
UNTRAINED, DIVERGED, COLLAPSED = "u", "d", "c"
BETTER, WORSE = "▲", "▼"
DIRECTIONS = {1: BETTER, -1: WORSE, 0: ""}


def marks(cell: Cell, made: Comparisons | None) -> str:
    """The notes of a cell, and whether it is significantly better or worse than the baseline."""
    comparison = made.cells.get((cell.dataset, cell.objective)) if made else None
    return (
        (UNTRAINED if cell.untrained else "")
        + (DIVERGED if cell.diverged else "")
        + (COLLAPSED if cell.collapsed else "")
        + DIRECTIONS[comparison.direction if comparison else 0]
    )


def legend(grid: Grid, made: Comparisons | None) -> list[str]:
    """The notes and tests, a line each."""
    cells = grid.in_order()
    lines = []
    if made and made.cells:
        lines.append(
            f"{BETTER} {WORSE}  better or worse than {made.baseline}: corrected resampled t-test "
            "over the folds, p < 0.05 after Holm's correction over the methods of a row"
        )
    if made and made.cells and made.overlapping:
        lines.append(
            "folds overlap (stratified: equal-test-counts): n counts some rows "
            "twice, and these tests are "
            "too sure of themselves"
        )
    for reason in dict.fromkeys(c.untrained for c in cells if c.untrained):
        where = _by_objective([(c, "") for c in cells if c.untrained == reason])
        lines.append(f"{UNTRAINED}  {reason}: {where}")
    diverged = [(c, f" {c.diverged}/{c.n}") for c in cells if c.diverged]
    if diverged:
        lines.append(
            f"{DIVERGED}  loss not finite, network frozen before: {_by_objective(diverged)}"
        )
    collapsed = [(c, f" {c.collapsed}/{c.n}") for c in cells if c.collapsed]
    if collapsed:
        lines.append(f"{COLLAPSED}  one class predicted for every row: {_by_objective(collapsed)}")
    return lines


def conclusions(grid: Grid, made: Comparisons | None) -> list[str]:
    """What the tests over data sets say, a line each; nothing for fewer than two data sets."""
    if made is None or grid.settings or len(grid.datasets) < 2 or len(grid.objectives) < 2:
        return []
    if made.datasets < len(grid.datasets):
        lines = [f"over data sets: {made.datasets} of {len(grid.datasets)} have every cell"]
    else:
        lines = []
    test = made.friedman
    if test.p is None:
        lines.append(f"Friedman over data sets: not made: {test.reason}")
    else:
        lines.append(
            f"Friedman over {made.datasets} data sets: chi2 = {test.statistic:.2f}, "
            f"df = {test.df:.0f}, p = {formatted_p(test.p)}"
        )
    tested = [c for c in made.overall if c.test.p is not None]
    if made.overall and not tested:
        lines.append(f"Wilcoxon against {made.baseline}: not made: {made.overall[0].test.reason}")
    return lines + [_against(c, made) for c in made.overall]


def _against(c: compare_folds.Comparison, made: Comparisons) -> str:
    """A method against the baseline over data sets."""
    low, high = c.interval or (None, None)
    between = "" if low is None else f" (95 %: {low:+.2f} to {high:+.2f}, bootstrap)"
    counted = (
        f"won {c.wins}, tied {c.ties}, lost {c.losses} of {made.datasets} data sets, "
        f"mean {c.mean or 0:+.2f} points{between}"
    )
    names = f"{c.objective} against {made.baseline}"
    if c.test.p is None:
        return f"{names}: {counted}"
    return (
        f"Wilcoxon, {names}: median {c.difference or 0:+.2f} points, "
        f"rank-biserial r = {c.test.effect:+.2f}, p = {formatted_p(c.p_holm)} after Holm; {counted}"
    )


def formatted_p(value: float | None) -> str:
    """A p-value to three places, small ones as 1.2e-05; `-` for none."""
    return "-" if value is None else f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"


def _by_objective(cells: Iterable[tuple[Cell, str]]) -> str:
    groups: dict[str, list[str]] = {}
    for cell, text in cells:
        groups.setdefault(cell.objective, []).append(cell.dataset + text)
    return "; ".join(f"{objective} on {', '.join(where)}" for objective, where in groups.items())


def skipped(grid: Grid) -> list[str]:
    """The rows that are left out, a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for dataset, reason in grid.skipped:
        reasons.setdefault(reason, []).append(dataset)
    return [f"skipped {len(d)}: {', '.join(d)}: {reason}" for reason, d in reasons.items()]


def caption(grid: Grid) -> str:
    """What the cells are."""
    has_paper = any(c.paper for c in grid.cells.values())
    counts = sorted({c.n for c in grid.cells.values()})
    n = f"{counts[0]}" if len(set(counts)) == 1 else f"{counts[0]} to {counts[-1]}"
    text = (
        f"Accuracy in percent: mean ± standard deviation over n = {n} folds; best of a row in bold"
    )
    return text + ("; published values below ours." if has_paper else ".")
