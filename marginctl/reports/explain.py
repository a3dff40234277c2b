"""Where a number of a table comes from."""

import contextlib
import statistics
from collections.abc import Iterator, Sequence

from marginctl.errors import RequestError
from marginctl.objectives.parsing import parse
from marginctl.reports.build import Assembled, OfTable, OfTrained
from marginctl.reports.tables.footnotes import formatted_p
from marginctl.results.collect import Run
from marginctl.utils.text import did_you_mean, plain, printable


def explain(cell: str, assembled: Assembled) -> list[str]:
    """Lines on the cell `ROW/OBJECTIVE`: runs, settings, n, the published cell and the tests.

    Raises:
        RequestError: no table has such a cell.
    """
    places = [f"{row}/{o}" for t in assembled.tables for row, o in t.collector.grid.cells]
    places += [f"{c.row}/{c.objective}" for t in assembled.trained for c in t.cells]
    row, objective = _split(cell, places)
    lines = [
        *(line for t in assembled.tables for line in _of_table(t, row, objective)),
        *(line for t in assembled.trained for line in _of_trained(t, row, objective)),
    ]
    if not lines:
        raise RequestError(
            f"--explain {cell}: no such cell: expected ROW/OBJECTIVE of a finished run."
            + did_you_mean(cell, places)
        )
    return lines


def _split(cell: str, places: Sequence[str]) -> tuple[str, str]:
    """Row and objective; a model such as torchvision/resnet50 has the sign in its name."""
    for place in places:
        if cell == place:
            row, _, objective = place.rpartition("/")
            return row, objective
    row, _, objective = cell.rpartition("/")
    with contextlib.suppress(RequestError):  # what is not there is said later
        objective = str(parse(objective))
    return row, objective


def _of_table(own: OfTable, dataset: str, objective: str) -> Iterator[str]:
    table, made = own.table, own.compared
    found = own.collector.grid.cells.get((dataset, objective))
    if found is None:
        return
    runs = [run for (row, of, _), run in table.runs.items() if (row, of) == (dataset, objective)]
    protocol = runs[0].about["recipe"]["protocol"]
    fixed = runs[0].record["split"] == "fixed"
    folds = "a fixed test set" if fixed else f"{protocol['folds']} folds"
    yield f"{dataset} / {objective} in {table.recipe}"
    yield (
        f"  mean {found.mean:.4f}, std {found.std:.4f} (ddof 1) over n = {found.n} fold "
        f"accuracies: {folds} x {protocol['repeats']} repeats x {len(runs)} seeds"
    )
    yield "  protocol: " + ", ".join(f"{k}={plain(v)}" for k, v in protocol.items())
    for run in runs:
        yield _where(run)
        chosen = run.record.get("chosen")
        if chosen:
            ways = ", ".join(f"{name} ({n})" for name, n in chosen.items() if n)
            yield f"  chosen inside the training rows: {ways}"
    if found.note:
        yield f"  note: {found.note}"
    if found.paper:
        judged = own.verdicts.get((dataset, objective))
        verdict = f": {judged.verdict}" if judged else ""
        yield (
            f"  published ({table.paper}, table {table.table}): {found.paper.mean:.2f} ± "
            f"{found.paper.std:.2f} over n = {found.paper.n}; difference "
            f"{found.mean - found.paper.mean:+.2f}{verdict}"
        )
    comparison = made.cells.get((dataset, objective))
    if comparison:
        test = comparison.test
        outcome = test.reason or (
            f"t = {test.statistic:.3f}, df = {test.df:.0f}, p = {formatted_p(test.p)}, "
            f"{formatted_p(comparison.p_holm)} after Holm, effect {test.effect:+.3f}"
        )
        yield (
            f"  against {made.baseline}: {comparison.difference or 0:+.4f} points, corrected "
            f"resampled t-test: {outcome}"
        )


def _of_trained(own: OfTrained, row: str, objective: str) -> Iterator[str]:
    found = next((c for c in own.cells if (c.row, c.objective) == (row, objective)), None)
    if found is None:
        return
    runs = [r for (a, b, _), r in own.trained.runs.items() if (a, b) == (row, objective)]
    yield f"{row} / {objective} in {own.trained.recipe}"
    for name, values in (("last epoch", found.last), ("best epoch", found.best)):
        if values:
            std = f"{statistics.stdev(values):.4f}" if len(values) > 1 else "-"
            mean = statistics.fmean(values)
            yield f"  {name}: mean {mean:.4f}, std {std}, n = {len(values)} seeds"
    recipe = runs[0].about["recipe"]
    for section in ("data", "optim", "train", "second_stage"):  # the last one over those before
        said = recipe.get(section) or {}
        shown = ", ".join(f"{k}={plain(v)}" for k, v in said.items() if v is not None)
        if shown:
            yield f"  {section}: {shown}"
    for run in sorted(runs, key=lambda run: int(run.record["seed"])):
        last = run.record["last"]
        top1 = run.record["diverged"] or f"top-1 {last['top1']:.4f} after epoch {last['epoch']}"
        yield f"{_where(run)}: {top1}"
    for comparison in own.compared:
        if (comparison.row, comparison.objective) == (row, objective):
            yield f"  {comparison.said(own.baseline)}"


def _where(run: Run) -> str:
    """A run: its folder, and what it was computed with."""
    versions = ", ".join(f"{k} {v}" for k, v in run.record["versions"].items())
    return (
        f"  run {printable(str(run.path))}: seed {run.record['seed']}, numerics "
        f"{run.about['numerics']}, {versions}, commit {run.about['git_commit']}, data "
        f"{run.about['data'][:12]}, started {run.about['timing']['started']}"
    )
