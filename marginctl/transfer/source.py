"""Source models: the trained networks that other trainings begin with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from marginctl.data.images.resizing import CENTER, Resizing
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parts import ObjectiveSpec
from marginctl.recipe.image_data import ImageData


@dataclass(frozen=True, eq=False)
class SourceModel:
    path: str
    weights: str  # the SHA-256 of its backbone's tensors: all that a result depends on
    model: ModelSpec
    spec: ObjectiveSpec
    backbone: Mapping[str, Tensor]
    objective: Mapping[str, Tensor]
    row: str  # its data, model and settings, or the name of its weights
    trained_with: str
    seed: int | None = None  # of its training; None for weights
    # mean and standard deviation of each channel of its images, from 0 to 1; empty where unknown
    moments: tuple[Sequence[float], Sequence[float]] = ((), ())
    classes: Sequence[str] = ()
    data: ImageData | None = None  # its images, as in its recipe; None for weights
    image_size: int = 0  # 0 where unknown
    resizing: Resizing = CENTER  # of its test images in files
    remark: str | None = None  # on tensors of a weights file that were left out

    def record(self) -> dict[str, Any]:
        """Return what run.json and result.json record of it."""
        return {"path": self.path, "weights_sha256": self.weights}

    def training_record(self) -> dict[str, Any]:
        """Return `record` with what the network was trained with."""
        training = {"row": self.row, "objective": self.trained_with, "seed": self.seed}
        return self.record() | training
