"""Where a number of a table comes from."""

import contextlib

from marginctl.errors import RequestError
from marginctl.objectives.names import parse
from marginctl.reporting.collect import Table
from marginctl.reporting.compare import Comparisons
from marginctl.reporting.grid_notes import formatted_p
from marginctl.text import did_you_mean, printable


def explain(cell: str, tables: list[Table], compared: list[Comparisons]) -> list[str]:
    """Lines on the cell `DATASET/OBJECTIVE`: runs, settings, n, the published cell and the tests.

    Raises:
        RequestError: no table has such a cell.
    """
    dataset, _, objective = cell.partition("/")
    with contextlib.suppress(RequestError):  # what is not there is said below
        objective = str(parse(objective))
    lines: list[str] = []
    places: list[str] = []
    for table, made in zip(tables, compared, strict=True):
        grid = table.collector().grid
        places += [f"{d}/{o}" for d, o in grid.cells]
        found = grid.cells.get((dataset, objective))
        if found is None:
            continue
        runs = [
            run for (row, of, _), run in table.runs.items() if (row, of) == (dataset, objective)
        ]
        protocol = runs[0].about["recipe"]["protocol"]
        fixed = runs[0].record["split"] == "fixed"
        folds = "a fixed test set" if fixed else f"{protocol['folds']} folds"
        lines += [
            f"{dataset} / {objective} in {table.recipe}",
            f"  mean {found.mean:.4f}, std {found.std:.4f} (ddof 1) over n = {found.n} fold "
            f"accuracies: {folds} x {protocol['repeats']} repeats x {len(runs)} seeds",
            "  protocol: " + ", ".join(f"{k}={_plain(v)}" for k, v in protocol.items()),
        ]
        for run in runs:
            versions = ", ".join(f"{k} {v}" for k, v in run.record["versions"].items())
            lines += [
                f"  run {printable(str(run.path))}: seed {run.record['seed']}, numerics "
                f"{run.about['numerics']}, {versions}, commit {run.about['git_commit']}, data "
                f"{run.about['data'][:12]}, started {run.about['timing']['started']}"
            ]
            chosen = run.record.get("chosen")
            if chosen:
                ways = ", ".join(f"{name} ({n})" for name, n in chosen.items() if n)
                lines.append(f"  chosen inside the training rows: {ways}")
        if found.note:
            lines.append(f"  note: {found.note}")
        if found.paper:
            test = made.published[dataset, objective]
            outcome = test.reason or f"z = {test.statistic:.2f}, p = {formatted_p(test.p)}"
            lines.append(
                f"  published ({table.paper}, table {table.table}): {found.paper.mean:.2f} ± "
                f"{found.paper.std:.2f} over n = {found.paper.n}; difference "
                f"{found.mean - found.paper.mean:+.2f}, {outcome} (approximate)"
            )
        comparison = made.cells.get((dataset, objective))
        if comparison:
            test = comparison.test
            outcome = test.reason or (
                f"t = {test.statistic:.3f}, df = {test.df:.0f}, p = {formatted_p(test.p)}, "
                f"{formatted_p(comparison.p_holm)} after Holm, effect {test.effect:+.3f}"
            )
            lines.append(
                f"  against {made.baseline}: {comparison.difference or 0:+.4f} points, corrected "
                f"resampled t-test: {outcome}"
            )
    if not lines:
        raise RequestError(
            f"--explain {cell}: no such cell: expected DATASET/OBJECTIVE of a finished run."
            + did_you_mean(cell, places)
        )
    return lines


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")
