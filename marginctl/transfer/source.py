"""Source models: the trained networks that other trainings begin with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from marginctl.models.registry import ModelSpec
from marginctl.objectives.parts import ObjectiveSpec
from marginctl.recipe.image_data import ImageData


@dataclass(frozen=True, eq=False)
class SourceModel:
    """A trained network.

    Attributes:
        weights: the SHA-256 of its backbone's tensors: all that a result depends on.
        moments: mean and standard deviation of each channel of its images, from 0 to 1.
        data: its images, as in its recipe; None for published weights.
        row: its data, model and settings, or the name of its weights.
        seed: of its training; None for published weights.
    """

    path: str
    weights: str
    model: ModelSpec
    spec: ObjectiveSpec
    backbone: Mapping[str, Tensor]
    objective: Mapping[str, Tensor]
    moments: tuple[Sequence[float], Sequence[float]]
    classes: Sequence[str]
    data: ImageData | None
    image_size: int
    row: str
    trained_with: str
    seed: int | None

    def record(self) -> dict[str, Any]:
        """Return what run.json and result.json record of it."""
        return {"path": self.path, "weights_sha256": self.weights}

    def training_record(self) -> dict[str, Any]:
        """Return `record` with what the network was trained with."""
        training = {"row": self.row, "objective": self.trained_with, "seed": self.seed}
        return self.record() | training
