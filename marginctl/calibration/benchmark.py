"""Fits maps on one part of the samples and measures them on the other: `marginctl calibrate`."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marginctl.calibration.fit import Fit
from marginctl.calibration.io import FittedMap
from marginctl.calibration.methods import Method, chosen
from marginctl.calibration.outputs import FLOOR, Outputs, as_given
from marginctl.calibration.scores import LEVEL, METRICS, Bootstrap, Measured, measure
from marginctl.calibration.split import split
from marginctl.errors import RequestError
from marginctl.metrics.calibration_error import CONVENTION, Reliability

MOST_NUMBERS = 10_000  # of one map in the document; a larger one is in the file of --save alone


@dataclass(frozen=True)
class Asked:
    """How maps are fitted and measured.

    Attributes:
        share: of the samples to fit on; of no use with samples of their own to fit on.
        repeats: random splits; likewise.
        bins: of the calibration errors, and of histogram binning.
        draws: of the bootstrap, 0 for no intervals.
        seed: of the splits and the draws.
    """

    share: float = 0.5
    repeats: int = 10
    bins: int = 15
    draws: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class Calibrated:
    """The document of `calibrate --json`, and of the first split the maps and the diagrams."""

    document: dict[str, Any]
    maps: dict[str, FittedMap]
    before: Reliability
    after: dict[str, Reliability]


def calibrate(
    outputs: Outputs,
    fitting: Outputs | None,
    names: list[str],
    asked: Asked,
    say: Callable[[str], None],
) -> Calibrated:
    """Fits each method on one part and measures it on the other, before and after.

    Args:
        outputs: the samples.
        fitting: to fit on; then all of `outputs` are measured on, once. None: random splits.
        names: of methods; none for all that suit the number of classes.
        asked: the rest.
        say: gets a line for each fit that begins.

    Raises:
        RequestError: no such method, too few samples to split, or samples to fit on
            of another number of classes or kind.
    """
    if fitting is not None:
        _check_alike(fitting, outputs)
    methods, skipped = chosen(names, outputs.classes)
    repeats = asked.repeats if fitting is None else 1
    before: list[Measured] = []
    fits: dict[str, list[Fit]] = {m.name: [] for m in methods}
    after: dict[str, list[Measured]] = {m.name: [] for m in methods}
    maps: dict[str, FittedMap] = {}
    sizes = (0, 0)
    for repeat in range(repeats):
        bootstrap = Bootstrap(0 if repeat else asked.draws, asked.seed)
        if fitting is None:
            fit_rows, test_rows = split(outputs, asked.share, asked.seed, repeat)
            fitted, tested = outputs.part(fit_rows), outputs.part(test_rows)
        else:
            fitted, tested = fitting, outputs
        if not repeat:
            sizes = len(fitted.labels), len(tested.labels)
        before.append(measure(as_given(tested), tested.labels, asked.bins, bootstrap))
        for method in methods:
            say(f"split {repeat + 1} of {repeats}: {method.name}")
            fit = method.fit(fitted, asked.bins)
            fits[method.name].append(fit)
            if method.name == "none":  # is what was before
                after[method.name].append(before[-1])
            else:
                said = method.apply(fit.parameters, tested)
                after[method.name].append(measure(said, tested.labels, asked.bins, bootstrap))
            if not repeat:
                maps[method.name] = _map(method, fit, fitted)
    document = {
        "schema": 1,
        "command": "calibrate",
        "input": outputs.name,
        "values": outputs.kind,
        "n": len(outputs.labels),
        "classes": outputs.classes,
        "bins": asked.bins,
        "convention": CONVENTION,
        "seed": asked.seed,
        "split": {
            "share": asked.share if fitting is None else None,
            "calibration": None if fitting is None else fitting.name,
            "repeats": repeats,
            "fitted_on": sizes[0],
            "measured_on": sizes[1],
        },
        "bootstrap": {
            "draws": asked.draws,
            "level": LEVEL,
            "of": "percentiles over samples of the first split's measured part",
        },
        "methods": [
            {
                "method": m.name,
                "title": m.title,
                **_of_fits(fits[m.name]),
                "before": _numbers(before),
                "after": _numbers(after[m.name]) | {"changed": _changed(before, after[m.name])},
            }
            for m in methods
        ],
        "skipped": skipped,
        "notes": _notes(outputs, fitting),
    }
    return Calibrated(
        document,
        maps,
        before[0].reliability,
        {name: found[0].reliability for name, found in after.items()},
    )


def _check_alike(fitting: Outputs, outputs: Outputs) -> None:
    if fitting.classes != outputs.classes:
        raise RequestError(
            f"{fitting.name}: {fitting.classes} classes, and {outputs.name} has "
            f"{outputs.classes}: expected outputs of the same classifier"
        )
    if fitting.kind != outputs.kind:
        raise RequestError(
            f"{fitting.name}: {fitting.kind}, and {outputs.name} has {outputs.kind}: expected the "
            "same of both"
        )


def _map(method: Method, fit: Fit, fitted: Outputs) -> FittedMap:
    about = {"name": fitted.name, "n": len(fitted.labels), "digest": fitted.digest()}
    return FittedMap(
        method.name,
        fitted.classes,
        fitted.kind,
        fit.parameters,
        fit.converged,
        fit.note,
        about | {"data": fitted.data},
    )


def _of_fits(fits: Sequence[Fit]) -> dict[str, Any]:
    """The first split's parameters, and how the fit of each split ended."""
    first, reason = dict(fits[0].parameters), None
    numbers = _count(first)
    if numbers > MOST_NUMBERS:
        first = {}
        reason = f"{numbers} numbers: --save FILE writes them"
    rows = [
        {"converged": f.converged, "note": f.note}
        | ({"temperature": t} if (t := f.parameters.get("temperature")) is not None else {})
        | dict(f.details)
        for f in fits
    ]
    return {
        "parameters": first,
        "parameters_reason": reason,
        "converged": all(f.converged for f in fits),
        "note": next((f.note for f in fits if f.note), None),
        "fits": rows,
    }


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    return sum(map(_count, value)) if isinstance(value, list) else 1


def _numbers(splits: Sequence[Measured]) -> dict[str, Any]:
    """Means over the splits, their standard deviations (ddof 1), the first split's intervals."""
    document: dict[str, Any] = {}
    stds: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name in METRICS:
        values = [v for s in splits if (v := s.values[name]) is not None]
        whole = len(values) == len(splits)
        document[name] = statistics.fmean(values) if whole else None
        stds[name] = statistics.stdev(values) if whole and len(values) > 1 else None
        if not whole:
            missing = len(splits) - len(values)
            why = next(s.reasons[name] for s in splits if name in s.reasons)
            reasons[name] = why if not values else f"{missing} of {len(splits)} splits: {why}"
    return document | {
        "std": stds,
        "first": splits[0].values,
        "interval": {name: list(ends) for name, ends in splits[0].intervals.items()},
        "reasons": reasons,
    }


def _changed(before: Sequence[Measured], after: Sequence[Measured]) -> float:
    """The share of samples with another prediction, the mean over the splits."""
    shares = [(a.classes != b.classes).mean() for a, b in zip(after, before, strict=True)]
    return float(np.mean(shares))


def _notes(outputs: Outputs, fitting: Outputs | None) -> list[str]:
    """What else is to be known of the samples."""
    notes = [outputs.note] if outputs.note and fitting is None else []
    if fitting is not None and fitting.digest() == outputs.digest():
        notes.append("fitted on the very samples that are measured: the numbers flatter")
    if outputs.kind == "probabilities":
        zeros = int((outputs.values < FLOOR).sum())
        notes.append(
            f"probabilities: logits are ln p; {zeros} of them are below {FLOOR:.3g} and count as it"
        )
    return notes
