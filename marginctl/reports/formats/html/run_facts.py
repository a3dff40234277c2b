"""What run.json and result.json say of a run, as names and short texts."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from marginctl.results.collect import Run

Facts = dict[str, str]

MOST = 12  # so many entries of a list are shown; longer ones are summed up
_NETWORKS = ("diverged", "collapsed")  # of a cross-validation: which of its networks
# Said elsewhere on the page, or by another key: what the recipe and the heading of a run hold.
_REPEATED = {
    "run.json": {
        *("schema", "trial", "task", "dataset", "data", "objective", "seed", "recipe", "setting"),
        *("protocol", "tuning", "augment", "model", "optim", "train"),
    },
    "result.json": {
        *("schema", "sha256", "trial", "task", "dataset", "data", "row", "setting", "model"),
        *("objective", "seed", "versions"),
    },
}


def settings(run: Run) -> Facts:
    """The resolved recipe, by dotted keys."""
    return dict(_flat(run.about["recipe"]))


def results(run: Run) -> Facts:
    """All that the run found, by dotted keys; long lists as their mean, spread and range."""
    kept = {k: v for k, v in run.record.items() if k not in _REPEATED["result.json"]}
    for key in _NETWORKS:
        if isinstance(kept.get(key), list):
            kept[key] = f"{len(kept[key])} networks"
    return dict(_flat(kept))


def environment(run: Run) -> Facts:
    """Versions, device, commit: what the numbers may depend on beside recipe, seed and data."""
    kept = {k: v for k, v in run.about.items() if k not in _REPEATED["run.json"]}
    kept["timing"] = {k: v for k, v in run.about["timing"].items() if k != "started"}
    return dict(_flat(kept))


def _text_of(value: Any) -> str:
    """A setting or a number for a reader: six digits, `none` for nothing."""
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    return _of_list(value) if isinstance(value, list | tuple) else str(value)


def _flat(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from _flat(inner, f"{above}{key}.")
        else:
            yield f"{above}{key}", _text_of(inner)


def _of_list(values: Sequence[Any]) -> str:
    flat = list(_leaves(values))
    plain = not any(isinstance(value, Mapping) for value in flat)
    if plain and len(flat) <= MOST:
        return ", ".join(map(_text_of, flat))
    if plain and all(value == flat[0] for value in flat):
        return f"{len(flat)} times {_text_of(flat[0])}"
    if not all(isinstance(value, float) for value in flat):  # a mean of counts says nothing
        return f"{len(values)} entries, see the file"
    return (
        f"{len(flat)} numbers: {statistics.fmean(flat):.6g} ± {_spread(flat):.6g}, "
        f"from {min(flat):.6g} to {max(flat):.6g}"
    )


def _spread(values: Sequence[float]) -> float:
    """The standard deviation (ddof 1), in floats: the page shows six digits of it."""
    mean = statistics.fmean(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def _leaves(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _leaves(value)
        else:
            yield value
