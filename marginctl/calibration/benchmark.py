"""Fits calibrators on one part of the samples and evaluates them on the other."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.calibration.calibrator import Calibrator
from marginctl.calibration.methods import select_methods
from marginctl.calibration.outputs import FLOOR, Fit, Labels, Outputs, uncalibrated
from marginctl.calibration.scores import LEVEL, METRICS, Scores, score
from marginctl.errors import RequestError
from marginctl.metrics.calibration_error import CONVENTION, Reliability
from marginctl.utils.seed import generator
from marginctl.utils.text import did_you_mean, shorten

MAX_PARAMETERS = 10_000  # of one method in the document; more are in the file of --save alone

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
    """How calibrators are fitted and evaluated.

    Without fitting samples of their own they are fitted on a fraction of the samples, in several
    random splits. No bootstrap samples give no intervals.
    """

    fraction: float = 0.5
    repeats: int = 10
    bins: int = 15
    n_bootstrap: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class CalibrationResult:
    """The document of `calibrate --json`; calibrators and diagrams of the first split."""

    document: dict[str, Any]
    calibrators: dict[str, Calibrator]
    before: Reliability
    after: dict[str, Reliability]


def calibrate(
    outputs: Outputs,
    fit_outputs: Outputs | None,
    names: list[str],
    settings: Settings,
    log: Callable[[str], None],
) -> CalibrationResult:
    """Fit each method on one part of the samples; score the other part before and after.

    Args:
        outputs: the samples.
        fit_outputs: samples to fit on; then all of `outputs` are scored, once. None: random splits.
        names: of methods; empty for all that suit the number of classes.
        log: gets a line for each fit that begins.

    Raises:
        RequestError: an unknown method, too few samples to split, or `fit_outputs` of another
            number of classes, names of classes or kind.
    """
    if fit_outputs is not None:
        fit_outputs = _aligned(fit_outputs, outputs)
    methods, skipped = select_methods(names, outputs.num_classes)
    repeats = settings.repeats if fit_outputs is None else 1
    before: list[Scores] = []
    fits: dict[str, list[Fit]] = {name: [] for name in methods}
    after: dict[str, list[Scores]] = {name: [] for name in methods}
    calibrators: dict[str, Calibrator] = {}
    sizes, fitted_on = (0, 0), dict[str, Any]()
    for repeat in range(repeats):
        drawn = settings.bins, 0 if repeat else settings.n_bootstrap, settings.seed
        if fit_outputs is None:
            fit_rows, test_rows = split(outputs, settings.fraction, settings.seed, repeat)
            fit_part, test_part = outputs.subset(fit_rows), outputs.subset(test_rows)
        else:
            fit_part, test_part = fit_outputs, outputs
        if not repeat:
            sizes = len(fit_part.labels), len(test_part.labels)
            fitted_on = {
                "name": fit_part.name,
                "n": len(fit_part.labels),
                "digest": fit_part.digest(),
                "data": fit_part.data,
                "network": fit_part.network,
            }
        before.append(score(uncalibrated(test_part), test_part.labels, *drawn))
        for name, method in methods.items():
            log(f"split {repeat + 1} of {repeats}: {name}")
            fit = method.fit(fit_part, settings.bins)
            fits[name].append(fit)
            scores = before[-1]
            if name != "none":
                predictions = method.apply(fit.parameters, test_part)
                scores = score(predictions, test_part.labels, *drawn)
            after[name].append(scores)
            if not repeat:
                calibrators[name] = Calibrator(
                    name,
                    fit_part.num_classes,
                    fit_part.kind,
                    fit.parameters,
                    fit.converged,
                    fit.note,
                    fitted_on,
                )
    document = {
        "schema": 1,
        "command": "calibrate",
        "input": outputs.name,
        "values": outputs.kind,
        "n": len(outputs.labels),
        "classes": outputs.num_classes,
        "bins": settings.bins,
        "convention": CONVENTION,
        "seed": settings.seed,
        "split": {
            "fraction": settings.fraction if fit_outputs is None else None,
            "calibration": None if fit_outputs is None else fit_outputs.name,
            "repeats": repeats,
            "fitted_on": sizes[0],
            "measured_on": sizes[1],
        },
        "bootstrap": {
            "n_bootstrap": settings.n_bootstrap,
            "level": LEVEL,
            "of": "percentiles over samples of the first split's held-out part",
        },
        "methods": [
            {
                "method": name,
                "title": method.title,
                **_fit_record(fits[name]),
                "before": _score_record(before),
                "after": _score_record(after[name])
                | {"changed": _changed_fraction(before, after[name])},
            }
            for name, method in methods.items()
        ],
        "skipped": skipped,
        "notes": _notes(outputs, fit_outputs),
    }
    return CalibrationResult(
        document,
        calibrators,
        before[0].reliability,
        {name: scores[0].reliability for name, scores in after.items()},
    )


def split(outputs: Outputs, fraction: float, seed: int, repeat: int) -> tuple[Rows, Rows]:
    """Return the rows of a random stratified split: a fraction to fit on, and the held-out ones.

    The samples are ordered by class, at random within a class, and taken at equal steps from a
    random start: the parts, and each class in them, are at most one sample off.

    Raises:
        RequestError: too few samples for two parts with two classes in the first.
    """
    stream = generator(seed, "calibrate", "split", repeat)
    labels: Labels = outputs.labels
    order = np.lexsort((stream.random(len(labels)), labels))
    taken = np.floor(np.arange(len(labels) + 1) * fraction + stream.random())
    first = np.diff(taken) > 0
    fit_rows, test_rows = np.sort(order[first]), np.sort(order[~first])
    if not len(test_rows) or len(np.unique(labels[fit_rows])) < 2:
        raise RequestError(
            f"{outputs.name}: {len(labels)} samples at --split {fraction:g}: {len(fit_rows)} to "
            f"fit on and {len(test_rows)} held out: expected two classes to fit on and a held-out "
            "sample: give samples to fit on with --calibration, or more samples"
        )
    return fit_rows, test_rows


def _aligned(fit_outputs: Outputs, outputs: Outputs) -> Outputs:
    """Return the samples to fit on with their classes in the order of the others."""
    if fit_outputs.num_classes != outputs.num_classes:
        raise RequestError(
            f"{fit_outputs.name}: {fit_outputs.num_classes} classes, and {outputs.name} has "
            f"{outputs.num_classes}: expected outputs of the same classifier"
        )
    if fit_outputs.kind != outputs.kind:
        raise RequestError(
            f"{fit_outputs.name}: {fit_outputs.kind}, and {outputs.name} has {outputs.kind}: "
            "expected the same of both"
        )
    old, new = fit_outputs.classes, outputs.classes
    if old == new or old is None or new is None:
        return fit_outputs
    if unknown := [name for name in old if name not in new]:
        raise RequestError(
            f"{fit_outputs.name}: class '{shorten(unknown[0])}', which {outputs.name} does not "
            f"have: expected outputs of the same classifier.{did_you_mean(unknown[0], new)}"
        )
    order = np.array([old.index(name) for name in new])
    labels = np.argsort(order)[fit_outputs.labels]
    return replace(
        fit_outputs, values=np.take(fit_outputs.values, order, axis=1), labels=labels, classes=new
    )


def _fit_record(fits: Sequence[Fit]) -> dict[str, Any]:
    """Return the first split's parameters, and how the fit of each split ended."""
    parameters, reason = dict(fits[0].parameters), None
    count = _count(parameters)
    if count > MAX_PARAMETERS:
        parameters, reason = {}, f"{count} numbers: --save FILE writes them"
    rows = []
    for fit in fits:
        row = {"converged": fit.converged, "note": fit.note}
        row |= {k: v for k, v in fit.parameters.items() if k == "temperature"}
        rows.append(row | dict(fit.details))
    return {
        "parameters": parameters,
        "parameters_reason": reason,
        "converged": all(fit.converged for fit in fits),
        "note": next((fit.note for fit in fits if fit.note), None),
        "fits": rows,
    }


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    return sum(map(_count, value)) if isinstance(value, list) else 1


def _score_record(splits: Sequence[Scores]) -> dict[str, Any]:
    """Return means over the splits, standard deviations (ddof 1), the first split's intervals."""
    means: dict[str, Any] = {}
    stds: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name in METRICS:
        values = [v for s in splits if (v := s.values[name]) is not None]
        complete = len(values) == len(splits)
        means[name] = statistics.fmean(values) if complete else None
        stds[name] = statistics.stdev(values) if complete and len(values) > 1 else None
        if not complete:
            missing = len(splits) - len(values)
            reason = next(s.reasons[name] for s in splits if name in s.reasons)
            reasons[name] = reason if not values else f"{missing} of {len(splits)} splits: {reason}"
    return means | {
        "std": stds,
        "first": splits[0].values,
        "interval": {name: list(ends) for name, ends in splits[0].intervals.items()},
        "reasons": reasons,
    }


def _changed_fraction(before: Sequence[Scores], after: Sequence[Scores]) -> float:
    """Return the fraction of samples whose prediction changes, the mean over the splits."""
    fractions = [(a.classes != b.classes).mean() for a, b in zip(after, before, strict=True)]
    return float(np.mean(fractions))


def _notes(outputs: Outputs, fit_outputs: Outputs | None) -> list[str]:
    notes = [outputs.note] if outputs.note and fit_outputs is None else []
    if fit_outputs is not None and fit_outputs.digest() == outputs.digest():
        notes.append("fitted on the evaluated samples themselves: optimistically biased")
    if outputs.kind == "probabilities":
        zeros = int((outputs.values < FLOOR).sum())
        notes.append(
            f"probabilities: logits are ln p; {zeros} of them are below {FLOOR:.3g} and count as it"
        )
    return notes
