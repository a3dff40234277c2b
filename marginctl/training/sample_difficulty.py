"""Easy and hard training images by epoch: confidence, loss and the share of the gradient.

Zhang, Xie and Chen (Probability-Dependent Gradient Decay in Large Margin Softmax) say that with a
small beta easy samples are learned first and hard ones later. Here a sample's difficulty is its
cross-entropy under a trained reference network, which is our choice, as are the groups.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marginctl.data.images.base import ImageDataset
from marginctl.errors import RequestError
from marginctl.experiments.reference_run import Reference
from marginctl.experiments.source_scale import spec_of
from marginctl.experiments.training_record import recipe_of
from marginctl.metrics.accuracy import top_k_accuracy
from marginctl.metrics.calibration_error import CONVENTION, bin_index
from marginctl.metrics.scoring_rules import nll_per_sample
from marginctl.objectives.module import Objective
from marginctl.training import checkpoint
from marginctl.training.trainer import MISMATCH_ERRORS, DivergedError, Predictions, Trainer
from marginctl.utils.precision import device_config_for

BINS = 20  # of the histogram of confidences


class DifficultyGroups:
    """Groups of training images by difficulty, and their record at an epoch.

    Args:
        reference: the network whose loss is the difficulty: its last checkpoint, in evaluation
            mode, its logits without margin.
        images: the training images that are looked at, as test part.
        device: where it is computed, in the reference's own precision.
        groups: how many, from the easiest on; their sizes differ by one at most.

    Raises:
        RequestError: the reference has no whole checkpoint, or another network in it.
    """

    def __init__(
        self, reference: Reference, images: ImageDataset, device: torch.device, groups: int
    ) -> None:
        self.rows = grouped(_difficulties(reference, images, device), groups)

    def record(self, objective: Objective, tested: Predictions) -> dict[str, Any]:
        """Each group's mean p_y and NLL of logits without margin, top-1, and share of the gradient.

        The gradient of an image is |dJ/dx|, the Euclidean norm of the gradient of the objective's
        loss with respect to the feature x; a group's share is the sum over its images by the sum
        over all. The loss is in training form, with its margin; the objective's state stands still.

        Args:
            objective: in training.
            tested: of the images, in their order.

        Returns:
            `groups` by number, "1" the easiest; `confidences`, a histogram of all p_y. A share is
            null where all gradients are zero or one is not finite, confidence and NLL where a
            logit is not finite.
        """
        labels = tested.labels.numpy()
        logits, scores = tested.logits.double().numpy(), tested.similarities.numpy()
        finite = bool(np.isfinite(logits).all())
        losses = nll_per_sample(logits, labels) if finite else np.full(len(labels), np.nan)
        confidence = np.exp(-losses)
        norms = gradient_norms(objective, tested.features, tested.labels)
        whole = norms.sum()
        shared = bool(np.isfinite(whole) and whole > 0)
        groups = {}
        for number, rows in enumerate(self.rows, 1):
            groups[str(number)] = {
                "n": len(rows),
                "confidence": float(confidence[rows].mean()) if finite else None,
                "nll": float(losses[rows].mean()) if finite else None,
                "top1": 100 * top_k_accuracy(scores[rows], labels[rows], 1),
                "gradient_share": float(norms[rows].sum() / whole) if shared else None,
            }
        counts = (
            np.bincount(bin_index(confidence, BINS), minlength=BINS).tolist() if finite else None
        )
        return {
            "n": len(labels),
            "groups": groups,
            "confidence_histogram": {"bins": BINS, "convention": CONVENTION, "counts": counts},
        }


def grouped(difficulties: NDArray[np.float64], groups: int) -> list[NDArray[np.int64]]:
    """The rows of each group, the easiest first: quantiles of the difficulty, ties by row."""
    return np.array_split(np.argsort(difficulties, kind="stable"), groups)


def gradient_norms(objective: Objective, features: Tensor, labels: Tensor) -> NDArray[np.float64]:
    """(N,) |dJ_i/dx_i| of features (N, d): of each sample's own loss, with the margin.

    With a linear similarity and one weight vector a class it is |sum_c dJ/dz_c w_c|; gradient decay
    has dJ/dz_y = -(1 - p)/(1 - (1 - beta) p) of the plain softmax's p.

    The objective is in evaluation mode then and afterwards: no batch moves its state. What a part
    takes from the whole batch (a pooled least-squares scale) it takes from these samples together.
    """
    objective.eval()
    device = objective.weight.device
    with torch.enable_grad():
        x = features.detach().to(device).requires_grad_()
        loss = objective(x, labels.to(device), reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
    return np.asarray(torch.linalg.vector_norm(gradient.cpu().double(), dim=1).numpy())


def _difficulties(
    reference: Reference, images: ImageDataset, device: torch.device
) -> NDArray[np.float64]:
    """(N,) the cross-entropy of each image under the reference, in nats."""
    said = f"train.reference_run = {reference.folder}"
    found, problems = checkpoint.load_latest(reference.folder, trial=reference.run["trial"])
    if found is None:
        raise RequestError(*problems, f"{said}: has no whole checkpoint: train it again")
    run = reference.run
    recipe, spec = recipe_of(run), spec_of(run)
    device_config = device_config_for(str(device), recipe.train.precision)
    network = Trainer(recipe, spec, images, int(run["seed"]), device_config)
    try:
        network.load_weights(found[1])
    except MISMATCH_ERRORS as error:
        raise RequestError(
            f"{said}: holds another network than its run.json says ({str(error).splitlines()[0]}): "
            "train it again"
        ) from None
    if network.weights_digest() != reference.weights:
        raise RequestError(
            f"{said}: its last checkpoint holds other weights than its result names: train it again"
        )
    try:
        tested = network.predict()
    except DivergedError as error:
        raise RequestError(f"{said}: {error}: name another trial") from None
    if not bool(tested.logits.isfinite().all()):
        raise RequestError(f"{said}: a logit of a training image is not finite: name another trial")
    return nll_per_sample(tested.logits.double().numpy(), tested.labels.numpy())
