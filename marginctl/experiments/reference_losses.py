"""The losses of a reference run's network on training images: how difficult they are."""

import torch

from marginctl.data.images.image_sets import ImageDataset
from marginctl.errors import RequestError
from marginctl.experiments.find_run import ReferenceRun
from marginctl.experiments.records import evaluation_recipe
from marginctl.experiments.source_scale import resolved_spec
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.scoring_rules import nll_per_sample
from marginctl.training import checkpoint
from marginctl.training.trainer import MISMATCH_ERRORS, DivergedError, Trainer
from marginctl.utils.precision import device_config_for


def reference_losses(
    reference: ReferenceRun, images: ImageDataset, device: torch.device
) -> FloatArray:
    """Return the (N,) cross-entropy of each training image under the reference run, in nats.

    Its last checkpoint computes in evaluation mode and in its own precision, without margin.
    """
    name = f"train.reference_run = {reference.folder}"
    latest, problems = checkpoint.load_latest(reference.folder, trial=reference.run.trial)
    if latest is None:
        raise RequestError(*problems, f"{name}: has no valid checkpoint: train it again")
    _, state = latest
    recipe, spec = evaluation_recipe(reference.run), resolved_spec(reference.run)
    config = device_config_for(str(device), recipe.train.precision)
    trainer = Trainer(recipe, spec, images.train_as_test(), reference.run.seed, config)
    try:
        trainer.load_weights(state)
    except MISMATCH_ERRORS as error:
        raise RequestError(
            f"{name}: its checkpoint is of another network than its run.json "
            f"({str(error).splitlines()[0]}): train it again"
        ) from None
    if trainer.weights_digest() != reference.weights:
        raise RequestError(
            f"{name}: its last checkpoint has other weights than its result.json: train it again"
        )
    try:
        predictions = trainer.predict()
    except DivergedError as error:
        raise RequestError(f"{name}: {error}: name another run") from None
    if not bool(predictions.logits.isfinite().all()):
        raise RequestError(f"{name}: a logit of a training image is not finite: name another run")
    return nll_per_sample(predictions.logits.double().numpy(), predictions.labels.numpy())
