"""A saved map on the outputs of a network: what `eval --calibration` adds."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.calibration.io import FittedMap
from marginctl.calibration.outputs import Labels
from marginctl.calibration.scores import Bootstrap, measure
from marginctl.errors import RequestError


def applied(
    path: Path,
    fitted: FittedMap,
    logits: NDArray[Any],
    labels: Labels,
    bins: int,
    data: str | None,
) -> dict[str, Any]:
    """The calibrated numbers of a network, with the map's name and what it was fitted on.

    Args:
        path: of the map, for messages.
        fitted: the map.
        logits: (N, C).
        labels: (N,).
        bins: of the calibration.
        data: a digest of the images; those that the map was fitted on may be among them.

    Raises:
        RequestError: a map of another number of classes, or logits that are not finite.
    """
    if fitted.classes != logits.shape[1]:
        raise RequestError(
            f"--calibration {path}: a map of {fitted.classes} classes, and the network has "
            f"{logits.shape[1]}: fit one on outputs of this network"
        )
    if not np.isfinite(logits).all():
        raise RequestError(f"--calibration {path}: the network's logits are not finite")
    said = fitted.predict(logits, labels)
    found = measure(said, labels, bins, Bootstrap(0, 0))
    seen = data is not None and fitted.fitted_on.get("data") == data
    return {
        "file": str(path),
        "method": fitted.method,
        "temperature": fitted.parameters.get("temperature"),
        "converged": fitted.converged,
        "fitted_on": dict(fitted.fitted_on),
        "note": f"{fitted.fitted_on['n']} of these images are those it was fitted on"
        if seen
        else None,
        "top1": 100 * float(found.values["accuracy"] or 0),
        "nll": found.values["nll"],
        "brier": found.values["brier"],
        "adaptive_ece": found.values["adaptive_ece"],
        "classwise_ece": found.values["classwise_ece"],
        "calibration": found.reliability.as_json(),
        "reasons": found.reasons,
    }


def as_text(found: dict[str, Any]) -> list[str]:
    """The calibrated numbers for a reader, a line each."""
    heat = "" if found["temperature"] is None else f" (T = {found['temperature']:.4f})"
    fitted, bins = found["fitted_on"], found["calibration"]
    lines = [
        f"calibrated by {found['method']}{heat} of {found['file']}, fitted on {fitted['n']} "
        f"samples of {fitted['name']}",
        f"  top-1     {found['top1']:.2f} %",
        *(
            f"  {label} {found[key]:.4f}"
            for label, key in (("NLL      ", "nll"), ("Brier    ", "brier"))
            if found[key] is not None
        ),
        f"  ECE, MCE  {100 * bins['ece']:.2f} %, {100 * bins['mce']:.2f} %  ({bins['bins']} bins)",
    ]
    lines += [f"  {key}: {why}" for key, why in found["reasons"].items()]
    return lines + [f"  {found['note']}"] * bool(found["note"])
