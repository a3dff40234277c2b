"""A fitted calibrator: its file, its predictions, and its scores on a network's logits."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.calibration.methods import METHODS
from marginctl.calibration.outputs import Kind, Labels, Outputs, Predictions
from marginctl.calibration.scores import score
from marginctl.errors import RequestError
from marginctl.metrics import scoring_rules
from marginctl.runs.atomic_io import write_output
from marginctl.runs.run_dir import checked_document, digest
from marginctl.runs.safe_read import CorruptFileError, MissingFileError, read_text

KIND = "marginctl calibrator"
EXPECTED = "expected a calibrator that marginctl calibrate --save wrote"


@dataclass(frozen=True)
class Calibrator:
    """A fitted calibration method.

    `fitted_on` has `name` and `n` of the samples; `digest`, the SHA-256 of their values and labels;
    and, where they are known, `data`, that of the images, and `network`, its trial and step.
    """

    method: str
    classes: int
    input: Kind
    parameters: Mapping[str, Any]
    converged: bool
    note: str | None
    fitted_on: Mapping[str, Any]

    def predict(self, logits: NDArray[Any], labels: Labels) -> Predictions:
        """Return the calibrated predictions of (N, C) logits."""
        values = logits if self.input == "logits" else scoring_rules.softmax(logits)
        return METHODS[self.method].apply(self.parameters, Outputs("", self.input, values, labels))

    def save(self, path: Path) -> None:
        """Write the calibrator to a file, with a checksum.

        Raises:
            StorageError: the file cannot be written.
        """
        document = {"schema": 1, "kind": KIND, **asdict(self)}
        document["sha256"] = digest(document)
        write_output(path, json.dumps(document, indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Calibrator":
        """Read a calibrator from a file.

        Raises:
            RequestError: the file cannot be read, is corrupt, or is not a calibrator.
        """
        try:
            document = checked_document(read_text(path))
        except MissingFileError:
            raise RequestError(f"--calibration {path}: cannot be read: No such file") from None
        except CorruptFileError as error:
            raise RequestError(f"--calibration {path}: {error}: {EXPECTED}") from None
        if document.pop("kind", None) != KIND:
            raise RequestError(f"--calibration {path}: {EXPECTED}")
        document.pop("schema")
        return cls(**document)


def evaluate_calibrator(
    path: Path,
    calibrator: Calibrator,
    logits: NDArray[Any],
    labels: Labels,
    bins: int,
    data: str | None,
    network: str | None = None,
) -> dict[str, Any]:
    """Return the scores of a network's calibrated predictions, for `eval --calibration`.

    Args:
        path: of the calibrator, for messages.
        logits, labels: (N, C) and (N,).
        data: a digest of the images, to tell whether the calibrator was fitted on some of them.

    Raises:
        RequestError: a calibrator for another number of classes, or logits that are not finite.
    """
    if calibrator.classes != logits.shape[1]:
        raise RequestError(
            f"--calibration {path}: a calibrator of {calibrator.classes} classes, and the network "
            f"has {logits.shape[1]}: fit one on outputs of this network"
        )
    if not np.isfinite(logits).all():
        raise RequestError(f"--calibration {path}: the network's logits are not finite")
    scores = score(calibrator.predict(logits, labels), labels, bins)
    fitted_on, note, warning = calibrator.fitted_on, None, None
    if data is not None and fitted_on.get("data") == data:
        note = f"the calibrator was fitted on {fitted_on['n']} of these images"
    if fitted_on.get("network") not in (None, network):
        warning = (
            f"the calibrator was fitted on another network ({fitted_on['network']}): it does not "
            "calibrate this one"
        )
    return {
        "file": str(path),
        "method": calibrator.method,
        "temperature": calibrator.parameters.get("temperature"),
        "converged": calibrator.converged,
        "fitted_on": dict(fitted_on),
        "note": note,
        "warning": warning,
        "top1": 100 * float(scores.values["accuracy"] or 0),
        **{key: scores.values[key] for key in ("nll", "brier", "adaptive_ece", "classwise_ece")},
        "calibration": scores.reliability.as_json(),
        "reasons": scores.reasons,
    }
