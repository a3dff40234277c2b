"""Explains a number of a report: its runs, settings and tests."""

import statistics
from collections.abc import Iterator

from marginctl.errors import RequestError
from marginctl.metrics.registry import FOLD_METRICS
from marginctl.recipe.uci_cv import BASELINES
from marginctl.reports.build import CVReport, RunsReport, TrainingReport
from marginctl.reports.tables.table import format_p
from marginctl.reports.tables.training_table import comparison_text
from marginctl.results.collect import Run
from marginctl.results.compare import Comparison
from marginctl.utils.text import count_noun, did_you_mean, format_setting, printable


def explain(cell: str, report: RunsReport) -> list[str]:
    """Return lines on a cell `ROW/OBJECTIVE`: runs, settings, n, the published value and the tests.

    Raises:
        RequestError: no table has such a cell.
    """
    row, _, objective = cell.rpartition("/")  # a row such as torchvision/resnet50 has a slash
    lines = [
        *(line for r in report.cross_validation for line in _explain_cv(r, row, objective)),
        *(line for r in report.training for line in _explain_training(r, row, objective)),
    ]
    if not lines:
        cells = [f"{row}/{o}" for r in report.cross_validation for row, o in r.grid.cells]
        cells += [f"{c.row}/{c.objective}" for r in report.training for c in r.cells]
        raise RequestError(
            f"--explain {cell}: no such cell: expected ROW/OBJECTIVE of a finished run."
            + did_you_mean(cell, cells)
        )
    return lines


def _explain_cv(result: CVReport, dataset: str, objective: str) -> Iterator[str]:
    cell = result.grid.cells.get((dataset, objective))
    if cell is None:
        return
    runs = [r for (row, o, _), r in result.runs.runs.items() if (row, o) == (dataset, objective)]
    protocol = runs[0].info.recipe["protocol"]
    if objective in BASELINES:  # of scikit-learn: no network
        protocol = {key: protocol[key] for key in ("folds", "repeats", "stratified")}
    fixed = runs[0].cv_result.split == "fixed"
    folds = "a fixed test set" if fixed else f"{protocol['folds']} folds"
    counted = "initializations" if fixed else "fold accuracies"
    yield f"{dataset} / {objective} in {result.runs.recipe}"
    yield (
        f"  mean {cell.mean:.4f}, std {cell.std:.4f} (ddof 1) over n = {cell.n} {counted}: "
        f"{folds} x {count_noun(protocol['repeats'], 'repeat')} x {count_noun(len(runs), 'seed')}"
    )
    yield "  protocol: " + ", ".join(f"{k}={format_setting(v)}" for k, v in protocol.items())
    for run in runs:
        yield _describe_run(run)
        chosen = run.cv_result.chosen
        if chosen:
            counts = ", ".join(f"{name} ({n})" for name, n in chosen.items() if n)
            yield f"  chosen inside the training rows: {counts}"
    if cell.note:
        yield f"  note: {cell.note}"
    if cell.paper:
        compared = result.verdicts.get((dataset, objective))
        yield (
            f"  published ({result.runs.paper}, table {result.runs.table}): {cell.paper.mean:.2f} "
            f"± {cell.paper.std:.2f} over n = {cell.paper.n}; difference "
            f"{cell.mean - cell.paper.mean:+.2f}" + (f": {compared.verdict}" if compared else "")
        )
    comparison = result.comparisons.cells.get((dataset, objective))
    if comparison:
        metric = FOLD_METRICS[comparison.metric]
        unit = "percentage points" if metric.unit else f"in {metric.label}"
        name = "corrected resampled t-test"
        if comparison.fixed:
            name = f"paired test over {count_noun(comparison.n, 'test row')}"
        yield (
            f"  against {result.comparisons.baseline}: {comparison.difference or 0:+.4f} {unit}, "
            f"{name}: {_outcome(comparison)}"
        )


def _outcome(comparison: Comparison) -> str:
    test = comparison.test
    if test.reason:
        return test.reason
    t = "" if test.df is None else f"t = {test.statistic:.3f}, df = {test.df:.0f}, "
    return (
        f"{t}p = {format_p(test.p)}, Holm-adjusted p = {format_p(comparison.p_holm)}, effect size "
        f"{test.effect:+.3f}"
    )


def _explain_training(result: TrainingReport, row: str, objective: str) -> Iterator[str]:
    place = (row, objective)
    cell = next((c for c in result.cells if (c.row, c.objective) == place), None)
    if cell is None:
        return
    runs = [
        run
        for run in result.runs.in_order()
        if (run.training_result.row, run.result.objective) == place
    ]
    yield f"{row} / {objective} in {result.runs.recipe}"
    for name, values in (("last epoch", cell.last), ("best epoch", cell.best)):
        if values:
            std = f"{statistics.stdev(values):.4f}" if len(values) > 1 else "-"
            mean = statistics.fmean(values)
            yield f"  {name}: mean {mean:.4f}, std {std}, n = {count_noun(len(values), 'seed')}"
    recipe = runs[0].info.recipe
    # the settings of the second stage override the others
    for section in ("data", "optim", "train", "second_stage"):
        settings = recipe.get(section) or {}
        shown = ", ".join(f"{k}={format_setting(v)}" for k, v in settings.items() if v is not None)
        if shown:
            yield f"  {section}: {shown}"
    for run in runs:
        last, diverged = run.training_result.last, run.training_result.diverged
        top1 = diverged or "-"
        if last is not None and not diverged:
            top1 = f"top-1 {last.top1:.4f} after epoch {last.epoch}"
        yield f"{_describe_run(run)}: {top1}"
    for comparison in result.comparisons:
        if (comparison.row, comparison.objective) == place:
            yield f"  {comparison_text(comparison, result.baseline)}"


def _describe_run(run: Run) -> str:
    """Return the directory of a run, and what it was computed with."""
    versions = ", ".join(f"{k} {v}" for k, v in run.result.versions.items())
    return (
        f"  run {printable(str(run.path))}: seed {run.result.seed}, numerics "
        f"{run.info.numerics}, {versions}, commit {run.info.git_commit}, data "
        f"{run.info.data[:12]}, started {run.info.timing.started}"
    )
