"""A classifier's outputs, the predictions of a calibrator, and the result of a fit."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from marginctl.errors import RequestError
from marginctl.metrics import scoring_rules
from marginctl.metrics.arrays import FloatArray, check_rows, row_blocks
from marginctl.utils.text import join_names

Kind = Literal["logits", "probabilities"]
Labels = NDArray[np.int64]

# ln p of a p of 0 is that of float32's smallest normal number, which a float32 softmax rounds away.
FLOOR = float(np.finfo(np.float32).tiny)

MAX_LOGIT = 1e100  # larger values do not come from a network, and their squares overflow
_SOFTMAX_SUM_TOLERANCE = 1e-3
_ROUNDED_SOFTMAX_TOLERANCE = 0.11  # the same where the values have few digits
_EXCESS = 1e-6  # of a probability over 1, by the rounding of float32
_EXACT = 1e-5  # a row's sum differs from 1 by less if float32 alone rounds it
_HALF_PRECISION = 2**-8  # the same of bfloat16, or of three digits


@dataclass(frozen=True)
class Outputs:
    name: str  # of the file or run, for messages
    kind: Kind  # of the values; never guessed
    values: NDArray[Any]  # (N, C), float32 or float64
    labels: Labels  # (N,), from 0 to C - 1
    data: str | None = None  # a digest of the images, where it is known
    note: str | None = None  # a remark for readers
    classes: tuple[str, ...] | None = None  # the names of the classes, where they have names
    remarks: tuple[str, ...] = ()  # what a user should know about the values and labels
    network: str | None = None  # the trial and the step of the network, where they are known

    @property
    def num_classes(self) -> int:
        return int(self.values.shape[1])

    def summary(self) -> dict[str, Any]:
        """Return what was read as JSON."""
        rows, classes = self.values.shape
        sizes = {"rows": rows, "classes": classes}
        return {"kind": "outputs", **sizes, "form": self.kind, "remarks": list(self.remarks)}

    def logits(self) -> NDArray[Any]:
        """Return (N, C) logits, or ln p with p of at least `FLOOR`."""
        if self.kind == "logits":
            return self.values
        return np.asarray(np.log(np.maximum(self.values, FLOOR)))

    def predicted(self) -> Labels:
        """Return (N,) classes of the largest value, the first of equal ones."""
        return np.asarray(self.values.argmax(axis=1))

    def subset(self, rows: NDArray[np.int64]) -> "Outputs":
        return replace(self, values=self.values[rows], labels=self.labels[rows])

    def digest(self) -> str:
        """Return the SHA-256 of kind, shape, values and labels."""
        header = f"{self.kind} {self.values.shape} {self.values.dtype}"
        content = hashlib.sha256(header.encode())
        content.update(np.ascontiguousarray(self.values).tobytes())
        content.update(self.labels.tobytes())
        return content.hexdigest()


@dataclass(frozen=True)
class Predictions:
    classes: Labels
    confidence: FloatArray  # (N,) probabilities of the predicted `classes`
    probabilities: FloatArray  # (N, C)
    # (N, C) whose softmax the probabilities are; None where there are none
    logits: NDArray[Any] | None = None


@dataclass(frozen=True)
class Fit:
    parameters: Mapping[str, Any]  # by name: numbers and lists of numbers, as JSON has them
    converged: bool = True  # whether the optimum was found; True for a closed form
    note: str | None = None  # why not, or another remark
    # of the solver: iterations, gradient norm, NLL on the fitting samples
    details: Mapping[str, Any] = field(default_factory=dict)


def create_outputs(
    name: str,
    kind: Kind,
    values: NDArray[Any],
    labels: NDArray[Any],
    data: str | None = None,
    note: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    remarks: Sequence[str] = (),
    place: Callable[[int], str] = "row {}".format,
) -> Outputs:
    """Return outputs that can be calibrated; rows of probabilities are rescaled to sum to 1.

    Args:
        values: (N, C) real numbers.
        labels: (N,) integers from 0 to C - 1.
        remarks: of the reader; rounded probabilities and classes without samples are added.
        place: names a row, counted from 0, in messages.

    Raises:
        RequestError: no sample, wrong shapes, a value that is not a logit or a probability, a label
            out of range, one class only, a row of probabilities whose sum is not 1 within rounding,
            or probabilities that are called logits.
    """
    try:
        x, y = check_rows(kind, values, labels)
    except ValueError as error:
        raise RequestError(f"{name}: {error}") from None
    if x.shape[1] < 2:
        raise RequestError(f"{name}: {kind} of one class: expected columns for two or more")
    if y.min() == y.max():
        raise RequestError(
            f"{name}: all {len(y)} labels are {y[0]}: expected samples of two classes or more"
        )
    x = x.astype(x.dtype if x.dtype == np.float32 else np.float64, copy=kind != "logits")
    more = []
    if kind == "logits":
        _check_logits(name, x, place)
    elif rounded := _normalize(name, x, place):
        more.append(rounded)
    absent = np.flatnonzero(np.bincount(y, minlength=x.shape[1]) == 0).tolist()
    if len(absent):
        shown = join_names([classes[c] if classes else str(c) for c in absent], 10)
        more.append(f"{len(absent)} of {x.shape[1]} classes have no sample: {shown}")
    named = tuple(classes) if classes else None
    if named == tuple(map(str, range(x.shape[1]))):
        named = None
    return Outputs(name, kind, x, y, data, note, named, (*remarks, *more))


def _normalize(name: str, p: NDArray[Any], place: Callable[[int], str]) -> str | None:
    """Divide rows of probabilities by their sums, in place; return a remark on rounded ones."""
    if not (p.min() >= 0 and p.max() <= 1 + _EXCESS):
        i, c = (int(k) for k in np.argwhere(~((p >= 0) & (p <= 1 + _EXCESS)))[0])
        raise RequestError(
            f"{name}: probabilities: {p[i, c]} in {place(i)}, class {c} (from 0): expected 0 to 1 "
            "(logits go under their own name)"
        )
    np.minimum(p, 1, out=p)
    sums = p.sum(axis=1, dtype=np.float64)
    deviation = np.abs(sums - 1)
    worst = int(deviation.argmax())
    if deviation[worst] > _HALF_PRECISION and (
        deviation[worst] > _rounding(p) + _EXACT or not sums.min()
    ):
        worst = worst if sums.min() else int(sums.argmin())
        raise RequestError(
            f"{name}: probabilities: {place(worst)} sums to {sums[worst]:.6g}, expected 1, and "
            "rounding does not explain it: correct the row or leave it out"
        )
    np.divide(p, sums[:, None], out=p, casting="same_kind")
    count = int((deviation > _EXACT).sum())
    if not count:
        return None
    return (
        f"rounded probabilities: the sums of {count} of {len(p)} rows lie between "
        f"{sums.min():.4g} and {sums.max():.4g}: every row was divided by its sum"
    )


def _rounding(p: NDArray[Any]) -> float:
    """Return by how much a row's sum may differ from 1 as its values have few digits, or 0."""
    for steps in (10, 100, 255, 256, 1000, 10**4, 10**5, 10**6):
        scaled = p * np.float64(steps)
        if np.abs(scaled - np.round(scaled)).max() < 1e-7 * steps:
            return float(p.shape[1] / 2 / steps)
    return 0.0


def _check_logits(name: str, logits: NDArray[Any], place: Callable[[int], str]) -> None:
    like_softmax = True
    for rows in row_blocks(*logits.shape):
        part = logits[rows]
        valid = np.isfinite(part) & (np.abs(part) <= np.float64(MAX_LOGIT))
        if not valid.all():
            i, c = (int(k) for k in np.argwhere(~valid)[0])
            raise RequestError(
                f"{name}: logits: {part[i, c]} in {place(rows.start + i)}, class {c} (from 0): "
                f"expected finite numbers up to {MAX_LOGIT:g}: leave the row out"
            )
        like_softmax &= bool(
            ((part >= 0) & (part <= 1)).all()
            and np.abs(part.sum(axis=1, dtype=np.float64) - 1).max()
            < max(_SOFTMAX_SUM_TOLERANCE, min(_rounding(part) + _EXACT, _ROUNDED_SOFTMAX_TOLERANCE))
        )
    if like_softmax:
        raise RequestError(
            f"{name}: logits: every row lies in 0 to 1 and sums to 1: these are probabilities: "
            "name them so (key probabilities, columns prob_0, prob_1, ...)"
        )


def uncalibrated(outputs: Outputs) -> Predictions:
    if outputs.kind == "logits":
        return from_logits(outputs.values, outputs.predicted())
    return from_probabilities(outputs.values.astype(np.float64))


def from_logits(logits: NDArray[Any], classes: Labels | None = None) -> Predictions:
    """Return the softmax of (N, C) logits; `classes` (N,) if they are known from before."""
    p = scoring_rules.softmax(logits)
    predicted = logits.argmax(axis=1) if classes is None else classes
    return Predictions(predicted, p[np.arange(len(p)), predicted], p, logits)


def from_probabilities(probabilities: FloatArray) -> Predictions:
    predicted = probabilities.argmax(axis=1)
    confidence = probabilities[np.arange(len(probabilities)), predicted]
    return Predictions(predicted, confidence, probabilities)
