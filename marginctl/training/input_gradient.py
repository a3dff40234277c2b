"""An empirical local Lipschitz estimate of the loss: how far a step in the image moves it.

For each of K fixed training images the Euclidean norm |dJ(x)/dx| of the gradient of its loss with
respect to the normalised image: the largest change of the loss by a small step of length 1, at this
image. The loss is the objective's in training form, with its margin; nothing of its state moves,
and the network is in evaluation mode, in float32. It estimates the Lipschitz constant of the loss
around the images from below, which Zhang, Xie and Chen relate to beta; the estimator is ours.
"""

from typing import Any

import numpy as np
import torch

from marginctl.data.loading.batches import BatchLoader
from marginctl.training.trainer import DivergedError, Trainer
from marginctl.utils.distributed import World

NAME = "input_gradient_norm"  # in a line of metrics.jsonl
BATCH = 64  # images at once, for whose gradients there must be memory


def record(trainer: Trainer, batches: BatchLoader, world: World) -> dict[str, Any]:
    """The norms' mean, 95 % quantile and largest, in nats for a step of 1 normalised unit.

    Args:
        trainer: the network, in evaluation mode afterwards.
        batches: whose test part the images are.
        world: the processes that train together, each with its part of the images.

    Raises:
        DivergedError: a norm is not finite.
    """
    size = min(BATCH, trainer.recipe.train.batch_size)
    norms = np.concatenate(world.all_gather(_own_norms(trainer, batches, size)))
    if not np.isfinite(norms).all():
        raise DivergedError(f"the loss's gradient is not finite at step {trainer.step}")
    return {
        "mean": float(norms.mean()),
        "quantile95": float(np.quantile(norms, 0.95)),
        "max": float(norms.max()),
        "n": len(norms),
    }


def _own_norms(trainer: Trainer, batches: BatchLoader, size: int) -> Any:
    """(k,) the norms of this process's images.

    A sum's gradient has each image's own, as no image changes another's loss in evaluation mode.
    """
    trainer.model.eval()
    trainer.objective.eval()
    found = [np.zeros(0)]
    for x, y in batches.test_batches(size):
        if not len(y):  # more processes than images
            continue
        x.requires_grad_()
        loss = trainer.objective(trainer.model(x).float(), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
        norm = torch.linalg.vector_norm(gradient.flatten(1), dim=1)
        found.append(norm.cpu().double().numpy())
    return np.concatenate(found)
