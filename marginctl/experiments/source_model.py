"""The trained network from which `cosify` goes on: a run, a checkpoint, or published weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from marginctl.data.images.base import ImageDataset
from marginctl.errors import RequestError
from marginctl.experiments.find_run import located, run_of
from marginctl.experiments.records import evaluation_recipe
from marginctl.experiments.reference_run import trained_in
from marginctl.experiments.source_scale import spec_of
from marginctl.models.factory import create_backbone
from marginctl.models.pretrained import is_weights_name, pretrained_classifier
from marginctl.models.registry import ModelSpec
from marginctl.models.stages import frozen_modules
from marginctl.objectives.parsing import parse
from marginctl.objectives.parts import ObjectiveSpec
from marginctl.recipe import ImageRecipe
from marginctl.recipe.image_data import ImageData
from marginctl.training.checkpoint import check_shapes, weights_digest


@dataclass(frozen=True, eq=False)
class Start:
    """A trained network.

    Attributes:
        written: what names it.
        weights: the SHA-256 of its backbone's tensors: all that a result depends on.
        model: canonical.
        spec: of the objective that it was trained with.
        backbone, objective: their tensors by name.
        moments: mean and standard deviation of each channel of its images, of 0 to 1.
        classes: their names, in order.
        data: its images, as their recipe has them; None for published weights.
        pixels: the side of its images.
    """

    written: str
    weights: str
    model: str
    spec: ObjectiveSpec
    backbone: Mapping[str, Tensor]
    objective: Mapping[str, Tensor]
    moments: tuple[Sequence[float], Sequence[float]]
    classes: Sequence[str]
    data: ImageData | None
    pixels: int

    def record(self) -> dict[str, Any]:
        """What run.json and a result say of it."""
        return {"path": self.written, "weights_sha256": self.weights}


def read(written: str) -> Start:
    """The network that `start` names.

    Args:
        written: the folder of a finished trial, or one that holds it alone; a checkpoint in it; or
            weights, as `pretrained_classifier` takes them.

    Raises:
        RequestError: there is no such network, or it is damaged.
    """
    return _of_weights(written) if is_weights_name(written) else _of_run(written)


def _of_weights(written: str) -> Start:
    found = pretrained_classifier(written)
    backbone, weight, bias = found.weights()
    return Start(
        *(written, weights_digest(backbone), found.model, parse("soft:bias=true").spec),
        backbone,
        {"weight": weight, "bias": bias},
        (found.mean, found.std),
        found.categories,
        None,
        found.image_size,
    )


def _of_run(written: str) -> Start:
    said = f"source_model = {written}"
    path = Path(written)
    if path.is_dir():
        path, _, _ = trained_in(path, said)
    elif not path.exists():
        raise RequestError(
            f"{said}: is not there: expected the folder of a finished trial of marginctl train, a "
            "checkpoint in it, or published weights such as efficientnet-lite0"
        )
    folder, _, state = located(path.absolute(), "last")
    run = run_of(folder)
    recipe = evaluation_recipe(run)
    mean, std = state["normalization"]
    return Start(
        *(written, weights_digest(state["model"]), recipe.model, spec_of(run)),
        state["model"],
        state["objective"],
        (mean, std),
        state["classes"],
        recipe.data,
        state["image_size"],
    )


def check(start: Start, recipe: ImageRecipe, images: ImageDataset) -> None:
    """Refuses images that the network does not take, another network, and blocks it has not.

    Args:
        start: its tensors.
        recipe: of one setting, with the start's model.
        images: to go on with.

    Raises:
        RequestError: as said.
    """
    model = ModelSpec.parse(recipe.model)
    with torch.device("meta"):
        backbone = create_backbone(model, images.channels, images.image_size)
    try:
        check_shapes(backbone, start.backbone)
    except ValueError as error:
        shape = f"{images.channels} x {images.image_size} x {images.image_size}"
        raise RequestError(
            f"source_model = {start.written}: is no {start.model} for images of "
            f"{shape} ({error}): name "
            "another network, or images as those that it was trained with"
        ) from None
    frozen_modules(model, backbone, recipe.trainable_blocks)
