"""The session of `cosify`: a source model, its metrics before training, and its trials."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from marginctl.data.images.image_sets import ImageDataset, OODDataset
from marginctl.data.names import class_numbers
from marginctl.errors import RequestError
from marginctl.experiments.checks import read_recipe
from marginctl.experiments.evaluate_pretrained import match_classes
from marginctl.experiments.records import TrainingResult
from marginctl.experiments.request import Request
from marginctl.experiments.run_trial import TrialContext
from marginctl.experiments.source_model import load_source_model
from marginctl.experiments.training_session import Session, session_fields
from marginctl.experiments.training_trial import Trial
from marginctl.experiments.tuned_trial import run_trial
from marginctl.metrics.accuracy import wilson_interval
from marginctl.metrics.detection import detection_metrics
from marginctl.models.state_dicts import check_shapes
from marginctl.objectives.least_squares import least_squares_scale
from marginctl.recipe.cosify import CosifyRecipe
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.runs.run_dir import RunDir
from marginctl.training.epoch_metrics import accuracy_record
from marginctl.training.ood_evaluation import predict_ood
from marginctl.training.trainer import DivergedError, Predictions, Trainer
from marginctl.transfer.source import SourceModel
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig


@dataclass(frozen=True)
class CosifySession(Session):
    """A checked `cosify` command; nothing has been trained yet."""

    _baselines: dict[str, dict[str, Any]] = field(default_factory=dict)  # by digest of the images

    def run_trial(
        self, trial: Trial, run_dir: RunDir, context: TrialContext
    ) -> TrainingResult | None:
        assert trial.source_model is not None
        images = self.images[trial.data]
        if trial.data not in self._baselines:
            self._baselines[trial.data] = baseline_record(
                trial.source_model,
                trial.recipe,
                images,
                trial.ood,
                context.device_config,
                context.world,
            )
        extra = {"baseline": self._baselines[trial.data]}
        return run_trial(trial, images, run_dir, context, extra)


def prepare_cosify(request: Request) -> CosifySession:
    recipe, file = read_recipe(CosifyRecipe, request)
    source = load_source_model(recipe.source_model)
    recipe = recipe.with_source_model(source.model, source.data, source.image_size, source.resizing)
    default_name = f"cosify-{recipe.data.name}-{recipe.model}"
    return CosifySession(**session_fields(recipe, file, request, default_name, source))


def baseline_record(
    source: SourceModel,
    recipe: ImageRecipe,
    images: ImageDataset,
    ood: Sequence[OODDataset],
    device_config: DeviceConfig,
    world: World,
) -> dict[str, Any]:
    """Return the metrics of the source model, with its own classifier, before training.

    The images are prepared as in the recipe, by default like those of published weights.

    Returns:
        `top1` in percent, `interval` (Wilson, 95 %), `n`, `kappa`, `detection` (as
        `detection_metrics`); all None if `reason` says why: its classes are others.
    """
    empty = dict.fromkeys(("top1", "interval", "n", "kappa", "detection"))
    rows, reason = _class_rows(source, images)
    if rows is None:
        return empty | {"reason": reason}
    trainer = Trainer(recipe, source.spec, images, 0, device_config, world)
    trainer.load_backbone(source.backbone, source.moments)
    state = {
        name: value[rows] if name in ("weight", "bias") else value
        for name, value in source.objective.items()
    }
    try:
        check_shapes(trainer.objective, state)
        trainer.objective.load_state_dict(state)
        predictions = trainer.predict()
        ood_predictions = predict_ood(trainer, ood, images, world)
    except (DivergedError, ValueError) as error:
        return empty | {"reason": str(error)}
    accuracy = accuracy_record(predictions)
    labels = predictions.labels.numpy()
    correct = int((predictions.similarities.argmax(1) == predictions.labels).sum())
    return {
        "top1": accuracy["top1"],
        "interval": [100 * bound for bound in wilson_interval(correct, accuracy["n"])],
        "n": accuracy["n"],
        "kappa": mean_kappa(trainer, predictions),
        "detection": detection_metrics(predictions.outputs, labels, ood_predictions),
        "reason": None,
    }


def _class_rows(source: SourceModel, images: ImageDataset) -> tuple[list[int] | None, str | None]:
    """Return the class of the source model for each class of the images, or why there is none."""
    count, source_count = len(images.classes), len(source.classes)
    if count != source_count:
        return None, f"it has {source_count} classes, the data {count}"
    try:
        if source.data is None:
            rows, _ = match_classes(images.classes, source.classes, source.path)
        else:
            rows = class_numbers(images.name, images.classes, source.classes)
        return rows.tolist(), None
    except RequestError as error:
        return None, error.lines[0]


@torch.no_grad()
def mean_kappa(trainer: Trainer, predictions: Predictions) -> float | None:
    """Return the mean least-squares kappa*; None for a gaussian similarity, without directions."""
    if trainer.objective.spec.similarity.kind == "gaussian":
        return None
    weights = trainer.objective.weight
    features = predictions.features.to(weights.device)
    cosines = functional.normalize(features, dim=1) @ functional.normalize(weights, dim=1).T
    return least_squares_scale(cosines, features, weights).cpu().double().mean().item()
