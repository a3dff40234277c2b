"""Candidates of tuning: the learning rates and options that every objective chooses from.

The learning rates are absolute, so that the outcome does not depend on the rate of the recipe, and
all objectives have the same ones. Options of the objective are spread over the rates, so that an
objective with more options has no more candidates than another.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from marginctl.objectives.options import Value
from marginctl.objectives.parsing import ParsedObjective, parse_preset
from marginctl.objectives.presets import PRESETS
from marginctl.objectives.schedules import Schedule

# 0.001, 0.0018, 0.0032, 0.0056, 0.01, ... 0.32 for SGD, a tenth of it for Adam: our choice, as are
# the values of each option in `Option.tune`
RATES: Mapping[str, tuple[float, ...]] = {
    optimizer: tuple(float(f"{low * 10 ** (k / 4):.2g}") for k in range(11))
    for optimizer, low in (("sgd", 1e-3), ("adam", 1e-4), ("adamw", 1e-4))
}
_PEAKS = {"constant": "value", "one-cycle": "max_lr"}  # of other schedules: `start`


def max_rate(rate: float | Schedule) -> float:
    """Return the learning rate that a schedule is named by: its largest, or its first one.

    Raises:
        ValueError: a schedule without one, such as an annealing.
    """
    return dict(rate.options)[_peak(rate)] if isinstance(rate, Schedule) else rate


def with_max_rate(rate: float | Schedule, largest: float) -> float | Schedule:
    """Return a learning rate of the same shape, whose `max_rate` is `largest`.

    A last value other than 0 is scaled too.

    Raises:
        ValueError: a schedule without such a rate.
    """
    if not isinstance(rate, Schedule):
        return largest
    peak, options = _peak(rate), dict(rate.options)
    if "end" in options:
        options["end"] *= largest / options[peak]
    options[peak] = largest
    return replace(rate, options=tuple(sorted(options.items())))


def _peak(rate: Schedule) -> str:
    key = _PEAKS.get(rate.kind, "start")
    if key not in dict(rate.options):
        raise ValueError(f"the schedule {rate.kind} has no largest value that tuning could change")
    return key


def tuned_options(objective: ParsedObjective) -> dict[str, tuple[float, ...]]:
    """Return the values to try of each option of an objective.

    An option that the objective's name gives a value other than the default is not tuned. A
    composition of parts has no options of its own.
    """
    if objective.preset is None:
        return {}
    options = PRESETS[objective.preset].options
    return {
        key: option.tune
        for key, option in options.items()
        if option.tune and objective.options[key] == option.default
    }


def with_options(objective: ParsedObjective, values: Mapping[str, Value]) -> ParsedObjective:
    """Return a preset's objective with some options changed."""
    if not values:
        return objective
    assert objective.preset is not None
    return parse_preset(objective.preset, **{**objective.options, **values})


def spread(count: int, dimensions: Mapping[Any, Sequence[Any]]) -> list[dict[Any, Any]]:
    """Return `count` combinations of the dimensions' values that cover them evenly.

    Neighbours differ much: the values follow a Kronecker sequence whose steps are the powers of
    the generalized golden ratio.
    """
    ratio = 2.0
    for _ in range(50):  # the root of x^(d + 1) = x + 1
        ratio = (1 + ratio) ** (1 / (len(dimensions) + 1))
    steps = {name: ratio ** -(j + 1) for j, name in enumerate(dimensions)}
    return [
        {
            name: values[math.floor((0.5 + i * steps[name]) % 1 * len(values))]
            for name, values in dimensions.items()
        }
        for i in range(count)
    ]


def tuning_candidates(
    objective: ParsedObjective,
    rates: Sequence[float],
    others: Mapping[str, Sequence[Any]] | None = None,
    *,
    start: float | None = None,
) -> list[tuple[ParsedObjective, float, dict[str, Any]]]:
    """Return the candidates of an objective: one for each rate, and one for the starting rate.

    Args:
        rates: learning rates, the same for all objectives.
        others: settings to spread over the rates besides the objective's own options, such as a
            weight decay, each with its values.
        start: the recipe's learning rate; if it is not among `rates`, it is one more candidate,
            with the objective as it is and the first value of the other settings.

    Returns:
        Objective, learning rate and other settings of each candidate.
    """
    options, others = tuned_options(objective), others or {}
    dimensions: dict[tuple[str, str], Sequence[Any]]
    dimensions = {("option", key): values for key, values in options.items()}
    dimensions |= {("", key): values for key, values in others.items()}
    candidates = []
    for rate, values in zip(rates, spread(len(rates), dimensions), strict=True):
        chosen = {key: value for (kind, key), value in values.items() if kind}
        rest = {key: value for (kind, key), value in values.items() if not kind}
        candidates.append((with_options(objective, chosen), rate, rest))
    if start is not None and start not in rates:
        candidates.insert(0, (objective, start, {key: v[0] for key, v in others.items()}))
    return candidates
