"""What fitting a calibration map gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Fit:
    """A fitted map.

    Attributes:
        parameters: by name: numbers and lists of numbers, as JSON has them.
        converged: whether the optimum was found; of a closed form, True.
        note: why not, or what else is to be known.
        details: of the solver: iterations, gradient norm, NLL on the fitting part.
    """

    parameters: Mapping[str, Any]
    converged: bool = True
    note: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
