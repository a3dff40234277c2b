"""The metrics of a trained network, which every table, CSV file, JSON document and page shows.

A metric is one entry of `METRICS`. An entry with a `function` is computed from the predictions on
the test set and stored in the result; the others name a number that the result has anyway.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from marginctl.errors import RequestError
from marginctl.utils.registry import Registry, import_object
from marginctl.utils.text import did_you_mean

Record = Any  # a typed result, or an object of JSON
ANY = "*"  # in a path: every named entry of a list
MISS = "misclassification"  # misclassification detection, among the names of OOD sets


@dataclass(frozen=True)
class Metric:
    """A number of a result, and how it is shown."""

    name: str  # in JSON and CSV; `{}` stands for the name of an OOD set or a pair list
    label: str  # for a reader, without the unit
    unit: Literal["", "%"] = ""
    # which numbers are better; a metric without a direction is not compared
    direction: Literal["higher", "lower", "none"] = "none"
    # the keys of the number in a result, one inside another; in a list they are the `name` of an
    # entry. The default is where the numbers of functions are stored.
    path: tuple[str, ...] = ()
    factor: float = 1.0  # the shown number divided by the recorded one
    decimals: int = 2
    group: str = "metrics"  # which table of a report has it
    # `summary`, a column of the table that a training command prints; `before-after`, the same
    # where a source model is shown, too; `report`, the tables of reports alone
    shown_in: Literal["summary", "before-after", "report"] = "summary"
    subject: str = ""  # what is measured where the label does not say it, such as `OOD {}`
    score: str = ""  # the confidence score that images are ranked by
    # the import path of `f(*, features, logits, similarities, labels) -> float`, which takes arrays
    # of shape (N, d), (N, C), (N, C) and (N,); C classes, the largest similarity is the prediction
    function: str | None = None

    @property
    def heading(self) -> str:
        return f"{self.subject} {self.short_heading} {self.score}".strip()

    @property
    def short_heading(self) -> str:
        """The label with the unit, for a table of one subject and score."""
        return f"{self.label} {self.unit}".rstrip()

    @property
    def long_heading(self) -> str:
        """The label with the unit in words."""
        return self.label + (" in percent" if self.unit == "%" else "")

    def for_set(self, name: str) -> "Metric":
        """Return the metric of one OOD set or pair list."""
        keys = tuple(name if key == ANY else key for key in self.path)
        return replace(
            self, path=keys, name=self.name.format(name), subject=self.subject.format(name)
        )

    def best(self, values: Iterable[float]) -> float | None:
        """Return the best of some numbers, None of none."""
        return (min if self.direction == "lower" else max)(values, default=None)

    def value(self, record: Record) -> float | None:
        """Return the number that is shown of a result, None where it has none."""
        value: Any = record
        for key in self.path or ("evaluation", "metrics", self.name):
            if isinstance(value, list):
                value = next((one for one in value if _name(one) == key), None)
            else:
                value = lookup(value, key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return self.factor * value

    def values(self, records: Iterable[Record]) -> list[float]:
        """Return the numbers of the results that have one."""
        return [v for record in records if (v := self.value(record)) is not None]


_FUNCTIONS = "marginctl.metrics.accuracy"
_DETECTION = ("evaluation", "detection")
_PAIRS = ("evaluation", "verification", ANY)
# -In, -Out: the positive class; in are the in-distribution or the correctly classified images
DETECTION_METRICS = {
    "aupr_in": "AUPR-In",
    "aupr_out": "AUPR-Out",
    "auroc": "AUROC",
    "fpr95_in": "FPR95-In",
    "fpr95_out": "FPR95-Out",
}
_SHOT_GROUPS = ("many", "medium", "few")
_DETECTION_SCORES = {"max_similarity": "max similarity", "feature_norm": "feature norm"}


_classification = partial(Metric, direction="higher", shown_in="report")
_calibration = partial(Metric, direction="lower", group="calibration", shown_in="report")
_verification = partial(Metric, group="verification", subject="{}")


def _long_tail(group: str, *, class_mean: bool) -> Metric:
    mean = " class mean" if class_mean else ""
    return Metric(
        group + mean.replace(" ", "_"),
        f"{group}-shot{mean}",
        "%",
        "higher",
        ("evaluation", "long_tail", group, "mean_class_accuracy" if class_mean else "accuracy"),
        factor=100.0,
        group="long-tail",
        shown_in="report" if class_mean else "summary",
    )


def _detection(prefix: str, subject: str, *path: str) -> list[Metric]:
    """Return the detection metrics of both scores of the temperature paper's Table 10."""
    return [
        Metric(
            f"{prefix} {metric} {score}",
            label,
            direction="lower" if metric.startswith("fpr") else "higher",
            path=(*_DETECTION, *path, "scores", score, metric),
            decimals=4,
            group="detection",
            subject=subject,
            score=words,
            shown_in="before-after" if metric == "aupr_in" else "report",
        )
        for metric, label in DETECTION_METRICS.items()
        for score, words in _DETECTION_SCORES.items()
    ]


_BUILTIN = [
    Metric("top1", "top-1", "%", "higher", ("last", "top1"), group="accuracy", shown_in="report"),
    _classification(
        "balanced_accuracy",
        "balanced accuracy",
        "%",
        function=f"{_FUNCTIONS}:balanced_accuracy",
    ),
    _classification("macro_f1", "macro-F1", decimals=3, function=f"{_FUNCTIONS}:macro_f1"),
    _classification("auroc", "AUROC", decimals=3, function=f"{_FUNCTIONS}:auroc"),
    _calibration("ece", "ECE", "%", path=("evaluation", "calibration", "ece"), factor=100.0),
    _calibration("mce", "MCE", "%", path=("evaluation", "calibration", "mce"), factor=100.0),
    _calibration("nll", "NLL", path=("last", "nll"), decimals=4),
    _calibration("brier", "Brier", path=("evaluation", "brier"), decimals=4),
    *(_long_tail(group, class_mean=False) for group in _SHOT_GROUPS),
    *(_long_tail(group, class_mean=True) for group in _SHOT_GROUPS),
    Metric(
        "kappa",
        "kappa*",
        path=("state", "optimal_scale", "mean"),
        group="scale",
        shown_in="before-after",
    ),
    *_detection(MISS, "MISS", MISS),
    *_detection("ood {}", "OOD {}", "ood", ANY),
    _verification("pairs {} accuracy", "accuracy", "%", "higher", (*_PAIRS, "accuracy")),
    _verification(
        "pairs {} auroc", "AUROC", "", "higher", (*_PAIRS, "auroc"), decimals=4, shown_in="report"
    ),
    _verification(
        "pairs {} eer", "EER", "%", "lower", (*_PAIRS, "eer"), factor=100.0, shown_in="report"
    ),
]
_BY_NAME = {metric.name: metric for metric in _BUILTIN}
METRICS = Registry("metric", Metric, _BY_NAME)

# The metrics of a cross-validation's folds, by their names there. Their numbers are recorded as
# they are defined: accuracies in percent, the others as fractions or nats.
FOLD_METRICS = {
    name: replace(
        metric, name=name, path=(), factor=1.0, unit=metric.unit if metric.factor == 1 else ""
    )
    for name, metric in (
        ("accuracy", replace(_BY_NAME["top1"], label="accuracy")),
        *((name, _BY_NAME[name]) for name in ("balanced_accuracy", "macro_f1", "auroc")),
        ("log_loss", replace(_BY_NAME["nll"], label="log loss", decimals=3)),
        ("ece", replace(_BY_NAME["ece"], decimals=3)),
    )
}


def check_metric(name: str) -> None:
    """Check the name of a metric of folds.

    Raises:
        RequestError: no such metric.
    """
    if name not in FOLD_METRICS:
        raise RequestError(
            f"--metric {name}: expected one of {', '.join(FOLD_METRICS)}."
            + did_you_mean(name, FOLD_METRICS)
        )


def network_metric(name: str) -> Metric:
    """Return the metric of trained networks that `--metric` names as one of folds."""
    return METRICS.find({"accuracy": "top1", "log_loss": "nll"}.get(name, name))


def metrics_in(records: Sequence[Record]) -> dict[str, Metric]:
    """Return the metrics that some results have, by name: one for each set or pair list."""
    present: dict[str, Metric] = {}
    for parent, group in itertools.groupby(METRICS.values(), key=_parent):
        metrics = list(group)
        if parent is not None:
            metrics = [m.for_set(name) for name in names_in(records, parent) for m in metrics]
        present |= {
            metric.name: metric
            for metric in metrics
            if any(metric.value(record) is not None for record in records)
        }
    return present


def _parent(metric: Metric) -> tuple[str, ...] | None:
    """Return the path of the list whose entries a metric stands for."""
    return metric.path[: metric.path.index(ANY)] if ANY in metric.path else None


def names_in(records: Iterable[Record], path: Sequence[str]) -> list[str]:
    """Return the names in the lists at this path, such as the OOD sets of some results."""
    lists = (value for record in records if isinstance(value := lookup(record, *path), list))
    names = (_name(entry) for entries in lists for entry in entries)
    return list(dict.fromkeys(name for name in names if name is not None))


def lookup(record: Record, *path: str) -> Any:
    """Return what a result has at a path without lists, None where it has nothing."""
    value: Any = record
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
    return value


def _name(entry: Any) -> str | None:
    """Return the name of a list's entry, None where a file has something else."""
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else None


def metric_named(name: str) -> Metric:
    """Return a metric by its name, which may have that of an OOD set or a pair list in it.

    Raises:
        RequestError: no such metric.
    """
    if name not in METRICS:
        for metric in METRICS.values():
            before, placeholder, after = metric.name.partition("{}")
            if placeholder and name.startswith(before) and name.endswith(after):
                return metric.for_set(name[len(before) : len(name) - len(after)])
    return METRICS.find(name)


def compute_metrics(**predictions: Any) -> tuple[dict[str, float | None], dict[str, str]]:
    """Return the metrics that have a function, by name, and the reasons of those that are None.

    The arguments are those of `Metric.function`.
    """
    values: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for metric in METRICS.values():
        if metric.function is None:
            continue
        try:
            function = import_object(metric.function, f"metric '{metric.name}'")
            value = float(function(**predictions))
        except Exception as error:  # a plug-in can raise anything; the trained network stays
            values[metric.name], reasons[metric.name] = None, f"{type(error).__name__}: {error}"
            continue
        values[metric.name] = value if math.isfinite(value) else None
        if not math.isfinite(value):
            reasons[metric.name] = "not finite"
    return values, reasons
