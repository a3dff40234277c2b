"""A fitted map in a file: written by `calibrate --save`, read by `eval --calibration`."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.calibration.methods import METHODS
from marginctl.calibration.outputs import Kind, Labels, Outputs, Predicted
from marginctl.errors import RequestError
from marginctl.metrics import scoring_rules
from marginctl.runs.atomic_io import write_output
from marginctl.runs.safe_read import CorruptFileError, MissingFileError, read_text

KIND = "marginctl calibration map"


@dataclass(frozen=True)
class FittedMap:
    """A map, and what it was fitted on.

    Attributes:
        method: of `METHODS`.
        classes: C.
        input: what it maps, `logits` or `probabilities`.
        parameters: of the method.
        converged, note: as in `Fit`.
        fitted_on: `name` and `n`; the SHA-256 `digest` of the values and labels, and `data`, that
            of the images where they are known.
    """

    method: str
    classes: int
    input: Kind
    parameters: Mapping[str, Any]
    converged: bool
    note: str | None
    fitted_on: Mapping[str, Any]

    def predict(self, logits: NDArray[Any], labels: Labels) -> Predicted:
        """What the map makes of (N, C) logits."""
        values = logits if self.input == "logits" else scoring_rules.softmax(logits)
        outputs = Outputs("", self.input, values, labels)
        return METHODS[self.method].apply(self.parameters, outputs)


def write(path: Path, fitted: FittedMap) -> None:
    """Writes a map.

    Raises:
        StorageError: the file cannot be written.
    """
    document = {"schema": 1, "kind": KIND, **asdict(fitted)}
    write_output(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def read(path: Path) -> FittedMap:
    """Reads a map.

    Raises:
        RequestError: it cannot be read, is no such file, or holds parameters that are none of its
            method.
    """
    try:
        document = json.loads(read_text(path))
    except MissingFileError:
        raise RequestError(f"--calibration {path}: cannot be read: No such file") from None
    except CorruptFileError as error:
        raise RequestError(
            f"--calibration {path}: {error}: expected a map that marginctl calibrate --save has "
            "written"
        ) from None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise RequestError(
            f"--calibration {path}: expected a map that marginctl calibrate --save has written"
        )
    try:
        fitted = FittedMap(
            str(document["method"]),
            int(document["classes"]),
            document["input"],
            document["parameters"],
            bool(document["converged"]),
            document["note"],
            dict(document["fitted_on"]),
        )
        whole = (
            document["schema"] == 1
            and fitted.input in ("logits", "probabilities")
            and fitted.classes >= 2
            and {"name", "n"} <= set(fitted.fitted_on)
            and _FIT[fitted.method](fitted.parameters, fitted.classes)
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise RequestError(
            f"--calibration {path}: is damaged, or of another version of marginctl: fit it again"
        )
    return fitted


def _numbers(value: Any, *shape: int) -> bool:
    found = np.array(value, np.float64)
    return found.shape == shape and bool(np.isfinite(found).all())


def _temperature(parameters: Mapping[str, Any], _: int) -> bool:
    return math.isfinite(parameters["temperature"]) and parameters["temperature"] > 0


def _vector(parameters: Mapping[str, Any], c: int) -> bool:
    return _numbers(parameters["weight"], c) and _numbers(parameters["bias"], c)


def _matrix(parameters: Mapping[str, Any], c: int) -> bool:
    return _numbers(parameters["weight"], c, c) and _numbers(parameters["bias"], c)


def _line(one: Mapping[str, Any]) -> bool:
    x, n = np.array(one["x"], np.float64), len(one["y"])
    return n > 0 and _numbers(one["x"], n) and bool((np.diff(x) >= 0).all()) and _shares(one["y"])


def _bins(one: Mapping[str, Any]) -> bool:
    return len(one["y"]) > 0 and _shares([v for v in one["y"] if v is not None])


def _shares(values: list[float]) -> bool:
    return all(0 <= float(v) <= 1 for v in values)


# Whether parameters are those of a method for C classes.
_FIT: dict[str, Callable[[Any, int], bool]] = {
    "none": lambda parameters, c: not parameters,
    "temperature": _temperature,
    "vector": _vector,
    "matrix": _matrix,
    "isotonic-ovr": lambda p, c: len(p["maps"]) == c and all(map(_line, p["maps"])),
    "isotonic-top": lambda p, c: len(p["maps"]) == 1 and all(map(_line, p["maps"])),
    "histogram-ovr": lambda p, c: len(p["maps"]) == c and all(map(_bins, p["maps"])),
    "histogram-top": lambda p, c: len(p["maps"]) == 1 and all(map(_bins, p["maps"])),
}
