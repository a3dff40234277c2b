"""What the untouched network from which `cosify` goes on makes of the test images."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from marginctl.data.images.base import ImageDataset
from marginctl.data.images.image_sets import OODDataset
from marginctl.errors import RequestError
from marginctl.experiments.evaluate_pretrained import classes_of
from marginctl.experiments.source_model import Start
from marginctl.metrics.accuracy import wilson_interval
from marginctl.objectives.least_squares import least_squares_scale
from marginctl.recipe import ImageRecipe
from marginctl.training.checkpoint import check_shapes
from marginctl.training.epoch_metrics import accuracy_record, detection_record
from marginctl.training.ood_evaluation import predict_ood
from marginctl.training.trainer import DivergedError, Predictions, Trainer
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig


def before_record(
    start: Start,
    recipe: ImageRecipe,
    images: ImageDataset,
    foreign: Sequence[OODDataset],
    device_config: DeviceConfig,
    world: World,
) -> dict[str, Any]:
    """The network as it is, with its own classifier, on the images that it is tested on afterwards.

    The images are prepared as the recipe says, also where published weights have another preset.

    Args:
        start: the network.
        recipe: of one setting, that `start.check` takes.
        images, foreign: its images.
        device_config: device and precision of the fine-tuning.
        world: the processes that train together: each has its part.

    Returns:
        `top1` in percent, `interval` (Wilson, 95 %), `n`, `kappa`, `detection`: of
        `detection_record`; all null where `reason` says why: its classes are others.
    """
    nothing = dict.fromkeys(("top1", "interval", "n", "kappa", "detection"))
    rows, reason = _rows(start, images)
    if rows is None:
        return nothing | {"reason": reason}
    trainer = Trainer(recipe, start.spec, images, 0, device_config, world)
    trainer.load_backbone(start.backbone, start.moments)
    state = {
        name: value[rows] if name in ("weight", "bias") else value
        for name, value in start.objective.items()
    }
    try:
        check_shapes(trainer.objective, state)
        trainer.objective.load_state_dict(state)
        tested = trainer.predict()
        others = predict_ood(trainer, foreign, images, world)
    except (DivergedError, ValueError) as error:
        return nothing | {"reason": str(error)}
    accuracy = accuracy_record(tested)
    correct = int((tested.similarities.argmax(1) == tested.labels).sum())
    return {
        "top1": accuracy["top1"],
        "interval": [100 * bound for bound in wilson_interval(correct, accuracy["n"])],
        "n": accuracy["n"],
        "kappa": mean_kappa(trainer, tested),
        "detection": detection_record(tested, others),
        "reason": None,
    }


def _rows(start: Start, images: ImageDataset) -> tuple[list[int] | None, str | None]:
    """Which class of the network each class of the images is; or why there is none."""
    ours, theirs = len(images.classes), len(start.classes)
    if ours != theirs:
        return None, f"it tells {theirs} classes apart, and the data has {ours}"
    if start.data is not None:
        same = list(start.classes) == list(images.classes)
        return (list(range(ours)), None) if same else (None, "its classes have other names")
    try:
        return classes_of(images.classes, start.classes, start.written)[0].tolist(), None
    except RequestError as error:
        return None, error.lines[0]


@torch.no_grad()
def mean_kappa(trainer: Trainer, tested: Predictions) -> float | None:
    """The mean least-squares kappa* of images, by the directions of features and class weights.

    None for a gaussian similarity, whose class weights are means and no directions.
    """
    if trainer.objective.spec.similarity.kind == "gaussian":
        return None
    weights = trainer.objective.weight
    features = tested.features.to(weights.device)
    cosines = functional.normalize(features, dim=1) @ functional.normalize(weights, dim=1).T
    return least_squares_scale(cosines, features, weights).cpu().double().mean().item()
