"""What a classifier said of samples, and what a calibration map makes of it."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from marginctl.errors import RequestError
from marginctl.metrics import scoring_rules
from marginctl.metrics.arrays import FloatArray, check_rows, row_blocks

Kind = Literal["logits", "probabilities"]
Labels = NDArray[np.int64]

# ln p of a p of 0 is that of float32's smallest normal number: what a float32 softmax rounds away.
FLOOR = float(np.finfo(np.float32).tiny)

LARGEST = 1e100  # a logit that is larger is no output of a network, and its square is none either
_SUM_OF_SOFTMAX = 1e-3


@dataclass(frozen=True)
class Outputs:
    """A classifier's outputs and the labels.

    Attributes:
        name: where they are from.
        kind: what the values are; never guessed.
        values: (N, C), float32 or float64.
        labels: (N,), from 0 to C - 1.
        data: a digest of the images that they are of, where there is one.
        note: what else a reader has to know of them.
    """

    name: str
    kind: Kind
    values: NDArray[Any]
    labels: Labels
    data: str | None = None
    note: str | None = None

    @property
    def classes(self) -> int:
        return int(self.values.shape[1])

    def logits(self) -> NDArray[Any]:
        """(N, C): the logits, or ln p with p of at least `FLOOR`."""
        if self.kind == "logits":
            return self.values
        return np.asarray(np.log(np.maximum(self.values, FLOOR)))

    def predicted(self) -> Labels:
        """(N,) the class of the largest value, the first of equal ones."""
        return np.asarray(self.values.argmax(axis=1))

    def part(self, rows: NDArray[np.int64]) -> "Outputs":
        """Some of the samples."""
        return replace(self, values=self.values[rows], labels=self.labels[rows])

    def digest(self) -> str:
        """SHA-256 of kind, shape, values and labels."""
        about = f"{self.kind} {self.values.shape} {self.values.dtype}"
        content = hashlib.sha256(about.encode())
        content.update(np.ascontiguousarray(self.values).tobytes())
        content.update(self.labels.tobytes())
        return content.hexdigest()


@dataclass(frozen=True)
class Predicted:
    """What a map makes of outputs.

    Attributes:
        classes: (N,) predicted.
        confidence: (N,) of them, from 0 to 1.
        probabilities: (N, C); None where the map is of the confidence alone.
        logits: (N, C) whose softmax the probabilities are, where there are such.
    """

    classes: Labels
    confidence: FloatArray
    probabilities: FloatArray | None
    logits: NDArray[Any] | None = None


def checked_outputs(
    name: str,
    kind: Kind,
    values: NDArray[Any],
    labels: NDArray[Any],
    data: str | None = None,
    note: str | None = None,
) -> Outputs:
    """Outputs that can be calibrated; rows of probabilities are made to sum to 1 exactly.

    Args:
        name: of the file or run, for messages.
        kind: what the values are said to be.
        values: (N, C) real numbers.
        labels: (N,) integers from 0 to C - 1.
        data, note: as in `Outputs`.

    Raises:
        RequestError: no sample, other shapes, a value that is no such number, labels outside
            their range, one class only, or probabilities called logits.
    """
    try:
        x, y = check_rows(kind, values, labels)
        x = x.astype(x.dtype if x.dtype == np.float32 else np.float64, copy=kind != "logits")
        if kind == "probabilities":
            # a few digits of a file: no row sums to 1 exactly
            for rows in row_blocks(*x.shape):
                part = scoring_rules.check_probabilities(x[rows])
                x[rows] = part / part.sum(axis=1, keepdims=True)
    except ValueError as error:
        raise RequestError(f"{name}: {error}") from None
    if x.shape[1] < 2:
        raise RequestError(f"{name}: {kind} of one class: expected columns for two or more")
    if y.min() == y.max():
        raise RequestError(
            f"{name}: all {len(y)} labels are {y[0]}: expected samples of two classes or more"
        )
    if kind == "logits":
        _check_logits(name, x)
    return Outputs(name, kind, x, y, data, note)


def _check_logits(name: str, logits: NDArray[Any]) -> None:
    like_softmax = True
    for rows in row_blocks(*logits.shape):
        part = logits[rows]
        fine = np.isfinite(part) & (np.abs(part) <= np.float64(LARGEST))
        if not fine.all():
            i, c = (int(k) for k in np.argwhere(~fine)[0])
            raise RequestError(
                f"{name}: logits: {part[i, c]} in row {rows.start + i}, class {c} (from 0): "
                f"expected finite numbers up to {LARGEST:g}: leave the row out"
            )
        like_softmax &= bool(
            ((part >= 0) & (part <= 1)).all()
            and (np.abs(part.sum(axis=1, dtype=np.float64) - 1) < _SUM_OF_SOFTMAX).all()
        )
    if like_softmax:
        raise RequestError(
            f"{name}: logits: every row lies in 0 to 1 and sums to 1: these are probabilities: "
            "call them so (key probabilities, columns prob_0, prob_1, ...)"
        )


def as_given(outputs: Outputs) -> Predicted:
    """What outputs say without any map."""
    if outputs.kind == "logits":
        return from_logits(outputs.values, outputs.predicted())
    p = outputs.values.astype(np.float64)
    classes = outputs.predicted()
    return Predicted(classes, p[np.arange(len(p)), classes], p)


def from_logits(logits: NDArray[Any], classes: Labels | None = None) -> Predicted:
    """The softmax of (N, C) logits; `classes` where they are known to be the same as before."""
    p = scoring_rules.softmax(logits)
    found = logits.argmax(axis=1) if classes is None else classes
    return Predicted(found, p[np.arange(len(p)), found], p, logits)


def from_probabilities(probabilities: FloatArray) -> Predicted:
    """(N, C) probabilities as they are."""
    found = probabilities.argmax(axis=1)
    confidence = probabilities[np.arange(len(probabilities)), found]
    return Predicted(found, confidence, probabilities)
