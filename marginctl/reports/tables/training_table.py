"""Tables of networks that were trained on images: of a command's trials, and of a report's runs."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marginctl.experiments.records import Baseline, TrainingResult, TransferResult, is_probe
from marginctl.metrics.long_tail import DESCRIPTIONS
from marginctl.metrics.registry import METRICS, Metric, metric_named, metrics_in
from marginctl.recipe import ImageRecipe
from marginctl.reports.tables.table import (
    Cell,
    Report,
    Row,
    Table,
    flat_record,
    format_p,
    group_by_text,
    mean_std,
    mean_std_json,
    table_of_texts,
)
from marginctl.results.collect import Run
from marginctl.results.compare_seeds import SeedComparison
from marginctl.utils.text import count_noun

Result = TrainingResult | TransferResult

SOURCE_MODEL = "before"  # instead of an objective: the model that others were fine-tuned from
DIVERGED, COLLAPSED, BETTER, WORSE = "d", "c", "▲", "▼"
DIRECTIONS = {1: BETTER, -1: WORSE, 0: ""}
NESTED = ("detection", "verification", "metrics")  # groups with an object of their own in JSON
# The tables below that of a report, by the group of their metrics; `{}` stands for the subject.
CAPTIONS = {
    "scale": "Least-squares scale kappa*, the mean over the test images",
    "long-tail": "Top-1 accuracy of classes by their number of training images ("
    + "; ".join(f"{name}: {words}" for name, words in DESCRIPTIONS.items())
    + ")",
    "calibration": "Calibration on the test set",
    "verification": "Verification of the pairs of {}",
    "detection": "{} detection; the test images are the positive class",
    "metrics": "Further metrics on the test set",
}


@dataclass(frozen=True)
class SourceModel:
    """The model that networks were fine-tuned from, on their test set.

    Attributes:
        label: data and model, as in the rows of the table.
        numbers: what was measured of it.
    """

    label: str
    numbers: Baseline

    def values(self, metric: Metric) -> list[float]:
        """Return the number of a metric, or nothing."""
        state = {"optimal_scale": {"mean": self.numbers.kappa}}
        numbers = self.numbers.document()
        return metric.values([{"last": numbers, "evaluation": numbers, "state": state}])


@dataclass(frozen=True)
class TrainingCell:
    """The networks of one row and objective, one for each seed; accuracies in percent.

    Attributes:
        last, best: test accuracy of each seed after its last and its best epoch. The best epoch is
            selected on the test set; a linear probe has no epochs.
        best_epochs: of each seed.
        diverged: how many seeds had a loss that was not finite; no other number includes them.
        collapsed: how many of the others predict one class for every test image.
        seconds: the training time of all seeds.
        epoch_seconds: the median training time of an epoch.
        metrics: the numbers of the seeds, by metric.
        scales: where a scale is taken from another run: which run and number, for each seed.
        source: the source model, of networks that were fine-tuned from one.
    """

    row: str
    objective: str
    last: Sequence[float]
    best: Sequence[float]
    best_epochs: Sequence[int]
    diverged: int
    collapsed: int
    seconds: float
    epoch_seconds: float | None
    metrics: Mapping[str, Sequence[float]]
    scales: Sequence[Mapping[str, Any]] = ()
    source: SourceModel | None = None

    def values(self, metric: Metric) -> Sequence[float]:
        """Return the numbers of a metric; none where the networks do not have it."""
        return self.metrics.get(metric.name, ())

    def numbers(self, name: str) -> dict[str, Any]:
        """Return mean, standard deviation and values of a metric, null where it has none."""
        return mean_std_json(self.metrics.get(name, ()))

    def as_json(self) -> dict[str, Any]:
        return {
            "row": self.row,
            "objective": self.objective,
            "n": len(self.last),
            "last": mean_std_json(self.last),
            "best": mean_std_json(self.best) | {"epochs": list(self.best_epochs)},
            "diverged": self.diverged,
            "collapsed": self.collapsed,
            "seconds": self.seconds,
            "epoch_seconds": self.epoch_seconds,
            **_metrics_json(self.metrics),
            **({"scale_from": list(self.scales)} if self.scales else {}),
        }

    @property
    def footnotes(self) -> str:
        """The footnote characters."""
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


def training_cells(records: Iterable[Result]) -> list[TrainingCell]:
    """Return the cells of results, in their order."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for record in records:
        groups.setdefault((record.row, record.objective), []).append(record)
    metrics = metrics_in([record for group in groups.values() for record in group])
    metrics |= {m.name: m for m in METRICS.values() if m.group == "calibration"}
    return [_cell(*place, group, metrics.values()) for place, group in groups.items()]


def _cell(
    row: str, objective: str, group: Sequence[Result], metrics: Iterable[Metric]
) -> TrainingCell:
    times = [t for r in group if (t := r.timing.epoch_seconds) is not None]
    finite = sorted((r for r in group if not r.diverged), key=lambda r: r.seed)
    with_epochs = [r for r in finite if not is_probe(r)]
    source = next((r for r in group if r.baseline), None)
    return TrainingCell(
        row=row,
        objective=objective,
        last=[r.last.top1 for r in finite if r.last],
        best=[r.best.top1 for r in with_epochs if r.best],
        best_epochs=[r.best.epoch for r in with_epochs if r.best],
        diverged=len(group) - len(finite),
        collapsed=sum(r.collapsed for r in finite),
        seconds=sum(r.timing.seconds for r in group),
        epoch_seconds=statistics.median(times) if times else None,
        metrics={metric.name: metric.values(finite) for metric in metrics},
        scales=[{**r.scale_from.document(), "seed": r.seed} for r in group if r.scale_from],
        source=None
        if source is None or source.baseline is None
        else SourceModel(f"{source.data}, {source.model}", source.baseline),
    )


def training_report(
    results: Sequence[Result], recipe: ImageRecipe, failed: Sequence[str]
) -> Report:
    """Return what `train` and `cosify` print.

    Args:
        results: of the trials.
        recipe: the recipe of the results.
        failed: a line for each trial without a result.
    """
    cells = training_cells(results)
    document: dict[str, Any] = {
        "schema": 1,
        "command": recipe.task,
        "recipe": recipe.model_dump(exclude={"about"}),
        "cells": [cell.as_json() for cell in cells],
        "failed": list(failed),
    }
    if any(cell.source for cell in cells):
        first = {result.data: result for result in reversed(results)}
        document["baseline"] = [
            {
                "data": r.data,
                "source_model": r.source_model.document(),
                **r.baseline.document(),
            }
            for r in first.values()
            if r.source_model and r.baseline
        ][::-1]
    records = [
        {
            "row": source.label,
            "objective": SOURCE_MODEL,
            "n": len(source.values(METRICS["top1"])),
            "last": mean_std_json(source.values(METRICS["top1"])),
            **_metrics_json({m.name: source.values(m) for m in _metrics_of(cells, [source])}),
        }
        for source in _sources(cells)
    ]
    records += document["cells"]
    return Report([_summary(cells)], list(map(flat_record, records)), document)


def _summary(cells: Sequence[TrainingCell]) -> Table:
    """Return a line for each cell; source models, where networks have one, come first."""
    sources = _sources(cells)
    shown_in = ("summary", "before-after") if sources else ("summary",)
    metrics = [
        metric
        for metric in _metrics_of(cells, sources)
        if metric.shown_in in shown_in and metric.group != "accuracy"
    ]
    top1 = METRICS["top1"]
    if sources:
        headings = ["n", top1.heading]
    else:
        headings = ["n", "last epoch", "best epoch", "best epoch per seed"]
    rows: list[list[str | Cell]] = [
        [
            *(source.label, SOURCE_MODEL, "-" if source.numbers.reason else "1"),
            *(mean_std(source.values(m), m.decimals) for m in (top1, *metrics)),
        ]
        for source in sources
    ]
    for cell in cells:
        last = Cell(mean_std(cell.last), footnotes=cell.footnotes)
        row: list[str | Cell] = [cell.row, cell.objective, str(len(cell.last)), last]
        if not sources:
            row += [mean_std(cell.best), " ".join(map(str, cell.best_epochs)) or "-"]
        row += [mean_std(cell.values(m), m.decimals) for m in metrics]
        if not sources:
            row.append("-" if cell.epoch_seconds is None else f"{cell.epoch_seconds:.3g}")
        rows.append(row)
    return table_of_texts(
        _summary_caption(metrics, with_sources=bool(sources)),
        ["data, model", "objective", *headings, *(m.heading for m in metrics)]
        + ([] if sources else ["s/epoch"]),
        rows,
        notes=_notes(cells),
        text_columns=1,
    )


def _summary_caption(metrics: Sequence[Metric], *, with_sources: bool) -> str:
    groups = {metric.group for metric in metrics}
    if with_sources:
        text = "On the test set after the last epoch: mean ± standard deviation over n seeds."
        if "scale" in groups:
            text += " kappa*: least-squares scale, the mean over the images."
        if "detection" in groups:
            text += (
                " AUPR-In: area under the precision-recall curve; the correctly classified (MISS) "
                "or all (OOD) test images are the positive class."
            )
    else:
        text = (
            "Test top-1 in percent: mean ± standard deviation over n seeds. The best epoch is "
            "selected on the test set (optimistically biased). s/epoch: median training time per "
            "epoch (s)."
        )
    if "long-tail" in groups:
        words = "; ".join(f"{name}-shot: {words}" for name, words in DESCRIPTIONS.items())
        text += f" After the last epoch, by the training images of a class: {words}."
    if "verification" in groups:
        text += " Verification accuracy: after the last epoch, the mean over folds."
    return text


def training_table(
    cells: Sequence[TrainingCell],
    comparisons: Sequence[SeedComparison],
    baseline: str,
    *,
    key: str,
    title: str,
    runs: Mapping[tuple[str, str], tuple[Run, ...]],
) -> Table:
    """Return the table of a report: a row for data, model and setting, a column an objective.

    Args:
        cells: its cells.
        comparisons: with the baseline, by every metric.
        baseline: an objective.
        key, title: of the table.
        runs: of each cell, by row and objective.
    """
    columns = tuple(dict.fromkeys(cell.objective for cell in cells))
    by_place = {(cell.row, cell.objective): cell for cell in cells}
    directions = {(c.measure, c.row, c.objective): DIRECTIONS[c.direction] for c in comparisons}
    rows = []
    for label in dict.fromkeys(cell.row for cell in cells):
        of_row = [by_place.get((label, column)) for column in columns]
        means = [round(statistics.fmean(c.last), 2) if c and c.last else None for c in of_row]
        best = max((mean for mean in means if mean is not None), default=None)
        rows.append(
            Row(
                label,
                tuple(
                    None
                    if cell is None
                    else Cell(
                        mean_std(cell.last),
                        best=mean is not None and mean == best and len(columns) > 1,
                        footnotes=cell.footnotes
                        + directions.get(("top1", label, cell.objective), ""),
                        below=mean_std(cell.best) if cell.best else "",
                        runs=runs.get((label, cell.objective), ()),
                    )
                    for cell, mean in zip(of_row, means, strict=True)
                ),
            )
        )
    counts = sorted({len(cell.last) for cell in cells}) or [0]
    n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    caption = f"mean ± standard deviation over n = {n} seed{'' if n == '1' else 's'}"
    if any(cell.best for cell in cells):
        caption = (
            f"Test top-1 in percent after the last epoch: {caption}; best per row in bold; below "
            "it the best epoch of each seed, selected on the test set (optimistically biased)."
        )
    else:
        caption = f"Test top-1 in percent: {caption}; best per row in bold."
    tests = []
    if any(c.p_holm is not None for c in comparisons):
        tests.append(
            f"{BETTER} {WORSE}  better or worse than {baseline}: paired t-test over the seeds, "
            "Holm-adjusted p < 0.05 (over the methods of a row)"
        )
    tests += [comparison_text(c, baseline) for c in comparisons if c.measure == "top1"]
    return Table(
        key=key,
        title=title,
        caption=caption,
        label_heading="data, model",
        columns=columns,
        rows=tuple(rows),
        notes=(*tests, *_notes(cells)),
        details=tuple(_metric_tables(cells, directions, baseline)),
    )


def _metric_tables(
    cells: Sequence[TrainingCell], directions: Mapping[tuple[str, str, str], str], baseline: str
) -> Iterator[Table]:
    """Yield a table for each group of metrics, in which each cell of the report is a line."""
    sources = _sources(cells)
    groups: dict[tuple[str, str], list[Metric]] = {}
    for metric in _metrics_of(cells, sources):
        groups.setdefault((metric.group, metric.subject), []).append(metric)
    for group, caption in CAPTIONS.items():
        for subject in (subject for of, subject in groups if of == group):
            metrics = groups[group, subject]
            if not any(cell.values(m) for m in metrics for cell in cells):
                continue
            tested = ""
            if any(metric.direction != "none" for metric in metrics):
                tested = f"; {BETTER} {WORSE} better or worse than {baseline}, same test as above"
            yield table_of_texts(
                f"{_caption(caption, subject)}, after the last epoch{tested}",
                ["data, model", "objective", *(metric.short_heading for metric in metrics)],
                _metric_rows(cells, sources, metrics, directions),
                text_columns=1,
            )


def _caption(caption: str, subject: str) -> str:
    if subject == "MISS":
        return (
            "Misclassification detection (MISS); the correctly classified test images are the "
            "positive class"
        )
    return caption.format(subject)


def _metric_rows(
    cells: Sequence[TrainingCell],
    sources: Sequence[SourceModel],
    metrics: Sequence[Metric],
    directions: Mapping[tuple[str, str, str], str],
) -> Iterator[list[str | Cell]]:
    for source in sources:
        if any(source.values(m) for m in metrics):
            numbers = (mean_std(source.values(m), m.decimals) for m in metrics)
            yield [source.label, SOURCE_MODEL, *numbers]
    for cell in cells:
        if any(cell.values(m) for m in metrics):
            tested = (
                Cell(
                    mean_std(cell.values(m), m.decimals),
                    footnotes=directions.get((m.name, cell.row, cell.objective), ""),
                )
                for m in metrics
            )
            yield [cell.row, cell.objective, *tested]


def _sources(cells: Iterable[TrainingCell]) -> list[SourceModel]:
    """Return the source models, each once."""
    return list({cell.source.label: cell.source for cell in cells if cell.source}.values())


def _metrics_of(cells: Sequence[TrainingCell], sources: Sequence[SourceModel]) -> Iterator[Metric]:
    """Yield the metrics that some cell or source model has."""
    names = dict.fromkeys(name for cell in cells for name in cell.metrics)
    for metric in map(metric_named, names):
        in_cells = any(cell.values(metric) for cell in cells)
        if in_cells or any(source.values(metric) for source in sources):
            yield metric


def _notes(cells: Sequence[TrainingCell]) -> tuple[str, ...]:
    """Return the footnotes, and the accuracy of the source models."""
    notes = []
    for mark, meaning, counts in (
        (
            DIVERGED,
            "diverged, left out",
            [(c, c.diverged, c.diverged + len(c.last)) for c in cells],
        ),
        (
            COLLAPSED,
            "collapsed (constant prediction)",
            [(c, c.collapsed, len(c.last)) for c in cells],
        ),
    ):
        places = [
            f"{cell.objective} on {cell.row}: {count} of {count_noun(total, 'run')}"
            for cell, count, total in counts
            if count
        ]
        if places:
            notes.append(f"{mark}  {meaning}: {'; '.join(places)}")
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
        notes += [f"{where}: {text}, seed {' '.join(of)}" for text, of in seeds.items()]
    for source in _sources(cells):
        numbers = source.numbers
        if numbers.top1 is None or numbers.interval is None:
            notes.append(f"{source.label}, source model: not measured: {numbers.reason}")
        else:
            low, high = numbers.interval
            notes.append(
                f"{source.label}, source model with its own classifier: top-1 "
                f"{numbers.top1:.2f} % (95 % Wilson interval {low:.2f} to {high:.2f}, "
                f"n = {numbers.n})"
            )
    return tuple(notes)


def comparison_text(comparison: SeedComparison, baseline: str) -> str:
    """Return a comparison with the baseline as a sentence."""
    metric = metric_named(comparison.measure)
    top1 = metric.name == "top1"
    name = "" if top1 else f" in {metric.heading}"
    start = f"{comparison.row}: {comparison.objective} against {baseline}{name}"
    if comparison.difference is None:
        return f"{start}: {comparison.test.reason}"
    places = f"+.{metric.decimals}f"
    interval = ""
    if comparison.low is not None and comparison.high is not None:
        interval = f" (95 % interval {comparison.low:{places}} to {comparison.high:{places}})"
    p = comparison.test.reason
    if comparison.p_holm is not None:
        p = f"Holm-adjusted p = {format_p(comparison.p_holm)}"
    record = f"W/T/L {comparison.wins}/{comparison.ties}/{comparison.losses}"
    points = " percentage points" if top1 else ""
    return f"{start}: {comparison.difference:{places}}{points}{interval}, {p}, {record}"
