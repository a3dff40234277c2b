"""A trained network on images, saved in a file, that predicts other images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn
from torch.nn import functional

from marginctl.data.images.resizing import Resizing
from marginctl.models.factory import create_backbone
from marginctl.models.registry import ModelSpec
from marginctl.models.state_dicts import check_shapes
from marginctl.objectives.module import Objective as ObjectiveModule
from marginctl.runs.base_record import Objective, parse_objective
from marginctl.runs.model_file import ModelFile, ModelRecord, save_model_file
from marginctl.training.ood_evaluation import AdaptedLoader, InputFormat, files_to_test
from marginctl.training.trainer import MISMATCH_ERRORS
from marginctl.utils.precision import device_config_for

KIND = "images"
BATCH_SIZE = 100


class ImageRecord(ModelRecord):
    """The document of a model for images.

    Attributes:
        data: the name of the training images.
        model: the backbone.
        mean, std: of each channel, of pixels in [0, 1].
        resizing: how an image is resized and cropped.
        precision: of the arithmetic, as `train.precision`.
        unit_features: whether features are scaled to length 1.
        chosen: the trial, and how it was chosen.
    """

    data: str
    model: str
    image_size: Annotated[int, Field(ge=1)]
    mean: Annotated[list[float], Field(min_length=1)]
    std: Annotated[list[float], Field(min_length=1)]
    resizing: Resizing
    precision: str
    unit_features: bool = False
    classes: Annotated[list[str], Field(min_length=2)]
    objective: Objective
    chosen: str


@dataclass(frozen=True, eq=False)
class ImageModel:
    """A backbone and its objective in evaluation mode, on the CPU."""

    record: ImageRecord
    backbone: nn.Module
    objective: ObjectiveModule

    @classmethod
    def create(cls, record: ImageRecord, states: dict[str, Any]) -> "ImageModel":
        """Return a model with the states of `model` and `objective`.

        Raises:
            RequestError, RuntimeError, ValueError: the states are of another network.
        """
        backbone = create_backbone(
            ModelSpec.parse(record.model), len(record.mean), record.image_size
        )
        spec = parse_objective(record.objective).spec
        objective = ObjectiveModule(spec, len(record.classes), backbone.feature_dim)
        objective.to(states["objective"]["weight"].dtype)  # a probe has float64
        for module, kind in ((backbone, "model"), (objective, "objective")):
            check_shapes(module, states[kind])
            module.load_state_dict(states[kind])
            module.eval()
        return cls(record, backbone, objective)

    @torch.no_grad()
    def predict_proba(self, root: Path, files: Sequence[str]) -> NDArray[np.float64]:
        """Return (n, C) probabilities of image files below a folder, in their order.

        Raises:
            RequestError: an image cannot be decoded.
        """
        record = self.record
        images = files_to_test("the images", root, files, record.image_size)
        input_format = InputFormat(
            len(record.mean), record.image_size, record.mean, record.std, record.resizing
        )
        device_config = device_config_for("cpu", record.precision)
        batches = AdaptedLoader(images, input_format, device_config, None)
        parts = []
        for x, _ in batches.test_batches(BATCH_SIZE):
            with device_config.autocast():
                features = self.backbone(x)
            if record.unit_features:
                features = functional.normalize(features.double())
            logits = self.objective.logits(features.to(self.objective.weight.dtype))
            parts.append(logits.double().softmax(-1).numpy())
        probabilities = np.concatenate(parts)
        rows = {file: row for row, file in enumerate(sorted(files))}
        return probabilities[[rows[file] for file in files]]

    def save(self, path: Path) -> None:
        modules = {"model": self.backbone, "objective": self.objective}
        tensors = {
            f"{kind}.{name}": value.cpu().numpy()
            for kind, module in modules.items()
            for name, value in module.state_dict().items()
        }
        save_model_file(path, KIND, self.record, tensors)

    @classmethod
    def from_file(cls, file: ModelFile) -> "ImageModel":
        """Return the model of a file that was read.

        Raises:
            RequestError: it is of another kind, or its tensors do not fit.
        """
        record = file.record(KIND, ImageRecord)
        states: dict[str, dict[str, Any]] = {"model": {}, "objective": {}}
        for name, value in file.tensors.items():
            kind, _, rest = name.partition(".")
            states.setdefault(kind, {})[rest] = torch.as_tensor(value)
        try:
            return cls.create(record, states)
        except MISMATCH_ERRORS as error:
            raise file.corrupt(f"its tensors do not fit: {str(error).splitlines()[0]}") from None
