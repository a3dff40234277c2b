"""The methods of post-hoc calibration, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from marginctl.calibration import binning, scaling, temperature
from marginctl.calibration.outputs import Fit, Outputs, Predictions, uncalibrated
from marginctl.utils.registry import Registry

MATRIX_MAX_CLASSES = 100  # above, matrix scaling is fitted only where it is named


@dataclass(frozen=True)
class Method:
    """A calibration method: `fit` takes outputs and the number of bins, `apply` parameters."""

    title: str
    fit: Callable[[Outputs, int], Fit]
    apply: Callable[[Mapping[str, Any], Outputs], Predictions]


METHODS = Registry(
    "calibrator",
    Method,
    {
        "none": Method(
            "as they are",
            lambda outputs, bins: Fit({}),
            lambda parameters, outputs: uncalibrated(outputs),
        ),
        "temperature": Method(
            "softmax(f / T)", lambda outputs, bins: temperature.fit(outputs), temperature.apply
        ),
        "vector": Method(
            "softmax(w * f + b)",
            lambda outputs, bins: scaling.fit(outputs, matrix=False),
            scaling.apply,
        ),
        "matrix": Method(
            "softmax(W f + b), off-diagonal and bias regularized",
            lambda outputs, bins: scaling.fit(outputs, matrix=True),
            scaling.apply,
        ),
        "isotonic": Method(
            "isotonic regression, one-versus-rest, renormalized",
            binning.fit_isotonic,
            partial(binning.apply, evaluate=binning.interpolate),
        ),
        "histogram": Method(
            "histogram binning, one-versus-rest, renormalized",
            binning.fit_histogram,
            partial(binning.apply, evaluate=binning.binned),
        ),
    },
    label="calibration method",
)


def select_methods(
    names: list[str], num_classes: int
) -> tuple[dict[str, Method], list[dict[str, str]]]:
    """Return the named methods, or all that suit the number of classes; and those skipped, why."""
    if names:
        return {name: METHODS.find(name) for name in names}, []
    methods, skipped = dict(METHODS), []
    if num_classes > MATRIX_MAX_CLASSES:
        del methods["matrix"]
        count = num_classes * (num_classes + 1)
        reason = f"{count} parameters for {num_classes} classes: add --method matrix to fit them"
        skipped.append({"method": "matrix", "reason": reason})
    return methods, skipped
