"""What a trained network is measured by, at its last epoch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measure:
    """A number of a result.

    Attributes:
        label: for a reader, with the unit.
        path: the keys in a result record, one in another.
        factor: from the record's number to the shown one.
        places: decimal places that are shown.
        higher: whether more is better.
    """

    label: str
    path: tuple[str, ...]
    factor: float = 1.0
    places: int = 2
    higher: bool = False

    def of(self, record: Mapping[str, Any]) -> float | None:
        """The number, None where the record has none: of an earlier version, or not finite."""
        value: Any = record
        for key in self.path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return None if value is None else self.factor * float(value)


MEASURES: Mapping[str, Measure] = {
    "top1": Measure("top-1 %", ("last", "top1"), higher=True),
    "ece": Measure("ECE %", ("evaluation", "calibration", "ece"), 100.0),
    "mce": Measure("MCE %", ("evaluation", "calibration", "mce"), 100.0),
    "nll": Measure("NLL", ("last", "nll"), places=4),
    "brier": Measure("Brier", ("evaluation", "brier"), places=4),
}
CALIBRATION = ("ece", "mce", "nll", "brier")
