"""Tables of networks that were trained on images: of a command's trials, and of a report's runs."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from marginctl.experiments.records import Baseline, TrainingResult, TransferResult, is_probe
from marginctl.metrics.long_tail import DESCRIPTIONS
from marginctl.metrics.registry import METRICS, Metric, metric_named, metrics_in
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.reports.answer_text import answer_lines, budget_notes, unpaired_notes
from marginctl.reports.tables.class_tables import ClassCounts, class_tables
from marginctl.reports.tables.table import (
    BETTER,
    COLLAPSED,
    DIRECTIONS,
    DIVERGED,
    WORSE,
    Cell,
    Report,
    Row,
    Table,
    directions_note,
    flat_record,
    format_mean_std,
    format_p,
    group_by_text,
    number_range,
    table_of_texts,
)
from marginctl.results.answers import Answer, seed_answers
from marginctl.results.collect import Run
from marginctl.results.compare import (
    Comparison,
    attributes,
    compare_seeds,
    resolve_baseline,
    seeds_document,
)
from marginctl.results.statistics import mean_and_std
from marginctl.utils.text import count_noun

Result = TrainingResult | TransferResult

SOURCE_MODEL = "before"  # instead of an objective: the model that others were fine-tuned from
LONG_TAIL_MEANS = "over test images; class mean: the mean of the class accuracies (Liu et al. 2019)"
NESTED = ("detection", "verification", "metrics")  # groups with an object of their own in JSON
# The tables below that of a report, by the group of their metrics; the first `{}` stands for their
# subject, the second for their score.
CAPTIONS = {
    "accuracy": "Top-1 accuracy on the test set",
    "scale": "Least-squares scale kappa*, the mean over the test images",
    "long-tail": "Top-1 accuracy of classes by their number of training images ("
    + "; ".join(f"{name}: {words}" for name, words in DESCRIPTIONS.items())
    + f"), {LONG_TAIL_MEANS}",
    "calibration": "Calibration on the test set",
    "verification": "Verification of the pairs of {}",
    "detection": "{} detection by {}; -In, -Out: the test or the OOD images are the positive class",
    "metrics": "Further metrics on the test set",
}
MISS_CAPTION = (
    "Misclassification detection (MISS) by {1}; -In, -Out: the correctly classified or the "
    "misclassified test images are the positive class"
)


@dataclass(frozen=True)
class TrainingCell:
    """The networks of one row and objective, one for each seed; accuracies in percent.

    Attributes:
        last, best: test accuracy of each seed after its last and its best epoch. The best epoch is
            selected on the test set; a linear probe has no epochs.
        diverged: how many seeds had a loss that was not finite; no other number includes them.
        collapsed: how many of the others predict the same class for every test image.
        seconds, epoch_seconds: the training time of all seeds, and the median of an epoch.
        scales: where a scale is taken from another run: which run and number, for each seed.
        baseline: what was measured of the model that these networks were fine-tuned from, on their
            test set; None where they were not.
        validated: whether the epochs were chosen on a validation part; `last` and `best` are equal.
        chosen: what tuning chose for each seed.
        candidates: how many it chose from; 0 without tuning.
    """

    row: str
    objective: str
    last: Sequence[float]
    metrics: Mapping[str, Sequence[float]]
    best: Sequence[float] = ()
    best_epochs: Sequence[int] = ()
    diverged: int = 0
    collapsed: int = 0
    seconds: float = 0.0
    epoch_seconds: float | None = None
    scales: Sequence[Mapping[str, Any]] = ()
    baseline: Baseline | None = None
    validated: bool = False
    chosen: Sequence[str] = ()
    candidates: int = 0

    def values(self, metric: Metric) -> Sequence[float]:
        """Return the numbers of a metric; none where the networks do not have it."""
        return self.metrics.get(metric.name, ())

    def as_json(self) -> dict[str, Any]:
        return {
            **attributes(self, "row", "objective"),
            "n": len(self.last),
            "last": mean_std_json(self.last),
            "best": mean_std_json(self.best) | {"epochs": list(self.best_epochs)},
            **attributes(self, "diverged", "collapsed", "seconds", "epoch_seconds"),
            **_metrics_json(self.metrics),
            **({"scale_from": list(self.scales)} if self.scales else {}),
            **({"chosen": list(self.chosen)} if self.chosen else {}),
        }

    @property
    def footnotes(self) -> str:
        return (DIVERGED if self.diverged else "") + (COLLAPSED if self.collapsed else "")


def _metrics_json(metrics: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the numbers by metric, some groups in an object of their own."""
    document: dict[str, Any] = {}
    for name, values in metrics.items():
        group = metric_named(name).group
        if group in NESTED:
            document.setdefault(group, {})[name] = mean_std_json(values)
        elif group != "accuracy" and (values or group == "calibration"):
            document[name] = mean_std_json(values)
    return document


def mean_std(values: Sequence[float], decimals: int = 2) -> str:
    """Return `93.54 ± 0.21` (ddof 1); the number alone for one value, `-` for none."""
    return format_mean_std(*mean_and_std(values), decimals)


def mean_std_json(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean, the standard deviation (ddof 1) and the values; null for too few values."""
    return mean_and_std(values)._asdict() | {"seeds": list(values)}


def training_cells(records: Iterable[Result]) -> list[TrainingCell]:
    groups: dict[tuple[str, str], list[Result]] = {}
    for record in records:
        groups.setdefault((record.row, record.objective), []).append(record)
    metrics = metrics_in([record for group in groups.values() for record in group])
    metrics |= {m.name: m for m in METRICS.values() if m.group == "calibration"}
    cells = []
    for (row, objective), group in groups.items():
        times = [t for r in group if (t := r.timing.epoch_seconds) is not None]
        finite = sorted((r for r in group if not r.diverged), key=lambda r: r.seed)
        best = [r.best for r in finite if r.best and not is_probe(r)]
        cells.append(
            TrainingCell(
                row=row,
                objective=objective,
                last=[r.last.top1 for r in finite if r.last],
                metrics={name: metric.values(finite) for name, metric in metrics.items()},
                best=[epoch.top1 for epoch in best],
                best_epochs=[epoch.epoch for epoch in best],
                diverged=len(group) - len(finite),
                collapsed=sum(r.collapsed for r in finite),
                seconds=sum(r.timing.seconds for r in group),
                epoch_seconds=statistics.median(times) if times else None,
                validated=all(r.validation is not None for r in finite) and bool(finite),
                chosen=[r.chosen for r in group if r.chosen is not None],
                candidates=group[0].candidates,
                scales=[{**r.scale_from.document(), "seed": r.seed} for r in group if r.scale_from],
            )
        )
    return cells


def source_cells(results: Iterable[Result]) -> list[TrainingCell]:
    """Return a cell for the source model of each data set, as if it were a run of its own."""
    cells: dict[str, TrainingCell] = {}
    for result in results:
        if result.baseline is not None and result.data not in cells:
            numbers = result.baseline.document()
            state = {"optimal_scale": {"mean": result.baseline.kappa}}
            measured = [{"last": numbers, "evaluation": numbers, "state": state}]
            cells[result.data] = TrainingCell(
                row=f"{result.data}, {result.model}",
                objective=SOURCE_MODEL,
                last=METRICS["top1"].values(measured),
                metrics={m.name: m.values(measured) for m in metrics_in(measured).values()},
                baseline=result.baseline,
            )
    return list(cells.values())


def training_report(
    results: Sequence[Result],
    recipe: ImageRecipe,
    failed: Sequence[str],
    metric: Metric = METRICS["top1"],
) -> Report:
    """Return what commands that train networks print; `failed`: a line per trial without result.

    The objectives of an own comparison are tested and ranked by the metric.
    """
    cells = training_cells(results)
    document: dict[str, Any] = {
        "schema": 1,
        "command": recipe.task,
        "recipe": recipe.model_dump(exclude={"about"}),
        "cells": [cell.as_json() for cell in cells],
        "failed": list(failed),
    }
    sources = source_cells(results)
    if sources:
        first = {result.data: result for result in reversed(results)}
        document["baseline"] = [
            {"data": r.data, "source_model": r.source_model.document(), **r.baseline.document()}
            for r in first.values()
            if r.source_model and r.baseline
        ][::-1]
    lines = [flat_record(cell.as_json()) for cell in (*sources, *cells)]
    table = _summary(cells, sources, metric)
    if recipe.paper is None and recipe.task == "train" and cells:
        baseline = resolve_baseline(list(dict.fromkeys(cell.objective for cell in cells)), None)
        comparisons = compare_seeds(results, baseline, metric.name)
        compared = [comparison_text(c, baseline) for c in comparisons]
        table = replace(table, notes=(*compared, *table.notes))
        table, answers = own_table(table, results, cells, comparisons, baseline, metric)
        document["answers"] = [answer.as_json() for answer in answers]
        document["tests"] = [seeds_document(c, baseline) for c in comparisons]
    return Report([table], lines, document)


def own_table(
    table: Table,
    results: Iterable[TrainingResult],
    cells: Sequence[TrainingCell],
    comparisons: Sequence[Comparison],
    baseline: str,
    metric: Metric = METRICS["top1"],
) -> tuple[Table, list[Answer]]:
    """Return the table of an own comparison with its answers above it, and these answers."""
    answers = seed_answers(results, comparisons, baseline, metric)
    notes = list(table.notes)
    if len({cell.objective for cell in cells}) > 1:
        notes = budget_notes([cell.candidates for cell in cells], "the validation part") + notes
    notes += unpaired_notes((c for c in comparisons if c.metric == metric.name), baseline)
    return replace(table, answers=answer_lines(answers, baseline), notes=tuple(notes)), answers


def _summary(
    cells: Sequence[TrainingCell], sources: Sequence[TrainingCell], ranked_by: Metric
) -> Table:
    """Return a line for each cell; source models come first."""
    every = (*sources, *cells)
    shown_in = ("summary", "before-after") if sources else ("summary",)
    metrics = [m for m in _metrics_of(every) if m.shown_in in shown_in or m == ranked_by]
    validated = all(cell.validated for cell in cells)
    headings = ["last epoch", "best epoch", "best epoch per seed"]
    if validated:
        headings = ["test top-1", "epoch per seed"]
    if sources:
        headings = [METRICS["top1"].heading]
    rows = []
    for cell in every:
        n = str(len(cell.last)) if cell.last or cell.baseline is None else "-"
        last = Cell(mean_std(cell.last), footnotes=cell.footnotes)
        row: list[str | Cell] = [cell.row, cell.objective, n, last]
        if not sources:
            row += [] if validated else [mean_std(cell.best)]
            row += [" ".join(map(str, cell.best_epochs)) or "-"]
        row += [mean_std(cell.values(m), m.decimals) for m in metrics]
        if not sources:
            row.append("-" if cell.epoch_seconds is None else f"{cell.epoch_seconds:.3g}")
        rows.append(row)
    return table_of_texts(
        _summary_caption(metrics, with_sources=bool(sources), validated=validated),
        ["data, model", "objective", "n", *headings, *(m.heading for m in metrics)]
        + ([] if sources else ["s/epoch"]),
        rows,
        notes=_notes(every),
        text_columns=1,
    )


def _summary_caption(metrics: Sequence[Metric], *, with_sources: bool, validated: bool) -> str:
    epoch = "of the chosen epoch" if validated else "after the last epoch"
    groups = {metric.group for metric in metrics}
    if with_sources:
        text = f"On the test set {epoch}: mean ± standard deviation over n seeds."
        if "scale" in groups:
            text += " kappa*: least-squares scale, the mean over the images."
        if "detection" in groups:
            text += (
                " AUPR-In: area under the precision-recall curve; the correctly classified (MISS) "
                "or all (OOD) test images are the positive class."
            )
    else:
        text = "Test top-1 in percent: mean ± standard deviation over n seeds."
        if validated:
            text += " The epoch is chosen on the validation part; the test part is measured once."
        else:
            text += " The best epoch is selected on the test set (optimistically biased)."
        text += " s/epoch: median training time per epoch (s)."
    if "long-tail" in groups:
        words = "; ".join(f"{name}-shot: {words}" for name, words in DESCRIPTIONS.items())
        text += f" {epoch.capitalize()}, over test images, by training images of a class: {words}."
    if "verification" in groups:
        text += f" Verification accuracy: {epoch}, the mean over folds."
    return text


def training_table(
    cells: Sequence[TrainingCell],
    sources: Sequence[TrainingCell],
    comparisons: Sequence[Comparison],
    baseline: str,
    *,
    key: str,
    title: str,
    runs: Mapping[tuple[str, str], tuple[Run, ...]],
    metric: Metric = METRICS["top1"],
) -> Table:
    """Return the table of a report: a row for data, model and setting, a column an objective.

    Its cells have the metric, the tables below it the others. `comparisons` are those by every
    metric, `runs` those of each row and objective.
    """
    columns = tuple(dict.fromkeys(cell.objective for cell in cells))
    by_epoch = metric.name == "top1"  # other metrics are of the last epoch alone
    by_place = {(cell.row, cell.objective): cell for cell in cells}
    tested = [c for c in comparisons if c.p_holm is not None]
    directions = {(c.metric, c.row, c.objective): DIRECTIONS[c.direction] for c in tested}
    rows = []
    for label in dict.fromkeys(cell.row for cell in cells):
        in_row = {c: by_place[label, c] for c in columns if (label, c) in by_place}
        best = _best(in_row.values(), metric)
        shown = {
            column: Cell(
                mean_std(cell.values(metric), metric.decimals),
                best=column in best and len(columns) > 1,
                footnotes=cell.footnotes + directions.get((metric.name, label, column), ""),
                below=mean_std(cell.best) if cell.best and by_epoch and not cell.validated else "",
                runs=runs.get((label, column), ()),
            )
            for column, cell in in_row.items()
        }
        rows.append(Row(label, tuple(shown.get(column) for column in columns)))
    n = number_range(len(cell.values(metric)) for cell in cells)
    has_epochs = any(cell.best and by_epoch and not cell.validated for cell in cells)
    validated = any(cell.validated for cell in cells)
    caption = (
        f"Test {metric.long_heading}{' after the last epoch' if has_epochs else ''}: mean ± "
        f"standard deviation over n = {n} seed{'' if n == '1' else 's'}; best per row in bold"
    )
    if has_epochs:
        caption += "; below it the best epoch of each seed, selected on the test set "
        caption += "(optimistically biased)"
    if validated and has_epochs:
        caption += "; where there is one number, a validation part chose the epoch"
    elif validated:
        caption += "; the epoch is chosen on the validation part"
    tests = []
    if tested:
        tests.append(directions_note(baseline, names_of_tests(comparisons)))
    tests += [comparison_text(c, baseline) for c in comparisons if c.metric == metric.name]
    return Table(
        key=key,
        title=title,
        caption=f"{caption}.",
        label_heading="data, model",
        columns=columns,
        rows=tuple(rows),
        notes=(*tests, *_notes((*sources, *cells))),
        details=tuple(_metric_tables((*sources, *cells), directions, baseline, metric)),
    )


def _metric_tables(
    cells: Sequence[TrainingCell],
    directions: Mapping[tuple[str, str | None, str], str],
    baseline: str,
    ranked_by: Metric,
) -> Iterator[Table]:
    """Yield a table for each group of metrics, in which each cell of the report is a line."""
    groups: dict[tuple[str, str, str], list[Metric]] = {}
    for metric in _metrics_of(cells, ranked_by):
        groups.setdefault((metric.group, metric.subject, metric.score), []).append(metric)
    for name, caption in CAPTIONS.items():
        for (group, subject, score), metrics in groups.items():
            if group != name:
                continue
            tested = ""
            if directions and any(metric.direction != "none" for metric in metrics):
                tested = f"; {BETTER} {WORSE} better or worse than {baseline}, same test as above"
            rows: list[list[str | Cell]] = []
            for cell in cells:
                if any(cell.values(m) for m in metrics):
                    numbers = [
                        Cell(
                            mean_std(cell.values(m), m.decimals),
                            footnotes=directions.get((m.name, cell.row, cell.objective), ""),
                        )
                        for m in metrics
                    ]
                    rows.append([cell.row, cell.objective, *numbers])
            text = (MISS_CAPTION if subject == "MISS" else caption).format(subject, score)
            epoch = "after the last epoch"
            if any(cell.validated for cell in cells):
                epoch = "of the epoch that the validation part chose, or the last one"
            yield table_of_texts(
                f"{text}, {epoch}{tested}",
                ["data, model", "objective", *(metric.short_heading for metric in metrics)],
                rows,
                text_columns=1,
            )


def _metrics_of(cells: Iterable[TrainingCell], ranked_by: Metric = METRICS["top1"]) -> list[Metric]:
    """Return the metrics that some cell has, besides the one that the table has anyway."""
    names = dict.fromkeys(n for cell in cells for n, values in cell.metrics.items() if values)
    return [metric for metric in map(metric_named, names) if metric != ranked_by]


def _best(cells: Iterable[TrainingCell], metric: Metric) -> list[str]:
    """Return the objectives whose mean, as it is shown, is the best of a row."""
    means = {
        cell.objective: round(statistics.fmean(values), metric.decimals)
        for cell in cells
        if (values := cell.values(metric))
    }
    best = metric.best(means.values())
    return [objective for objective, mean in means.items() if mean == best]


def own_class_tables(
    results: Iterable[Result], cells: Iterable[TrainingCell], metric: Metric
) -> Iterator[Table]:
    """Yield the tables by class of an own comparison, over all seeds."""
    rows: dict[str, dict[str, ClassCounts]] = {}
    for result in results:
        evaluation = result.evaluation or {}
        classes, confusion = evaluation.get("per_class"), evaluation.get("confusion")
        if not classes:
            continue
        counts = ClassCounts(
            result.objective,
            names=[one["name"] for one in classes],
            samples=np.array([one["n"] for one in classes]),
            correct=np.array([one["correct"] for one in classes]),
            confusion=np.array(confusion) if confusion else None,
        )
        row = rows.setdefault(result.row, {})
        before = row.get(result.objective)
        row[result.objective] = counts if before is None else before + counts
    for name, row in rows.items():
        best = _best((cell for cell in cells if cell.row == name), metric)
        yield from class_tables(name, list(row.values()), next(iter(best), ""), "images", "seeds")


def _notes(cells: Sequence[TrainingCell]) -> tuple[str, ...]:
    """Return the footnotes, and the accuracy of the source models."""
    notes = []
    diverged = [(c, c.diverged, c.diverged + len(c.last)) for c in cells]
    collapsed = [(c, c.collapsed, len(c.last)) for c in cells]
    for start, counts in (
        (f"{DIVERGED}  diverged, left out", diverged),
        (f"{COLLAPSED}  collapsed (constant prediction)", collapsed),
    ):
        places = [
            f"{cell.objective} on {cell.row}: {count} of {count_noun(total, 'run')}"
            for cell, count, total in counts
            if count
        ]
        if places:
            notes.append(f"{start}: {'; '.join(places)}")
    for cell in cells:
        seeds = group_by_text(
            (
                str(scale["seed"]),
                f"scale {scale['value']:.4g} = {scale['times']:g} x kappa* {scale['kappa']:.4g} "
                f"of {scale['from_run']}",
            )
            for scale in cell.scales
        )
        where = f"{cell.objective} on {cell.row}"
        if cell.chosen:
            choices = Counter(cell.chosen).most_common()
            listed = "; ".join(f"{text} ({n} of {len(cell.chosen)})" for text, n in choices)
            notes.append(f"{where}: chosen on the validation part: {listed}")
        notes += [f"{where}: {text}, seed {' '.join(of)}" for text, of in seeds.items()]
        model = cell.baseline
        if model is not None and (model.top1 is None or model.interval is None):
            notes.append(f"{cell.row}, source model: not measured: {model.reason}")
        elif model is not None and model.interval is not None:
            low, high = model.interval
            notes.append(
                f"{cell.row}, source model with its own classifier: top-1 {model.top1:.2f} % "
                f"(95 % Wilson interval {low:.2f} to {high:.2f}, n = {model.n})"
            )
    return tuple(notes)


def names_of_tests(comparisons: Iterable[Comparison]) -> str:
    kinds = {c.fixed for c in comparisons if c.test.p is not None}
    names = {
        False: "paired t-test over the seeds",
        True: "of single networks McNemar's test over the test images, which tells nothing about "
        "other seeds",
    }
    return "; ".join(names[fixed] for fixed in sorted(kinds))


def comparison_text(comparison: Comparison, baseline: str) -> str:
    """Return a comparison with the baseline as a sentence."""
    metric = metric_named(comparison.metric)
    top1 = metric.name == "top1"
    name = "" if top1 else f" in {metric.heading}"
    start = f"{comparison.row}: {comparison.objective} against {baseline}{name}"
    if comparison.difference is None:
        return f"{start}: {comparison.test.reason}"
    places = f"+.{metric.decimals}f"
    interval = ""
    if comparison.interval is not None:
        low, high = comparison.interval
        interval = f" (Holm-adjusted interval {low:{places}} to {high:{places}})"
    p = comparison.test.reason
    if comparison.p_holm is not None:
        p = f"Holm-adjusted p = {format_p(comparison.p_holm)}"
    if comparison.fixed:
        record = f"McNemar's test over {count_noun(comparison.n, 'test image')}"
    else:
        record = f"W/T/L {comparison.wins}/{comparison.ties}/{comparison.losses}"
    points = " percentage points" if top1 else ""
    return f"{start}: {comparison.difference:{places}}{points}{interval}, {p}, {record}"
