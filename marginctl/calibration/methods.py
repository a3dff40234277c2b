"""The methods of post-hoc calibration, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from marginctl.calibration import binning as maps
from marginctl.calibration import scaling, temperature
from marginctl.calibration.fit import Fit
from marginctl.calibration.outputs import Outputs, Predicted, as_given
from marginctl.errors import RequestError
from marginctl.utils.text import did_you_mean

MOST_CLASSES_OF_A_MATRIX = 100  # above, matrix scaling is fitted only where it is named


@dataclass(frozen=True)
class Method:
    """A method.

    Attributes:
        title: what it is, in words.
        fit: outputs and the number of bins -> a map.
        apply: its parameters and outputs -> what it makes of them.
    """

    name: str
    title: str
    fit: Callable[[Outputs, int], Fit]
    apply: Callable[[Mapping[str, Any], Outputs], Predicted]


def _of_all(fit: Callable[[Outputs], Fit]) -> Callable[[Outputs, int], Fit]:
    return lambda outputs, bins: fit(outputs)


METHODS = {
    m.name: m
    for m in (
        Method("none", "as they are", lambda o, _: Fit({}), lambda _, o: as_given(o)),
        Method(
            "temperature",
            "softmax(f / T)",
            _of_all(temperature.fit),
            temperature.apply,
        ),
        Method("vector", "softmax(w * f + b)", _of_all(scaling.fit_vector), scaling.apply_vector),
        Method(
            "matrix",
            "softmax(W f + b), off-diagonal and bias regularised",
            _of_all(scaling.fit_matrix),
            scaling.apply_matrix,
        ),
        Method(
            "isotonic-ovr",
            "isotonic regression, one-versus-rest, renormalised",
            _of_all(partial(maps.fit_one_versus_rest, fitter=maps.isotonic)),
            partial(maps.apply_one_versus_rest, mapper=maps.on_line),
        ),
        Method(
            "isotonic-top",
            "isotonic regression of the top label's confidence",
            _of_all(partial(maps.fit_top_label, fitter=maps.isotonic)),
            partial(maps.apply_top_label, mapper=maps.on_line),
        ),
        Method(
            "histogram-ovr",
            "histogram binning, one-versus-rest, renormalised",
            lambda o, bins: maps.fit_one_versus_rest(o, maps.histogram(bins)),
            partial(maps.apply_one_versus_rest, mapper=maps.in_bins),
        ),
        Method(
            "histogram-top",
            "histogram binning of the top label's confidence",
            lambda o, bins: maps.fit_top_label(o, maps.histogram(bins)),
            partial(maps.apply_top_label, mapper=maps.in_bins),
        ),
    )
}


def chosen(names: list[str], classes: int) -> tuple[list[Method], list[dict[str, str]]]:
    """The methods that were asked for, or all that suit the number of classes.

    Returns:
        The methods, each once, and those left out with their reason.

    Raises:
        RequestError: a name that is none.
    """
    for name in names:
        check_method(name)
    if names:
        return [METHODS[name] for name in dict.fromkeys(names)], []
    if classes <= MOST_CLASSES_OF_A_MATRIX:
        return list(METHODS.values()), []
    reason = (
        f"{classes * (classes + 1)} parameters for {classes} classes: fitted where it is named, "
        "--method matrix"
    )
    kept = [m for m in METHODS.values() if m.name != "matrix"]
    return kept, [{"method": "matrix", "reason": reason}]


def check_method(name: str) -> None:
    """Refuses a method that there is not.

    Raises:
        RequestError: naming those that there are.
    """
    if name not in METHODS:
        raise RequestError(
            f"--method {name}: expected one of {', '.join(METHODS)}.{did_you_mean(name, METHODS)}"
        )
